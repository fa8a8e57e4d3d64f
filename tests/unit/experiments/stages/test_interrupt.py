from __future__ import annotations

import pytest

from experiments.stages.stage_checkpoint import StopRequest


def test_one_that_comes_while_ranks_agree_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = StopRequest()

    def exchange(own: str | None) -> list[str | None]:
        stop.asked = "SIGTERM"  # what this rank has sent is on its way
        return [own, None]

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr("experiments.stages.stage_checkpoint.gather", exchange)
        assert stop.agreed() is None
    assert stop.agreed() == "SIGTERM"
