"""What a person is told to type can be typed where it is said."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.cli.commands import COMMANDS
from experiments.cli.typed_here import installs, typed

ROOT = Path(__file__).resolve().parents[4]
FIXED = re.compile(rf"\bmake ({'|'.join(COMMANDS)})\b|pip install")
IN_ANY_CASE = {
    "experiments/embed.py": "a record of what was typed in a clone",
    "experiments/cli/typed_here.py": "both forms",
    "contrastive_reasoning/policies/log_probs.py": "right in a clone, too: the package is installed there",
}


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
    monkeypatch.setattr("experiments.cli.typed_here.IN_A_CLONE", in_a_clone)
    said = [typed("compare"), typed("study", "NAME"), typed("sweep", "EXPERIMENT", "sweep=NAME"), installs("ray")]
    assert said == words


def test_no_message_names_one_form_for_both() -> None:
    found = {str(path.relative_to(ROOT)) for path in code() if any(map(FIXED.search, strings(path)))}
    assert found == {*IN_ANY_CASE}


def code() -> Iterator[Path]:
    for room in ("contrastive_reasoning", "lightning_modules", "datamodules", "callbacks", "experiments"):
        yield from (ROOT / room).rglob("*.py")


def strings(path: Path) -> Iterator[str]:
    """Those of a file that are no documentation."""
    tree = ast.parse(path.read_text())
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
            yield node.value
