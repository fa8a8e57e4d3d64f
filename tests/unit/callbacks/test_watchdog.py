"""The watchdog in a real Trainer: it reports phases that hang, with their stacks, and leaves training unchanged."""

from __future__ import annotations

import ctypes
import re
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.profilers import PassThroughProfiler, SimpleProfiler
from torch.utils.data import DataLoader

from callbacks.cost import THROUGHPUT, Throughput
from callbacks.online_critic import OnlineCritic
from callbacks.rollout_generation import RolloutGeneration
from callbacks.watchdog import Watchdog
from contrastive_reasoning.stack_dump import StackDump
from datamodules.reasoning_prompts import ProblemBatch
from tests.quiet import quiet_trainer
from tests.unit.callbacks.test_cost import PROBLEMS, Learner, generation

HANG, LIMIT = 60.0, 1.0
"""Seconds. The work before the sleep ends within the limit, even on a busy machine. The sleep ends with the dump."""
PHASES = ("data", "rollout", "reward", "update", "critic", "validation", "checkpoint")
ALL: dict[str, float | None] = dict.fromkeys(PHASES, 60.0)


class Sleepy(Learner):
    """Sleeps once in each given phase, until its stacks are written or the given seconds have passed."""

    def __init__(self, **naps: float) -> None:
        torch.manual_seed(0)
        super().__init__(names_phases=True)
        self.naps = naps

    def nap(self, phase: str) -> None:
        trainer: Any = self.trainer
        until = time.monotonic() + self.naps.pop(phase, 0.0)
        while time.monotonic() < until and "in nap" not in stacks_of(trainer.default_root_dir, phase):
            time.sleep(0.05)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        trainer: Any = self.trainer
        with trainer.profiler.profile("reward"):
            self.nap("reward")
        with trainer.profiler.profile("update"):
            self.nap("update")
            self.update(batch.rollouts)

    def on_validation_start(self) -> None:
        self.nap("validation")

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.nap("checkpoint")


class SleepyGeneration(RolloutGeneration):
    def on_train_batch_start(self, trainer: L.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        pl_module.nap("rollout")
        super().on_train_batch_start(trainer, pl_module, batch, batch_idx)


class SleepyCritic(OnlineCritic):
    """Its updates take long; their effect is tested elsewhere."""

    def __init__(self) -> None:
        pass

    def setup(self, *_: Any, **__: Any) -> None:
        pass

    def on_train_batch_start(self, *_: Any) -> None:
        pass

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, *_: Any) -> None:
        pl_module.nap("critic")

    def state_dict(self) -> dict[str, Any]:
        return {}


class SleepyLoader(DataLoader[Any]):
    def __init__(self, module: Sleepy) -> None:
        problems: Any = PROBLEMS
        super().__init__(problems, batch_size=2, collate_fn=ProblemBatch)
        self.module = module

    def __iter__(self) -> Any:
        for batch in super().__iter__():
            self.module.nap("data")
            yield batch


class Saves(L.Callback):
    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        trainer.save_checkpoint(Path(trainer.default_root_dir) / "x.ckpt")


def fit(module: Sleepy, folder: Path, *callbacks: L.Callback, profiler: Any = None) -> Any:
    trainer = quiet_trainer(
        max_steps=2,
        val_check_interval=1,
        limit_val_batches=1,
        callbacks=[*callbacks, generation(SleepyGeneration), SleepyCritic(), Saves()],
        default_root_dir=folder,
        profiler=profiler,
    )
    held_out: Any = DataLoader(PROBLEMS, batch_size=2, collate_fn=ProblemBatch)  # pyright: ignore[reportArgumentType]
    trainer.fit(module, SleepyLoader(module), held_out)
    return trainer


def stacks_of(folder: str | Path, phase: str) -> str:
    """What was written while this phase hung."""
    path = Path(folder) / "stacks" / "rank0.txt"
    parts = re.split(r"^(?=\d{4}-.* has lasted)", path.read_text() if path.exists() else "", flags=re.M)
    return "".join(part for part in parts if f" {phase} after step " in part)


def stack_warnings(caught: list[warnings.WarningMessage]) -> list[str]:
    return [str(warning.message) for warning in caught if "every thread" in str(warning.message)]


