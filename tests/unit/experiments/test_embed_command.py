from __future__ import annotations

import json
from pathlib import Path

from experiments.embed import embed


def test_the_command_names_a_task_that_is_not_the_default(tmp_path: Path) -> None:
    stage = tmp_path / "stage"
    (stage / "policy").mkdir(parents=True)
    (stage / "policy" / "config.json").write_text("{}")
    (stage / "config.yaml").write_text("seed: 0\n")
    (stage / "result.json").write_text('{"stage": "warm_start", "fingerprint": "abc", "versions": {}}')
    origin = json.loads((embed(stage, "qwen_arithmetic", room=tmp_path / "room") / "origin.json").read_text())
    wanted = "make exp name=qwen_baseline over='task=arithmetic stages=[warm_start] policy.pretrained=null seed=0'"
    assert origin["command"] == wanted
