from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.cli.commands import COMMANDS
from experiments.cli.main import main

ROOT = Path(__file__).resolve().parents[4]


def run_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "experiments.cli.main", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)


def test_help_lists_every_command_and_its_usage(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, code in {("help",): 0, ("-h",): 0, (): 2}.items():
        assert main(arguments) == code, "nothing given is a mistake"
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].startswith("Usage: contrastive-reasoning COMMAND")
        assert [line.split()[0] for line in lines if line.startswith("  ")] == [*COMMANDS]
    for name in COMMANDS:
        assert main([name, "--help"]) == 0
        output = capsys.readouterr().out
        assert output.startswith(f"Usage: contrastive-reasoning {name}")
        assert f"Example: contrastive-reasoning {name}" in output
        explained = re.findall(r"^  (\w+)=\S*  +\w", output, re.M)
        assert explained == COMMANDS[name].own_keys


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["swep"], "no command 'swep'; did you mean 'sweep'?\n"),
        (["quuux"], "no command 'quuux'; there are compare, "),
    ],
    ids=" ".join,
)
def test_mistyped_command_prints_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err.startswith(f"contrastive-reasoning: {sentence}")) == ("", True)


def test_command_runs_its_module() -> None:
    """test_run.py tests the exit code."""
    listed = run_command("list")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert "\n  llama_critic " in listed.stdout


def test_user_modules_are_found_after_installed_packages(tmp_path: Path) -> None:
    """Python runs with -P, which leaves out the working directory, as the console command does."""
    for name in ("my_rewards", "callbacks"):
        (tmp_path / f"{name}.py").touch()
    script = "import experiments, my_rewards, callbacks; print(my_rewards.__file__, callbacks.__file__)"
    places = subprocess.run(
        [sys.executable, "-P", "-c", script],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert places == [str(tmp_path / "my_rewards.py"), str(ROOT / "callbacks" / "__init__.py")]


def test_help_and_mistyped_commands_import_only_standard_library() -> None:
    """-S excludes site-packages, -I the environment."""
    script = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); from experiments.cli.main import main\n"
        "lines = ['--help'], ['exp', '--help'], ['swep']\n"
        "sys.exit([main(words) for words in lines] != [0, 0, 2])"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
