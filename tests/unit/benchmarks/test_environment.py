"""The peers' environment: made once, and one sentence where it cannot be made."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.environment import REQUIREMENTS, STAMP, NoEnvironment, peer_python
from experiments.system.files import write_json


def test_an_environment_that_is_there_is_reused(tmp_path: Path) -> None:
    write_json(tmp_path / STAMP, list(REQUIREMENTS))
    assert peer_python(tmp_path) == tmp_path / "bin" / "python"
    assert [path.name for path in tmp_path.iterdir()] == [STAMP], "nothing was made"


def test_what_cannot_be_made_is_one_sentence_and_leaves_no_stamp(tmp_path: Path) -> None:
    write_json(tmp_path / STAMP, ["older==1.0"])
    (tmp_path / "bin").write_text("a file where a folder has to be")
    with pytest.raises(NoEnvironment, match=r"^could not make an environment: exit status \d+$"):
        peer_python(tmp_path)
    assert not (tmp_path / STAMP).exists()


def test_every_version_is_pinned_and_torch_is_ours() -> None:
    assert all("==" in requirement for requirement in REQUIREMENTS)
    constraints = (Path(__file__).resolve().parents[3] / "constraints.txt").read_text().splitlines()
    ours = [line.split(";")[0].split("+")[0].strip() for line in constraints]
    for library in ("torch", "transformers", "tokenizers", "accelerate", "numpy"):
        assert next(r for r in REQUIREMENTS if r.startswith(f"{library}==")) in ours
