"""Cost of a stage in seconds and tokens, rates of its steps, and utilisation of the device."""

from __future__ import annotations

import mmap
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.profilers import PassThroughProfiler, SimpleProfiler
from torch.utils.data import DataLoader

from callbacks import cost
from callbacks.cost import THROUGHPUT, Cost, Throughput, measured_peak
from callbacks.rollout_generation import RolloutGeneration
from callbacks.system_metrics import memory_in_use, peak_memory
from contrastive_reasoning.policies.pass_cost import NO_WORK, decoder_size, learning_flops, reading_flops, work_of
from contrastive_reasoning.policies.tiny import train_tokenizer
from contrastive_reasoning.rollout import Engine, Sampling
from contrastive_reasoning.tasks.base import Problem
from datamodules.reasoning_prompts import ProblemBatch
from lightning_modules.grpo import StepResult
from tests.quiet import quiet_trainer
from tests.tiny_models import tiny_policy
from tests.unit.callbacks.kit import assert_only_watches
from tests.unit.lightning_modules import grpo_kit

PREPARING, MEASURING, STEP, VALIDATING, DRAWING = 10.0, 1e6, 1.0, 1e4, 1e8
LENGTHS = [[3, 1], [2, 2], [4, 0], [1, 3]]
"""Completion tokens of each step. Each step has four, because a resumed fit starts these data again."""
THROWN_AWAY = 100
"""Tokens of each step that are in no rollout, such as refills and continuations."""


class Clock:
    now = 0.0


class Timed(L.LightningModule):
    """Takes a known time for each part of a fit."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.clock = clock

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.clock.now += STEP
        return self.weight.sum()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.clock.now += VALIDATING

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Data(L.LightningDataModule):
    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock
        self.preparing = PREPARING

    def setup(self, stage: str) -> None:
        self.clock.now += self.preparing
        self.preparing = 0.0

    def train_dataloader(self) -> Any:
        return DataLoader(range(len(LENGTHS)), batch_size=1, collate_fn=batch_of)  # type: ignore[arg-type]

    val_dataloader = train_dataloader


def batch_of(numbers: list[int]) -> Any:
    mask = torch.arange(4) < torch.tensor(LENGTHS[numbers[0]])[:, None]
    return SimpleNamespace(
        rollouts=SimpleNamespace(mask=mask), generated=replace(NO_WORK, projected=int(mask.sum()) + THROWN_AWAY)
    )


class Others(L.Callback):
    """Takes time at the start (a measurement of the machine) and after each validation (figures)."""

    def __init__(self, clock: Clock, stop_before: int | None) -> None:
        self.clock, self.stop_before = clock, stop_before

    def on_train_start(self, *_: Any) -> None:
        self.clock.now += MEASURING

    def on_validation_end(self, *_: Any) -> None:
        self.clock.now += DRAWING

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx == self.stop_before:
            raise KeyboardInterrupt


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(cost, "finished_now", lambda: clock.now)
    return clock


def fit_cost(clock: Clock, folder: Path, *, stop_before: int | None = None, resume: Any = None) -> dict[str, float]:
    """Cost after the last step. Checkpoints of each step are in ``folder``."""
    keep = L.pytorch.callbacks.ModelCheckpoint(folder, "{step}", every_n_train_steps=1, save_top_k=-1)
    trainer = quiet_trainer(
        callbacks=[Others(clock, stop_before), Cost(), keep], enable_checkpointing=True, val_check_interval=1
    )
    learner, data = Timed(clock), Data(clock)
    if resume is None:
        trainer.validate(learner, data, verbose=False)
    try:
        trainer.fit(learner, data, ckpt_path=resume, weights_only=True)
    except SystemExit:
        assert stop_before is not None
    return {name: float(value) for name, value in trainer.callback_metrics.items() if "spent" in name}


def test_cost_counts_only_setup_and_steps_also_after_resume(clock: Clock, tmp_path: Path) -> None:
    whole = fit_cost(clock, tmp_path / "whole")
    assert whole == {
        "train/spent/seconds": PREPARING + len(LENGTHS) * STEP,
        "train/spent/tokens": sum(map(sum, LENGTHS)) + THROWN_AWAY * len(LENGTHS),
    }
    fit_cost(clock, tmp_path / "stopped", stop_before=3)
    assert fit_cost(clock, tmp_path / "stopped", resume=tmp_path / "stopped" / "step=2.ckpt") == whole


def test_cost_without_rollouts_logs_only_seconds(clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.batch_of", lambda numbers: torch.tensor(numbers))
    assert set(fit_cost(clock, tmp_path)) == {"train/spent/seconds"}


NAP = 0.05
PEAK = 1e9
PROBLEMS = [Problem(id=str(i), prompt=f"Say {i}:", answer="") for i in range(8)]
CPU = torch.device("cpu")


class Learner(L.LightningModule):
    """Raises the likelihood of its rollouts, names its phases, and sleeps in the reward phase and in validation."""

    def __init__(self, *, names_phases: bool) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.policy = tiny_policy(train_tokenizer([problem.prompt for problem in PROBLEMS], vocab_size=270))
        self.names_phases = names_phases
        self.reward = grpo_kit.Digits()
        self.rollout_step = 0

    def training_step(self, batch: Any, batch_idx: int) -> None:
        if not self.names_phases:
            self.update(batch.rollouts)
            return
        with self.trainer.profiler.profile("reward"):
            time.sleep(NAP)
        with self.trainer.profiler.profile("update"):
            self.update(batch.rollouts)
        lengths = batch.rollouts.prompt_mask.sum(1).tolist(), batch.rollouts.mask.sum(1).tolist()
        self.result = StepResult(work=work_of(*lengths, [0, 0, 0, 1, 1, 1], positions=1000))

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


def generation(kind: type[RolloutGeneration] = RolloutGeneration) -> RolloutGeneration:
    sampling = Sampling(temperature=1.0, top_k=None, top_p=1.0, max_tokens=6, stop=[])
    drawing = {"sampling": sampling, "greedy": replace(sampling, temperature=0.0), "copy_weights": False}
    return grpo_kit.generation(kind, **drawing, engine=Engine(max_batch_tokens=1000), group_size=3, seed=0)


class Steps(L.Callback):
    """Records the metrics and the batch of each step, and the seconds of training and of validations."""

    def __init__(self) -> None:
        self.logged: list[dict[str, float]] = []
        self.batches: list[Any] = []
        self.validations: list[float] = []

    def on_train_start(self, *_: Any) -> None:
        self.began = time.perf_counter()

    def on_validation_start(self, *_: Any) -> None:
        self.validation_began = time.perf_counter()

    def on_validation_end(self, *_: Any) -> None:
        self.validations.append(time.perf_counter() - self.validation_began)

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.seconds = time.perf_counter() - self.began
        values = {name.removeprefix(THROUGHPUT): value for name, value in trainer.callback_metrics.items()}
        self.logged.append({name: float(value) for name, value in values.items()})
        self.batches.append(batch)


def record_fit(module: Learner, *, validate: bool = False, profiler: Any = None) -> tuple[Steps, Any]:
    """The recorded steps, and the trainer's profiler after the fit."""
    steps = Steps()
    trainer = quiet_trainer(
        callbacks=[generation(), Throughput(window=2, tokens=None, peak_flops=PEAK), steps],
        val_check_interval=1,
        limit_val_batches=None if validate else 0,
        profiler=profiler,
    )
    loader: Any = DataLoader(PROBLEMS, batch_size=2, collate_fn=ProblemBatch)  # pyright: ignore[reportArgumentType]
    trainer.fit(module, loader, loader)
    assert len(steps.logged) == 4
    return steps, trainer.profiler  # pyright: ignore[reportAttributeAccessIssue]


