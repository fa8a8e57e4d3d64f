"""Prompt templates of one's own: what is read of a file, and the sentence that refuses one."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import pytest

from contrastive_reasoning.tasks.countdown.prompt_file import read_prompt_file
from experiments.config.contradictions import contradiction
from tests.config_kit import composed


def written(folder: Path, text: str, name: str = "prompt.txt") -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


def test_a_text_file_is_the_template(tmp_path: Path) -> None:
    text = "  Numbers: {nums}\n\nTarget: {target} {other}"
    assert read_prompt_file(written(tmp_path, f"{text}\n\n")) == text


def test_a_yaml_file_holds_it_as_longproc_does(tmp_path: Path) -> None:
    text = "A: 1\nUSER_PROMPT: |-\n  Use {nums}:\n    {target}\nB: 2\n"
    for name in ("prompts.yaml", "prompts.yml"):
        assert read_prompt_file(written(tmp_path, text, name)) == "Use {nums}:\n  {target}"


@pytest.mark.parametrize(
    ("text", "name", "missing"),
    [
        ("{target}", "a.txt", "{nums}: a"),
        ("{nums}", "a.txt", "{target}: a"),
        ("{ nums }", "a.txt", "{nums} and {target}: a"),
        ("USER_PROMPT: {nums} {target}", "a.yaml", "{nums} and {target}: a"),
    ],
)
def test_a_template_without_a_placeholder_is_refused(text: str, name: str, missing: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"\{demonstration\} where worked examples are to stand") as refused:
        read_prompt_file(written(tmp_path, text, name))
    assert f"{name}' lacks {missing}" in str(refused.value)


def test_a_run_with_an_unfit_template_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    config = deepcopy(composed("experiment=llama_baseline"))

    def said(file: str) -> str | None:
        config.task.prompt_file = file
        return contradiction(config)

    file = written(tmp_path, "{nums}")
    assert str(said(file)).startswith(f"task.prompt_file={file!r} lacks {{target}}: ")
    assert said(f"{tmp_path}/none.txt") == f"task.prompt_file='{tmp_path}/none.txt': no such file"
    (tmp_path / "latin.txt").write_bytes(b"{nums} {target} \xe9")
    assert "is not UTF-8 text" in str(said(f"{tmp_path}/latin.txt"))
    assert said(written(tmp_path, "{nums} {target}", "fit.txt")) is None
