"""Two real processes train as one does: DDP and ZeRO, several micro-batches, mini-batches and updates, other data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cosine_similarity
from torch.testing import assert_close

from contrastive_reasoning.objectives import FullKL
from contrastive_reasoning.objectives.base import ConstantLength, SeqMeanTokenMean
from contrastive_reasoning.policies.shape import ModelShape
from experiments.plan.memory import by_name, sharded_layers, states
from lightning_modules.optim import SKIPPED
from tests.two_ranks import on_ranks
from tests.unit.experiments.plan.learners import whole_on_cpu
from tests.unit.lightning_modules import (
    grpo_kit,
    ranks_critics_kit as critics,
    ranks_kit,
    ranks_zero_kit as zero,
    rewards_kit,
    test_critic,
)
from tests.unit.lightning_modules.ranks_kit import (
    Result,
    adapters_on_bfloat16,
    cast_to_bfloat16,
    grpo,
    untied,
    with_gradient,
    with_reference,
)

pytestmark = pytest.mark.whole
GATED = "calibrated credit, gated"
ADAPTERS = "adapters on bfloat16"
CAST = "cast to bfloat16"
BY_ROWS, BY_LENGTH = (grpo_kit.objective(aggregation=kind) for kind in (SeqMeanTokenMean(), ConstantLength(length=12)))
RUNS: dict[str, Callable[[str], Result]] = {
    "grpo": grpo,
    "lora, rows weigh alike": lambda name: grpo(name, policy=grpo_kit.lora_policy(), objective=BY_ROWS),
    "gradients": partial(with_gradient, grpo, objective=BY_LENGTH, gradient_clip=1e9),
    "groups moved": ranks_kit.moving,
    "warm_start": critics.warm_start,
    "critic forward": partial(with_gradient, critics.critic, loss="forward"),
    "critic symmetric": critics.critic,
    "critic binary, drawn negatives": partial(with_gradient, critics.critic, loss="binary", negatives=5),
    "critic of text, lora": critics.critic_of_text,
    "critics together": critics.critics_together,
    GATED: critics.calibrated,
    "shuffled credit, subsampled": critics.dealt,
    "kl untied, batch": partial(with_reference, level="batch", offload_reference=True),
    # both projections are read twice, and again in backward
    "full kl untied, cross": partial(with_reference, kl=FullKL(), level="cross", shard_reference=True),
    "preference": critics.preference,
    "ramped critic": lambda name: grpo(name, reward=rewards_kit.ramped()),
    "head spoiled": ranks_kit.states_spoiled,
    "grpo spoiled": lambda name: grpo(name, ranks_kit.SpoiledOnLastRank()),
    "critic spoiled": lambda name: critics.critic(name, ranks_kit.SpoiledOnLastRank()),
}
KL = ("kl untied, batch", "full kl untied, cross")
SEVERAL = ("ddp", "zero2", "zero3")
SHARDED_RUNS = (
    *("grpo", "lora, rows weigh alike", "groups moved", "warm_start", "critic symmetric", "preference"),
    *("critic of text, lora", "critics together", GATED, *KL, "grpo spoiled", "critic spoiled"),
)
STRATEGIES: dict[str, Sequence[str]] = {
    "ddp": tuple(RUNS),
    "zero1": ("grpo",),
    "zero2": SHARDED_RUNS,
    "zero3": SHARDED_RUNS,
    "zero3_offload": ("grpo",),
}

RESUMED: dict[str, tuple[Callable[..., Result], Callable[..., Result]]] = {
    "grpo": (grpo, lambda *args, **run: grpo(*args, policy=grpo_kit.policy(seed=9), **run)),
    "critic symmetric": (
        critics.critic,
        lambda *args, **run: critics.critic(*args, learner=test_critic.numeric(seed=9), **run),
    ),
    "warm_start": (critics.warm_start, partial(critics.warm_start, seed=9)),
    ADAPTERS: (adapters_on_bfloat16, adapters_on_bfloat16),
}
"""Runs that stop after one step, and what resumes them, with other initial weights but for adapters."""
RESUMED_CASES = [(name, run) for name in SEVERAL for run in RESUMED if (name, run) != ("ddp", ADAPTERS)]

POISONED = [(name, part) for name in ("zero2", "zero3") for part in ("optim", "model")]
"""Checkpoint files into which code is written: strategy, and whose states the file holds."""
SHARDED = {"zero1": 0, "zero2": 0, "zero3_small": ranks_kit.WHOLE}
"""Strategies whose bytes are counted, and the size of the largest parameters that stay whole."""


def everything(folder: Path) -> Result:
    """Results of every run of every strategy on this rank, by ``strategy/run``."""
    found = {f"{name}/{run}": RUNS[run](name) for name, runs in STRATEGIES.items() for run in runs}
    for name, run in RESUMED_CASES:
        found[f"{name}/{run} resumed"] = ranks_kit.resumed(name, folder / "resumed" / run / name, *RESUMED[run])
    for name in ("zero2", "zero3"):
        found[f"{name}/{ADAPTERS}"] = adapters_on_bfloat16(name)
    for name in SEVERAL:
        # one step: from the second on, rounding leads to different completions
        found[f"{name}/{ADAPTERS}, one step"] = adapters_on_bfloat16(name, steps=1)
        found[f"{name}/{CAST}"] = cast_to_bfloat16(name, steps=1)
        found[f"{name}/online critic"] = critics.online_critic(name)
        found[f"{name}/sharded reference"] = zero.sharded_reference(name)
    for name in STRATEGIES:
        found[f"{name}/kept"] = zero.kept(name)
    for name in ("ddp", "zero1", "zero2", "zero3"):
        found[f"{name}/spoiled in bfloat16"] = ranks_kit.spoiled_in_bfloat16(name)
    for name in SHARDED:
        found[f"{name}/sharding"] = zero.sharding(name)
    for name, part in POISONED:
        found[f"{name}/{part}/code"] = zero.code_in_a_shard(name, folder / "code" / part, part=part)
    for run, policy in zero.COPIED.items():
        found[f"zero3/copied {run}"] = zero.drawn_from_copies("zero3", policy())
    return found | {
        "zero2/cut": zero.sharding("zero2", policy=zero.narrow_policy()),
        "ddp/stopped while saving": ranks_kit.stopped_while_saving("ddp", folder / "slow"),
        "foretold": critics.foretold(),
        "one problem": critics.of_one_problem(),
        "unequal": ranks_kit.means_of_unequal_ranks(),
        "balances": {str(count): ranks_kit.exchanged(grpo_kit.policy(), count) for count in (1, 2)},
        "zero3/gathers": zero.gathers("zero3", grpo_kit.generation(copy_weights=False)),
        "zero3/copies": zero.gathers("zero3", grpo_kit.generation()),
        "zero3/refills": zero.gathers("zero3", zero.refilling()),
    }


CASES = [(name, run) for name, runs in STRATEGIES.items() for run in runs]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Results of each of two ranks; their processes are started once."""
    folder = tmp_path_factory.mktemp("ranks")
    return on_ranks(everything, folder, folder)


