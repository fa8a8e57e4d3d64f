"""Evaluation of a policy on given problems: greedy and sampled success, the benchmark's own scores, failure reasons."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import comb
from statistics import mean
from typing import Any, get_args

from contrastive_reasoning.distributed import gather, share, unshare
from contrastive_reasoning.evaluation.intervals import mean_interval
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.ranges import at_least
from contrastive_reasoning.rollout.batch import RolloutBatch, judge
from contrastive_reasoning.rollout.requests import RolloutEngine, Written
from contrastive_reasoning.rollout.sampling import Sampling
from contrastive_reasoning.rollout.spans import readable
from contrastive_reasoning.tasks.base import Problem, Status, Task, Verdict, correct_in_forms

GREEDY, SAMPLED = "verifier/accuracy", "verifier/accuracy_sampled"
"""The metrics shown as progress, by the completions that they are over."""
SEEN = "problems/seen_in_training"
"""1 if the problems are those of training, else 0."""
Rates = Callable[[], Mapping[str, float]]
"""Metric → its value over the completions so far; short completions come first."""
Watch = Callable[[int, Rates], None]
"""Called with how many problems' worth of completions are written, and a function that returns the success so far."""


class SoFar:
    """Counts completions as they are written, and verifies each once, when the rates are read.

    Args:
        task: verifies completions.
        own: the problems of this rank, at least one.
        count: the number of problems of all ranks; the other ranks are assumed to be as far as this one.
        samples: completions of each problem beside the greedy one.
        watch: called after each completion; None: no progress is reported.
    """

    def __init__(self, task: Task, own: Sequence[Problem], *, count: int, samples: int, watch: Watch | None) -> None:
        self.task, self.own, self.count, self.watch = task, own, count, watch
        self._all = len(own) * (1 + samples)
        self._written = 0
        self._waiting: list[tuple[str, int, Problem, str]] = []
        self._known: dict[str, dict[int, Verdict]] = {GREEDY: {}, SAMPLED: {}}

    def listener(self, metric: str, group_size: int) -> Written | None:
        """A callback for an engine that writes ``group_size`` completions of each problem for ``metric``."""
        watch = self.watch
        if watch is None:
            return None

        def written(row: int, text: str) -> None:
            self._waiting.append((metric, row, self.own[row // group_size], text))
            self._written += 1
            watch(self._written * self.count // self._all, self.rates)

        return written

    def rates(self) -> dict[str, float]:
        """The share of correct completions among those written so far, for each kind that has any."""
        waiting, self._waiting = self._waiting, []
        verdicts = judge(self.task, [problem for *_, problem, _ in waiting], [text for *_, text in waiting])
        for (metric, row, *_), verdict in zip(waiting, verdicts, strict=True):
            self._known[metric][row] = verdict
        return {
            metric: mean(float(verdict.correct) for verdict in known.values())
            for metric, known in self._known.items()
            if known
        }

    def verdicts(self, metric: str, rollouts: RolloutBatch) -> list[Verdict]:
        """Verdicts on all rollouts that were written for ``metric``."""
        known = self._known[metric]
        rows = [row for row in range(len(rollouts)) if row not in known]
        problems = [rollouts.problem_of(row) for row in rows]
        known |= zip(rows, judge(self.task, problems, [rollouts.texts[row] for row in rows]), strict=True)
        return [known[row] for row in range(len(rollouts))]


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """1 − C(n − c, k) / C(n, k), Eq. (1) of Chen et al. (arXiv:2107.03374): unbiased.

    The chance that at least one of k completions, drawn without replacement from n of which c are correct, is correct.
    Raises ValueError unless 0 ≤ c ≤ n and 1 ≤ k ≤ n.
    """
    if not 0 <= correct <= samples:
        raise ValueError(f"correct must lie between 0 and the {samples} samples, got {correct}")
    if not 1 <= k <= samples:
        raise ValueError(f"pass@{k} needs at least {k} samples and k ≥ 1, got {samples} samples")
    return 1.0 - comb(samples - correct, k) / comb(samples, k)


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The results, with names without the prefix ``start/``, ``val/`` or ``test/``."""

    metrics: Mapping[str, float]
    """``source/quantity``; each mean over problems comes with its 95% interval, ``…_low`` and ``…_high``."""
    reasons: Mapping[str, int]
    """The count of each reason (numbers written as #) in verdicts on greedy completions; "ok" for success."""
    rows: Sequence[Mapping[str, Any]]
    """One row per problem: prompt, answer, greedy completion, verdict, how many samples were correct."""


def evaluate(
    policy: CausalLMPolicy,
    task: Task,
    problems: Sequence[Problem],
    *,
    engine: RolloutEngine,
    samples: int,
    sampling: Sampling,
    greedy: Sampling,
    k_values: Sequence[int],
    seed: int,
    watch: Watch | None = None,
) -> Evaluation:
    """Generates one greedy and ``samples`` sampled completions of each problem and verifies them.

    With several ranks, each generates its share. All ranks then have the full result, the same as from one process.

    Args:
        problems: at least one.
        engine: generates completions; its token budget bounds the memory.
        samples: per problem; 0 omits ``accuracy_sampled`` and ``pass_at_k``.
        sampling: settings of the sampled completions.
        greedy: settings of the greedy one; temperature 0.
        k_values: pass@k for these k, each at most ``samples``.
        seed: of the samples and of the bootstrap.

    Raises:
        ValueError: for no problems, a ``greedy`` that samples, or a k above ``samples``.
    """
    if not problems:
        raise ValueError("no problems were given: an evaluation needs at least one")
    check_samples(samples, greedy, k_values)
    mine = share(problems)
    own = mine or problems[:1]  # unused without a share: in some engines ranks wait for each other
    so_far = SoFar(task, own, count=len(problems), samples=samples, watch=watch if mine else None)

    def generate(metric: str, group_size: int, how: Sampling, *name: str) -> RolloutBatch:
        written, key = so_far.listener(metric, group_size), (seed, "evaluate", *name)
        return engine.generate(policy, own, group_size=group_size, sampling=how, seed=key, written=written)

    best = generate(GREEDY, 1, greedy, "greedy")
    judged_here = _judge(task, best, generate(SAMPLED, samples, sampling) if samples else None, k_values, so_far)
    found = unshare(gather(judged_here if mine else []))
    verdicts = [one.verdict for one in found]
    values = {name: [one.values[name] for one in found] for name in found[0].values}
    metrics = with_intervals(values, questions=[(one.prompt, one.answer) for one in problems], seed=seed)
    statuses = Counter(verdict.status for verdict in verdicts)
    metrics |= {f"verdict/{status}": statuses[status] / len(verdicts) for status in get_args(Status)}
    # a task may train on its benchmark
    seen = bool(getattr(task, "trains_on_evaluation_problems", False))
    metrics |= {"problems/count": float(len(problems)), SEEN: float(seen)}
    reasons = Counter(reason_kind(verdict) for verdict in verdicts)
    return Evaluation(metrics=metrics, reasons=reasons, rows=[one.row for one in found])


@dataclass(frozen=True, kw_only=True)
class _Judged:
    """One problem with the verdict on its greedy completion, and its values to average over problems."""

    verdict: Verdict
    values: Mapping[str, float]
    row: Mapping[str, Any]


def _judge(
    task: Task, best: RolloutBatch, drawn: RolloutBatch | None, k_values: Sequence[int], so_far: SoFar
) -> list[_Judged]:
    """Verdicts and values of each problem of ``best``, with its samples, which are in the same order."""
    verdicts = so_far.verdicts(GREEDY, best)
    scores = [task.scores(best.problem_of(row), text) for row, text in enumerate(best.texts)]
    columns = {
        GREEDY: [float(verdict.correct) for verdict in verdicts],
        **{f"{GREEDY}_{form}": list(map(float, right)) for form, right in correct_in_forms(verdicts).items()},
        **{name: [float(score[name]) for score in scores] for name in scores[0]},
        "completion/tokens": best.mask.sum(1).double().tolist(),
        "completion/truncated": [float(reason == "length") for reason in best.finish_reasons],
    }
    correct, samples = [], 0
    if drawn is not None:
        samples = drawn.group_size
        judged = so_far.verdicts(SAMPLED, drawn)
        correct = per_group([verdict.correct for verdict in judged], samples)
        columns[SAMPLED] = [c / samples for c in correct]
        columns |= {f"verifier/pass_at_{k}": [pass_at_k(samples, c, k) for c in correct] for k in k_values}
        for form, right in correct_in_forms(judged).items():
            columns[f"{GREEDY}_{form}_sampled"] = [share / samples for share in per_group(right, samples)]
    found = []
    for place, verdict in enumerate(verdicts):
        problem = best.problem_of(place)
        row = completion_row(problem, best.texts[place], verdict) | {"finish_reason": best.finish_reasons[place]}
        row |= {"samples_correct": f"{correct[place]}/{samples}"} if correct else {}
        values = {name: column[place] for name, column in columns.items()}
        found.append(_Judged(verdict=verdict, values=values, row=row))
    return found


def completion_row(problem: Problem, completion: str, verdict: Verdict) -> dict[str, Any]:
    """The columns that all tables of completions begin with."""
    return {
        "problem": problem.id,
        "prompt": problem.prompt,
        "answer": problem.answer,
        "completion": readable(completion),
        "status": verdict.status,
        "reason": readable(verdict.reason),
    }


def per_group(right: Sequence[bool], group_size: int) -> list[int]:
    """The number of true values in each group."""
    return [sum(right[start : start + group_size]) for start in range(0, len(right), group_size)]


def with_intervals(
    per_problem: Mapping[str, Sequence[float]], *, questions: Sequence[Hashable], seed: int
) -> dict[str, float]:
    """The mean of each quantity over problems, with the ends of its 95% interval.

    ``questions`` are the contents of the problems. Some sets contain every question twice. The mean then counts both;
    the interval counts the mean of each question once, since the second copy adds little evidence.
    """
    metrics: dict[str, float] = {}
    for name, values in per_problem.items():
        by_question: dict[Hashable, list[float]] = {}
        for question, value in zip(questions, values, strict=True):
            by_question.setdefault(question, []).append(value)
        interval = mean_interval([mean(one) for one in by_question.values()], seed=seed)
        metrics |= {name: mean(values), f"{name}_low": interval.low, f"{name}_high": interval.high}
    return metrics


def reason_kind(verdict: Verdict) -> str:
    """A verdict's reason with its numbers replaced, so that equal failures are counted together."""
    return "ok" if verdict.correct else f"{verdict.status}: {re.sub(r'-?[0-9]+', '#', verdict.reason)}"


def check_samples(samples: int, greedy: Sampling, k_values: Sequence[int], *, problems: int | None = None) -> None:
    """Raises ValueError for numbers out of range, pass@k from fewer than k samples, or a ``greedy`` that samples."""
    if problems is not None:
        at_least(1, problems=problems)
    at_least(0, samples=samples)
    if not greedy.greedy:
        raise ValueError(f"greedy.temperature must be 0, got {greedy.temperature}")
    for k in k_values:
        if samples and not 1 <= k <= samples:
            raise ValueError(f"k_values holds {k}, but pass@{k} needs at least {k} samples and samples is {samples}")
