"""Formats convert rows to problems; a row that cannot be converted raises an error with the reason."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contrastive_reasoning.tasks.base import Message, messages_of
from contrastive_reasoning.tasks.formats import (
    BoxedSolution,
    ChatMessages,
    Conversation,
    FirstFitting,
    PlainAnswer,
    RowTemplate,
    WorkedAnswer,
    with_instruction,
    without_instruction,
)
from contrastive_reasoning.tasks.rows import BadRow, Format, MissingColumn, read_set
from datamodules.problem_rows import ProblemRows

BOXED = BoxedSolution(question="problem", solution="solution", instruction="")
WORKED = WorkedAnswer(question="question", answer="answer", instruction="Box it.")
PLAIN = PlainAnswer(question="Question", answer="Answer", instruction="Box it.")
CHAT = ChatMessages(messages="prompt", answer="reward_model.ground_truth", instruction="Box it.")
CONVERSATION = Conversation(messages="prompt", answer="reward_model.ground_truth", keep=["data_source", "extra_info"])


def boxed(solution: str) -> dict[str, Any]:
    return {"problem": "Find it.", "solution": solution}


def worked(answer: str) -> dict[str, Any]:
    return {"question": "How many?", "answer": answer}


def turn(role: str, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


def chat(*messages: Any, gold: Any = "142.0", **more: Any) -> dict[str, Any]:
    return {"prompt": list(messages), "reward_model": {"style": "rule", "ground_truth": gold}, **more}


@pytest.mark.parametrize(
    ("format", "row", "prompt", "answer"),
    [
        (BOXED, boxed(r"so $a+b=\boxed{0}$."), "Find it.", "0"),
        (BOXED, boxed(r"$\boxed{1}$, or rather $\boxed{\frac{1}{2}}$"), "Find it.", r"\frac{1}{2}"),
        (BOXED, boxed(r"\boxed{\left\{ 1, 2 \right\}}"), "Find it.", r"\left\{ 1, 2 \right\}"),
        (BOXED, boxed(r"\boxed{ \text{a}\} }"), "Find it.", r"\text{a}\}"),
        (BOXED, boxed(r"we get $\fbox{7}$."), "Find it.", "7"),
        (BOXED, boxed(r"we get $\boxed 5$ and stop"), "Find it.", "5"),
        (WORKED, worked("48/2 = <<48/2=24>>24 clips.\n48+24 = 72\n#### 72"), "How many?\nBox it.", "72"),
        (WORKED, worked("#### 1 and then\n####   -3 "), "How many?\nBox it.", "-3"),
        (WORKED, worked("#### 1,234,567"), "How many?\nBox it.", "1234567"),
        (WORKED, worked("#### 1,23"), "How many?\nBox it.", "1,23"),
        (WORKED, worked("#### (1,200, 3)"), "How many?\nBox it.", "(1200, 3)"),
        (PLAIN, {"Question": " How many? ", "Answer": 142.0}, "How many?\nBox it.", "142"),
        (PLAIN, {"Question": "Which?", "Answer": [0, 5]}, "Which?\nBox it.", "[0, 5]"),
        (CHAT, chat(turn("user", "What is m+n?\nBox it.")), "What is m+n?\nBox it.", "142.0"),
        (
            CHAT,
            chat(turn("user", "a+b?"), gold=r"$\boxed{1}$. So $\boxed{\frac{0}{1}}$."),
            "a+b?\nBox it.",
            r"\frac{0}{1}",
        ),
        (CONVERSATION, chat(turn("user", "?"), gold=4.0), "?", "4"),
    ],
)
def test_format_converts_row_to_problem(format: Format, row: dict[str, Any], prompt: str, answer: str) -> None:
    problem = format(row, id="set/7")
    assert (problem.id, problem.prompt, problem.answer) == ("set/7", prompt, answer)


ROLES = "the role of a message must be one of system, user, assistant, got"


@pytest.mark.parametrize(
    ("format", "row", "reason"),
    [
        (BOXED, boxed("the answer is 5"), "no box"),
        (BOXED, boxed(r"\boxed{}"), "empty box"),
        (BOXED, boxed(r"\boxed{1"), "box not closed"),
        (BOXED, boxed(r"\boxed{1} and \boxed"), "empty box"),
        *[(WORKED, worked(answer), "no result after ####") for answer in ("72", "so it is 72 ####", "####")],
        (CHAT, chat(turn("system", "x")), "must be one user's, got system"),
        (CHAT, chat(), "got none"),
        (CHAT, chat() | {"prompt": "x"}, "not a list of"),
        (CHAT, chat(turn("user", "  ")), "message is empty"),
        (CHAT, chat(turn("user", "x"), gold=None), "reward_model.ground_truth is empty"),
        (CHAT, chat(turn("user", "x"), gold=r"so \boxed{}"), "no answer in the solution: empty box"),
        (CONVERSATION, chat(), "the last message must be the user's, got none"),
        (CONVERSATION, chat(turn("user", "a"), turn("assistant", "b")), "must be the user's, got user, assistant"),
        (CONVERSATION, chat(turn("tool", "a")), f"{ROLES} 'tool'"),
        (CONVERSATION, chat({"content": "a"}), f"{ROLES} None"),
        (CONVERSATION, chat(turn("user", [{"type": "image"}])), "a message is neither text nor a number but list"),
        (CONVERSATION, chat(turn("user", " ")), "a message is empty"),
        (CONVERSATION, chat("a"), "the messages are not a list of {role, content}"),
    ],
)
def test_format_rejects_bad_row_with_reason(format: Format, row: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadRow) as error:
        format(row, id="0")
    assert reason in str(error.value)


def test_first_fitting_uses_first_format_whose_columns_exist() -> None:
    either = FirstFitting(formats={"worked": WORKED, "plain": PLAIN})
    assert either({"Question": "How many?", "Answer": "7"}, id="0").answer == "7"
    assert either({"question": "How many?", "answer": "#### 8"}, id="0").answer == "8"
    with pytest.raises(MissingColumn, match=r"question or Question.*problem, solution"):
        either(boxed(""), id="0")
    with pytest.raises(BadRow, match="no result"):  # no other format is tried for a bad row
        either({"question": "How many?", "answer": "8", "Question": "How many?", "Answer": "8"}, id="0")
    with pytest.raises(ValueError, match="format"):
        FirstFitting(formats={})


def test_conversation_prompt_contains_exactly_the_messages_of_the_file(tmp_path: Path) -> None:
    turns = [("system", "Be short."), ("user", "1 + 1?"), ("assistant", "2"), ("user", "2 + 2?")]
    more = {"data_source": "sums", "ability": "math", "extra_info": {"split": "train", "index": 0}}
    rows = [chat(*[turn(*one) for one in turns], gold="4", **more)] * 2
    (tmp_path / "train.json").write_text(json.dumps(rows))
    file = ProblemRows(path=str(tmp_path / "train.json"), subset=None, revision=None, split="train", file=None)
    found = read_set(file, CONVERSATION, prefix="verl", check_golds=lambda golds: [], on_bad="refuse").problems
    assert [problem.id for problem in found] == ["verl/0", "verl/1"]
    assert messages_of(found[0].prompt) == tuple(Message(*one) for one in turns)
    assert found[0].prompt == "Be short.\n\n1 + 1?\n\n2\n\n2 + 2?"
    assert found[0].fields == {"data_source": "sums", "extra_info": {"split": "train", "index": 0}}


def test_conversation_answer_can_be_a_key_of_nested_ground_truth() -> None:
    """Countdown sets have such a ground truth. The whole mapping can be kept for a reward function."""
    gold = {"target": 98, "numbers": [44, 19, 35]}
    row = chat(turn("user", "98?"), gold=gold)
    with pytest.raises(BadRow, match=r"reward_model\.ground_truth.*dict"):
        CONVERSATION(row, id="0")
    with pytest.raises(MissingColumn, match=r"reward_model\.answer.*prompt, reward_model"):
        replace(CONVERSATION, answer="reward_model.answer")(row, id="0")
    form = replace(CONVERSATION, answer="reward_model.ground_truth.target", keep=["reward_model"])
    problem = form(row, id="0")
    assert (problem.answer, problem.fields["reward_model"]["ground_truth"]) == ("98", gold)


ROW = {"word": "lamp", "more": {"count": 3.0}, "key": "a7"}


def fill(prompt: str, row: dict[str, Any] = ROW, *, answer: str | None = None, id: str | None = None) -> Any:
    return RowTemplate(prompt=prompt, answer=answer, id=id)(row, id="words/train/0")


@pytest.mark.parametrize(
    ("template", "prompt"),
    [
        ("Spell {word} backwards.\n", "Spell lamp backwards.\n"),
        ("{word}, {more.count} times: {word}", "lamp, 3 times: lamp"),
        (r"{word}? Answer in \boxed{}.", r"lamp? Answer in \boxed{}."),
        ("{{word}} is {word}", "{word} is lamp"),
        (r"\nu \not= {word} \neq 3", r"\nu \not= lamp \neq 3"),
    ],
)
def test_row_template_fills_columns_and_keeps_other_text(template: str, prompt: str) -> None:
    assert fill(template).prompt == prompt
    assert (fill(template).fields, fill(template).answer, fill(template).id) == (ROW, "", "words/train/0")


def test_row_template_reads_answer_and_id_and_rejects_missing_columns() -> None:
    assert fill("{word}", answer="more.count").answer == "3"
    assert fill("{word}", id="key").id == "words/train/a7"
    assert fill("{word}", {"word": r"{key} \1 {{"}).prompt == r"{key} \1 {{", "what a row holds is no template"
    with pytest.raises(ValueError, match=r"format\.prompt.*'Spell {{word}}'"):
        RowTemplate(prompt="Spell {{word}}", answer=None, id=None)
    for part in ({"prompt": "{wrd}"}, {"prompt": "{word}", "answer": "wrd"}):
        with pytest.raises(MissingColumn, match=r"wrd.*word, more, key"):
            fill(**part)


STEPS = r"Let's think step by step and output the final answer {}within \boxed{{}}."
PUBLISHED = [
    STEPS.format(which) for which in ("", "(eg, A, B, C, D) ", "(eg, A, B, C, D, E) ", "(eg, A, B, C, D, ...) ")
]


@pytest.mark.parametrize("already", PUBLISHED)
def test_with_instruction_never_adds_a_second_instruction(already: str) -> None:
    once = with_instruction("What is 1+1?", already)
    assert once == f"What is 1+1?\n{already}"
    assert {with_instruction(once, instruction) for instruction in PUBLISHED} == {once}
    assert without_instruction(once) == "What is 1+1?" == with_instruction("What is 1+1?", "")
    own = with_instruction("What is 1+1?", "Box it.")
    assert with_instruction(own, "Box it.") == own == "What is 1+1?\nBox it."


@pytest.mark.parametrize("template", [r"Q: {word}\nA:", r"{word}\n", r"\n\n{word}", r"{word}\n\boxed{}"])
def test_literal_backslash_n_is_rejected_in_prompt_and_instruction(template: str) -> None:
    with pytest.raises(ValueError, match=r"format\.prompt.*backslash"):
        RowTemplate(prompt=template, answer=None, id=None)
    with pytest.raises(ValueError, match=r"format\.instruction.*backslash"):
        with_instruction("What is 1+1?", template)