@pytest.fixture(scope="module")
def one() -> dict[str, Any]:
    half = {ADAPTERS: adapters_on_bfloat16("one", steps=1), CAST: cast_to_bfloat16("one", steps=1)}
    return {run: made("one") for run, made in RUNS.items()} | half


@pytest.mark.parametrize(("name", "run"), CASES)
def test_two_ranks_reach_weights_of_one_process(name: str, run: str, two: Any, one: Any) -> None:
    expected, (first, second) = one[run], (rank[f"{name}/{run}"] for rank in two)
    assert torch.equal(first["weights"], second["weights"])
    assert expected["moved"].abs().max() > 1e-3
    assert_close(first["weights"], expected["weights"], rtol=0, atol=1e-5)
    if "head" in expected:
        assert torch.equal(first["head"], second["head"])
        assert_close(first["head"], expected["head"], rtol=0, atol=1e-5)


@pytest.mark.parametrize("run", ["gradients", "critic forward", "critic binary, drawn negatives"])
def test_gradient_of_two_ranks_equals_that_of_one_process(run: str, two: Any, one: Any) -> None:
    """Every row has the same weight, however many rows a rank has."""
    expected = one[run]["gradient"]
    for rank in two:
        assert (rank[f"ddp/{run}"]["gradient"] - expected).norm() <= 1e-5 * expected.norm()