def test_phase_seconds_sum_to_step_and_utilisation_matches_formula() -> None:
    module = Learner(names_phases=True)
    steps, profiler = record_fit(module)
    assert isinstance(profiler, PassThroughProfiler), "the listener is taken off afterwards"
    size = decoder_size(module.policy.model)
    for values, batch in zip(steps.logged, steps.batches, strict=True):
        phases = [values[f"{name}_seconds"] for name in ("rollout", "reward", "update", "rest")]
        assert all(taken > 0 for taken in phases)
        assert values["reward_seconds"] >= NAP
        assert sum(phases) == pytest.approx(values["step_seconds"], rel=1e-5)
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


def test_batch_without_named_phases_counts_as_update() -> None:
    for values in record_fit(Learner(names_phases=False))[0].logged:
        phases = [values[f"{name}_seconds"] for name in ("rollout", "update", "rest")]
        assert sum(phases) == pytest.approx(values["step_seconds"], rel=1e-5)
        assert "rollout_utilisation" in values
        unknown = {"reward_seconds", "update_utilisation", "step_utilisation", "update_tokens_per_second"}
        assert not unknown & set(values)


def test_step_seconds_exclude_validation_and_given_profiler_still_records() -> None:
    """Three of the four validations lie between steps. Each sleeps four times."""
    profiler = SimpleProfiler()
    steps, found = record_fit(Learner(names_phases=True), validate=True, profiler=profiler)
    without = steps.seconds - sum(steps.validations[:3])
    assert sum(values["step_seconds"] for values in steps.logged) == pytest.approx(without, abs=6 * NAP)
    assert found is profiler
    assert "reward" in profiler.recorded_durations


def test_throughput_leaves_weights_and_measured_peak_leaves_rng_unchanged() -> None:
    assert_only_watches(Throughput(window=2, tokens=None, peak_flops=None), 2)
    before = torch.get_rng_state()
    assert measured_peak(CPU, torch.float32) > 0
    assert torch.equal(torch.get_rng_state(), before)


def test_memory_in_use_and_peak_memory_include_mapped_pages() -> None:
    before = memory_in_use(CPU)
    size = 128 * 2**20
    with mmap.mmap(-1, size) as held:  # fresh pages: a tensor may get memory that the allocator kept
        held.write(b"1" * size)
        during = memory_in_use(CPU)
        assert during - before > 100
        assert peak_memory(CPU) >= during - 1


STEP_SECONDS = 0.02


class Sleeper(L.LightningModule):
    """A step takes 20 ms and has 100 tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        time.sleep(STEP_SECONDS)
        self.log("train/sleeper/tokens", 100.0, batch_size=len(batch))
        return self.weight.sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.parametrize("tokens", ["train/sleeper/tokens", None])
def test_throughput_logs_rates_of_step_with_known_duration(tokens: str | None) -> None:
    trainer = quiet_trainer(max_steps=8, callbacks=[Throughput(window=4, tokens=tokens, peak_flops=None)])
    trainer.fit(Sleeper(), DataLoader(torch.ones(4, 1), batch_size=1))  # type: ignore[arg-type]
    logged = {name: float(value) for name, value in trainer.callback_metrics.items()}
    steps = logged[f"{THROUGHPUT}steps_per_second"]
    assert 0 < steps <= 1 / STEP_SECONDS
    assert logged[f"{THROUGHPUT}seconds_left"] == 0
    counted = None if tokens is None else pytest.approx(100 * steps, rel=1e-3)
    assert logged.get(f"{THROUGHPUT}tokens_per_second") == counted
