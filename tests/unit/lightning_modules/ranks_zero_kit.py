"""ZeRO on ranks: bytes held and expected, gathers for a rollout, and rejection of code in a shard."""

from __future__ import annotations

import gc
import os
import pickle
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from lightning import Callback, LightningModule, Trainer

from callbacks.rollout_generation import DynamicSampling, RolloutGeneration
from contrastive_reasoning.distributed import barrier, this_rank
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.sharding import gathered
from contrastive_reasoning.rollout import Engine
from contrastive_reasoning.tasks.base import Problem, Verdict
from tests.tiny_models import tiny_llama
from tests.unit.lightning_modules import grpo_kit
from tests.unit.lightning_modules.ranks_kit import Result, fit, grpo, kl, untied
from tests.unit.lightning_modules.zero_bytes import learned_bytes, parameter_bytes


class Lucky:
    """A task that accepts every second completion on the first rank, and none on the others."""

    def __init__(self) -> None:
        self.seen = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(grpo_kit.TASK, name)

    def verify(self, problem: Problem, completion: str) -> Verdict:
        self.seen += 1
        right = this_rank() == 0 and self.seen % 2 == 0
        return Verdict(status="ok", reason="") if right else Verdict(status="wrong", reason="never right here")


def refilling() -> DynamicSampling:
    """Dynamic sampling that draws once on the first rank and four times on the others."""
    return grpo_kit.generation(DynamicSampling, task=Lucky(), max_prompt_tokens=None, max_refills=3)


@contextmanager
def counted(owner: type, name: str, seen: Callable[[], object]) -> Iterator[None]:
    """Within the context, ``seen`` is called before every call of the method."""
    before = getattr(owner, name)

    def counting(*args: Any, **kwargs: Any) -> Any:
        seen()
        return before(*args, **kwargs)

    setattr(owner, name, counting)
    try:
        yield
    finally:
        setattr(owner, name, before)


class Fetches:
    """Counts fetches by DeepSpeed's own hooks, separately for the time in which rollouts are drawn."""

    def __init__(self, generation: RolloutGeneration) -> None:
        self.drawing, self.found = False, {True: 0, False: 0}
        draw = generation.on_train_batch_start

        def watched(*args: Any) -> None:
            self.drawing = True
            draw(*args)
            self.drawing = False

        setattr(generation, "on_train_batch_start", watched)  # noqa: B010

    def add(self) -> None:
        self.found[self.drawing] += 1


def kept(name: str) -> list[str]:
    """The parts of an ended fit that are still alive although the test holds no reference."""
    module = grpo_kit.module()
    data = grpo_kit.prompts(4, 1)
    fitted = fit(name, module, data, grpo_kit.generation(validation_samples=2), steps=1)
    parts = {"module": module, "model": module.policy.model, "optimizer": fitted.optimizers[0], "trainer": fitted}
    left = {part: weakref.ref(one) for part, one in parts.items()}
    del module, data, fitted, parts
    gc.collect()
    return [part for part, one in left.items() if one() is not None]


def gathers(name: str, generation: RolloutGeneration) -> Result:
    """Counts gathers of parameters and draws of completions in a fit of two steps without validation."""
    from deepspeed import zero
    from deepspeed.runtime.zero.partitioned_param_coordinator import PartitionedParameterCoordinator as Coordinator

    together: list[int] = []
    draws: list[int] = []
    fetches = Fetches(generation)
    with (
        counted(zero.GatheredParameters, "__enter__", lambda: together.append(1)),
        counted(Coordinator, "fetch_sub_module", fetches.add),
        counted(Engine, "generate", lambda: draws.append(1)),
    ):
        fitted = fit(name, grpo_kit.module(), grpo_kit.prompts(4, 2), generation, steps=2, limit_val_batches=0)
    return {
        "gathers": len(together),
        "draws": len(draws),
        "refills": fitted.callback_metrics.get("train/rollout/refills"),
        "fetches": fetches.found[False],
        "fetches while drawing": fetches.found[True],
    }


class Bytes(Callback):
    """Counts the bytes on this rank at the second optimizer step, when the optimizer has its state."""

    def __init__(self) -> None:
        self.held: dict[str, int] = {}
        self.stage, self.steps = 0, 0

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        strategy: Any = trainer.strategy
        self.steps += 1
        if self.steps == 2:
            self.held = learned_bytes(strategy)
            self.stage = strategy.deepspeed_engine.zero_optimization_stage()

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        strategy: Any = trainer.strategy
        self.held["parameters"] = parameter_bytes(strategy)
        with gathered(pl_module):
            self.gathered = parameter_bytes(strategy)


