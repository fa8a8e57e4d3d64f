"""``python -m experiments.track``: names of run folders given by the user."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments import track
from experiments.track import unknown_name
from tests.unit.experiments.conftest import Outputs


@pytest.fixture
def runs(outputs: Outputs) -> Path:
    """Returns a runs folder with runs of two names; ``my_own`` is not in ``conf/experiment``."""
    for name in ("llama_critic", "my_own"):
        outputs.run(name, seed=0, final=0.4)
    return outputs.root / "runs"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("my_onw", "no 'my_onw' in {runs}; did you mean 'my_own'?"),
        ("grpo_laptp", "no 'grpo_laptp' in {runs}; did you mean 'grpo_laptop'?"),
        ("xyz", "no 'xyz' in {runs}; there are llama_critic, my_own"),
        ("my_own/2026", "no '2026' in {runs}/my_own; there are 2026-01-01T00-00-00-0"),
        ("my_onw/2026", "no 'my_onw' in {runs}; did you mean 'my_own'?"),
    ],
)
def test_name_without_runs_is_rejected_with_suggestion(
    runs: Path, name: str, sentence: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It also creates no database."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{runs.parent / 'mlflow.db'}")
    assert track.main([str(runs / "llama_critic"), str(runs / name)]) == 2
    assert capsys.readouterr() == ("", f"{sentence.format(runs=runs)}\n")
    assert not (runs.parent / "mlflow.db").exists()


@pytest.mark.parametrize("name", ["llama_critic", "my_own/2026-01-01T00-00-00-0", "llama_oracle", "countdown_credit"])
def test_unknown_name_accepts_existing_runs_experiments_and_studies(runs: Path, name: str) -> None:
    assert unknown_name(runs / name) is None


def test_unknown_name_before_first_run_rejects_only_unknown_names(tmp_path: Path) -> None:
    outputs = tmp_path / "outputs"
    assert unknown_name(outputs) is unknown_name(outputs / "runs" / "llama_critic") is None
    assert unknown_name(outputs / "runs" / "xyz") == f"no 'xyz' in {outputs / 'runs'}; there are none"
