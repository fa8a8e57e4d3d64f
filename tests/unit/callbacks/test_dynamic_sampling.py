"""Dynamic sampling: which groups are replaced, by which, and how often."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from callbacks.rollout_generation import DynamicSampling, equal_groups, verified_groups
from contrastive_reasoning.rollout import Engine, RolloutBatch, Seed
from contrastive_reasoning.tasks.base import Problem, Verdict
from datamodules.reasoning_prompts import ProblemBatch
from tests.quiet import quiet_trainer
from tests.rollout_batches import rollout_batch
from tests.unit.callbacks.test_rollout_generation import SAMPLED, Nothing, Watcher
from tests.unit.lightning_modules.grpo_kit import generation

MIXED = frozenset({2, 5, 7, 11, 13})
"""Problems with right and wrong completions. The completions of other problems are all right or all wrong."""


class Numbered:
    """A task of 20 problems in which the text of a completion is its verdict."""

    name = "numbered"

    def __init__(self, total: int = 20) -> None:
        self.posed = [Problem(id=str(i), prompt=f"Say {i}:", answer="") for i in range(total)]

    def problems(self, split: str) -> Sequence[Problem]:
        assert split == "train"
        return self.posed

    def verify(self, problem: Problem, completion: str) -> Verdict:
        if completion == "broken":
            return Verdict(status="error", reason="out of order")
        return Verdict(status="ok", reason="") if completion == "right" else Verdict(status="wrong", reason="so it is")

    def parse_steps(self, problem: Problem, completion: str) -> list[Any]:
        return []

    def scores(self, problem: Problem, completion: str) -> dict[str, float]:
        return {}


class Scripted:
    """An engine with known completions: alternately right and wrong for a mixed problem, else all equal."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[int], Seed, bool]] = []

    def generate(
        self, policy: Any, problems: Sequence[Problem], *, group_size: int, seed: Seed, pooled: bool, **_: Any
    ) -> RolloutBatch:
        numbers = [int(problem.id) for problem in problems]
        self.asked.append((numbers, seed, pooled))
        rows = [(number, i) for number in numbers for i in range(group_size)]
        texts = [
            "right" if (number in MIXED and i % 2) or (number not in MIXED and number % 2) else "wrong"
            for number, i in rows
        ]
        ids = torch.tensor([[number + 1, i + 1] for number, i in rows])
        return rollout_batch(
            list(problems),
            torch.ones_like(ids, dtype=torch.bool),
            prompt_ids=torch.tensor([[number] for number in numbers]),
            completion_ids=ids,
            pooled=ids.float() if pooled else None,
            texts=texts,
            token_spans=[[(0, 0), (0, 0)]] * len(rows),
        )


class Module:
    """The attributes of a module that the callback uses."""

    def __init__(self, rollout_step: int = 0, policy: Any = None) -> None:
        self.rollout_step = rollout_step
        self.policy = policy or SimpleNamespace(pad_token_id=0, prompt_ids=list)
        self.reward = Nothing(reads_states=False)
        self.logged: dict[str, float] = {}

    def log(self, name: str, value: float, *, batch_size: int) -> None:
        self.logged[name] = value


def callback(engine: Any, **changes: Any) -> DynamicSampling:
    drawing: dict[str, Any] = {"sampling": SAMPLED, "greedy": replace(SAMPLED, temperature=0.0), "seed": 0}
    refills = {"task": Numbered(), "max_prompt_tokens": None, "max_refills": 3}
    return generation(DynamicSampling, engine=engine, **drawing | refills | changes)


def run_callback(
    numbers: Sequence[int], module: Module | None = None, **changes: Any
) -> tuple[ProblemBatch, Module, Scripted]:
    engine, module = Scripted(), module or Module()
    posed = Numbered().posed
    batch = ProblemBatch([posed[number] for number in numbers])
    trainer: Any = SimpleNamespace(global_rank=0)
    callback(engine, **changes).on_train_batch_start(trainer, module, batch, 0)
    return batch, module, engine


def numbers_of(batch: ProblemBatch) -> list[int]:
    assert batch.rollouts is not None
    assert batch.problems == tuple(batch.rollouts.problems)
    return [int(problem.id) for problem in batch.problems]


def test_equal_groups_are_replaced_in_place_by_unseen_problems() -> None:
    batch, module, engine = run_callback([0, 2, 1, 5], max_refills=20)
    found = numbers_of(batch)
    assert found[1::2] == [2, 5], "groups that teach stay where they are"
    assert set(found[::2]) < MIXED - {2, 5}
    drawn = [number for numbers, _, _ in engine.asked for number in numbers]
    assert len(drawn) == len(set(drawn)), "no problem is drawn twice in a step"
    assert module.logged["train/rollout/refilled_groups"] == 0.5
    assert module.logged["train/rollout/equal_groups"] == 0.5, "as drawn: of the first four"
    assert module.logged["train/rollout/drawn_success"] == 0.5, "by turns, none, all, by turns"
    assert module.logged["train/rollout/refills"] == len(engine.asked) - 1
    assert batch.generated.projected == 2 * 4 * len(drawn), "two tokens a completion, groups of four, those dropped too"
    assert batch.generated.tokens == (1 + 2 * 4) * len(drawn), "a prompt of one token is read once for its group"


