"""ZeRO on ranks: bytes held, gathers for a rollout, and rejection of code in a shard."""

from __future__ import annotations

import gc
import os
import pickle
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from lightning import Callback, LightningModule, Trainer
from torch import Tensor

from callbacks.rollout_generation import DynamicSampling, RolloutGeneration
from contrastive_reasoning.distributed import barrier, this_rank
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.sharding import gathered
from contrastive_reasoning.rollout import Engine
from contrastive_reasoning.tasks.base import Problem, Verdict
from tests.tiny_models import tiny_llama
from tests.unit.lightning_modules import grpo_kit
from tests.unit.lightning_modules.ranks_kit import Result, fit, grpo, untied, with_reference


class Lucky:
    """A task that accepts every second completion on the first rank, and none on the others."""

    def __init__(self) -> None:
        self.seen = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(grpo_kit.TASK, name)

    def verify(self, problem: Problem, completion: str) -> Verdict:
        self.seen += 1
        return Verdict(status="ok" if this_rank() == 0 and self.seen % 2 == 0 else "wrong", reason="")


def refilling() -> DynamicSampling:
    """Dynamic sampling that draws once on the first rank and four times on the others."""
    return grpo_kit.generation(DynamicSampling, task=Lucky(), max_prompt_tokens=None, max_refills=3)


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
    """Counts gathers of parameters, draws and fetches by DeepSpeed's hooks in a fit of two steps without validation."""
    from deepspeed import zero
    from deepspeed.runtime.zero.partitioned_param_coordinator import PartitionedParameterCoordinator as Coordinator

    calls: list[tuple[str, bool]] = []
    drawing = False

    def counted(owner: Any, method: str, called: str) -> None:
        original = getattr(owner, method)

        def counting(*args: Any, **kwargs: Any) -> Any:
            calls.append((called, drawing))
            return original(*args, **kwargs)

        patch.setattr(owner, method, counting)

    def draw(*args: Any) -> None:
        nonlocal drawing
        drawing = True
        start(*args)
        drawing = False

    start = generation.on_train_batch_start
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generation, "on_train_batch_start", draw)
        counted(zero.GatheredParameters, "__enter__", "gather")
        counted(Coordinator, "fetch_sub_module", "fetch")
        counted(Engine, "generate", "draw")
        fitted = fit(name, grpo_kit.module(), grpo_kit.prompts(4, 2), generation, steps=2, limit_val_batches=0)
    names = [called for called, _ in calls]
    return {
        "gathers": names.count("gather"),
        "draws": names.count("draw"),
        "fetches": calls.count(("fetch", False)),
        "fetches while drawing": calls.count(("fetch", True)),
        "refills": fitted.callback_metrics.get("train/rollout/refills"),
    }


class Bytes(Callback):
    """Counts the bytes on this rank at the second optimizer step, when the optimizer has its state."""

    def __init__(self) -> None:
        self.found: Result = {}
        self.steps = 0

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        self.steps += 1
        if self.steps == 2:
            engine = cast(Any, trainer.strategy).deepspeed_engine
            self.found = {"held": learned_bytes(engine), "stage": engine.zero_optimization_stage()}

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        """Between steps: within one, fetched parameters are whole until their last use, ``lm_head`` until its end."""
        engine = cast(Any, trainer.strategy).deepspeed_engine
        self.found["held"]["parameters"] = sum(parameters_of(engine).values())
        with gathered(pl_module):
            self.found["gathered"] = sum(parameters_of(engine).values())


def learned_bytes(engine: Any) -> dict[str, int]:
    """Bytes of gradients and of the optimizer's state on this rank, after a backward and before the step.

    Master weights in fp32 count towards the optimizer if they are not the parameters themselves.
    """
    inner, stage = engine.optimizer, engine.zero_optimization_stage()
    if stage == 3:
        gradients, masters = inner.grad_partitions_flat_buffer, inner.fp32_partitioned_groups_flat
    else:
        whole = [parameter.grad for parameter in engine.module.parameters()]
        gradients = whole if stage == 1 else inner.all_grad_tensors
        masters = inner.single_partition_of_fp32_groups
    weights = parameters_of(engine)
    state = storages([masters, [list(state.values()) for state in inner.optimizer.state.values()]])
    return {
        "gradients": sum(storages(gradients).values()),
        "optimizer": sum(size for place, size in state.items() if place not in weights),
    }


def parameters_of(engine: Any) -> dict[int, int]:
    """Memory address → bytes of a rank's shards, and of the parameters that are whole beside them.

    If only a parameter's shard is kept, ``data`` is a stand-in of at most one number.
    """
    return storages([[getattr(one, "ds_tensor", None), one.data] for one in engine.module.parameters()])


def storages(tensors: Any) -> dict[int, int]:
    """Memory address → bytes of all tensors in nested containers; shared memory counts once."""
    if isinstance(tensors, Tensor):
        return {tensors.untyped_storage().data_ptr(): tensors.untyped_storage().nbytes()}
    inside = tensors.values() if isinstance(tensors, dict) else tensors if isinstance(tensors, list | tuple) else ()
    return {place: size for one in inside for place, size in storages(one).items()}


def sharding(name: str, **changes: Any) -> Result:
    """Bytes on this rank, and the stage that DeepSpeed runs."""
    counted = Bytes()
    grpo(name, counted, steps=1, **changes)
    return counted.found


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
    message = "nothing"
    try:
        grpo(name, grpo_kit.saving(folder / name, keep=9), resume=checkpoint)
    except pickle.UnpicklingError as error:
        message = str(error)
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
        pairs = ((found.old_log_probs, expected.old_log_probs), (found.pooled, expected.pooled))
        self.apart.append(max((ours - theirs).abs().max().item() for ours, theirs in pairs))


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


def compare_reference(module: Any, batch: Any) -> tuple[bool, int]:
    """If the log-probs of a sharded reference are those of a whole one, and how many numbers it holds."""
    drawn, reference = batch.rollouts, module.reference.policy
    rows = drawn.prompt_ids, drawn.prompt_mask, drawn.completion_ids, drawn.mask
    owner = torch.arange(len(drawn)) // drawn.group_size
    with torch.no_grad():
        found, expected = (one.log_probs(*rows, owner=owner) for one in (reference, untied(seed=2)))
    parts: list[Any] = list(reference.parameters())
    held = sum((one.to_local() if hasattr(one, "to_local") else one).numel() for one in parts)
    return torch.equal(found, expected), held


def sharded_reference(name: str) -> Result:
    """Runs GRPO with a sharded reference, and the same with a whole one."""
    comparison = grpo_kit.Recorder(compare_reference)
    found = with_reference(name, comparison, shard_reference=True)
    whole = with_reference(name, offload_reference=True)
    same, held = zip(*comparison.seen, strict=True)
    return {"sharded": found, "whole": whole, "same": list(same), "held": held[-1]}
