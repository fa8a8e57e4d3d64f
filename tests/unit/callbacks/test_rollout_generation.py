"""``RolloutGeneration`` adds rollouts to each batch before the module's step."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import lightning as L
import pytest
import torch
from torch.utils.data import DataLoader

from callbacks.progress import Progress
from callbacks.rollout_generation import RolloutGeneration
from contrastive_reasoning.policies.tiny import train_tokenizer
from contrastive_reasoning.progress import JSONLines
from contrastive_reasoning.rewards import Credit
from contrastive_reasoning.rollout import Engine, RolloutBatch, Sampling
from contrastive_reasoning.tasks.base import Problem
from datamodules.reasoning_prompts import ProblemBatch, ProblemSteps
from tests.hf_engine import HFEngine
from tests.quiet import quiet_trainer
from tests.tiny_models import tiny_policy
from tests.unit.lightning_modules.grpo_kit import generation

SAMPLED = Sampling(temperature=1.0, top_k=None, top_p=1.0, max_tokens=5, stop=[])
GREEDY = replace(SAMPLED, temperature=0.0)
PROBLEMS = [Problem(id=str(i), prompt=f"Say {i}:", answer="") for i in range(6)]


class Nothing:
    """A reward of 0 for all rollouts."""

    def __init__(self, reads_states: bool) -> None:
        self.reads_states = reads_states

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        return Credit(outcome=torch.zeros(len(rollouts)), parts={})


class Watcher(L.LightningModule):
    """Keeps its rollouts; trains nothing."""

    def __init__(self, rollout_step: int = 0, reads_states: bool = False) -> None:
        super().__init__()
        self.reward = Nothing(reads_states)
        self.automatic_optimization = False
        tokenizer = train_tokenizer([problem.prompt for problem in PROBLEMS], vocab_size=270)
        self.policy = tiny_policy(tokenizer)
        self.rollout_step = rollout_step
        self.trained: list[RolloutBatch] = []
        self.validated: list[tuple[RolloutBatch, RolloutBatch | None]] = []
        self.modes: list[bool] = []

    def training_step(self, batch: Any, batch_idx: int) -> None:
        self.modes.append(self.policy.training)
        self.trained.append(batch.rollouts)
        self.rollout_step += 1

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.validated.append((batch.rollouts, batch.sampled))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.0)


def callback(**changes: Any) -> RolloutGeneration:
    settings: dict[str, Any] = {"engine": Engine(max_batch_tokens=1000), "group_size": 3, "seed": 0}
    return generation(**settings | {"sampling": SAMPLED, "greedy": GREEDY, "validation_samples": 2} | changes)


def run_fit(
    rollout_step: int = 0, reads_states: bool = False, progress: Progress | None = None, **changes: Any
) -> tuple[Watcher, L.Trainer]:
    module = Watcher(rollout_step, reads_states)
    callbacks = [callback(**changes), *([] if progress is None else [progress])]
    trainer = quiet_trainer(callbacks=callbacks, enable_progress_bar=progress is not None)
    trainer.fit(module, loader(PROBLEMS), loader(PROBLEMS[:2]))
    return module, trainer


@pytest.fixture(scope="module")
def plain() -> tuple[Watcher, L.Trainer]:
    """A fit with unchanged settings."""
    return run_fit()


def loader(problems: Sequence[Problem]) -> DataLoader[Any]:
    return DataLoader(list(problems), batch_size=2, collate_fn=ProblemBatch)  # pyright: ignore[reportArgumentType]


def test_training_batch_has_its_groups_and_policy_in_training_mode(plain: tuple[Watcher, L.Trainer]) -> None:
    module, trainer = plain
    assert [[p.id for p in rollouts.problems] for rollouts in module.trained] == [["0", "1"], ["2", "3"], ["4", "5"]]
    assert all(len(rollouts) == 6 and rollouts.group_size == 3 for rollouts in module.trained)
    assert module.modes == [True] * 3
    assert float(trainer.callback_metrics["train/throughput/tokens_per_second"]) > 0


def test_progress_counts_completions_during_generation(
    plain: tuple[Watcher, L.Trainer], capsys: pytest.CaptureFixture[str]
) -> None:
    """Six for each training step; in validation two greedy completions and four samples."""
    shown = Progress(stage="grpo", metrics=[], window=5, display=JSONLines(seconds_between_lines=0.0))
    watched, _ = run_fit(progress=shown)
    messages = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    drawing = [(line["step"], line["steps"]) for line in messages if line["phase"] == "drawing"]
    counts = {total: [(done, total) for done in range(1, total + 1)] for total in (2, 4, 6)}
    assert drawing == [*counts[6] * 3, *counts[2], *counts[4]]
    assert {line["unit"] for line in messages if line["phase"] == "drawing"} == {"completions"}
    assert [rollouts.texts for rollouts in watched.trained] == [r.texts for r in plain[0].trained]


def test_hidden_states_are_pooled_only_for_rewards_that_read_them(plain: tuple[Watcher, L.Trainer]) -> None:
    assert all(rollouts.pooled is None for rollouts in plain[0].trained)
    for rollouts in run_fit(reads_states=True)[0].trained:
        assert rollouts.pooled is not None
        assert rollouts.pooled.shape == (6, 16)


def test_validation_batch_has_greedy_and_sampled_rollouts(plain: tuple[Watcher, L.Trainer]) -> None:
    rollouts, sampled = plain[0].validated[0]
    assert (len(rollouts), rollouts.group_size, rollouts.temperature) == (2, 1, 1.0)
    assert sampled is not None
    assert (len(sampled), sampled.group_size) == (4, 2)
    assert run_fit(validation_samples=0)[0].validated[0][1] is None


def test_draws_depend_only_on_seed_and_rollout_step(plain: tuple[Watcher, L.Trainer]) -> None:
    def texts(module: Watcher) -> tuple[list[str], list[str]]:
        sampled = module.validated[0][1]
        assert sampled is not None
        return module.trained[0].texts, sampled.texts

    first, again, later, other = (
        texts(module) for module, _ in (plain, run_fit(), run_fit(rollout_step=9), run_fit(seed=1))
    )
    assert first == again
    assert first[0] not in (later[0], other[0])
    assert first[1] == later[1], "validation draws the same numbers each time"


@pytest.mark.parametrize("setting", [{"group_size": 1}, {"validation_samples": -1}, {"greedy": SAMPLED}])
def test_invalid_settings_raise(setting: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(setting))):
        callback(**setting)


def drawn_groups(rank: int, ranks: int, engine: Any) -> list[tuple[str, ...]]:
    """The groups of this rank in a step that has each of two problems four times."""
    steps = ProblemSteps(
        problems=PROBLEMS[:2], problems_per_step=8, steps=1, first_step=0, seed=0, rank=rank, ranks=ranks
    )
    module = Watcher()
    trainer = quiet_trainer(callbacks=[callback(engine=engine)], limit_val_batches=0)
    trainer.fit(module, DataLoader(list(steps), batch_size=None))  # pyright: ignore[reportArgumentType]
    (rollouts,) = module.trained
    return [tuple(rollouts.texts[row : row + 3]) for row in range(0, len(rollouts), 3)]


def test_ranks_together_draw_the_groups_of_one_process_though_problems_repeat() -> None:
    engine = Engine(max_batch_tokens=1000)
    alone = drawn_groups(0, 1, engine)
    assert len(set(alone)) == 8
    assert sorted(drawn_groups(0, 2, engine) + drawn_groups(1, 2, engine)) == sorted(alone)
    # transformers draws all rows from one generator, so its ranks draw other groups, but none twice
    ours = HFEngine(max_batch_tokens=1000)
    assert len({*drawn_groups(0, 2, ours), *drawn_groups(1, 2, ours)}) == 8
