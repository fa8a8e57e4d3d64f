"""Suggestions name what is near, and a command as it can be typed here."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.cli.commands import COMMANDS
from experiments.config.hints import command_line, did_you_mean, install_command

ROOT = Path(__file__).resolve().parents[4]
FIXED = re.compile(rf"\bmake ({'|'.join(COMMANDS)})\b|pip install")
IN_ANY_CASE = {
    "experiments/embed.py": "a record of what was run in a clone",
    "experiments/config/hints.py": "both forms",
    "contrastive_reasoning/policies/log_probs.py": "right in a clone, too: the package is installed there",
}

KEYS = ["seed", "reward.weight", "loss.loss.weight", "rollout.group_size", "budget.grpo.steps"]


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        ("sed", "did you mean 'seed'?"),
        ("reward.wieght", "did you mean 'reward.weight'?"),
        ("weight", "did you mean 'reward.weight'?"),
        ("groupsize", "did you mean 'rollout.group_size'?"),
    ],
)
def test_names_the_nearest_key(word: str, answer: str) -> None:
    assert did_you_mean(word, KEYS) == answer


def test_lists_what_there_is_where_nothing_is_near() -> None:
    assert did_you_mean("xyz", ["b", "a"]) == "there are a, b"
    assert did_you_mean("xyz", []) == "there are none"


@pytest.mark.parametrize(
    ("in_a_clone", "words"),
    [
        (
            True,
            [
                "make compare",
                "make study name=NAME",
                "make sweep name=EXPERIMENT sweep=NAME",
                "pip install -e '.[ray]'",
            ],
        ),
        (
            False,
            [
                "contrastive-reasoning compare",
                "contrastive-reasoning study NAME",
                "contrastive-reasoning sweep EXPERIMENT sweep=NAME",
                "pip install 'contrastive-reasoning[ray]'",
            ],
        ),
    ],
)
def test_commands_are_those_of_where_it_runs(
    monkeypatch: pytest.MonkeyPatch, in_a_clone: bool, words: list[str]
) -> None:
    monkeypatch.setattr("experiments.config.hints.IN_A_CLONE", in_a_clone)
    said = [
        command_line("compare"),
        command_line("study", "NAME"),
        command_line("sweep", "EXPERIMENT", "sweep=NAME"),
        install_command("ray"),
    ]
    assert said == words


def test_no_message_names_one_form_for_both() -> None:
    found = {str(path.relative_to(ROOT)) for path in code() if any(map(FIXED.search, strings(path)))}
    assert found == {*IN_ANY_CASE}


def code() -> Iterator[Path]:
    for room in ("contrastive_reasoning", "lightning_modules", "datamodules", "callbacks", "experiments"):
        yield from (ROOT / room).rglob("*.py")


def strings(path: Path) -> Iterator[str]:
    """Those of a file that are no documentation."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node.value
