"""Every verifier and every parser on hostile completions, watched:  python -m tests.hostile.judge COUNT SEED

What was watched goes to the file that the environment names; what was found is printed as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from contrastive_reasoning.tasks.answer import Question, check_golds, extract_answer, pose, verify_choice
from contrastive_reasoning.tasks.answer.symbolic import load
from contrastive_reasoning.tasks.arithmetic import (
    parse_steps as parse_equations,
    scores as story_scores,
    verify as verify_story,
)
from contrastive_reasoning.tasks.base import Problem, Verdict
from contrastive_reasoning.tasks.countdown.longproc import longproc_scores
from contrastive_reasoning.tasks.countdown.states import known_states, moves_of
from contrastive_reasoning.tasks.countdown.steps import parse_steps
from contrastive_reasoning.tasks.countdown.trace import step_texts
from contrastive_reasoning.tasks.countdown.verifier import verify
from contrastive_reasoning.tasks.formats import PlainAnswer, answer_in, result_of, with_instruction, without_instruction
from contrastive_reasoning.tasks.problem_set import AnswerTask, sentence_steps
from contrastive_reasoning.tasks.rows import BadRow
from contrastive_reasoning.workers.answers import AnswerPool, Kind
from datamodules.problem_rows import ProblemRows
from tests.hostile.kit import ASKED, COUNTDOWN, LETTER, NUMBERS, STORY_PROBLEM, Hostile, completions
from tests.hostile.watch import watch

WORK_S = 8.0
"""Seconds of this process for one text: reading a megabyte takes about one, and what is not linear takes minutes."""
LIMIT_S = 5.0
"""Of the pool: seconds of wall clock for one answer, as in ``conf/task/gsm8k.yaml``."""
SLACK_S = 5.0
"""What a busy machine may add to it."""
HARMLESS = ((r"x+1", r"\boxed{1+x}"), (r"\sqrt{2}", r"\boxed{\sqrt[4]{4}}"))


def judges(item: Hostile) -> Iterator[tuple[str, str, Callable[[], Verdict]]]:
    """Name, the name by which the kit knows it, and what it does, of every verifier but the pool."""
    for style, problem in COUNTDOWN.items():
        kind = "direct" if style == "direct" else "countdown"
        yield f"countdown {style}", kind, lambda problem=problem: verify(problem, item.text)
    yield "story", "story", lambda: verify_story(STORY_PROBLEM, item.text)
    yield "choice", "choice", lambda: verify_choice(LETTER, item.text)


def parsers(item: Hostile) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Every reader of what a model wrote that gives no verdict; and those of a set's solutions, which others wrote."""
    for style, problem in COUNTDOWN.items():
        yield f"steps of {style}", lambda problem=problem: parse_steps(problem, item.text)
        yield f"LongProc's scores of {style}", lambda problem=problem: longproc_scores(problem, item.text)
        yield f"prefixes of {style}", lambda problem=problem: prefixes(problem, item.text)
    yield "states tried", lambda: known_states(moves_of(NUMBERS, parse_steps(COUNTDOWN["direct"], item.text)))
    yield "equations", lambda: parse_equations(STORY_PROBLEM, item.text)
    yield "scores of a story", lambda: story_scores(STORY_PROBLEM, item.text)
    yield "sentences", lambda: sentence_steps(item.text)
    yield "answer", lambda: extract_answer(item.text)
    yield "gold", lambda: check_golds([item.text])
    yield "solution", lambda: refused(lambda: answer_in(item.text))
    yield "worked answer", lambda: refused(lambda: result_of(item.text))
    yield "question", lambda: without_instruction(with_instruction(item.text, "Think."))


def prefixes(problem: Problem, text: str) -> list[str]:
    """What a critic of text reads of a completion: that up to each legal step."""
    steps = [step for step in parse_steps(problem, text) if step.legal]
    return step_texts(problem, text, steps, style="longproc")


def refused(read: Callable[[], str]) -> None:
    """A row of a set may be refused."""
    with suppress(BadRow):
        read()


