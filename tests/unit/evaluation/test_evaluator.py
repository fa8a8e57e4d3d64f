"""``evaluate`` against verifying completions one by one; ``Suite``, ``Setting`` and pass@k."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from statistics import mean
from typing import Any

import pytest

from contrastive_reasoning.evaluation import (
    Evaluation,
    Rates,
    Setting,
    Suite,
    evaluate,
    pass_at_k,
    reason_kind,
    with_intervals,
)
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.rollout import Engine, RolloutEngine, Sampling
from contrastive_reasoning.tasks.base import CORRECT_IN, Problem, Split, Step, Verdict
from tests.hf_engine import HFEngine

SAMPLED = Sampling(temperature=1.0, top_k=None, top_p=1.0, max_tokens=6, stop=[])
GREEDY = replace(SAMPLED, temperature=0.0)
ENGINE = Engine(max_batch_tokens=500)
SAMPLES = 8


class Parity:
    """A completion is correct if its number of characters is even; above 9 characters it is unparsed."""

    name = "parity"
    trains_on_evaluation_problems = True

    def problems(self, split: Split) -> list[Problem]:
        return [Problem(id=f"{split}-{i}", prompt=f"Say {i}:", answer="") for i in range(12)]

    def verify(self, problem: Problem, completion: str) -> Verdict:
        if len(completion) > 9:
            return Verdict(status="unparsed", reason=f"{len(completion)} characters")
        even = len(completion) % 2 == 0
        return Verdict(status="ok" if even else "wrong", reason="" if even else "odd")

    def parse_steps(self, problem: Problem, completion: str) -> list[Step]:
        return []

    def scores(self, problem: Problem, completion: str) -> dict[str, float]:
        return {"parity/half": float(len(completion) % 2 == 0) / 2}


class BoxedParity(Parity):
    """As ``Parity``, but a correct completion of more than three characters does not count as boxed."""

    def verify(self, problem: Problem, completion: str) -> Verdict:
        verdict = super().verify(problem, completion)
        forms = {"boxed": verdict.correct and len(completion) <= 3, "any": verdict.correct}
        return replace(verdict, fields={CORRECT_IN: forms})


def evaluate_parity(policy: CausalLMPolicy, **changes: Any) -> Evaluation:
    task, problems = changes.pop("task", Parity()), Parity().problems("test")
    settings: dict[str, Any] = {"engine": ENGINE, "samples": SAMPLES, "k_values": [2, SAMPLES], "seed": 0}
    return evaluate(policy, task, problems, **settings | {"sampling": SAMPLED, "greedy": GREEDY} | changes)


@pytest.fixture(scope="module")
def evaluation(policy: CausalLMPolicy) -> Evaluation:
    return evaluate_parity(policy)


def test_metrics_match_verifying_completions_one_by_one(policy: CausalLMPolicy, evaluation: Evaluation) -> None:
    task, metrics = Parity(), evaluation.metrics
    greedy, halves, shares, pass_at_2 = [], [], [], []
    for problem in task.problems("test"):
        best = ENGINE.generate(policy, [problem], group_size=1, sampling=GREEDY, seed=(0,))
        drawn = ENGINE.generate(policy, [problem], group_size=SAMPLES, sampling=SAMPLED, seed=(0, "evaluate"))
        greedy.append(task.verify(problem, best.texts[0]).correct)
        halves.append(task.scores(problem, best.texts[0])["parity/half"])
        correct = [task.verify(problem, text).correct for text in drawn.texts]
        shares.append(mean(correct))
        pairs = [(a, b) for a in range(SAMPLES) for b in range(a)]
        pass_at_2.append(mean(correct[a] or correct[b] for a, b in pairs))
    assert 0 < mean(shares) < 1
    assert metrics["verifier/accuracy"] == pytest.approx(mean(greedy))
    assert metrics["verifier/accuracy_sampled"] == pytest.approx(mean(shares))
    assert metrics["verifier/pass_at_2"] == pytest.approx(mean(pass_at_2))
    assert metrics["parity/half"] == pytest.approx(mean(halves))
    assert (metrics["problems/seen_in_training"], metrics["problems/count"]) == (1.0, 12.0)
    names = [name.removesuffix("_low") for name in metrics if name.endswith("_low")]
    assert {"verifier/accuracy", "verifier/accuracy_sampled", "verifier/pass_at_8", "parity/half"} <= set(names)
    for name in names:
        assert metrics[f"{name}_low"] <= metrics[name] <= metrics[f"{name}_high"]


def test_evaluate_reports_accuracy_of_boxed_and_any_answers(policy: CausalLMPolicy, evaluation: Evaluation) -> None:
    task, sampling = BoxedParity(), replace(SAMPLED, max_tokens=3)
    problems = task.problems("test")
    greedy = replace(sampling, temperature=0.0)
    metrics = evaluate_parity(policy, task=task, sampling=sampling, greedy=greedy, k_values=[]).metrics
    drawn = ENGINE.generate(policy, problems, group_size=SAMPLES, sampling=sampling, seed=(0, "evaluate"))
    right = [task.verify(problems[row // SAMPLES], text).correct for row, text in enumerate(drawn.texts)]
    boxed = [correct and len(text) <= 3 for correct, text in zip(right, drawn.texts, strict=True)]
    assert 0 < mean(boxed) < mean(right)
    assert metrics["verifier/accuracy_boxed_sampled"] == pytest.approx(mean(boxed))
    assert metrics["verifier/accuracy_any_sampled"] == pytest.approx(mean(right))
    assert metrics["verifier/accuracy_any"] == metrics["verifier/accuracy"] >= metrics["verifier/accuracy_boxed"]
    assert not any("accuracy_any" in name for name in evaluation.metrics), "of a task that knows no forms"


def test_repeated_questions_do_not_narrow_intervals() -> None:
    once = {"right": [1.0, 0.0, 0.0, 1.0, 0.0, 1.0], "share": [0.5, 0.25, 0.0, 1.0, 0.0, 0.75]}
    twice = {name: [value for value in values for _ in range(2)] for name, values in once.items()}
    questions = [("what?", str(question)) for question in range(6) for _ in range(2)]
    metrics = with_intervals(twice, questions=questions, seed=0)
    assert metrics == pytest.approx(with_intervals(once, questions=range(6), seed=0))
    others = with_intervals(twice, questions=range(12), seed=0)
    assert others["right"] == metrics["right"]
    assert others["right_high"] - others["right_low"] < 0.8 * (metrics["right_high"] - metrics["right_low"])


def test_evaluate_counts_verdicts_and_reasons_and_lists_problems(evaluation: Evaluation) -> None:
    shares = {name: value for name, value in evaluation.metrics.items() if name.startswith("verdict/")}
    assert set(shares) == {f"verdict/{status}" for status in ("ok", "wrong", "unparsed", "timeout", "error")}
    assert sum(shares.values()) == pytest.approx(1)
    assert sum(evaluation.reasons.values()) == 12
    assert set(evaluation.reasons) <= {"ok", "wrong: odd", "unparsed: # characters"}
    assert reason_kind(Verdict(status="wrong", reason="uses 7 twice")) == "wrong: uses # twice"
    assert [row["problem"] for row in evaluation.rows] == [f"test-{i}" for i in range(12)]
    assert all(row["samples_correct"].endswith("/8") for row in evaluation.rows)
    str(evaluation.rows).encode()


class RecordingWatch:
    """Records each call: how many problems are done, and the rates at that time."""

    def __init__(self) -> None:
        self.told: list[tuple[int, dict[str, float]]] = []

    def __call__(self, done: int, rates: Rates) -> None:
        self.told.append((done, dict(rates())))


@pytest.mark.parametrize("engine", [Engine(max_batch_tokens=40), HFEngine(max_batch_tokens=100)])
def test_evaluate_verifies_each_completion_once_and_calls_watch_with_current_rates(
    policy: CausalLMPolicy, engine: RolloutEngine, evaluation: Evaluation, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified: list[str] = []
    verify = Parity.verify
    monkeypatch.setattr(Parity, "verify", lambda *given: verified.append("") or verify(*given))
    watch = RecordingWatch()
    metrics = evaluate_parity(policy, engine=engine, watch=watch).metrics
    counts = [done for done, _ in watch.told]
    assert counts == [n // (1 + SAMPLES) for n in range(1, 12 * (1 + SAMPLES) + 1)]
    assert len(verified) == 12 * (1 + SAMPLES)
    assert not any("verifier/accuracy_sampled" in rates for _, rates in watch.told[:12])
    sampled = [rates["verifier/accuracy_sampled"] for _, rates in watch.told[12:]]
    assert len(set(sampled)) > 10, "it moves while completions are written"
    last = watch.told[-1][1]
    assert last == {name: pytest.approx(metrics[name]) for name in last}
    assert set(last) == {"verifier/accuracy", "verifier/accuracy_sampled"}
    if isinstance(engine, Engine):
        assert metrics == evaluation.metrics, "it only watches, and the token budget changes nothing"


@pytest.mark.parametrize(("name", "value"), [("problems", 0), ("samples", -1), ("greedy", SAMPLED)])
def test_setting_rejects_values_out_of_range(name: str, value: Any) -> None:
    given: dict[str, Any] = {"problems": 5, "samples": 0, "sampling": SAMPLED, "greedy": GREEDY}
    with pytest.raises(ValueError, match=f"^{name}"):
        Setting(task=Parity(), k_values=[], **given | {name: value})


def test_evaluate_and_suite_reject_contradictory_settings(policy: CausalLMPolicy) -> None:
    with pytest.raises(ValueError, match=r"k_values.*8.*samples.*4"):
        evaluate_parity(policy, samples=4)
    with pytest.raises(ValueError, match=r"'critic'.*clipo_table1"):
        Suite(engine=ENGINE, settings={}, published="critic")


def test_suite_prefixes_results_with_the_setting_name(policy: CausalLMPolicy) -> None:
    main = Setting(task=Parity(), problems=5, samples=2, sampling=SAMPLED, greedy=GREEDY, k_values=[2])
    suite = Suite(engine=ENGINE, settings={"main": main, "short": replace(main, problems=3, samples=0)}, published=None)
    watch = RecordingWatch()
    evaluation = suite(policy, seed=0, watch=watch)
    assert evaluation.metrics["problems/count"] == 5
    counts = [done for done, _ in watch.told]
    assert counts == sorted(counts)
    assert counts[-1] == suite.size == 8
    assert set(watch.told[-1][1]) == {"short/verifier/accuracy"}
    assert evaluation.metrics["short/problems/count"] == 3
    assert "verifier/pass_at_2" in evaluation.metrics
    assert [row["setting"] for row in evaluation.rows] == ["main"] * 5 + ["short"] * 3


def test_pass_at_k_equals_the_share_of_subsets_with_a_correct_sample() -> None:
    for samples in range(1, 8):
        for correct in range(samples + 1):
            for k in range(1, samples + 1):
                choices = list(combinations([i < correct for i in range(samples)], k))
                assert pass_at_k(samples, correct, k) == pytest.approx(sum(map(any, choices)) / len(choices), abs=1e-12)
    assert pass_at_k(1000, 3, 100) == pytest.approx(1 - (900 * 899 * 898) / (1000 * 999 * 998))
    for impossible in ((4, 5, 1), (4, -1, 1), (4, 2, 5), (4, 2, 0)):
        with pytest.raises(ValueError, match="got"):
            pass_at_k(*impossible)
