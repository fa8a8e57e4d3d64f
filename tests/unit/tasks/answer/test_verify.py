"""Verdicts on answers and on letters, and gold answers that do not verify themselves."""

from __future__ import annotations

import threading

import pytest

from contrastive_reasoning.tasks.answer import Question, check_golds, pose, settle, verify, verify_answer, verify_choice
from contrastive_reasoning.tasks.base import Verdict


def verdict_on(gold: str, answer: str) -> Verdict:
    return verify_answer(gold, rf"So it is $\boxed{{{answer}}}$.")


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("142.0", "142"),
        ("2,125", "2125"),
        (r"\frac{1}{2}", "0.5"),
        (r"\frac12", r"\dfrac{2}{4}"),
        ("7", "x = 7"),
        ("5", "a + b = 5"),
        ("5", "2a + b = 5"),
        ("3", r"x = \frac{6}{2} = 3"),
        (r"\frac23", r"\frac{2}{3} \approx 0.67"),
        ("x=5", "5"),
        ("5", r"5\text{ dollars}"),
        (r"10\text{ cm}", "10"),
        (r"12\pi", r"12\pi\text{ cm}"),
        (r"145^\circ", "145"),
        ("300", r"300^\circ"),
        (r"40\%", r"\frac{2}{5}"),
        ("0.56 = 56\\%", "0.56"),
        (r"\text{(B)}", "b"),
        (r"\text{Sunday}", "SUNDAY"),
        (r"\text{ellipse}", "an ellipse"),
        (r"\text{October 30}", "october 30"),
        (r"8\!:\!34 \text{ p.m.}", "8:34 PM"),
        ("True", r"\text{true}."),
        ("False", "No"),
        ("CD", "C D"),
        ("2516_8", "2516"),
        ("2516_8", r"2516_{\text{eight}}"),
        ("1,-2", "-2, 1"),
        ("1,-2", r"\{-2, 1\}"),
        ("2, 3, \\text{ and } 4", "4, 3, 2"),
        ("0 or 4", r"x = 4 \text{ or } x = 0"),
        (r"1 \pm \sqrt{19}", r"1-\sqrt{19}, \sqrt{19}+1"),
        (r"(3,\pi/2)", r"\left( 3, \frac{\pi}{2} \right)"),
        ("(1,-2)", "1, -2"),
        ("(100,101)", "(100, 101)"),
        ("(1000,2000)", "(1,000, 2,000)"),
        ("[1, 2, 6]", "1, 2, 6"),
        ("(2,1)", "(A,B) = (2,1)"),
        ("AB=9, CD=4", "9, 4"),
        (r"x \in [-2,7]", "[-2, 7]"),
        (r"(-\infty, 0]", r"(-\infty, 0.0]"),
        (
            r"\begin{pmatrix} 1/5 \\ -18/5 \end{pmatrix}",
            r"\begin{bmatrix} 0.2 \\ -\frac{18}{5} \end{bmatrix}",
        ),
        # only computer algebra can decide these
        (r"2\sqrt{3}", r"\sqrt{12}"),
        ("7", r"\sqrt{49}"),
        ("24", "4!"),
        ("12", r"\frac{1}{2}(6)(4) = 12"),
        ("20", "5(4) = 20"),
        ("6", r"4\left(\frac32\right)"),
        ("40", r"\binom52\binom41"),
        ("2,125", "2124+1"),
        ("98,634", "x = 98,634"),
        ("0 or 1000", "0 or 1,000"),
        ("0.56 = 56\\%", "x = 56\\%"),
        (r"2\sqrt3", r"1 \cdot 2\sqrt3 + 0"),
        ("x^2+2x+9", "(x+1)^2+8"),
        ("a + b + c", "c+b+a"),
        ("y=-3x-3", "3x + y + 3 = 0"),
        ("y=-3x-3", "-3(x+1)"),
        (r"\sin^2 t", r"1 - \cos^2 t"),
        (r"\frac{R}{r}", "R/r"),
        ("e", r"e \approx 2.718"),
        (r"(0,100\pi)", r"(0, 100\pi)"),
        (r"[0,100\sqrt{3}]", r"[0, 100\sqrt{3}]"),
        ("A-B", "a-b"),
        ("2h", r"\frac{1}{2} \cdot 4 h"),
        (r"1600\pi", r"1,600\pi"),
        (r"1,600\pi", r"1600\pi"),
        ("p - q", "-q + p"),
        ("7", r"\color{red}{7}"),
        ("7", r"\large 7"),
        (r"\frac{1}{2}", r"1/2 \text{ or } 0.5"),
        (r"\sqrt{12}", r"2\sqrt{3} \text{ or } \sqrt{12}"),
        ("60 mph", r"60\text{ miles per hour}"),
        ("60", r"60\text{ miles per hour}"),
        ("5 dollars", "5 dollars per hour"),
        ("98.6", r"98.6^\circ F"),
        (r"98.6^\circ", r"98.6^\circ F"),
        (r"3 \times 10^8", r"3 \times 10^8 \text{ m/s}"),
        (r"(2,\infty)", "x > 2"),
        ("[-1,3)", r"-1 \le x < 3"),
        (r"\tan 15^\circ", r"2-\sqrt3"),
        (r"2007 + \frac\pi 2", r"\frac{4014+\pi}{2}"),
        (r"(-\infty,3)\cup(3,\infty)", r"\mathbb{R} \setminus \{3\}"),
        ("5", r"5 \text{ third graders}"),
        ("60", r"60 \text{ km} / \text{h}"),
        ("60", r"60 \text{ km/h}"),
        (r"(-\infty,0)\cup(3,\infty)", r"(3,\infty)\cup(-\infty,0)"),
        (r"(\sqrt8, 1)", r"(2\sqrt2, 1)"),
        ("2^{4950}", "4^{2475}"),
        ("[-1.7807764064, 0.2807764064]", r"[\frac{-3-\sqrt{17}}{4}, \frac{-3+\sqrt{17}}{4}]"),
    ],
)
def test_equivalent_answer_is_correct(gold: str, answer: str) -> None:
    assert verdict_on(gold, answer) == Verdict(status="ok", reason="")


