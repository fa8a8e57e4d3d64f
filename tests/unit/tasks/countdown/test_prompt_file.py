"""User-defined prompt templates: how a file is read, and the errors for unsuitable files."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import pytest

from contrastive_reasoning.tasks.countdown.prompt_file import read_prompt_file
from experiments.assemble import AssemblyError, build
from tests.config_kit import composed


def write_file(folder: Path, text: str, name: str = "prompt.txt") -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


def test_text_file_is_read_as_template(tmp_path: Path) -> None:
    text = "  Numbers: {nums}\n\nTarget: {target} {other}"
    assert read_prompt_file(write_file(tmp_path, f"{text}\n\n")) == text


def test_yaml_file_template_is_read_from_user_prompt_block(tmp_path: Path) -> None:
    text = "A: 1\nUSER_PROMPT: |-\n  Use {nums}:\n    {target}\nB: 2\n"
    for name in ("prompts.yaml", "prompts.yml"):
        assert read_prompt_file(write_file(tmp_path, text, name)) == "Use {nums}:\n  {target}"


@pytest.mark.parametrize(
    ("text", "name", "missing"),
    [
        ("{target}", "a.txt", r"{nums}"),
        ("{nums}", "a.txt", r"{target}"),
        ("{ nums }", "a.txt", r"{nums} and {target}"),
        ("USER_PROMPT: {nums} {target}", "a.yaml", r"{nums} and {target}"),
    ],
)
def test_template_without_placeholder_is_rejected(text: str, name: str, missing: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"{name}' lacks {missing}:"):
        read_prompt_file(write_file(tmp_path, text, name))


def test_unsuitable_prompt_file_is_rejected_when_task_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = deepcopy(composed("experiment=llama_baseline"))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "latin.txt").write_bytes(b"{nums} {target} \xe9")
    write_file(tmp_path, "{nums}", "short.txt")
    for file in ("~/latin.txt", "~/short.txt", "~/none.txt"):
        config.task.prompt_file = file
        with pytest.raises(AssemblyError, match=f"^task: prompt_file='{file}'"):
            build(config, "task")
    config.task.prompt_file = "~/fit.txt"
    write_file(tmp_path, "{nums} {target}", "fit.txt")
    build(config, "task")
