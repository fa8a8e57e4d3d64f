"""``experiments.run``: errors before anything is loaded, disk errors, and user modules with the package's names."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from experiments import run
from experiments.run import _disk_error, _folder_error, main

ROOT = Path(__file__).resolve().parents[3]
TYPO = ("-m", "experiments.cli.main", "exp", "experiment=llama_critic", "seeed=1")


def test_folder_error_is_one_sentence_for_unwritable_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        error = _folder_error(["experiment=llama_critic", f"output_dir={folder}"])
        assert error is not None
        assert error.startswith(f"output_dir={folder}: ")
        assert "\n" not in error
    assert _folder_error(["experiment=llama_critic", f"output_dir={tmp_path / 'new'}"]) is None


@pytest.mark.parametrize(
    ("number", "path", "reported"),
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
def test_disk_error_reports_only_disk_faults_and_output_folders(number: int, path: str | None, reported: bool) -> None:
    error = OSError(number, os.strerror(number), path)
    assert _disk_error(error, "outputs") == (f"{path or 'outputs'}: {os.strerror(number)}" if reported else None)


@pytest.mark.parametrize(
    "arguments",
    [
        ["experiment=llama_critic", "--cfg", "job"],
        ["experiment=llama_critic", "--info"],
        ["--shell-completion", "install=bash"],
    ],
    ids=" ".join,
)
def test_flags_that_only_print_create_no_folder(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[object] = []
    monkeypatch.setattr(run, "run", lambda: calls.append(None))
    monkeypatch.setattr(sys, "argv", ["run", *arguments])
    monkeypatch.chdir(tmp_path)
    main()
    assert (len(calls), list(tmp_path.iterdir())) == (1, [])


@pytest.mark.parametrize("flag", [["--cfg", "job"], ["--info"]], ids=" ".join)
def test_flags_that_show_a_single_run_are_rejected_for_a_sweep(
    flag: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["run", "-m", "experiment=clipo_laptop", "seed=0,1", *flag])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert re.fullmatch("--cfg and --info .*\n", capsys.readouterr().err)


IMPORTS = "import experiments, callbacks, conf, datamodules; print(callbacks.__file__)"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (TYPO, (2, "", "seeed: no such key; did you mean 'seed'?\n")),
        (("-c", IMPORTS), (0, f"{ROOT / 'callbacks' / '__init__.py'}\n", "")),
    ],
    ids=["command", "import"],
)
def test_user_modules_with_package_names_are_not_imported(
    arguments: tuple[str, ...], expected: tuple[int, str, str], tmp_path: Path
) -> None:
    """The working directory precedes the package on the search path, as in an editable install."""
    (tmp_path / "callbacks.py").write_text("raise RuntimeError('not ours')\n")
    for name in ("conf", "datamodules"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('not ours')\n")
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == expected


STOPPED = """
import os, signal, sys
from experiments import {module}
original = {module}.{function}
def stopped(*given, **named):
    os.kill(os.getpid(), signal.SIGINT)
    return original(*given, **named)
{module}.{function} = stopped
from experiments.run import main
sys.argv = ["run", "experiment=llama_baseline", "output_dir={folder}"]
main()
"""


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize(
    ("module", "function", "line"),
    [
        ("run", "override_error", ""),
        ("assemble", "build", "stopped outside a stage; run the same command again to go on\n"),
    ],
)
def test_ctrl_c_before_the_first_stage_ends_the_run_without_traceback(
    module: str, function: str, line: str, tmp_path: Path
) -> None:
    script = STOPPED.format(module=module, function=function, folder=tmp_path)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, line)


def test_diverged_run_ends_with_one_sentence(tmp_path: Path) -> None:
    raising = "raise Diverged('loss is not finite; the batch is in FILE')"
    script = STOPPED.format(module="assemble", function="build", folder=tmp_path)
    script = script.replace("os.kill(os.getpid(), signal.SIGINT)", raising)
    script = "from contrastive_reasoning.nonfinite import Diverged" + script
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "loss is not finite; the batch is in FILE\n")