DIFFERENT = {
    "another number": [
        ("7", "8"),
        ("18.75", "19"),
        ("9", r"9\%"),
        (r"40\%", "40"),
        ("3", "3 million"),
        ("3", r"3 \text{ millions}"),
        ("5", r"5\text{ hundreds}"),
        ("1e-24", "0"),
        ("2516_8", "2516_9"),
        ("7", "8 = 7"),
        ("7", "7 = 8"),
        ("(1,-2)", "-2, 1"),
        (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{pmatrix} 1 \\ 3 \end{pmatrix}"),
        ("x=5", "x=6"),
    ],
    "another unit": [
        (r"5\text{ dollars}", r"5\text{ cents}"),
        ("60 mph", "60 miles"),
        ("60 mph", r"60\text{ km per hour}"),
        (r"98.6^\circ C", r"98.6^\circ F"),
    ],
    "words instead of a number": [("7", r"\text{seven oaks}")],
    "other words": [(r"\text{Sunday}", "Monday"), ("A-C-B-D", "A-B-D-C")],
    "no words": [(r"\text{Sunday}", "7")],
    "number with an index": [("66_8", r"66_8\%")],
    "number of answers: 2 instead of 1": [
        ("7", "7, 8"),
        ("7", "7 or 8"),
        ("7", r"7 \text{ or } 999983"),
        ("7", r"8 \lor 7"),
        ("7", r"\{7, 8\}"),
        ("7", "x = 7 or x = 8"),
        ("7", r"\pm 7"),
        ("7", r"7 \text{ or } \boxed{8}"),
        ("5", "5, 6"),
        (r"\frac{1}{2}", r"1/2 \text{ or } 0.6"),
    ],
    "number of answers: 1 instead of 2": [("1,-2", "1"), (r"(0,100\pi)", r"100\pi")],
    "number of answers: 3 instead of 2": [("1,-2", "1, -2, 3")],
    "an item is missing": [("1,-2", "1, 1"), ("1,1,-2", "1, -2, 3")],
    "other brackets": [
        (r"(\frac35,\frac83]", r"[\frac35,\frac83]"),
        ("(1,2)", r"\{1,2\}"),
        ("[-2,2]", "-2, 2"),
        (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{pmatrix} 1 & 2 \end{pmatrix}"),
    ],
    "other variables": [
        ("x=5", "y=5"),
        ("2k", "2j"),
        ("x^2", "999983"),
        ("x^2+5x", "X^2+5X"),
        (r"3 \cdot 2 m", "6"),
        ("(1,2)", "1<x<2"),
    ],
    "words where a formula is wanted": [("x+y=0", r"x+y=0 \text{ (or }999983)")],
    "not equal": [
        (r"2\sqrt{3}", r"\sqrt{13}"),
        (r"\frac{1}{2^{98}}", r"-(\frac{1}{2^{98}})"),
        ("4.1e-08", r"\frac{\pi}{10^9}"),
        (r"2\sqrt3", r"2\sqrt3 \text{ } 999983"),
        ("7", r"\frac{1}{0}"),
        (r"\frac{R}{r}", r"\frac{r}{R}"),
        (r"\{r \in \mathbb{R}\}", r"\{r \in \mathbb{Q}\}"),
        ("p - q", "q - p"),
        (r"(2,\infty)", r"x \ge 2"),
        ("[-1,3)", r"-1 \le x \le 3"),
    ],
}
"""Reason → gold and answer."""


@pytest.mark.parametrize(
    ("gold", "answer", "reason"), [(*pair, reason) for reason, pairs in DIFFERENT.items() for pair in pairs]
)
def test_different_answer_is_incorrect_with_reason(gold: str, answer: str, reason: str) -> None:
    verdict = verdict_on(gold, answer)
    assert verdict.reason == reason
    assert not verdict.correct


def test_words_that_change_the_value_and_echoed_instructions_are_wrong() -> None:
    for word in ["halves", "third", "thirds", "dozens", "squared", "cubed", "factorial", "hundredths", "percents"]:
        assert not verdict_on("5", rf"5 \text{{ {word}}}").correct, word
    for echoed in ("your answer", "answer", r"\text{final answer}", "...", "?"):
        assert not verdict_on("7", echoed).correct, echoed


def test_unreadable_gold_answer_is_an_error_unless_it_is_repeated() -> None:
    gold = r"7 \foo 8"
    assert verdict_on(gold, "7 \\foo  8").correct
    assert verdict_on(gold, r"\sqrt{7}") == Verdict(status="error", reason="gold answer does not parse")
    assert verdict_on("", "7") == Verdict(status="error", reason="no gold answer")


def test_pose_returns_question_only_for_formulas_and_settle_times_out() -> None:
    assert pose("7", r"\boxed{7.0}") == Verdict(status="ok", reason="")
    question = pose(r"2\sqrt3", r"\boxed{x = \sqrt{12}}")
    assert question == Question(r"2\sqrt{3}", r"x = \sqrt{12}")
    assert settle(question).correct
    question = pose(r"2\sqrt3", r"\boxed{\sqrt{12}+0}")
    assert isinstance(question, Question)
    assert settle(question, steps=100) == Verdict(status="timeout", reason="comparison of more than 100 steps")
    assert settle(question).correct


def test_verify_answer_works_in_any_thread() -> None:
    found: list[Verdict] = []
    thread = threading.Thread(target=lambda: found.append(verdict_on(r"\sqrt{20}", r"2\sqrt5")))
    thread.start()
    thread.join()
    assert [verdict.correct for verdict in found] == [True]


def test_exception_in_comparison_gives_unparsed_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ``error`` would be left out of its group and cost nothing: a way around a wrong answer."""

    def broken(*_: str) -> bool:
        raise ZeroDivisionError

    monkeypatch.setattr(verify, "same_formula", broken)
    assert verify_answer("x+1", r"\boxed{1+x+0}") == Verdict(
        status="unparsed", reason="comparison ends in ZeroDivisionError"
    )


@pytest.mark.parametrize(
    "answer",
    [
        "B",
        "b",
        "(B)",
        "[B]",
        "B.",
        "B)",
        r"\text{B}",
        r"\textbf{(B)}",
        r"\mathrm{B}",
        "$B$",
        "{B}",
        "B. a bank",
        "(B) a bank",
        "B: a bank, or so",
        r"\text{B. a bank}",
        "B - a bank",
        "B. vitamin C",
        "B. x^2 + y",
        "Option B",
        "answer: B",
        r"\boxed{B}",
    ],
)
def test_verify_choice_accepts_gold_letter_in_any_notation(answer: str) -> None:
    assert verify_choice("B", rf"\boxed{{{answer}}}") == Verdict(status="ok", reason="")


@pytest.mark.parametrize("answer", ["A", "(C)"])
def test_verify_choice_rejects_another_letter(answer: str) -> None:
    assert verify_choice("B", rf"\boxed{{{answer}}}") == Verdict(status="wrong", reason="another letter")


@pytest.mark.parametrize(
    "answer",
    [
        "AB",
        "A, B",
        "A or B",
        "B or C",
        "B. or C.",
        "B, C",
        "B, L",
        "B) a bank, T) a mall",
        "B, A",
        "B. or A",
        "B) (A)",
        r"B \text{ or } C",
        "B) a bank, D) a mall",
        "bank",
        "a bank",
        "A revolving door",
        "eg, A, B, C, D",
        "2",
        "Ω",
        "",
    ],
)
def test_verify_choice_reads_no_letter_in_several_or_in_words(answer: str) -> None:
    verdict = verify_choice("B", rf"\boxed{{{answer}}}")
    assert verdict.status == "unparsed"
    assert verdict.reason


def test_verify_choice_reads_stated_letter_without_box() -> None:
    assert verify_choice("B", "So the answer is (B).").correct
    assert verify_choice("B", "It must be B").reason == "no boxed answer"
    assert verify_choice("B", r"<think>\boxed{B}</think>").status == "unparsed"


def test_verify_choice_requires_gold_letter() -> None:
    assert verify_choice("(b)", r"\boxed{B}").correct
    assert verify_choice("bank", r"\boxed{B}") == Verdict(status="error", reason="no gold letter")


def test_check_golds_lists_golds_that_do_not_verify_themselves() -> None:
    golds = ["7", r"so it is $\boxed{\frac12}$.", r"hence there are $\boxed{}$ primes", "True", "", r"\$2 \approx 2.0"]
    golds += [r"7\text{ p.m.}", r"\begin{cases}x&x>0\\-x&x\le0\end{cases}", r"\{x|x<0 \text{ or } x>2\}", "None", "TBD"]
    assert check_golds(golds) == [(place, "no gold answer") for place in (2, 4, 9, 10)]
    assert check_golds(["A", "(b)", "AB"], verify=verify_choice) == [(2, "no gold letter")]
