"""Training runs on ranks: which run uses which strategy; each is compared with one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from contrastive_reasoning.objectives.base import ConstantLength, SeqMeanTokenMean
from tests.unit.lightning_modules import (
    grpo_kit,
    ranks_critics_kit as critics,
    ranks_kit,
    ranks_zero_kit as zero,
    test_grpo_ramped_critic,
)
from tests.unit.lightning_modules.ranks_kit import Result, grpo

GATED = "calibrated credit, gated"
BY_ROWS, BY_LENGTH = (grpo_kit.objective(aggregation=kind) for kind in (SeqMeanTokenMean(), ConstantLength(length=12)))
RUNS: dict[str, Callable[[str], Result]] = {
    "grpo": grpo,
    "lora, rows weigh alike": lambda name: grpo(name, policy=grpo_kit.lora_policy(), objective=BY_ROWS),
    "gradients": lambda name: ranks_kit.first_gradients(name, objective=BY_LENGTH),
    "groups moved": ranks_kit.moving,
    "warm_start": critics.warm_start,
    "critic forward": partial(critics.critic_gradients, loss="forward"),
    "critic symmetric": partial(critics.critic, loss="symmetric"),
    "critic binary, drawn negatives": partial(critics.critic_gradients, loss="binary", negatives=5),
    "critic of text, lora": critics.critic_of_text,
    "critics together": critics.critics_together,
    GATED: critics.calibrated,
    "shuffled credit, subsampled": critics.dealt,
    "kl untied, batch": partial(ranks_kit.kl, level="batch"),
    "full kl untied, cross": partial(ranks_kit.full_kl, level="cross"),
    "preference": critics.preference,
    "ramped critic": lambda name: grpo(name, reward=test_grpo_ramped_critic.reward()),
    "head spoiled": ranks_kit.states_spoiled,
    "grpo spoiled": lambda name: grpo(name, ranks_kit.SpoiledOnLastRank()),
    "critic spoiled": lambda name: critics.critic(name, ranks_kit.SpoiledOnLastRank(), loss="symmetric"),
}
KL = ("kl untied, batch", "full kl untied, cross")
STRATEGIES: dict[str, Sequence[str]] = {
    "ddp": tuple(RUNS),
    "zero1": ("grpo",),
    "zero2": (
        *("grpo", "lora, rows weigh alike", "groups moved", "warm_start", "critic symmetric", "preference"),
        *("critic of text, lora", "critics together", GATED, *KL, "grpo spoiled", "critic spoiled"),
    ),
    "zero3": (
        *("grpo", "lora, rows weigh alike", "groups moved", "warm_start", "critic symmetric", "preference"),
        *("critic of text, lora", "critics together", GATED, *KL, "grpo spoiled", "critic spoiled"),
    ),
    "zero3_offload": ("grpo",),
}

RESUMED: dict[str, Callable[[str, Path], Result]] = {
    "grpo": ranks_kit.grpo_resumed,
    "critic symmetric": critics.critic_resumed,
    "warm_start": critics.warm_start_resumed,
}
"""Runs that stop after one step and resume, under DDP and stages 2 and 3; each is one of ``RUNS``."""

POISONED = [(name, part) for name in ("zero2", "zero3") for part in ("optim", "model")]
"""Checkpoint files into which code is written: strategy, and whose states the file holds."""
SHARDED = {"zero1": 0, "zero2": 0, "zero3_small": ranks_kit.WHOLE}
"""Strategies whose bytes are counted, and the size of the largest parameters that stay whole."""


def everything(folder: Path) -> Result:
    """Results of every run of every strategy on this rank, by ``strategy/run``."""
    found = {f"{name}/{run}": RUNS[run](name) for name, runs in STRATEGIES.items() for run in runs}
    for name in ("ddp", "zero2", "zero3"):
        for run, made in RESUMED.items():
            found[f"{name}/{run} resumed"] = made(name, folder / "resumed" / run / name)
        found[f"{name}/adapters on bfloat16"] = ranks_kit.adapters_on_bfloat16(name)
    for name in STRATEGIES:
        found[f"{name}/kept"] = zero.kept(name)
    for name in ("zero2", "zero3"):
        found[f"{name}/adapters on bfloat16 resumed"] = ranks_kit.adapters_on_bfloat16_resumed(
            name, folder / "bfloat16" / name
        )
    for name in ("ddp", "zero1", "zero2", "zero3"):
        found[f"{name}/spoiled in bfloat16"] = ranks_kit.spoiled_in_bfloat16(name)
    for name in SHARDED:
        found[f"{name}/sharding"] = zero.sharding(name)
    found["zero2/cut"] = zero.sharding("zero2", policy=zero.narrow_policy())
    for name in ("ddp", "zero2", "zero3"):
        found[f"{name}/online critic"] = critics.online_critic(name)
    found["ddp/stopped while saving"] = ranks_kit.stopped_while_saving("ddp", folder / "slow")
    found["foretold"] = critics.foretold()
    found["one problem"] = critics.of_one_problem()
    found["unequal"] = ranks_kit.means_of_unequal_ranks()
    found["balances"] = ranks_kit.balances()
    for name, part in POISONED:
        found[f"{name}/{part}/code"] = zero.code_in_a_shard(name, folder / "code" / part, part=part)
    for run, policy in zero.COPIED.items():
        found[f"zero3/copied {run}"] = zero.drawn_from_copies("zero3", policy())
    for name in ("ddp", "zero2", "zero3"):
        found[f"{name}/sharded reference"] = zero.sharded_reference(name)
    found["zero3/gathers"] = zero.gathers("zero3", replace(grpo_kit.generation(), copy_weights=False))
    found["zero3/copies"] = zero.gathers("zero3", grpo_kit.generation())
    return found | {"zero3/refills": zero.gathers("zero3", zero.refilling())}
