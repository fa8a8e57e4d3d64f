"""Formats: from a row of each kind to its problem, and the reason where it is none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from contrastive_reasoning.tasks.base import Message, messages_of
from contrastive_reasoning.tasks.formats import (
    BoxedSolution,
    ChatMessages,
    Conversation,
    FirstFitting,
    MultipleChoice,
    PlainAnswer,
    RowTemplate,
    WorkedAnswer,
    answer_in,
    with_instruction,
    without_instruction,
)
from contrastive_reasoning.tasks.rows import BadRow, MissingColumn, read_set
from datamodules.problem_rows import ProblemRows


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
def test_a_solution_without_an_answer(solution: str, reason: str) -> None:
    with pytest.raises(BadRow, match=reason):
        answer_in(solution)
    for worked in ("72", "so it is 72 ####", "####"):
        with pytest.raises(BadRow, match="no result after ####"):
            WORKED({"question": "How many?", "answer": worked}, id="0")


WORKED = WorkedAnswer(question="question", answer="answer", instruction="Box it.")


@pytest.mark.parametrize(
    ("worked", "answer"),
    [
        ("48/2 = <<48/2=24>>24 clips.\n48+24 = 72\n#### 72", "72"),
        ("#### 1 and then\n####   -3 ", "-3"),
        ("#### 1,234,567", "1234567"),
        ("#### 12.50", "12.50"),
        ("#### 1,23", "1,23"),
        ("#### (1,200, 3)", "(1200, 3)"),
    ],
)
def test_the_result_is_the_answer(worked: str, answer: str) -> None:
    problem = WORKED({"question": "How many?", "answer": worked}, id="set/0")
    assert (problem.id, problem.prompt, problem.answer) == ("set/0", "How many?\nBox it.", answer)


PLAIN = PlainAnswer(question="Question", answer="Answer", instruction="Box it.")


def test_a_plain_answer_is_text() -> None:
    problem = PLAIN({"Question": " How many? ", "Answer": 142.0}, id="amc/3")
    assert (problem.id, problem.prompt, problem.answer) == ("amc/3", "How many?\nBox it.", "142")
    assert PLAIN({"Question": "Which?", "Answer": [0, 5]}, id="0").answer == "[0, 5]"


def test_the_first_format_that_fits_is_taken() -> None:
    either = FirstFitting(formats={"worked": WORKED, "plain": PLAIN})
    assert either({"Question": "How many?", "Answer": "7"}, id="0").answer == "7"
    assert either({"question": "How many?", "answer": "#### 8"}, id="0").answer == "8"
    with pytest.raises(MissingColumn, match="no column question or Question; there are problem, solution"):
        either({"problem": "", "solution": ""}, id="0")
    with pytest.raises(BadRow, match="no result"):  # a bad row is not tried elsewhere
        either({"question": "How many?", "answer": "8", "Question": "How many?", "Answer": "8"}, id="0")
    with pytest.raises(ValueError, match="at least one format"):
        FirstFitting(formats={})
    assert hash(either) == hash(FirstFitting(formats={"worked": WORKED, "plain": PLAIN}))


CHOICE = MultipleChoice(question="question", options="choices.text", answer="key", shuffle=False, instruction="Box it.")
OPTIONS = ["bank", "library", "mall"]


def choice_row(key: Any, options: Any = OPTIONS) -> dict[str, Any]:
    return {"question": "Where?", "choices": {"text": options}, "key": key}


@pytest.mark.parametrize("key", ["B", 1, "library", [0, 1, 0], [False, True, False]])
def test_every_way_to_name_the_right_one(key: Any) -> None:
    problem = CHOICE(choice_row(key), id="0")
    assert problem.prompt == "Where?\n\nOptions:\nA. bank\nB. library\nC. mall\nBox it."
    assert problem.answer == "B"


@pytest.mark.parametrize("key", ["D", 3, -1, "park", True, [1, 1, 0], [0, 0, 0], None, ""])
def test_a_key_that_names_no_single_option(key: Any) -> None:
    with pytest.raises(BadRow, match="names no single one of 3 options"):
        CHOICE(choice_row(key), id="0")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (None, "must be a list of 2 to 26 options"),
        (["one"], "must be a list of 2 to 26 options"),
        ("ABC", "must be a list of 2 to 26 options"),
        (["one", None], "an option of choices.text is empty"),
        (["one", {"text": "two"}], "an option of choices.text is neither text nor a number but dict"),
    ],
)
def test_what_is_no_list_of_options(options: Any, reason: str) -> None:
    with pytest.raises(BadRow, match=reason):
        CHOICE(choice_row("A", options), id="0")


def test_shuffling_moves_the_letter_with_its_option() -> None:
    shuffled = replace(CHOICE, shuffle=True)
    golds = set()
    for number in range(40):
        asked = choice_row([1, 0, 0]) | {"question": f"Where {number}?"}
        problem = shuffled(asked, id=str(number))
        assert f"\n{problem.answer}. bank\n" in f"{problem.prompt}\n"
        assert all(f". {option}\n" in problem.prompt for option in OPTIONS)
        assert problem == shuffled(asked, id=str(number))
        golds.add(problem.answer)
    assert golds == {"A", "B", "C"}


CHAT = ChatMessages(messages="prompt", answer="reward_model.ground_truth", instruction="Box it.")


def chat_row(content: Any, gold: Any = "142.0", role: str = "user") -> dict[str, Any]:
    return {"prompt": [{"role": role, "content": content}], "reward_model": {"ground_truth": gold, "style": "rule"}}


def test_the_message_is_the_prompt_as_it_stands() -> None:
    problem = CHAT(chat_row("What is m+n?\nBox it."), id="amc/0")
    assert (problem.prompt, problem.answer) == ("What is m+n?\nBox it.", "142.0")
    assert CHAT(chat_row("What is m+n?"), id="amc/0").prompt == "What is m+n?\nBox it."
    whole = chat_row("Find a+b.", r"First $\boxed{1}$. So $a+b=\boxed{\frac{0}{1}}$.")
    assert CHAT(whole, id="0").answer == r"\frac{0}{1}"
    with pytest.raises(MissingColumn, match=r"no column reward_model.ground_truth; there are prompt, reward_model"):
        CHAT(chat_row("x") | {"reward_model": {"style": "rule"}}, id="0")


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (chat_row("x", role="system"), "must be one user's, got system"),
        (chat_row("x") | {"prompt": []}, "got none"),
        (chat_row("x") | {"prompt": "x"}, "no list of"),
        (chat_row("  "), "message is empty"),
        (chat_row("x", gold=None), "reward_model.ground_truth is empty"),
        (chat_row("x", gold=r"so \boxed{}"), "no answer in the solution: empty box"),
    ],
)
def test_messages_that_cannot_be_posed(bad: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadRow, match=reason):
        CHAT(bad, id="0")


CONVERSATION = Conversation(messages="prompt", answer="reward_model.ground_truth", keep=["data_source", "extra_info"])


def turn(role: str, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


def turns_row(*messages: Any, gold: Any = "4", **more: Any) -> dict[str, Any]:
    return {"prompt": list(messages), "reward_model": {"style": "rule", "ground_truth": gold}, **more}


def test_every_message_reaches_the_prompt_and_nothing_is_added() -> None:
    turns = [("system", "Be short."), ("user", "1 + 1?"), ("assistant", "2"), ("user", "2 + 2?")]
    problem = CONVERSATION(turns_row(*[turn(*one) for one in turns]), id="verl/0")
    assert messages_of(problem.prompt) == tuple(Message(*one) for one in turns)
    assert problem.prompt == "Be short.\n\n1 + 1?\n\n2\n\n2 + 2?"
    kept = turns_row(turn("user", "?"), gold=r"So $\boxed{\frac{1}{2}}$.", data_source="sums", ability="math")
    problem = CONVERSATION(kept, id="0")
    assert (problem.answer, problem.fields) == (r"\frac{1}{2}", {"data_source": "sums"})


def test_of_a_ground_truth_that_is_a_mapping_one_key_is_the_answer() -> None:
    """As those of Countdown are written; the whole of it can be kept for a reward function."""
    gold = {"target": 98, "numbers": [44, 19, 35]}
    row = turns_row(turn("user", "98?"), gold=gold)
    with pytest.raises(BadRow, match=r"reward_model\.ground_truth is neither text nor a number but dict"):
        CONVERSATION(row, id="0")
    form = replace(CONVERSATION, answer="reward_model.ground_truth.target", keep=["reward_model"])
    problem = form(row, id="0")
    assert (problem.answer, problem.fields["reward_model"]["ground_truth"]) == ("98", gold)


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([], "the last message must be the user's, got none"),
        ([turn("user", "a"), turn("assistant", "b")], "the last message must be the user's, got user, assistant"),
        ([turn("tool", "a")], "the role of a message must be one of system, user, assistant, got 'tool'"),
        ([{"content": "a"}], "the role of a message must be one of system, user, assistant, got None"),
        ([turn("user", [{"type": "image"}])], "a message is neither text nor a number but list"),
        ([turn("user", " ")], "a message is empty"),
        (["a"], "the messages are no list of {role, content}"),
    ],
)
def test_what_is_no_conversation_is_refused_with_its_reason(messages: list[Any], reason: str) -> None:
    with pytest.raises(BadRow) as refused:
        CONVERSATION(turns_row(*messages), id="0")
    assert str(refused.value) == reason


def test_a_parquet_file_is_read_as_it_is(tmp_path: Path) -> None:
    rows = [
        turns_row(
            turn("system", "Be short."),
            turn("user", f"What is {n} + {n}?"),
            gold=str(2 * n),
            data_source="sums",
            ability="math",
            extra_info={"split": "train", "index": n},
        )
        for n in range(3)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "train.parquet")
    found = read_set(
        ProblemRows(path=str(tmp_path / "train.parquet"), subset=None, revision=None, split="train", file=None),
        CONVERSATION,
        prefix="verl/train",
        check_golds=lambda golds: [],
        on_bad="refuse",
    )
    assert [problem.answer for problem in found.problems] == ["0", "2", "4"]
    assert found.problems[2].id == "verl/train/2"
    assert messages_of(found.problems[2].prompt) == (Message("system", "Be short."), Message("user", "What is 2 + 2?"))
    assert found.problems[2].fields == {"data_source": "sums", "extra_info": {"split": "train", "index": 2}}


ROW = {"word": "lamp", "more": {"count": 3.0}, "key": "a7"}


def posed(prompt: str, row: dict[str, Any] = ROW, *, answer: str | None = None, id: str | None = None) -> Any:
    return RowTemplate(prompt=prompt, answer=answer, id=id)(row, id="words/train/0")


@pytest.mark.parametrize(
    ("template", "prompt"),
    [
        ("Spell {word} backwards.\n", "Spell lamp backwards.\n"),
        ("{word}, {more.count} times: {word}", "lamp, 3 times: lamp"),
        (r"{word}? Answer in \boxed{}.", r"lamp? Answer in \boxed{}."),
        ("{{word}} is {word}", "{word} is lamp"),
    ],
)
def test_columns_in_braces_are_filled_in_and_the_rest_stays(template: str, prompt: str) -> None:
    assert posed(template).prompt == prompt
    assert (posed(template).fields, posed(template).answer, posed(template).id) == (ROW, "", "words/train/0")
    assert posed(template, answer="more.count").answer == "3"
    assert posed(template, id="key").id == "words/train/a7"
    assert posed("{word}", {"word": r"{key} \1 {{"}).prompt == r"{key} \1 {{", "what a row holds is no template"
    with pytest.raises(ValueError, match=r"format.prompt must name a column in braces, .* got 'Spell {{word}}'"):
        RowTemplate(prompt="Spell {{word}}", answer=None, id=None)
    with pytest.raises(BadRow, match=r"^word is empty$"):
        posed("{word}", {"word": " "})


@pytest.mark.parametrize("part", [{"prompt": "{wrd}"}, {"prompt": "{word}", "answer": "wrd"}])
def test_a_missing_column_is_named_with_those_there_are(part: dict[str, Any]) -> None:
    with pytest.raises(MissingColumn, match=r"^no column wrd; there are word, more, key$"):
        posed(**part)


BOXED = r"Let's think step by step and output the final answer within \boxed{}."
MMLU = r"Let's think step by step and output the final answer (eg, A, B, C, D) within \boxed{}."
COMMONSENSE = r"Let's think step by step and output the final answer (eg, A, B, C, D, E) within \boxed{}."
TRUTHFUL = r"Let's think step by step and output the final answer (eg, A, B, C, D, ...) within \boxed{}."
ALL = [BOXED, MMLU, COMMONSENSE, TRUTHFUL]


@pytest.mark.parametrize("instruction", ALL)
@pytest.mark.parametrize("already", ALL)
def test_never_twice(instruction: str, already: str) -> None:
    once = with_instruction("What is 1+1?", already)
    assert once == f"What is 1+1?\n{already}"
    assert with_instruction(once, instruction) == once
    assert without_instruction(once) == "What is 1+1?" == with_instruction("What is 1+1?", "")
    own = with_instruction("What is 1+1?", "Box it.")
    assert with_instruction(own, "Box it.") == own == "What is 1+1?\nBox it."


@pytest.mark.parametrize("template", [r"Q: {word}\nA:", r"{word}\n", r"\n\n{word}", r"{word}\n\boxed{}"])
def test_a_backslash_and_an_n_in_place_of_a_line_end_are_refused(template: str) -> None:
    with pytest.raises(ValueError, match=r"^format\.prompt holds a backslash and an n, .* write a real one"):
        RowTemplate(prompt=template, answer=None, id=None)
    with pytest.raises(ValueError, match=r"^format\.instruction holds a backslash and an n"):
        with_instruction("What is 1+1?", template)


@pytest.mark.parametrize("latex", [r"Is {word} \neq 3?", r"\nu \not= {word}", r"\nabla {word} in \boxed{}", "{word}\n"])
def test_commands_of_latex_and_real_line_ends_are_not(latex: str) -> None:
    assert posed(latex).prompt == latex.replace("{word}", "lamp")
    assert with_instruction("What?", latex) == f"What?\n{latex}"
