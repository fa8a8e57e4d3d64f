"""Phases, utilisation and memory of a step, logged from a small run that draws rollouts and learns from them."""

from __future__ import annotations

import mmap
import time
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.profilers import PassThroughProfiler, SimpleProfiler
from torch.utils.data import DataLoader

from callbacks.cost import THROUGHPUT as ROOM
from callbacks.cost import Throughput, measured_peak
from callbacks.rollout_generation import RolloutGeneration
from callbacks.system_metrics import memory_in_use, peak_memory
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.flops import decoder_size, learning_flops, reading_flops, work_of
from contrastive_reasoning.policies.tiny import tiny_llama, train_tokenizer
from contrastive_reasoning.rollout import Engine, Sampling
from contrastive_reasoning.tasks.base import Problem
from datamodules.reasoning_prompts import ProblemBatch
from tests.unit.lightning_modules import grpo_kit

NAP = 0.05
PEAK = 1e9
PROBLEMS = [Problem(id=str(i), prompt=f"Say {i}:", answer="") for i in range(8)]
CPU = torch.device("cpu")


class Learner(L.LightningModule):
    """Makes what it drew likelier, says so in phases, and naps while it rewards and while it validates."""

    def __init__(self, *, says: bool) -> None:
        super().__init__()
        self.automatic_optimization = False
        tokenizer = train_tokenizer([problem.prompt for problem in PROBLEMS], vocab_size=270)
        model = tiny_llama(tokenizer, hidden_size=16)
        self.policy = CausalLMPolicy(model=model, tokenizer=tokenizer, compute_dtype=torch.float32, chat_template=False)
        self.says = says
        self.reward = grpo_kit.Digits()
        self.rollout_step = 0

    def training_step(self, batch: Any, batch_idx: int) -> None:
        if not self.says:
            self.update(batch.rollouts)
            return
        with self.trainer.profiler.profile("reward"):
            time.sleep(NAP)
        with self.trainer.profiler.profile("update"):
            self.update(batch.rollouts)
        lengths = batch.rollouts.prompt_mask.sum(1).tolist(), batch.rollouts.mask.sum(1).tolist()
        self.work = work_of(*lengths, [0, 0, 0, 1, 1, 1], positions=1000)

    def update(self, rollouts: Any) -> None:
        of_row = torch.arange(len(rollouts)) // rollouts.group_size
        prompts = rollouts.prompt_ids[of_row], rollouts.prompt_mask[of_row]
        self.manual_backward(-self.policy.log_probs(*prompts, rollouts.completion_ids, rollouts.mask).mean())
        optimizer: Any = self.optimizers()
        optimizer.step()
        optimizer.zero_grad()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        time.sleep(NAP)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Steps(L.Callback):
    """What was logged after each step, with the batch it was about, and how long training took."""

    def __init__(self) -> None:
        self.logged: list[dict[str, float]] = []
        self.batches: list[Any] = []
        self.profiler: Any = None

    def on_train_start(self, *_: Any) -> None:
        self.began = time.perf_counter()

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        values = trainer.callback_metrics.items()
        self.logged.append({name.removeprefix(ROOM): float(value) for name, value in values if name.startswith(ROOM)})
        self.batches.append(batch)

    def on_train_end(self, *_: Any) -> None:
        self.seconds = time.perf_counter() - self.began


def fitted(module: Learner, *, peak: float | None = PEAK, validate: bool = False, **settings: Any) -> Steps:
    sampling = Sampling(temperature=1.0, top_k=None, top_p=1.0, max_tokens=6, stop=[])
    generation = RolloutGeneration(
        engine=Engine(max_batch_tokens=1000),
        group_size=3,
        sampling=sampling,
        greedy=Sampling(temperature=0.0, top_k=None, top_p=1.0, max_tokens=6, stop=[]),
        validation_samples=0,
        seed=0,
    )
    steps = Steps()
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=1,
        callbacks=[generation, Throughput(window=2, tokens=None, peak_flops=peak), steps],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        val_check_interval=1,
        limit_val_batches=None if validate else 0,
        **settings,
    )
    loader: Any = DataLoader(PROBLEMS, batch_size=2, collate_fn=ProblemBatch)  # pyright: ignore[reportArgumentType]
    trainer.fit(module, loader, loader)
    assert len(steps.logged) == 4
    steps.profiler = trainer.profiler  # pyright: ignore[reportAttributeAccessIssue]
    if not settings:
        assert isinstance(steps.profiler, PassThroughProfiler), "the listener is taken off afterwards"
    return steps


