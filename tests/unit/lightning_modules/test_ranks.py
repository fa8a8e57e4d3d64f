"""Two real processes train as one does: DDP and ZeRO, several micro-batches, mini-batches and updates, other data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn.functional import cosine_similarity
from torch.testing import assert_close

from contrastive_reasoning.policies.shape import ModelShape
from experiments.plan.memory import by_name, sharded_layers, states
from lightning_modules.microbatches import cut_into_parts
from lightning_modules.optim import SKIPPED
from tests.two_ranks import on_ranks
from tests.unit.experiments.plan.learners import whole_on_cpu
from tests.unit.lightning_modules import grpo_kit
from tests.unit.lightning_modules.ranks_critics_kit import foretold, of_one_problem
from tests.unit.lightning_modules.ranks_kit import adapters_on_bfloat16, untied
from tests.unit.lightning_modules.ranks_runs import GATED, KL, POISONED, RESUMED, RUNS, SHARDED, STRATEGIES, everything
from tests.unit.lightning_modules.ranks_zero_kit import COPIED, narrow_policy
from tests.unit.lightning_modules.zero_bytes import expected_bytes

pytestmark = pytest.mark.whole
CASES = [(name, run) for name, runs in STRATEGIES.items() for run in runs]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Results of each of two ranks; their processes are started once."""
    folder = tmp_path_factory.mktemp("ranks")
    return on_ranks(everything, folder, folder)


@pytest.fixture(scope="module")
def one() -> dict[str, Any]:
    return {run: made("one") for run, made in RUNS.items()} | {"adapters": adapters_on_bfloat16("one")}


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
    """Every row has the same weight, however many rows a rank has. AdamW would hide a common factor."""
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


@pytest.mark.parametrize("name", ["ddp", "zero2", "zero3"])
def test_adapters_train_on_frozen_bfloat16_weights(name: str, two: Any, one: Any) -> None:
    """The weights stay in bfloat16, and the step is that of one process within its rounding."""
    expected = one["adapters"]
    for rank in two:
        found = rank[f"{name}/adapters on bfloat16"]
        assert found["dtypes"] == expected["dtypes"] == {"frozen": ["torch.bfloat16"], "trained": ["torch.float32"]}
        assert cosine_similarity(found["moved"], expected["moved"], dim=0) > 0.999
        assert found["moved"].norm().item() == pytest.approx(expected["moved"].norm().item(), rel=1e-2)


@pytest.mark.parametrize("name", list(STRATEGIES))
def test_ended_fit_leaves_no_objects_alive(name: str, two: Any) -> None:
    assert [rank[f"{name}/kept"] for rank in two] == [[], []]


@pytest.mark.parametrize("name", ["zero2", "zero3"])
def test_adapters_on_bfloat16_resume_exactly(name: str, two: Any) -> None:
    for rank in two:
        runs = rank[f"{name}/adapters on bfloat16 resumed"]
        assert torch.equal(runs["resumed"]["weights"], runs["whole"]["weights"])
        assert runs["resumed"]["steps"] == runs["whole"]["steps"][1:]


@pytest.mark.parametrize("minibatches", [1, 2])
def test_balance_groups_moves_whole_groups_within_minibatch(minibatches: int, two: Any) -> None:
    before, after = (
        [rank["balances"][f"{minibatches} mini-batches"][when] for rank in two] for when in ("before", "after")
    )
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
    for name in ("ddp", "zero2", "zero3"):
        assert two[0][f"{name}/groups moved"]["moves"] == two[1][f"{name}/groups moved"]["moves"] > 0
    found = [rank["balances"]["1 mini-batches"] for rank in two]
    # packed, a prompt counts once; padded, once per row: 2+4, 2·(3+9), 0, 4+7+8 and 5+1+1, 0, 2+1+2, 6+3+1
    assert [rank["tokens before"] for rank in found] == [[6, 24, 0, 19], [7, 0, 5, 10]]
    assert sorted(sum(rank["tokens"]) for rank in found) == [35, 36]
    assert all(rank["temperature"] == 0.5 for rank in found)


