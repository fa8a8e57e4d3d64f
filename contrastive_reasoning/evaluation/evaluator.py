"""How good a policy is on given problems: greedy and sampled success, the benchmark's own scores, and why it failed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any, get_args

from contrastive_reasoning.distributed import gather, share, unshare
from contrastive_reasoning.evaluation.interval import mean_interval
from contrastive_reasoning.evaluation.pass_at_k import pass_at_k
from contrastive_reasoning.evaluation.so_far import GREEDY, SAMPLED, SoFar, Watch
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.rollout.base import RolloutEngine
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.rollout.sampling import Sampling
from contrastive_reasoning.rollout.spans import readable
from contrastive_reasoning.tasks.base import Problem, Status, Task, Verdict


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What was found, without ``start/``, ``val/`` or ``test/`` before the names."""

    metrics: Mapping[str, float]
    """``room/quantity``; each mean over problems comes with its 95% interval, ``…_low`` and ``…_high``."""
    reasons: Mapping[str, int]
    """How often each reason (numbers written as #) stood in a verdict on a greedy completion; "ok" for success."""
    rows: Sequence[Mapping[str, Any]]
    """One line per problem: prompt, answer, greedy completion, verdict, how many samples were correct."""


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
    """Write one greedy and ``samples`` sampled completions of each problem and judge them.

    Of several ranks each writes its share; all know the whole afterwards, as one process would find it.

    Args:
        policy: what is evaluated.
        task: judges completions.
        problems: at least one.
        engine: writes completions; its token budget bounds the memory.
        samples: sampled completions per problem; 0 leaves ``accuracy_sampled`` and ``pass_at_k`` out.
        sampling: of the sampled ones.
        greedy: of the greedy one; temperature 0.
        k_values: pass@k for these k, each at most ``samples``.
        seed: of the samples and of the bootstrap.
        watch: told how far it is while completions are written.

    Raises:
        ValueError: for no problems, a ``greedy`` that samples, or a k above ``samples``.
    """
    _check(problems, samples, greedy, k_values)
    mine = share(problems)
    own = mine or problems[:1]  # for nothing: in some engines ranks wait for each other
    so_far = SoFar(task, own, count=len(problems), samples=samples, watch=watch if mine else None)

    def drawn(metric: str, group_size: int, how: Sampling, *name: str) -> RolloutBatch:
        told, of = so_far.listener(metric, group_size), (seed, "evaluate", *name)
        return engine.generate(policy, own, group_size=group_size, sampling=how, seed=of, written=told)

    best = drawn(GREEDY, 1, greedy, "greedy")
    answered = _answered(task, best, drawn(SAMPLED, samples, sampling) if samples else None, k_values, so_far)
    found = unshare(gather(answered if mine else []))
    verdicts = [one.verdict for one in found]
    values = {name: [one.values[name] for one in found] for name in found[0].values}
    asked = [(problem.prompt, problem.answer) for problem in problems]
    return Evaluation(
        metrics=with_intervals(values, asked=asked, seed=seed) | _shares(verdicts) | _about_problems(task, problems),
        reasons=Counter(reason_kind(verdict) for verdict in verdicts),
        rows=[one.row for one in found],
    )


@dataclass(frozen=True, kw_only=True)
class _Answered:
    """One problem, its greedy completion judged, and what is averaged over problems."""

    verdict: Verdict
    values: Mapping[str, float]
    row: Mapping[str, Any]


def _answered(
    task: Task, best: RolloutBatch, drawn: RolloutBatch | None, k_values: Sequence[int], so_far: SoFar
) -> list[_Answered]:
    """Each problem of ``best`` with its samples, which stand in the same order."""
    verdicts = so_far.verdicts(GREEDY, best)
    per_problem = _greedy_values(best, task, verdicts)
    correct: list[int] = []
    samples = 0 if drawn is None else drawn.group_size
    if drawn is not None:
        correct = correct_per_problem(so_far.verdicts(SAMPLED, drawn), samples)
        per_problem |= sampled_values(correct, samples, k_values)
    return [
        _Answered(
            verdict=verdicts[place],
            values={name: column[place] for name, column in per_problem.items()},
            row=_row(best, verdicts, place, correct, samples),
        )
        for place in range(len(best))
    ]


