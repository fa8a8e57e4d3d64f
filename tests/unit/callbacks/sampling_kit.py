"""A task, an engine, a reward and a module of which everything is known, for the tests of dynamic sampling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch

from callbacks.dynamic_sampling import DynamicSampling
from contrastive_reasoning.rewards import Credit
from contrastive_reasoning.rollout import RolloutBatch, Sampling, Seed
from contrastive_reasoning.rollout.base import Written
from contrastive_reasoning.tasks.base import Problem, Verdict

SAMPLED = Sampling(temperature=1.0, top_k=None, top_p=1.0, max_tokens=5, stop=[])
MIXED = frozenset({2, 5, 7, 11, 13})
"""Problems of which some completions are right and some wrong; of the others every one is right or every one wrong."""


class Numbered:
    """A task of 20 problems in which a completion says itself whether it is right."""

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
    """An engine whose completions are known: right and wrong by turns for a mixed problem, else all the same."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[int], Seed, bool]] = []

    def generate(
        self,
        policy: Any,
        problems: Sequence[Problem],
        *,
        group_size: int,
        sampling: Sampling,
        seed: Seed,
        pooled: bool,
        written: Written | None = None,
    ) -> RolloutBatch:
        numbers = [int(problem.id) for problem in problems]
        self.asked.append((numbers, seed, pooled))
        rows = [(number, i) for number in numbers for i in range(group_size)]
        texts = [
            "right" if (number in MIXED and i % 2) or (number not in MIXED and number % 2) else "wrong"
            for number, i in rows
        ]
        ids = torch.tensor([[number + 1, i + 1] for number, i in rows])
        return RolloutBatch(
            problems=list(problems),
            prompt_ids=torch.tensor([[number] for number in numbers]),
            prompt_mask=torch.ones(len(numbers), 1, dtype=torch.bool),
            completion_ids=ids,
            mask=torch.ones_like(ids, dtype=torch.bool),
            old_log_probs=torch.zeros(ids.shape),
            temperature=1.0,
            pooled=ids.float() if pooled else None,
            texts=texts,
            token_spans=[[(0, 0), (0, 0)]] * len(rows),
            finish_reasons=["stop"] * len(rows),
            group_size=group_size,
        )


class Silent:
    """A reward that pays nothing; it may read pooled states."""

    def __init__(self, reads_states: bool = False) -> None:
        self.reads_states = reads_states

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        return Credit(outcome=torch.zeros(len(rollouts)), parts={})


class Module:
    """What the callback asks of a module."""

    def __init__(self, rollout_step: int = 0, reads_states: bool = False) -> None:
        self.rollout_step = rollout_step
        self.policy = SimpleNamespace(pad_token_id=0, prompt_ids=list)
        self.reward = Silent(reads_states)
        self.logged: dict[str, float] = {}

    def log(self, name: str, value: float, *, batch_size: int) -> None:
        self.logged[name] = value


def callback(engine: Any, **changes: Any) -> DynamicSampling:
    settings: dict[str, Any] = {
        "engine": engine,
        "group_size": 4,
        "sampling": SAMPLED,
        "greedy": replace(SAMPLED, temperature=0.0),
        "validation_samples": 0,
        "seed": 0,
        "task": Numbered(),
        "max_prompt_tokens": None,
        "max_refills": 3,
    }
    return DynamicSampling(**(settings | changes))
