from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.cli.commands import COMMANDS
from experiments.cli.main import main

ROOT = Path(__file__).resolve().parents[4]


def typed(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "experiments.cli.main", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)


def test_help_names_every_command_and_what_it_takes(capsys: pytest.CaptureFixture[str]) -> None:
    for words, code in {("help",): 0, ("-h",): 0, (): 2}.items():
        assert main(words) == code, "nothing given is a mistake"
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].startswith("Usage: contrastive-reasoning COMMAND")
        assert [line.split()[0] for line in lines if line.startswith("  ")] == [*COMMANDS]
    for name in COMMANDS:
        assert main([name, "--help"]) == 0
        said = capsys.readouterr().out
        assert said.startswith(f"Usage: contrastive-reasoning {name}")
        assert f"Example: contrastive-reasoning {name}" in said


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["swep"], "no command 'swep'; did you mean 'sweep'?\n"),
        (["quuux"], "no command 'quuux'; there are bench, compare, "),
    ],
    ids=" ".join,
)
def test_a_mistyped_command_gets_its_one_sentence(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.startswith(f"contrastive-reasoning: {sentence}")) == ("", True)


def test_a_command_is_answered_by_its_module() -> None:
    """With its exit code: test_run.py."""
    listed = typed("list")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert "\n  llama_critic " in listed.stdout


def test_ones_own_code_is_found_behind_all_that_is_installed(tmp_path: Path) -> None:
    """Where Python is told to leave the working folder out, as the command tells it."""
    for name in ("my_rewards", "callbacks"):
        (tmp_path / f"{name}.py").touch()
    script = "import experiments, my_rewards, callbacks; print(my_rewards.__file__, callbacks.__file__)"
    said = subprocess.run(
        [sys.executable, "-P", "-c", script],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert said == [str(tmp_path / "my_rewards.py"), str(ROOT / "callbacks" / "__init__.py")]


def test_help_and_mistyped_commands_import_the_standard_library_alone() -> None:
    """-S leaves site-packages out, -I the environment."""
    script = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); from experiments.cli.main import main\n"
        "lines = ['--help'], ['exp', '--help'], ['swep']\n"
        "sys.exit([main(words) for words in lines] != [0, 0, 2])"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