def correct_per_problem(verdicts: Sequence[Verdict], group_size: int) -> list[int]:
    """How many of each group are correct."""
    return [
        sum(verdict.correct for verdict in verdicts[start : start + group_size])
        for start in range(0, len(verdicts), group_size)
    ]


def sampled_values(correct: Sequence[int], samples: int, k_values: Sequence[int]) -> dict[str, list[float]]:
    """Per problem the share of correct samples and pass@k."""
    values = {SAMPLED: [c / samples for c in correct]}
    return values | {f"verifier/pass_at_{k}": [pass_at_k(samples, c, k) for c in correct] for k in k_values}


def with_intervals(
    per_problem: Mapping[str, Sequence[float]], *, asked: Sequence[Hashable], seed: int
) -> dict[str, float]:
    """The mean of each quantity over problems, with the ends of its 95% interval.

    ``asked`` says what each problem asks. Some sets ask every question twice: the mean counts both, the interval the
    mean of each question once, for a question that is asked again tells little that is new.
    """
    metrics: dict[str, float] = {}
    for name, values in per_problem.items():
        questions: dict[Hashable, list[float]] = {}
        for question, value in zip(asked, values, strict=True):
            questions.setdefault(question, []).append(value)
        interval = mean_interval([mean(those) for those in questions.values()], seed=seed)
        metrics |= {name: mean(values), f"{name}_low": interval.low, f"{name}_high": interval.high}
    return metrics


def reason_kind(verdict: Verdict) -> str:
    """A verdict's reason with its numbers taken out, so that equal failures are counted together."""
    return "ok" if verdict.correct else f"{verdict.status}: {re.sub(r'-?[0-9]+', '#', verdict.reason)}"


def _greedy_values(best: RolloutBatch, task: Task, verdicts: Sequence[Verdict]) -> dict[str, list[float]]:
    scores = [task.scores(best.problem_of(row), text) for row, text in enumerate(best.texts)]
    return {
        GREEDY: [float(verdict.correct) for verdict in verdicts],
        **{name: [float(score[name]) for score in scores] for name in scores[0]},
        "completion/tokens": best.mask.sum(1).double().tolist(),
        "completion/truncated": [float(reason == "length") for reason in best.finish_reasons],
    }


def _shares(verdicts: Sequence[Verdict]) -> dict[str, float]:
    """The share of every status, those that did not occur included."""
    counts = Counter(verdict.status for verdict in verdicts)
    return {f"verdict/{status}": counts[status] / len(verdicts) for status in get_args(Status)}


def _about_problems(task: Task, problems: Sequence[Problem]) -> dict[str, float]:
    """How many problems, and whether training saw them: a task may be told to train on its benchmark."""
    seen = bool(getattr(task, "trains_on_evaluation_problems", False))
    return {"problems/count": float(len(problems)), "problems/seen_in_training": float(seen)}


def _row(
    best: RolloutBatch, verdicts: Sequence[Verdict], row: int, correct: Sequence[int], samples: int
) -> dict[str, Any]:
    problem, verdict = best.problem_of(row), verdicts[row]
    line = {
        "problem": problem.id,
        "prompt": problem.prompt,
        "answer": problem.answer,
        "completion": readable(best.texts[row]),
        "status": verdict.status,
        "reason": verdict.reason,
        "finish_reason": best.finish_reasons[row],
    }
    return line | ({"samples_correct": f"{correct[row]}/{samples}"} if correct else {})


def _check(problems: Sequence[Problem], samples: int, greedy: Sampling, k_values: Sequence[int]) -> None:
    if not problems:
        raise ValueError("no problems were given: an evaluation needs at least one")
    if not greedy.greedy:
        raise ValueError(f"greedy.temperature must be 0, got {greedy.temperature}")
    for k in k_values:
        if samples and not 1 <= k <= samples:
            raise ValueError(f"k_values holds {k}, but pass@{k} needs at least {k} samples and samples is {samples}")
