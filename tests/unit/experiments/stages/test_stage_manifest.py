"""Checks of a finished stage's files before it is reused, with real files: altered, truncated or removed."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.run_folder.reader import RESULT, read_json
from experiments.stages.checkpoints import CHECKPOINTS, CheckpointError, path_of, seal
from experiments.stages.plan import StagePlan
from experiments.stages.resume import reusable
from experiments.stages.stage_manifest import is_finished, write_result
from experiments.system.files import write_json
from tests.unit.experiments.stages.test_checkpoints import flip

WEIGHTS = "policy/model.safetensors"


@pytest.fixture
def plan(tmp_path: Path) -> StagePlan:
    """A finished stage with a policy and a checkpoint."""
    folder = tmp_path / "grpo"
    (folder / "policy").mkdir(parents=True)
    (folder / WEIGHTS).write_bytes(b"weights" * 100)
    (folder / "policy" / "config.json").write_text("{}")
    (folder / CHECKPOINTS).mkdir()
    checkpoint = path_of(folder / CHECKPOINTS, 6)
    checkpoint.write_bytes(b"state")
    seal(checkpoint, step=6, metric=None)
    write_result(folder, {"stage": "grpo"})
    return StagePlan(
        name="grpo", config={}, parents={}, files={}, code={}, settings="0", fingerprint="0", folder=folder
    )


def test_undamaged_finished_stage_is_reused(plan: StagePlan, capsys: pytest.CaptureFixture[str]) -> None:
    result = read_json(plan.folder / RESULT)
    assert result["stage"] == "grpo"
    assert set(result["left"]["policy"]) == {"model.safetensors", "config.json"}
    (plan.folder / "policy" / "README.md").write_text("from somebody else")
    assert reusable(plan, changed_code=False)
    assert is_finished(plan.folder)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("harm", "named"),
    [
        (flip, "model.safetensors .*sha256"),
        (lambda path: path.write_bytes(path.read_bytes()[:699]), "model.safetensors .*699 bytes, not 700"),
        (Path.unlink, "lacks model.safetensors"),
    ],
)
def test_damaged_stage_is_not_reused_and_damage_is_printed(
    plan: StagePlan, harm: Callable[[Path], object], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    harm(plan.folder / WEIGHTS)
    assert not reusable(plan, changed_code=False)
    assert not is_finished(plan.folder)
    assert re.fullmatch(f"grpo: .*{plan.folder}.*{named}.*\n", capsys.readouterr().out)


def test_damaged_stage_without_checkpoint_raises(plan: StagePlan) -> None:
    for path in (plan.folder / CHECKPOINTS).iterdir():
        path.unlink()
    assert reusable(plan, changed_code=False), "they may be removed to save space"
    flip(plan.folder / WEIGHTS)
    with pytest.raises(CheckpointError, match=f"damaged.*{plan.folder}"):
        reusable(plan, changed_code=False)


def test_result_without_checksums_is_reused_but_missing_result_is_not(plan: StagePlan) -> None:
    write_json(plan.folder / RESULT, {"stage": "grpo"})
    flip(plan.folder / WEIGHTS)
    assert reusable(plan, changed_code=False)
    (plan.folder / RESULT).unlink()
    assert not reusable(plan, changed_code=False)
    assert not is_finished(plan.folder)