def sharding(name: str, **changes: Any) -> Result:
    """Bytes on this rank, and the stage that DeepSpeed runs."""
    counted_bytes = Bytes()
    grpo(name, counted_bytes, steps=1, **changes)
    return {"held": counted_bytes.held, "gathered": counted_bytes.gathered, "stage": counted_bytes.stage}


def narrow_policy() -> CausalLMPolicy:
    """A policy that is mostly embedding, so that the border of two even shares cuts through it."""
    return grpo_kit.as_policy(tiny_llama(grpo_kit.TOKENIZER, hidden_size=16, layers=1))


class Canary:
    """Code in a checkpoint: unpickling it makes a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.folder),)


def code_in_a_shard(name: str, folder: Path, *, part: str) -> Result:
    """Resumes from a checkpoint with code in this rank's file; returns the error, and whether the code was run.

    Args:
        name: the strategy.
        folder: where the checkpoint is saved.
        part: ``optim`` or ``model``: whose states are in the file. At stage 2 the ranks share one file of the model.
    """
    grpo(name, grpo_kit.saving(folder / name, keep=9), steps=1)
    checkpoint = folder / name / "step=000001.ckpt"
    own = [*checkpoint.rglob(f"*rank_{this_rank()}_*{part}_states.pt")] or [*checkpoint.rglob(f"mp_*{part}_states.pt")]
    (found,) = own
    barrier()
    if this_rank() == 0 or not found.name.startswith("mp_"):
        state = torch.load(found, weights_only=False)
        torch.save({**state, "more": Canary(folder / f"canary{this_rank()}")}, found)
    barrier()
    try:
        grpo(name, grpo_kit.saving(folder / name, keep=9), resume=checkpoint)
    except pickle.UnpicklingError as error:
        message = str(error)
    else:
        message = "nothing"
    return {"said": message, "run": int(any(folder.glob("canary*")))}


class Redrawn(Callback):
    """Records for each batch if its rollouts equal those of the gathered policy, and how much log-probs differ."""

    def __init__(self) -> None:
        self.same: list[bool] = []
        self.apart: list[float] = []

    def on_train_batch_start(self, trainer: Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        (drawing,) = (one for one in cast(Any, trainer).callbacks if isinstance(one, RolloutGeneration))
        seed = (drawing.seed, "rollout", pl_module.rollout_step)
        with gathered(pl_module.policy):
            self.expected = drawing.draw(trainer, pl_module.policy, batch.problems, seed=seed, pooled=True)

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, *_: Any) -> None:
        found, expected = batch.rollouts, self.expected
        self.same.append(torch.equal(found.completion_ids, expected.completion_ids))
        self.apart.append(max((getattr(found, n) - getattr(expected, n)).abs().max().item() for n in DRAWN))


DRAWN = ("old_log_probs", "pooled")


def drawn_from_copies(name: str, policy: CausalLMPolicy) -> Result:
    """Runs two steps of GRPO, and compares the rollouts after each."""
    redrawn = Redrawn()
    found = grpo(name, redrawn, steps=2, policy=policy)
    return {"same": redrawn.same, "apart": redrawn.apart, "moved": found["moved"]}


COPIED: dict[str, Callable[[], CausalLMPolicy]] = {
    "in fp32": grpo_kit.policy,
    "untied": lambda: untied(seed=1),
    "cast": lambda: grpo_kit.as_policy(grpo_kit.policy().model, torch.bfloat16),
    "adapters on bfloat16": lambda: grpo_kit.lora_policy(torch.bfloat16),
}


class ReferenceComparison(Callback):
    """Compares log-probs of a sharded reference with those of a whole one at each step; counts the numbers it holds."""

    def __init__(self) -> None:
        self.same: list[bool] = []
        self.held = 0

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, *_: Any) -> None:
        drawn, reference = batch.rollouts, pl_module.reference.policy
        rows = drawn.prompt_ids, drawn.prompt_mask, drawn.completion_ids, drawn.mask
        owner = torch.arange(len(drawn)) // drawn.group_size
        with torch.no_grad():
            found, expected = (one.log_probs(*rows, owner=owner) for one in (reference, untied(seed=2)))
        self.same.append(torch.equal(found, expected))
        self.held = sum(
            cast(Any, one).to_local().numel() if hasattr(one, "to_local") else one.numel()
            for one in reference.parameters()
        )


def sharded_reference(name: str) -> Result:
    """Runs GRPO with a sharded reference, and the same with a whole one."""
    comparison = ReferenceComparison()
    found, whole = kl(name, comparison, level="group", shard=True), kl(name, level="group")
    return {"sharded": found, "whole": whole, "same": comparison.same, "held": comparison.held}