def test_refill_draws_at_most_the_number_of_missing_groups() -> None:
    _, _, engine = run_callback([0, 2, 1, 3], max_refills=20)
    lacking = 3
    for numbers, _, _ in engine.asked[1:]:
        assert len(numbers) <= lacking
        lacking -= len(MIXED & set(numbers))
    assert lacking == 0


def test_equal_groups_stay_after_max_refills_and_batch_keeps_its_size() -> None:
    batch, module, engine = run_callback([0, 1, 3, 4, 6, 8, 9, 10], max_refills=1)
    found = numbers_of(batch)
    assert len(engine.asked) == 2
    assert len(found) == 8
    replaced = [number for number in found if number in MIXED]
    assert replaced, "some of the draw differ, for this seed"
    assert found[len(replaced) :] == [0, 1, 3, 4, 6, 8, 9, 10][len(replaced) :]
    assert module.logged["train/rollout/refilled_groups"] == len(replaced) / 8


@pytest.mark.parametrize(("numbers", "problems"), [([2, 5, 7], 20), ([0, 2, 1], 3)])
def test_no_refill_without_equal_groups_or_remaining_problems(numbers: list[int], problems: int) -> None:
    batch, module, engine = run_callback(numbers, task=Numbered(total=problems))
    assert numbers_of(batch) == numbers
    assert len(engine.asked) == 1
    assert (module.logged["train/rollout/refills"], module.logged["train/rollout/refilled_groups"]) == (0, 0)


def test_draws_depend_only_on_seed_step_and_refill() -> None:
    def requests(step: int = 0, **changes: Any) -> list[tuple[list[int], Seed, bool]]:
        torch.rand(3)  # the global generator must have no effect
        return run_callback([0, 1, 3], Module(step), **changes)[2].asked

    first = requests()
    assert first == requests()
    assert first[1] != requests(step=1)[1] != requests(seed=1)[1] != first[1]
    seeds = [seed for _, seed, _ in first]
    assert len(set(seeds)) == len(seeds) > 2


def test_equal_groups_ignores_completions_with_verifier_error() -> None:
    rollouts = Scripted().generate(None, Numbered().posed[:3], group_size=2, sampling=SAMPLED, seed=(0,), pooled=False)
    texts = ["right", "broken", "broken", "wrong", "right", "wrong"]
    groups = verified_groups(Numbered(), replace(rollouts, texts=texts))
    assert groups.isnan().tolist() == [[False, True], [True, False], [False, False]]
    assert equal_groups(groups) == [0, 1]
    assert equal_groups(verified_groups(Numbered(), rollouts)) == [0, 1], "all wrong, all right, by turns"


def test_refill_skips_prompts_over_max_prompt_tokens() -> None:
    """The prompt "Say 9:" has six letters of one token each; "Say 10:" has one more."""
    _, _, engine = run_callback([0, 1, 3, 4, 6, 8], max_refills=9, max_prompt_tokens=6)
    drawn = {number for numbers, _, _ in engine.asked[1:] for number in numbers}
    assert drawn == {2, 5, 7, 9}


def test_max_refills_below_one_raises() -> None:
    with pytest.raises(ValueError, match=r"max_refills.*0"):
        callback(Scripted(), max_refills=0)


class ByLetters(Numbered):
    """A text is right if its character codes have an even sum, so a random policy writes both kinds."""

    def verify(self, problem: Problem, completion: str) -> Verdict:
        return super().verify(problem, "right" if sum(map(ord, completion)) % 2 == 0 else "wrong")


def test_trainer_with_real_engine_gets_batches_without_equal_groups() -> None:
    module, task = Watcher(), ByLetters()
    batches: Any = DataLoader(task.posed[:6], batch_size=3, collate_fn=ProblemBatch)  # pyright: ignore
    refilling = callback(Engine(max_batch_tokens=1000), group_size=2, task=task, max_refills=8)
    trainer = quiet_trainer(callbacks=[refilling])
    trainer.fit(module, batches)
    for rollouts in module.trained:
        assert len(rollouts) == 6
        assert equal_groups(verified_groups(task, rollouts)) == []
        assert (rollouts.old_log_probs[rollouts.mask] < 0).all()
    assert float(trainer.callback_metrics["train/rollout/refilled_groups"]) > 0