def test_phases_add_up_to_the_step() -> None:
    for values in fitted(Learner(says=True)).logged:
        phases = [values[f"{name}_seconds"] for name in ("rollout", "reward", "update", "rest")]
        assert all(taken > 0 for taken in phases)
        assert values["reward_seconds"] >= NAP
        assert sum(phases) == pytest.approx(values["step_seconds"], rel=1e-5)


def test_a_module_that_names_no_phase_has_its_batch_taken_for_the_update() -> None:
    for values in fitted(Learner(says=False)).logged:
        phases = [values[f"{name}_seconds"] for name in ("rollout", "update", "rest")]
        assert sum(phases) == pytest.approx(values["step_seconds"], rel=1e-5)
        assert "reward_seconds" not in values


def test_validation_is_no_part_of_a_step() -> None:
    """Three of the four validations lie between steps, each of four naps."""
    steps = fitted(Learner(says=True), validate=True)
    assert sum(values["step_seconds"] for values in steps.logged) + 3 * 4 * NAP <= steps.seconds


def test_utilisation_is_the_formula_over_seconds_and_peak() -> None:
    module = Learner(says=True)
    steps = fitted(module)
    size = decoder_size(module.policy.model)
    for values, batch in zip(steps.logged, steps.batches, strict=True):
        prompts, completions = (mask.sum(1).tolist() for mask in (batch.rollouts.prompt_mask, batch.rollouts.mask))
        work = work_of(prompts, completions, [0, 0, 0, 1, 1, 1])
        flops = {"rollout": reading_flops(size, work), "update": learning_flops(size, work)}
        flops["step"] = flops["rollout"] + flops["update"]
        for phase, count in flops.items():
            used = values[f"{phase}_utilisation"] * values[f"{phase}_seconds"] * PEAK
            assert used == pytest.approx(count, rel=1e-5)
        tokens = values["update_tokens_per_second"] * values["update_seconds"]
        assert tokens == pytest.approx(sum(completions), rel=1e-5)
        assert values["padding_share"] == pytest.approx(1 - work.tokens / 1000)
        assert values["peak_teraflops"] == pytest.approx(PEAK / 1e12)


def test_what_the_module_does_not_say_is_not_made_up() -> None:
    values = fitted(Learner(says=False)).logged[-1]
    assert "rollout_utilisation" in values
    assert not {"update_utilisation", "step_utilisation", "update_tokens_per_second", "padding_share"} & set(values)


def test_a_profiler_that_was_chosen_records_all_and_is_there_afterwards() -> None:
    profiler = SimpleProfiler()
    steps = fitted(Learner(says=True), profiler=profiler)
    assert steps.profiler is profiler
    assert "reward" in profiler.recorded_durations
    assert {"step_seconds", "rollout_seconds"} <= steps.logged[-1].keys()


def test_it_only_watches() -> None:
    """GRPO with the peak measured, against GRPO alone."""
    watched, alone = grpo_kit.module(), grpo_kit.module()
    grpo_kit.fit(watched, 2, Throughput(window=2, tokens=None, peak_flops=None))
    grpo_kit.fit(alone, 2)
    assert torch.equal(grpo_kit.weights(watched), grpo_kit.weights(alone))
    assert not torch.equal(grpo_kit.weights(alone), grpo_kit.weights(grpo_kit.module()))


def test_measuring_the_peak_draws_no_random_numbers() -> None:
    before = torch.get_rng_state()
    assert measured_peak(CPU, torch.float32) > 0
    assert torch.equal(torch.get_rng_state(), before)


def test_memory_follows_what_is_held() -> None:
    before = memory_in_use(CPU)
    if before is None:
        pytest.skip("the system does not say what is resident")
    size = 128 * 2**20
    with mmap.mmap(-1, size) as held:  # fresh pages; an allocator may give a tensor what it has kept
        held.write(b"1" * size)
        during = memory_in_use(CPU)
        assert during is not None
        assert during - before > 100
        assert peak_memory(CPU) >= during - 1


def test_a_peak_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="peak_flops must be positive"):
        Throughput(window=1, tokens=None, peak_flops=0.0)