class Timed:
    """A pool that knows its longest call since ``longest`` was set."""

    def __init__(self, pool: AnswerPool) -> None:
        self.pool, self.longest = pool, 0.0

    def __call__(self, pairs: Sequence[tuple[str, str]], kind: Kind = "answer") -> list[Verdict]:
        begin = time.monotonic()
        verdicts = self.pool(pairs, kind)
        self.longest = max(self.longest, time.monotonic() - begin)
        return verdicts


def answers(pool: Timed) -> AnswerTask:
    """The whole task, whose questions ask for percentages; it reads no rows."""
    return AnswerTask(
        name="asked",
        train=None,
        validation=None,
        test=ProblemRows(path="unread", subset=None, revision=None, split="test", file=None),
        path=None,
        format=PlainAnswer(question="question", answer="answer", instruction=""),
        on_bad="refuse",
        train_problems=None,
        validation_problems=0,
        test_problems=0,
        judge="answer",
        verifier=pool,
    )


def main(count: int, seed: int) -> dict[str, Any]:
    """What was found: texts by family, statuses by judge, the slowest, and every fault."""
    load()
    pool = Timed(AnswerPool(workers=1, limit_s=LIMIT_S, max_failures=1.0))
    task = answers(pool)
    pool(HARMLESS)
    warm_up()
    watch("judge")
    faults: list[str] = []
    families, statuses = Counter[str](), Counter[str]()
    slowest: dict[str, float] = {}

    def timed(name: str, read: Callable[[], Any]) -> Any:
        begin = time.process_time()
        found = read()
        slowest[name] = max(slowest.get(name, 0.0), time.process_time() - begin)
        return found

    for item in completions(count, seed=seed):
        families[item.family] += 1

        def fault(what: str, item: Hostile = item) -> None:
            faults.append(f"{item.family}: {what}: {item.text[:200]!r}")

        for name, kind, judge in judges(item):
            verdict = timed(name, judge)
            check(verdict, name, kind, item, fault)
            statuses[f"{name}: {verdict.status}"] += 1
        for name, parse in parsers(item):
            timed(name, parse)
        pool(HARMLESS[:1])  # a worker that was killed is replaced now
        pool.longest = 0.0
        asked = replace(ASKED, answer=item.gold)
        verdict = timed("pool's quick part", lambda asked=asked, text=item.text: task.verify(asked, text))
        slowest["pool"] = max(slowest.get("pool", 0.0), pool.longest)
        if pool.longest > LIMIT_S + SLACK_S:
            fault("the pool's limit is passed")
        check(verdict, "answer", "answer", item, fault)
        statuses[f"answer: {verdict.status}"] += 1
        statuses["answer: left to the pool"] += isinstance(pose(item.gold, item.text), Question)
    late = {name: seconds for name, seconds in slowest.items() if name != "pool" and seconds > WORK_S}
    faults += [f"{name} took {seconds:.1f} s" for name, seconds in late.items()]
    pool.pool.close()
    return {"families": families, "statuses": statuses, "slowest": slowest, "faults": faults}


def check(verdict: Verdict, name: str, kind: str, item: Hostile, fault: Callable[[str], None]) -> None:
    """Right is what the kit knows to be right, and nothing else; every other verdict has a short reason."""
    if verdict.correct != (kind in item.right):
        fault(f"{name} says {verdict.status} ({verdict.reason}), the truth is {sorted(item.right) or 'wrong'}")
    if not verdict.correct and not 0 < len(verdict.reason) < 200:
        fault(f"{name} gives no short reason: {verdict.reason[:300]!r}")


def warm_up() -> None:
    """What every parser loads at its first text, before anybody watches."""
    harmless = Hostile("harmless", "<Solution>\n21 + 16 = 37\n</Solution>", "7", frozenset())
    for _, _, judge in judges(harmless):
        judge()
    for _, parse in parsers(harmless):
        parse()


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), int(sys.argv[2]))))