@pytest.mark.parametrize(("name", "run"), [(name, run) for name in ("ddp", "zero2", "zero3") for run in KL])
def test_kl_to_reference_is_positive_on_ranks(name: str, run: str, two: Any) -> None:
    assert all(step["train/objective/kl"] > 0.1 for step in two[0][f"{name}/{run}"]["steps"])


@pytest.mark.parametrize("name", ["ddp", "zero2", "zero3"])
def test_trust_gate_opens_after_second_batch_on_ranks(name: str, two: Any) -> None:
    weights = [step.get("train/gate/weight") for step in two[0][f"{name}/{GATED}"]["steps"]]
    assert weights[:2] == [None, 0.0], "the first batch teaches curves alone, and no verdict weighs its own batch"
    assert 0 < weights[2] < 1


@pytest.mark.parametrize("name", ["ddp", "zero2", "zero3"])
def test_online_critic_is_equal_on_every_rank(name: str, two: Any) -> None:
    first, second = (rank[f"{name}/online critic"] for rank in two)
    assert_close(first, second, rtol=0, atol=0)
    assert first["refreshes"] == 1
    assert len(first["states"]["states"]) > 5
    assert not torch.equal(first["scoring"], first["start"])
    assert not torch.equal(first["learned"], first["scoring"]), "one update ahead"


def test_verdict_auroc_covers_rollouts_of_all_ranks(two: Any) -> None:
    found = foretold()
    assert found is not None
    assert [rank["foretold"] for rank in two] == pytest.approx([found, found], abs=1e-6)


def test_evaluate_ignores_rank_without_problems(two: Any) -> None:
    found = of_one_problem()
    assert found["problems/count"] == 1
    assert [rank["one problem"] for rank in two] == [found, found]


def test_stop_signal_on_one_rank_while_saving_stops_all_ranks(two: Any) -> None:
    assert [rank["ddp/stopped while saving"] for rank in two] == [["step=000002.ckpt"]] * 2


@pytest.mark.parametrize("run", ["grpo spoiled", "critic spoiled"])
@pytest.mark.parametrize("name", ["ddp", "zero2", "zero3"])
def test_non_finite_step_on_one_rank_is_skipped_on_all(name: str, run: str, two: Any) -> None:
    for rank in two:
        assert [step[SKIPPED] for step in rank[f"{name}/{run}"]["steps"]] == [0, 1, 1]


def test_non_finite_clipo_head_step_on_one_rank_is_skipped_on_all(two: Any) -> None:
    for rank in two:
        assert [step["train/clipo/skipped_steps"] for step in rank["ddp/head spoiled"]["steps"]] == [0, 1, 1]


@pytest.mark.parametrize("name", ["ddp", "zero1", "zero2", "zero3"])
def test_bfloat16_weights_stay_finite_after_non_finite_loss(name: str, two: Any) -> None:
    for rank in two:
        found = rank[f"{name}/spoiled in bfloat16"]
        assert [step[SKIPPED] for step in found["steps"]] == [0, 1, 1]
        assert found["finite"] == [True, True, True]


def test_over_ranks_weighs_means_by_counts(two: Any) -> None:
    for rank in two:
        assert rank["unequal"] == pytest.approx({"of things": 1 / 9, "of ranks": 1 / 2})


@pytest.mark.parametrize("run", RESUMED)
@pytest.mark.parametrize("name", ["ddp", "zero2", "zero3"])
def test_resumed_run_equals_uninterrupted_run(name: str, run: str, two: Any) -> None:
    for rank in two:
        whole, resumed = rank[f"{name}/{run}"], rank[f"{name}/{run} resumed"]
        assert torch.equal(resumed["weights"], whole["weights"])
        assert resumed["steps"] == whole["steps"][1:]
        if run == "grpo":
            assert torch.equal(resumed["head"], whole["head"])


