"""What a finished stage left, looked at before it is reused: real files, flipped, cut off and removed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.run_folder import read_json
from experiments.run_folder.reader import RESULT
from experiments.stages.checkpoints import CHECKPOINTS, CheckpointError, path_of, seal
from experiments.stages.plan import StagePlan
from experiments.stages.resume import reusable
from experiments.stages.stage_manifest import is_finished, write_result
from experiments.system.files import write_json
from tests.unit.experiments.stages.test_checkpoints import flip

WEIGHTS = "policy/model.safetensors"


@pytest.fixture
def plan(tmp_path: Path) -> StagePlan:
    """A stage that left a policy and a checkpoint."""
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


def test_a_stage_that_left_what_it_wrote_is_reused(plan: StagePlan, capsys: pytest.CaptureFixture[str]) -> None:
    told = read_json(plan.folder / RESULT)
    assert told["stage"] == "grpo"
    assert set(told["left"]["policy"]) == {"model.safetensors", "config.json"}
    (plan.folder / "policy" / "README.md").write_text("from somebody else")
    assert reusable(plan)
    assert is_finished(plan.folder)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("harm", "sentence"),
    [
        (flip, "file {path} is damaged: not what was written (sha256 differs)"),
        (lambda path: path.write_bytes(path.read_bytes()[:699]), "file {path} is damaged: 699 bytes, not 700"),
        (Path.unlink, "file {path.parent} lacks model.safetensors"),
    ],
)
def test_what_is_damaged_is_named_and_the_stage_goes_on(
    plan: StagePlan, harm: Callable[[Path], object], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    harm(path := plan.folder / WEIGHTS)
    assert not reusable(plan)
    assert not is_finished(plan.folder)
    named = sentence.format(path=path)
    assert capsys.readouterr().out == f"grpo: {named}; the stage's newest checkpoint makes it again\n"


def test_where_no_checkpoint_is_left_nothing_is_begun_anew(plan: StagePlan) -> None:
    for path in (plan.folder / CHECKPOINTS).iterdir():
        path.unlink()
    assert reusable(plan), "they may be removed to save room"
    flip(plan.folder / WEIGHTS)
    with pytest.raises(CheckpointError, match=rf"damaged.*; no checkpoint is left .*: remove {plan.folder} to begin"):
        reusable(plan)


def test_a_result_without_hashes_is_taken_at_its_word_and_without_one_a_stage_has_not_finished(plan: StagePlan) -> None:
    write_json(plan.folder / RESULT, {"stage": "grpo"})
    flip(plan.folder / WEIGHTS)
    assert reusable(plan)
    (plan.folder / RESULT).unlink()
    assert not reusable(plan)
    assert not is_finished(plan.folder)
