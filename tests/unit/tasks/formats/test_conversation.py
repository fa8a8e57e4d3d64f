"""verl's rows as they are: every message is kept, and what cannot be a conversation is refused with its reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from contrastive_reasoning.tasks.base import Problem
from contrastive_reasoning.tasks.chat_prompt import Message, messages_of
from contrastive_reasoning.tasks.formats import BadRow, Conversation, MissingColumn
from contrastive_reasoning.tasks.read_set import read_set
from datamodules.problem_rows import ProblemRows

FORMAT = Conversation(messages="prompt", answer="reward_model.ground_truth", keep=["data_source", "extra_info"])


def turn(role: str, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


def row(*messages: Any, gold: Any = "4", **more: Any) -> dict[str, Any]:
    return {"prompt": list(messages), "reward_model": {"style": "rule", "ground_truth": gold}, **more}


def test_every_message_reaches_the_prompt_and_nothing_is_added() -> None:
    turns = [("system", "Be short."), ("user", "1 + 1?"), ("assistant", "2"), ("user", "2 + 2?")]
    problem = FORMAT(row(*[turn(*one) for one in turns]), id="verl/0")
    assert messages_of(problem.prompt) == tuple(Message(*one) for one in turns)
    assert problem.prompt == "Be short.\n\n1 + 1?\n\n2\n\n2 + 2?"


def test_the_columns_to_keep_are_fields_where_the_row_has_them() -> None:
    problem = FORMAT(row(turn("user", "2 + 2?"), data_source="sums", ability="math"), id="0")
    assert problem.fields == {"data_source": "sums"}


@pytest.mark.parametrize(("gold", "answer"), [(4.0, "4"), (r"So $\boxed{\frac{1}{2}}$.", r"\frac{1}{2}"), ("B", "B")])
def test_the_gold_answer(gold: Any, answer: str) -> None:
    assert FORMAT(row(turn("user", "?"), gold=gold), id="0").answer == answer


def test_of_a_ground_truth_that_is_a_mapping_one_key_is_the_answer(tmp_path: Path) -> None:
    """Read from a file, as those of Countdown are written; the whole of it can be kept for a reward function."""
    gold = {"target": 98, "numbers": [44, 19, 35]}
    pq.write_table(pa.Table.from_pylist([row(turn("user", "98?"), gold=gold)]), tmp_path / "train.parquet")
    rows = ProblemRows(path=str(tmp_path / "train.parquet"), subset=None, revision=None, split="train", file=None)

    def read(**changes: Any) -> Problem:
        form = replace(FORMAT, **changes)
        return read_set(rows, form, prefix="", check_golds=lambda golds: [], on_bad="refuse").problems[0]

    with pytest.raises(ValueError, match=r"reward_model\.ground_truth is neither text nor a number but dict"):
        read()
    problem = read(answer="reward_model.ground_truth.target", keep=["reward_model"])
    assert problem.answer == "98"
    assert problem.fields["reward_model"]["ground_truth"] == gold


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
        FORMAT(row(*messages), id="0")
    assert str(refused.value) == reason


def test_a_missing_column_is_named() -> None:
    with pytest.raises(MissingColumn, match=r"no column reward_model\.ground_truth; there are prompt, reward_model"):
        FORMAT({"prompt": [turn("user", "a")], "reward_model": {"style": "rule"}}, id="0")


def test_a_parquet_file_is_read_as_it_is(tmp_path: Path) -> None:
    rows = [
        row(
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
        FORMAT,
        prefix="verl/train",
        check_golds=lambda golds: [],
        on_bad="refuse",
    )
    assert [problem.answer for problem in found.problems] == ["0", "2", "4"]
    assert found.problems[2].id == "verl/train/2"
    assert messages_of(found.problems[2].prompt) == (Message("system", "Be short."), Message("user", "What is 2 + 2?"))
    assert found.problems[2].fields == {"data_source": "sums", "extra_info": {"split": "train", "index": 2}}