@pytest.mark.parametrize("name", SHARDED)
def test_each_rank_holds_expected_bytes(name: str, two: Any) -> None:
    expected = expected_bytes(grpo_kit.module(), stage=int(name[4]), ranks=2, whole_elements=SHARDED[name])
    whole = expected_bytes(grpo_kit.module(), stage=1, ranks=1, whole_elements=0)
    for rank in two:
        found = rank[f"{name}/sharding"]
        assert found["held"] == pytest.approx(expected, rel=0.02)
        assert found["gathered"] >= whole["parameters"], "whole parameters are counted, too"
        assert found["stage"] == int(name[4])
    assert expected["optimizer"] < 0.51 * whole["optimizer"]
    assert (expected["gradients"] < 0.51 * whole["gradients"]) == (name != "zero1")
    assert (expected["parameters"] < 0.6 * whole["parameters"]) == ("zero3" in name)


def test_gradient_across_share_border_is_whole_on_both_ranks(two: Any) -> None:
    """Both ranks have part of the embedding. The second also has all the rest, so it keeps every gradient."""
    policy = narrow_policy()
    expected = expected_bytes(policy, stage=2, ranks=2, whole_elements=0)["gradients"]
    embedding, total = (
        4 * sum(p.numel() for p in part.parameters()) for part in (policy.model.model.embed_tokens, policy)
    )
    held = [rank["zero2/cut"]["held"]["gradients"] for rank in two]
    assert held == [embedding, total]
    assert expected == total
    shape = ModelShape.of(policy.model.config.to_dict())
    assert states(whole_on_cpu(shape), by_name("zero2", 2)).gradients == total


@pytest.mark.parametrize("name", SHARDED)
def test_each_rank_holds_planned_bytes(name: str, two: Any) -> None:
    """The plan ignores parameters that stay whole, and the fp32 copy that stage 3 has only on a CPU."""
    policy = grpo_kit.policy()
    learner = whole_on_cpu(ModelShape.of(policy.model.config.to_dict()))
    planned = states(learner, by_name(name.removesuffix("_small"), 2))
    small = sum(parameter.numel() for parameter in policy.parameters() if parameter.numel() <= SHARDED[name])
    wanted = {
        "parameters": planned.weights + 4 * small,
        "gradients": planned.gradients,
        "optimizer": planned.optimizer * (3 if "zero3" in name else 2) // 2,
    }
    for rank in two:
        assert rank[f"{name}/sharding"]["held"] == pytest.approx(wanted, rel=0.02)


def test_expected_bytes_add_small_whole_parameters_to_shares() -> None:
    sizes = [parameter.numel() for parameter in grpo_kit.policy().parameters()]
    small = sum(size for size in sizes if size <= 32)
    assert small == 5 * 32
    without, given = (
        expected_bytes(grpo_kit.module(), stage=3, ranks=2, whole_elements=limit)["parameters"] for limit in (31, 32)
    )
    assert (without, given) == (sum(sizes) * 4 // 2, sum(sizes) * 4 // 2 + small * 4)


@pytest.mark.parametrize("run", COPIED)
def test_stage_3_rollouts_equal_those_of_gathered_policy(run: str, two: Any) -> None:
    for rank in two:
        found = rank[f"zero3/copied {run}"]
        assert found["same"] == [True, True]
        assert found["apart"] == [0, 0]
        assert found["moved"].abs().max() > 1e-3, "the second batch is drawn from other weights"


@pytest.mark.parametrize("name", ["ddp", "zero2", "zero3"])
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


def test_cut_into_parts_splits_largest_microbatches() -> None:
    def tokens(rows: list[int]) -> int:
        return sum(row + 1 for row in rows)

    batches = [[6, 5, 4], [3, 2, 1, 0]]
    assert cut_into_parts(batches, 1, tokens=tokens) == batches
    assert cut_into_parts(batches, 3, tokens=tokens) == [[6, 5], [4], [3, 2, 1, 0]], "the largest first"
    assert cut_into_parts(batches, 4, tokens=tokens) == [[6], [5], [4], [3, 2, 1, 0]]
    assert cut_into_parts(batches, 9, tokens=tokens) == [[6], [5], [4], [3], [2], [1], [0]], "a row is not cut"
