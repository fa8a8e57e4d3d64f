"""The entry: where it can be started, and what it refuses before anything is loaded."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from experiments import run
from experiments.run import _disk_error, _folder_error, main

ROOT = Path(__file__).resolve().parents[3]
TYPO = ("experiment=llama_critic", "seeed=1")
ANSWER = "seeed: no such key; did you mean 'seed'?\n"


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        error = _folder_error(["experiment=llama_critic", f"output_dir={folder}"])
        assert error is not None
        assert error.startswith(f"output_dir={folder}: ")
        assert error.endswith("; choose a folder that can be written, output_dir=FOLDER")
        assert "\n" not in error
    assert _folder_error(["experiment=llama_critic", f"output_dir={tmp_path / 'new'}"]) is None


@pytest.mark.parametrize(
    ("number", "path", "told"),
    [
        (errno.EACCES, "outputs/stages/grpo/x/metrics.jsonl", True),
        (errno.ENOTDIR, "mlruns/mlflow.db", True),
        (errno.ENOSPC, None, True),
        (errno.EROFS, "/elsewhere/file", True),
        (errno.EACCES, "/elsewhere/data.json", False),
        (errno.ENOTDIR, "outputs_of_a_reward/file", False),
        (errno.EPERM, None, False),
        (errno.ENOENT, "outputs/stages/grpo/x/metrics.jsonl", False),
    ],
)
def test_only_of_the_disk_and_of_our_own_folders_an_error_is_one_sentence(
    number: int, path: str | None, told: bool
) -> None:
    error = OSError(number, os.strerror(number), path)
    assert _disk_error(error, "outputs") == (f"{path or 'outputs'}: {os.strerror(number)}" if told else None)


@pytest.mark.parametrize(
    "words",
    [
        ["experiment=llama_critic", "--cfg", "job"],
        ["experiment=llama_critic", "--info"],
        ["--shell-completion", "install=bash"],
    ],
    ids=" ".join,
)
def test_flags_that_only_show_something_make_no_folder(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[object] = []
    monkeypatch.setattr(run, "watch", shown.append)
    monkeypatch.setattr(sys, "argv", ["run", *words])
    monkeypatch.chdir(tmp_path)
    main()
    assert (len(shown), list(tmp_path.iterdir())) == (1, [])


IMPORTS = "import experiments, callbacks, conf, datamodules; print(callbacks.__file__)"


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("-m", "experiments.run", *TYPO), (2, "", ANSWER)),
        (("-m", "experiments.cli.main", "exp", *TYPO), (2, "", ANSWER)),
        (("-c", IMPORTS), (0, f"{ROOT / 'callbacks' / '__init__.py'}\n", "")),
    ],
    ids=["module", "command", "import"],
)
def test_modules_of_ones_own_with_our_names_change_nothing(
    words: tuple[str, ...], answer: tuple[int, str, str], tmp_path: Path
) -> None:
    """The working folder comes before ours on the search path, as it does with an editable install."""
    (tmp_path / "callbacks.py").write_text("raise RuntimeError('not ours')\n")
    for name in ("conf", "datamodules"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('not ours')\n")
    done = subprocess.run(
        [sys.executable, *words],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == answer
