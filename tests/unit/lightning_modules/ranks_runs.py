"""Training runs on ranks: which run uses which strategy; each is compared with one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from contrastive_reasoning.objectives.base import ConstantLength, SeqMeanTokenMean
from tests.unit.lightning_modules import grpo_kit
from tests.unit.lightning_modules.ranks_critics_kit import (
    calibrated,
    critic,
    critic_gradients,
    critic_of_text,
    critic_resumed,
    critics_together,
    dealt,
    foretold,
    of_one_problem,
    online_critic,
    preference,
    warm_start,
    warm_start_resumed,
)
from tests.unit.lightning_modules.ranks_kit import (
    WHOLE,
    Result,
    SpoiledOnLastRank,
    adapters_on_bfloat16,
    adapters_on_bfloat16_resumed,
    balances,
    first_gradients,
    full_kl,
    grpo,
    grpo_resumed,
    kl,
    lora_policy,
    means_of_unequal_ranks,
    moving,
    ramped_critic,
    spoiled_in_bfloat16,
    states_spoiled,
    stopped_while_saving,
)
from tests.unit.lightning_modules.ranks_zero_kit import (
    COPIED,
    code_in_a_shard,
    drawn_from_copies,
    gathers,
    kept,
    narrow_policy,
    refilling,
    sharded_reference,
    sharding,
)


def by_rows(aggregation: Any) -> Any:
    return grpo_kit.objective(aggregation=aggregation)


GATED = "calibrated credit, gated"
RUNS: dict[str, Callable[[str], Result]] = {
    "grpo": grpo,
    "lora, rows weigh alike": lambda name: grpo(name, policy=lora_policy(), objective=by_rows(SeqMeanTokenMean())),
    "gradients": lambda name: first_gradients(name, objective=by_rows(ConstantLength(length=12))),
    "groups moved": moving,
    "warm_start": warm_start,
    "critic forward": partial(critic_gradients, loss="forward"),
    "critic symmetric": partial(critic, loss="symmetric"),
    "critic binary, drawn negatives": partial(critic_gradients, loss="binary", negatives=5),
    "critic of text, lora": critic_of_text,
    "critics together": critics_together,
    GATED: calibrated,
    "shuffled credit, subsampled": dealt,
    "kl untied, batch": partial(kl, level="batch"),
    "full kl untied, cross": partial(full_kl, level="cross"),
    "preference": preference,
    "ramped critic": ramped_critic,
    "head spoiled": states_spoiled,
    "grpo spoiled": lambda name: grpo(name, SpoiledOnLastRank()),
    "critic spoiled": lambda name: critic(name, SpoiledOnLastRank(), loss="symmetric"),
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
    "grpo": grpo_resumed,
    "critic symmetric": critic_resumed,
    "warm_start": warm_start_resumed,
}
"""Runs that stop after one step and resume, under DDP and stages 2 and 3; each is one of ``RUNS``."""

POISONED = [(name, part) for name in ("zero2", "zero3") for part in ("optim", "model")]
"""Checkpoint files into which code is written: strategy, and whose states the file holds."""
SHARDED = {"zero1": 0, "zero2": 0, "zero3_small": WHOLE}
"""Strategies whose bytes are counted, and the size of the largest parameters that stay whole."""


def everything(folder: Path) -> Result:
    """Results of every run of every strategy on this rank, by ``strategy/run``."""
    found = {f"{name}/{run}": RUNS[run](name) for name, runs in STRATEGIES.items() for run in runs}
    for name in ("ddp", "zero2", "zero3"):
        for run, made in RESUMED.items():
            found[f"{name}/{run} resumed"] = made(name, folder / "resumed" / run / name)
        found[f"{name}/adapters on bfloat16"] = adapters_on_bfloat16(name)
    for name in STRATEGIES:
        found[f"{name}/kept"] = kept(name)
    for name in ("zero2", "zero3"):
        found[f"{name}/adapters on bfloat16 resumed"] = adapters_on_bfloat16_resumed(name, folder / "bfloat16" / name)
    for name in ("ddp", "zero1", "zero2", "zero3"):
        found[f"{name}/spoiled in bfloat16"] = spoiled_in_bfloat16(name)
    for name in SHARDED:
        found[f"{name}/sharding"] = sharding(name, folder / "sharding")
    found["zero2/cut"] = sharding("zero2", folder / "cut", policy=narrow_policy())
    for name in ("ddp", "zero2", "zero3"):
        found[f"{name}/online critic"] = online_critic(name)
    found["ddp/stopped while saving"] = stopped_while_saving("ddp", folder / "slow")
    found["foretold"] = foretold()
    found["one problem"] = of_one_problem()
    found["unequal"] = means_of_unequal_ranks()
    found["balances"] = balances()
    for name, part in POISONED:
        found[f"{name}/{part}/code"] = code_in_a_shard(name, folder / "code" / part, part=part)
    for run, policy in COPIED.items():
        found[f"zero3/copied {run}"] = drawn_from_copies("zero3", policy())
    for name in ("ddp", "zero2", "zero3"):
        found[f"{name}/sharded reference"] = sharded_reference(name)
    found["zero3/gathers"] = gathers("zero3", replace(grpo_kit.generation(), copy_weights=False))
    found["zero3/copies"] = gathers("zero3", grpo_kit.generation())
    return found | {"zero3/refills": gathers("zero3", refilling())}
