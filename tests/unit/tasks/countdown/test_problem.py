"""A problem's identity and prompts, the arguments that it rejects, and templates: how they are read and filled."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from contrastive_reasoning.tasks.countdown.problem import (
    EXAMPLES,
    CountdownProblem,
    fill_template,
    problem_key,
    problem_prompt,
    read_template,
)
from contrastive_reasoning.tasks.countdown.trace import search_trace
from tests.tiny_tasks import countdown


def test_problem_id_does_not_depend_on_order_of_numbers() -> None:
    one, other = CountdownProblem((21, 16, 17, 26), 46), CountdownProblem(numbers=[26, 17, 16, 21], target=46)
    assert one.id == other.id == "countdown:16,17,21,26=46"
    assert one.key == problem_key((16, 17, 21, 26), 46)
    assert one.numbers == (21, 16, 17, 26)
    assert one.prompt != other.prompt
    assert one.answer == "46"
    assert len({one, pickle.loads(pickle.dumps(one))}) == 1
    assert one.fields == {"numbers": (21, 16, 17, 26), "target": 46, "style": "longproc", "source": "given"}


@pytest.mark.parametrize(("style", "header"), [("longproc", "# Search Procedure"), ("annotated", "<Search Procedure>")])
def test_problem_prompt_contains_worked_examples_and_ends_with_problem(style: str, header: str) -> None:
    prompt = problem_prompt((5, 6, 7), 29, style=style)
    for numbers, target in EXAMPLES:
        assert search_trace(numbers, target, style=style).text in prompt
    assert f'Write the search under "{header}"' in prompt
    assert prompt.endswith("Numbers: [5, 6, 7]\nTarget: 29\n")


def write_file(folder: Path, text: str, name: str) -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


def test_template_is_a_text_file_or_the_user_prompt_of_a_yaml_file_or_of_longprocs(tmp_path: Path) -> None:
    text = "  Numbers: {nums}\n\nTarget: {target} {other}"
    assert read_template(write_file(tmp_path, f"{text}\n\n", "prompt.txt"), longproc=False) == text
    text = "A: 1\nUSER_PROMPT: |-\n  See {demonstration}\n\n    {nums}:\n  {target}\nB: 2\n"
    for name, longproc in [("a.yaml", False), ("a.yml", False), ("prompts.yaml", True), ("6f3a", True)]:
        file = write_file(tmp_path, text, name)
        assert read_template(file, longproc=longproc) == "See {demonstration}\n\n  {nums}:\n{target}"


@pytest.mark.parametrize(
    ("text", "name", "missing"),
    [
        ("{target}", "a.txt", r"{nums}"),
        ("{nums}", "a.txt", r"{target}"),
        ("{ nums }", "a.txt", r"{nums} and {target}"),
        ("USER_PROMPT: {nums} {target}", "a.yaml", r"{nums} and {target}"),
        ("OTHER: |-\n  {nums} {target}", "a.yaml", r"{nums} and {target}"),
        ("USER_PROMPT: {nums} {target} {demonstration}", "prompts.yaml", r"{nums} and {target} and {demonstration}"),
        ("USER_PROMPT: |-\n  {nums} {target}", "prompts.yaml", r"{demonstration}"),
    ],
)
def test_template_without_placeholder_is_rejected(text: str, name: str, missing: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"{name}' lacks {missing}:"):
        read_template(write_file(tmp_path, text, name), longproc=name == "prompts.yaml")


def test_unsuitable_prompt_file_is_rejected_when_task_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "latin.txt").write_bytes(b"{nums} {target} \xe9")
    write_file(tmp_path, "{nums}", "short.txt")
    for file in ("~/latin.txt", "~/short.txt", "~/none.txt"):
        with pytest.raises((ValueError, FileNotFoundError), match=f"^prompt_file='{file}'"):
            countdown(prompt_file=file)
    write_file(tmp_path, "{nums} {target}", "fit.txt")
    assert countdown(prompt_file="~/fit.txt").problem((5, 6), 11).prompt == "[5, 6] 11"


def test_fill_template_replaces_every_placeholder_and_keeps_unknown_braces() -> None:
    filled = fill_template("{keep} {demonstration} | {nums} -> {target} {x}", (5, 6), 11, style="longproc")
    assert filled.startswith("{keep} # Example\nNumbers: [40, 19, 23, 7]\nTarget: 29\n\n# Search Procedure\n")
    assert filled.endswith("</Solution>\n | [5, 6] -> 11 {x}")
    assert fill_template("{target} of {nums}, {nums}!", (5, 6), 11, style="released") == "11 of [5, 6], [5, 6]!"
    filled = fill_template("{nums}{demonstration}{target}", (5, 6), 11, style="released")
    assert all(search_trace(*example, style="released").text in filled for example in EXAMPLES)


@pytest.mark.parametrize("numbers", [(), (3, -1), (True, 2), (1.5, 2), ("3", 2)])
def test_invalid_numbers_and_style_are_rejected(numbers: tuple) -> None:
    with pytest.raises((ValueError, TypeError), match="numbers"):
        CountdownProblem(numbers, 3)
    with pytest.raises(ValueError, match=r"style.*'short'"):
        CountdownProblem((1, 2), 3, style="short")
