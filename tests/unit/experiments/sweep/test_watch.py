from __future__ import annotations

from pathlib import Path

import pytest

from experiments.sweep import watch


def test_a_folder_is_one_sweeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    """Two that are told the same folder, or begin at the same instant, would run each other's jobs."""
    monkeypatch.setattr(watch, "_held", [])
    watch._hold(tmp_path)
    with pytest.raises(SystemExit, match="2"):
        watch._hold(tmp_path)
    assert f"another sweep runs in {tmp_path}: give this one a hydra.sweep.dir of its own" in capsys.readouterr().err
