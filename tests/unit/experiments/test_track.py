"""``python -m experiments.track``, and run folders by the name that a person gives them."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments import track
from experiments.track import unknown_name
from tests.unit.experiments.conftest import Outputs


@pytest.fixture
def runs(outputs: Outputs) -> Path:
    """Where runs of two names are, one of them of one's own."""
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
def test_a_name_that_nothing_ran_under_is_refused(
    runs: Path, name: str, sentence: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No database is made either."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{runs.parent / 'mlflow.db'}")
    assert track.main([str(runs / "llama_critic"), str(runs / name)]) == 2
    assert capsys.readouterr() == ("", f"{sentence.format(runs=runs)}\n")
    assert not (runs.parent / "mlflow.db").exists()


@pytest.mark.parametrize("name", ["llama_critic", "my_own/2026-01-01T00-00-00-0", "llama_oracle", "countdown_credit"])
def test_what_is_there_or_could_be_is_no_mistake(runs: Path, name: str) -> None:
    assert unknown_name(runs / name) is None


def test_before_the_first_run_there_is_nothing_to_mistype_but_a_name(tmp_path: Path) -> None:
    outputs = tmp_path / "outputs"
    assert unknown_name(outputs) is unknown_name(outputs / "runs" / "llama_critic") is None
    assert unknown_name(outputs / "runs" / "xyz") == f"no 'xyz' in {outputs / 'runs'}; there are none"