def test_phase_over_its_limit_warns_and_dumps_stacks(tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(Sleepy(**dict.fromkeys(PHASES, HANG)), tmp_path, Watchdog(limits=dict.fromkeys(PHASES, LIMIT)))
    sentences = sorted(set(stack_warnings(caught)))
    assert len(sentences) == len(PHASES)
    for phase, sentence in zip(sorted(PHASES), sentences, strict=True):
        assert re.search(rf"^{phase} .* step 0 .* {LIMIT:g} s; .*{tmp_path / 'stacks' / 'rank0.txt'}$", sentence)
        stacks = stacks_of(tmp_path, phase)
        assert re.search(rf"{phase} .* step 0 .* {LIMIT:g} s", stacks)
        assert re.search(r'test_watchdog.py", line \d+ in nap', stacks), "the line that hangs"


def test_watchdog_leaves_weights_bitwise_unchanged(tmp_path: Path) -> None:
    alone, watched = Sleepy(), Sleepy(update=HANG)
    before = {name: value.clone() for name, value in alone.state_dict().items()}
    fit(alone, tmp_path)
    with pytest.warns(UserWarning, match=r"update.* 0 "):
        fit(watched, tmp_path, Watchdog(limits={**ALL, "update": 0.2}))
    assert any(not torch.equal(value, before[name]) for name, value in alone.state_dict().items()), "it learned"
    assert all(torch.equal(value, watched.state_dict()[name]) for name, value in alone.state_dict().items())


@pytest.mark.parametrize("first", ["watchdog", "throughput"])
def test_watchdog_throughput_and_given_profiler_all_receive_phases(first: str, tmp_path: Path) -> None:
    callbacks = [Watchdog(limits=ALL), Throughput(window=2, tokens=None, peak_flops=1e9)]
    profiler = SimpleProfiler()
    trainer = fit(
        Sleepy(reward=0.3), tmp_path, *(callbacks if first == "watchdog" else callbacks[::-1]), profiler=profiler
    )
    names = {f"{THROUGHPUT}{phase}_seconds" for phase in ("rollout", "reward", "update")}
    assert names <= trainer.callback_metrics.keys()
    assert trainer.profiler is profiler
    assert "update" in profiler.recorded_durations
    assert not (tmp_path / "stacks" / "rank0.txt").exists(), "there is a file only where there are stacks"


def test_watchdog_timers_stop_when_fit_raises(tmp_path: Path) -> None:
    class Fails(Sleepy):
        def update(self, rollouts: Any) -> None:
            raise ArithmeticError("no step")

    with pytest.raises(ArithmeticError):
        fit(Fails(), tmp_path, Watchdog(limits=ALL))
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.join(30.0)
            assert not thread.is_alive(), "it waits for its limit of 60 s"
    assert not (tmp_path / "stacks" / "rank0.txt").exists()


def hangs_in_c() -> None:
    """Keeps the interpreter lock for two seconds, so that no Python thread runs."""
    ctypes.PyDLL(None).sleep(2)


def test_stack_dump_reports_c_code_that_holds_the_interpreter_lock(tmp_path: Path) -> None:
    """faulthandler writes the stacks from C, and the warning follows afterwards."""
    path = tmp_path / "stacks.txt"
    with StackDump({"reward": 0.2}, path) as stacks, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        stacks.begin("reward", at="after step 7")
        hangs_in_c()
        stacks.end("reward")
        assert path.read_text().startswith("Timeout (0:00:01.2"), "not the thread, which has its turn when it is over"
    assert "in hangs_in_c" in path.read_text()
    (sentence,) = stack_warnings(caught)
    assert sentence.startswith("reward after step 7 has lasted longer than 0.2 s")


def test_nested_activity_is_watched_by_limit_of_outer_one(tmp_path: Path) -> None:
    stacks = StackDump({"validation": 0.3, "rollout": 0.01}, tmp_path / "stacks.txt")
    with stacks, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        stacks.begin("validation", at="after step 1")
        stacks.begin("rollout", at="after step 1")
        stacks.end("rollout")
        time.sleep(0.8)
        stacks.end("validation")
    assert [message.split()[0] for message in stack_warnings(caught)] == ["validation"]


def test_watchdog_without_limits_is_off(tmp_path: Path) -> None:
    trainer = fit(Sleepy(update=0.3), tmp_path, Watchdog(limits=dict.fromkeys(ALL)))
    assert isinstance(trainer.profiler, PassThroughProfiler)
    assert not (tmp_path / "stacks").exists()


def said_while(path: Path, *beats: tuple[str, float], limit: float | None = 0.4) -> list[str]:
    """Returns the warnings for these beats, each followed by a pause of some seconds."""
    with StackDump({"evaluation": limit}, path) as dump, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for at, seconds in beats:
            dump.beat("evaluation", at, always=at.startswith("anew"))
            time.sleep(seconds)
    return [str(warning.message) for warning in caught]


def test_stack_dump_warns_after_limit_and_writes_stacks(tmp_path: Path) -> None:
    path = tmp_path / "stacks" / "rank0.txt"
    (message,) = said_while(path, ("of start", 0.15), ("of test, after 3 problems,", 0.6), limit=0.2)
    assert re.search(rf"^evaluation of test, after 3 problems, .* 0\.2 s; .*{path}$", message)
    assert "in said_while" in path.read_text()


def test_beat_with_always_counts_soon_after_another(tmp_path: Path) -> None:
    messages = said_while(tmp_path / "a.txt", ("after 3", 0.0), ("after 4", 0.0), ("anew", 0.8))
    assert [message.partition(" has ")[0] for message in messages] == ["evaluation anew"]


def test_regular_beats_cause_no_warning_and_no_file(tmp_path: Path) -> None:
    assert said_while(tmp_path / "a.txt", *[("of test", 0.02)] * 60) == []
    assert said_while(tmp_path / "stacks" / "a.txt", ("of test", 0.0), limit=None) == []
    assert not list(tmp_path.iterdir())


def test_limit_must_be_positive(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"limits\.evaluation"):
        StackDump({"evaluation": 0.0}, tmp_path / "rank0.txt")