@pytest.mark.parametrize(("name", "run"), CASES)
def test_logged_metrics_cover_batch_of_all_ranks(name: str, run: str, two: Any, one: Any) -> None:
    expected, found = one[run], two[0][f"{name}/{run}"]
    assert len(found["steps"]) == len(expected["steps"])
    for ours, theirs in zip(found["steps"], expected["steps"], strict=True):
        assert set(theirs) <= set(ours)
        assert_close({key: ours[key] for key in theirs}, dict(theirs), rtol=1e-5, atol=1e-5)
    assert expected["validated"]
    assert_close(found["validated"], expected["validated"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", SEVERAL)
def test_adapters_train_on_frozen_bfloat16_weights(name: str, two: Any, one: Any) -> None:
    """The weights stay in bfloat16, and the step is that of one process within its rounding."""
    expected = one[ADAPTERS]
    for rank in two:
        found = rank[f"{name}/{ADAPTERS}, one step"]
        assert found["dtypes"] == expected["dtypes"] == [(False, "torch.bfloat16"), (True, "torch.float32")]
        assert cosine_similarity(found["moved"], expected["moved"], dim=0) > 0.999
        assert found["moved"].norm().item() == pytest.approx(expected["moved"].norm().item(), rel=1e-2)


@pytest.mark.parametrize("name", SEVERAL)
def test_fused_layers_train_on_ranks_as_in_one_process(name: str, two: Any, one: Any) -> None:
    """Under ZeRO-3 the layers are the model's own."""
    expected = one[CAST]
    assert expected["fused"]
    for rank in two:
        found = rank[f"{name}/{CAST}"]
        assert found["fused"] == (name != "zero3")
        # AdamW's first steps have the size of the learning rate, so a gradient near 0 that is rounded counts as much
        assert cosine_similarity(found["moved"], expected["moved"], dim=0) > 0.99
        assert found["moved"].norm().item() == pytest.approx(expected["moved"].norm().item(), rel=1e-2)


@pytest.mark.parametrize("name", list(STRATEGIES))
def test_ended_fit_leaves_no_objects_alive(name: str, two: Any) -> None:
    assert [rank[f"{name}/kept"] for rank in two] == [[], []]


@pytest.mark.parametrize("minibatches", [1, 2])
def test_balance_groups_moves_whole_groups_within_minibatch(minibatches: int, two: Any) -> None:
    before, after = ([rank["balances"][str(minibatches)][when] for rank in two] for when in ("before", "after"))
    assert after != before
    size = 4 // minibatches
    for first in range(0, 4, size):
        groups_before, groups_after = (
            [group for rank in ranks for group in rank[first : first + size]] for ranks in (before, after)
        )
        assert len(groups_after) == 2 * size
        assert sorted(groups_after) == sorted(groups_before)


def test_balance_groups_evens_out_tokens_of_ranks(two: Any, one: Any) -> None:
    assert one["groups moved"]["moves"] == 0
    for name in SEVERAL:
        assert two[0][f"{name}/groups moved"]["moves"] == two[1][f"{name}/groups moved"]["moves"] > 0
    found = [rank["balances"]["1"] for rank in two]
    # packed, a prompt counts once; padded, once per row: 2+4, 2·(3+9), 0, 4+7+8 and 5+1+1, 0, 2+1+2, 6+3+1
    assert [rank["tokens before"] for rank in found] == [[6, 24, 0, 19], [7, 0, 5, 10]]
    assert sorted(sum(rank["tokens"]) for rank in found) == [35, 36]
    assert all(rank["temperature"] == 0.5 for rank in found)


@pytest.mark.parametrize(("name", "run"), [(name, run) for name in SEVERAL for run in KL])
def test_kl_to_reference_is_positive_on_ranks(name: str, run: str, two: Any) -> None:
    assert all(step["train/objective/kl"] > 0.1 for step in two[0][f"{name}/{run}"]["steps"])


@pytest.mark.parametrize("name", SEVERAL)
def test_trust_gate_opens_after_second_batch_on_ranks(name: str, two: Any) -> None:
    weights = [step.get("train/gate/weight") for step in two[0][f"{name}/{GATED}"]["steps"]]
    assert weights[:2] == [None, 0.0], "the first batch teaches curves alone, and no verdict weighs its own batch"
    assert 0 < weights[2] < 1


@pytest.mark.parametrize("name", SEVERAL)
def test_online_critic_is_equal_on_every_rank(name: str, two: Any) -> None:
    first, second = (rank[f"{name}/online critic"] for rank in two)
    assert_close(first, second, rtol=0, atol=0)
    assert first["refreshes"] == 1
    assert len(first["states"]["states"]) > 5
    assert not torch.equal(first["scoring"], first["start"])
    assert not torch.equal(first["learned"], first["scoring"]), "one update ahead"


def test_verdict_auroc_covers_rollouts_of_all_ranks(two: Any) -> None:
    found = critics.foretold()
    assert found is not None
    assert [rank["foretold"] for rank in two] == pytest.approx([found, found], abs=1e-6)


def test_evaluate_ignores_rank_without_problems(two: Any) -> None:
    found = critics.of_one_problem()
    assert found["problems/count"] == 1
    assert [rank["one problem"] for rank in two] == [found, found]


def test_stop_signal_on_one_rank_while_saving_stops_all_ranks(two: Any) -> None:
    assert [rank["ddp/stopped while saving"] for rank in two] == [["step=000002.ckpt"]] * 2


@pytest.mark.parametrize(
    ("name", "run"),
    [
        *[(name, run) for name in SEVERAL for run in ("grpo spoiled", "critic spoiled")],
        *[(name, "spoiled in bfloat16") for name in ("ddp", "zero1", "zero2", "zero3")],
        ("ddp", "head spoiled"),
    ],
)
def test_non_finite_step_on_one_rank_is_skipped_on_all(name: str, run: str, two: Any) -> None:
    counter = "train/clipo/skipped_steps" if run == "head spoiled" else SKIPPED
    for rank in two:
        found = rank[f"{name}/{run}"]
        assert [step[counter] for step in found["steps"]] == [0, 1, 1]
        assert found["weights"].isfinite().all()


def test_over_ranks_weighs_means_by_counts(two: Any) -> None:
    for rank in two:
        assert rank["unequal"] == pytest.approx({"of things": 1 / 9, "of ranks": 1 / 2})


@pytest.mark.parametrize(("name", "run"), RESUMED_CASES)
def test_resumed_run_equals_uninterrupted_run(name: str, run: str, two: Any) -> None:
    for rank in two:
        whole, resumed = rank[f"{name}/{run}"], rank[f"{name}/{run} resumed"]
        assert torch.equal(resumed["weights"], whole["weights"])
        assert resumed["steps"] == whole["steps"][1:]
        if "head" in whole:
            assert torch.equal(resumed["head"], whole["head"])


def test_gradient_across_share_border_is_whole_on_both_ranks(two: Any) -> None:
    """Both ranks have part of the embedding. The second also has all the rest, so it keeps every gradient."""
    policy = zero.narrow_policy()
    embedding, total = (
        4 * sum(p.numel() for p in part.parameters()) for part in (policy.model.model.embed_tokens, policy)
    )
    assert [rank["zero2/cut"]["held"]["gradients"] for rank in two] == [embedding, total]
    shape = ModelShape.of(policy.model.config.to_dict())
    assert states(whole_on_cpu(shape), by_name("zero2", 2)).gradients == total


@pytest.mark.parametrize("name", SHARDED)
def test_each_rank_holds_planned_bytes(name: str, two: Any) -> None:
    """The plan ignores parameters that stay whole, and the fp32 copy that stage 3 has only on a CPU."""
    policy = grpo_kit.policy()
    planned = states(
        whole_on_cpu(ModelShape.of(policy.model.config.to_dict())), by_name(name.removesuffix("_small"), 2)
    )
    sizes = [4 * parameter.numel() for parameter in policy.parameters()]
    small = sum(size for size in sizes if size <= 4 * SHARDED[name])
    wanted = {
        "parameters": planned.weights + small,
        "gradients": planned.gradients,
        "optimizer": planned.optimizer * (3 if "zero3" in name else 2) // 2,
    }
    for rank in two:
        found = rank[f"{name}/sharding"]
        held, whole = found["held"], sum(sizes)
        assert held == pytest.approx(wanted, rel=0.02)
        assert found["gathered"] >= whole, "whole parameters are counted, too"
        assert found["stage"] == int(name[4])
        assert held["optimizer"] < 0.55 * 3 * whole, "two moments and the master weights"
        assert (held["gradients"] < 0.55 * whole) == (name != "zero1")
        assert (held["parameters"] < 0.62 * whole) == ("zero3" in name)


@pytest.mark.parametrize("run", zero.COPIED)
def test_stage_3_rollouts_equal_those_of_gathered_policy(run: str, two: Any) -> None:
    for rank in two:
        found = rank[f"zero3/copied {run}"]
        assert found["same"] == [True, True]
        assert found["apart"] == [0, 0]
        assert found["moved"].abs().max() > 1e-3, "the second batch is drawn from other weights"


@pytest.mark.parametrize("name", SEVERAL)
def test_sharded_reference_keeps_results(name: str, two: Any) -> None:
    policy = untied(seed=2)
    learner = replace(whole_on_cpu(ModelShape.of(policy.model.config.to_dict())), frozen=True)
    planned, _ = sharded_layers(learner, 2)
    assert planned < 0.8 * learner.weights_in_bytes
    for rank in two:
        found = rank[f"{name}/sharded reference"]
        sharded, whole = found["sharded"], found["whole"]
        assert found["same"] == [True, True]
        assert 4 * found["held"] == planned
        assert sharded["steps"] == whole["steps"]
        assert torch.equal(sharded["weights"], whole["weights"])


@pytest.mark.parametrize("run", ["gathers", "copies", "refills"])
def test_zero_hooks_fetch_nothing_during_rollouts(run: str, two: Any) -> None:
    for rank in two:
        assert rank[f"zero3/{run}"]["fetches while drawing"] == 0
        assert rank[f"zero3/{run}"]["fetches"] > 0


def test_parameters_are_gathered_once_per_rollout_batch(two: Any) -> None:
    """All at once, or for a copy one after the other; its tied matrix is not made twice."""
    copied = 2 * len(list(grpo_kit.policy().parameters()))
    assert [rank["zero3/gathers"]["gathers"] for rank in two] == [2, 2]
    assert [rank["zero3/copies"]["gathers"] for rank in two] == [copied, copied]
    assert [rank["zero3/refills"]["gathers"] for rank in two] == [copied, copied]
    first, second = (rank["zero3/refills"] for rank in two)
    assert first["draws"] < second["draws"] == 2 * (1 + 3)
    assert first["refills"] == second["refills"] == (first["draws"] / 2 - 1 + 3) / 2, "in either step the same"


@pytest.mark.parametrize(("name", "part"), POISONED)
def test_code_in_checkpoint_shard_raises_and_is_not_run(name: str, part: str, two: Any) -> None:
    for rank in two:
        assert "mkdir" in rank[f"{name}/{part}/code"]["said"]
        assert not rank[f"{name}/{part}/code"]["run"]
