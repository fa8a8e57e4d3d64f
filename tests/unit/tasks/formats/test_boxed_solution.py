"""Boxed solutions: what stands in the last box, braces balanced."""

from __future__ import annotations

import pytest

from contrastive_reasoning.tasks.formats import BadRow, BoxedSolution, answer_in


@pytest.mark.parametrize(
    ("solution", "answer"),
    [
        (r"so $a+b=\boxed{0}$.", "0"),
        (r"$\boxed{1}$, or rather $\boxed{\frac{1}{2}}$", r"\frac{1}{2}"),
        (r"\boxed{\left\{ 1, 2 \right\}}", r"\left\{ 1, 2 \right\}"),
        (r"\boxed{ \text{a}\} }", r"\text{a}\}"),
        (r"we get $\fbox{7}$.", "7"),
        (r"we get $\boxed 5$ and stop", "5"),
        (r"\boxed{\begin{pmatrix} 1 \\ 2 \end{pmatrix}} (a \boxedness)", r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}"),
    ],
)
def test_the_last_box(solution: str, answer: str) -> None:
    assert answer_in(solution) == answer
    columns = BoxedSolution(question="problem", solution="solution", instruction="")
    problem = columns({"problem": "Find it.", "solution": solution}, id="math/7")
    assert (problem.prompt, problem.answer) == ("Find it.", answer)


@pytest.mark.parametrize(
    ("solution", "reason"),
    [
        ("the answer is 5", "no box"),
        (r"\boxed{}", "empty box"),
        (r"\boxed{1", "box not closed"),
        (r"\boxed{1} and \boxed", "empty box"),
    ],
)
def test_what_cannot_be_scored(solution: str, reason: str) -> None:
    with pytest.raises(BadRow, match=reason):
        answer_in(solution)
