"""What the command line allows, by device."""

from __future__ import annotations

from argparse import Namespace

import pytest
import torch

from benchmarks.command import elsewhere, options
from benchmarks.workloads import MODELS, SMALL


def chosen(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Namespace:
    monkeypatch.setattr("sys.argv", ["bench", *arguments])
    return options()


def test_the_page_is_of_the_small_policy_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, large = chosen(monkeypatch), chosen(monkeypatch, "--models", MODELS[1])
    assert (plain.models, elsewhere(plain)) == ([SMALL], False)
    assert elsewhere(large)
    assert set(plain.measures) - set(large.measures) == {"scaling", "clipo_overhead"}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_there_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        chosen(monkeypatch, "--device", "cuda")
    assert "--device cuda needs a CUDA device, and this machine has none" in capsys.readouterr().err
