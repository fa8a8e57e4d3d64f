"""Stages that are resumed, reused or started next to others, with real plans and folders but no training."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from experiments.run_folder.reader import MANIFEST, RESULT, SWEEP_VARIABLE
from experiments.stages.checkpoints import CHECKPOINTS, CheckpointError, path_of, seal
from experiments.stages.experiment import is_compared as is_compared, plans
from experiments.stages.plan import StagePlan
from experiments.stages.resume import begin, reusable
from experiments.stages.stage_manifest import LOCK, read_manifest
from experiments.system.files import lock
from tests.config_kit import composed
from tests.unit.experiments.stages.test_plan import edit_code

FRESH = "policy.pretrained=null"
ACCEPT = "checkpoints.resume_changed_code=true"
BASE = ["experiment=llama_baseline", "stages=[warm_start,grpo]"]


def chain(outputs: Path, *overrides: str) -> list[StagePlan]:
    """The stages as a run plans them."""
    return [*plans(composed(*BASE, f"output_dir={outputs}", *overrides)).values()]


def finish(plan: StagePlan) -> None:
    begin(plan)
    (plan.folder / RESULT).write_text("{}")


def stop(chain: Sequence[StagePlan], step: int = 6) -> None:
    """Leaves a finished warm start, and GRPO stopped after a checkpoint."""
    finish(chain[0])
    begin(chain[1])
    path = path_of(chain[1].folder / CHECKPOINTS, step)
    path.parent.mkdir()
    path.write_text("weights")
    seal(path, step=step, metric=None)


def begun(plans: Sequence[StagePlan], capsys: pytest.CaptureFixture[str]) -> str:
    """Begins GRPO's stage after its warm start; returns the line about an earlier one, or an empty text."""
    if not (plans[0].folder / MANIFEST).exists():
        begin(plans[0])
    capsys.readouterr()
    begin(plans[1])
    *lines, last = capsys.readouterr().out.splitlines(keepends=True)
    assert last == f"grpo: running in {plans[1].folder}\n"
    return "".join(lines)


def test_unfinished_stage_of_changed_code_resumes_only_if_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stop(before := chain(tmp_path))
    edit_code(monkeypatch, "contrastive_reasoning.objectives.grpo")
    now = chain(tmp_path)
    assert not now[1].folder.exists()
    accepted = chain(tmp_path, ACCEPT)[1]
    assert (accepted.folder, accepted.fingerprint) == (before[1].folder, before[1].fingerprint)
    assert not reusable(accepted, changed_code=True)
    begin(accepted)
    printed = capsys.readouterr().out
    assert re.search(rf"^grpo: {before[1].folder} .*contrastive_reasoning\.objectives\.grpo", printed, re.MULTILINE)
    assert f"grpo: resuming in {before[1].folder}\n" in printed
    manifest = read_manifest(accepted.folder)
    assert (manifest["code"], manifest["earlier_code"]) == (now[1].code, [before[1].code])
    assert chain(tmp_path, ACCEPT)[1] == accepted, "also after its manifest is of today's code"
    assert re.search(rf"^grpo: .*{before[1].folder} .*checkpoint 6 .*{ACCEPT}", begun(now, capsys))


def test_stage_resumed_under_other_code_is_not_taken_for_one_of_its_first_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop(before := chain(tmp_path))
    with monkeypatch.context() as edited:
        edit_code(edited, "contrastive_reasoning.objectives.grpo")
        begin(chain(tmp_path, ACCEPT)[1])
    assert chain(tmp_path)[1] == before[1]
    with pytest.raises(CheckpointError, match=rf"^grpo: {before[1].folder} .*objectives\.grpo: {ACCEPT}"):
        reusable(before[1], changed_code=False)
    assert not reusable(before[1], changed_code=True)


def test_newest_stage_that_differs_by_code_alone_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finish((first := chain(tmp_path))[0])
    finish(first[1])
    edit_code(monkeypatch, "contrastive_reasoning.objectives.grpo")
    stop(second := chain(tmp_path), step=3)
    stop(chain(tmp_path, "advantage.epsilon=0.5"))
    edit_code(monkeypatch, "contrastive_reasoning.objectives.kl")
    os.utime(first[1].folder / RESULT, (1, 1))
    assert chain(tmp_path, ACCEPT)[1].folder == second[1].folder, "the one that stopped"
    os.utime(second[1].folder / CHECKPOINTS, (0, 0))
    assert chain(tmp_path, ACCEPT)[1].folder == first[1].folder, "the one that finished"
    stop(third := chain(tmp_path))
    os.utime(third[1].folder / CHECKPOINTS, (0, 0))
    assert chain(tmp_path, ACCEPT)[1] == third[1], "that of today's code, whatever its age"


def test_changed_code_of_parent_stage_begins_anew_unless_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stop(before := chain(tmp_path, FRESH))
    edit_code(monkeypatch, "lightning_modules.warm_start")
    now = chain(tmp_path, FRESH)
    assert re.search(rf"{before[1].folder} .*checkpoint 6 .*lightning_modules\.", begun(now, capsys))
    begin(now[0])
    line = capsys.readouterr().out
    assert re.search(rf"^warm_start: .*{before[0].folder} .*finished.*lightning_modules\.warm_start .*{ACCEPT}", line)
    accepted = chain(tmp_path, FRESH, ACCEPT)
    assert accepted[0].folder == before[0].folder, "the warm start is taken as it is"
    assert accepted[1].folder == before[1].folder, "and GRPO goes on from it"


def test_finished_stage_of_changed_code_is_reused_only_if_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for plan in (before := chain(tmp_path, FRESH)):
        finish(plan)
    edit_code(monkeypatch, "lightning_modules.grpo")
    now, accepted = chain(tmp_path, FRESH), chain(tmp_path, FRESH, ACCEPT)
    assert [one.folder == other.folder for one, other in zip(now, before, strict=True)] == [True, False]
    assert [one.folder for one in accepted] == [one.folder for one in before]


LONG = "word " * 60


@pytest.mark.parametrize(
    ("before", "now", "differs"),
    [
        (
            [FRESH],
            [FRESH, "trainer=zero2"],
            r".*trainer\.devices 1 \(now 2\), trainer\.strategy auto \(now absent\), .*, 5 more",
        ),
        ([f"rollout.sampling.stop=['{LONG}a']"], [f"rollout.sampling.stop=['{LONG}b']"], r"rollout\.sampling\.stop.*"),
        (
            ["rollout.sampling.stop='1'"],
            ["rollout.sampling.stop=1"],
            "values of another type that are printed the same",
        ),
    ],
)
def test_stage_of_other_settings_begins_anew_and_the_difference_is_named(
    before: list[str], now: list[str], differs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stop(earlier := chain(tmp_path, *before))
    later = chain(tmp_path, *now)
    assert re.search(rf"{earlier[1].folder} .*differs in {differs}\n$", begun(later, capsys))


def test_other_data_begin_anew_and_the_difference_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    problems = tmp_path / "problems.jsonl"
    settings = ("task.train=file", f"task.train_file={problems}")
    problems.write_text('{"nums": [1, 2, 3], "target": 6}')
    stop(before := chain(tmp_path, *settings))
    problems.write_text('{"nums": [1, 2, 4], "target": 7}')
    now = chain(tmp_path, *settings)
    hashes = [plan[1].files[str(problems)] for plan in (before, now)]
    assert begun(now, capsys).endswith(f"differs in files.{problems} {hashes[0]} (now {hashes[1]})\n")


def test_newest_unfinished_stage_is_named_with_what_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stop(older := chain(tmp_path, "advantage.epsilon=0.5"))
    stop(newer := chain(tmp_path, *(f"rollout.sampling.{one}" for one in ("temperature=0.5", "top_k=2", "top_p=0.9"))))
    os.utime(older[1].folder / CHECKPOINTS, (1, 1))
    line = begun(chain(tmp_path, "seed=1", "trainer.devices=2"), capsys)
    assert f"{newer[1].folder} " in line
    assert "rollout.sampling.top_k 2 (now null), " in line
    assert line.endswith("seed 0 (now 1), 1 more\n")
    os.utime(newer[1].folder / CHECKPOINTS, (0, 0))
    line = begun(chain(tmp_path, "advantage.epsilon=0.25"), capsys)
    assert re.search(rf"{older[1].folder} .* advantage\.epsilon 0\.5 \(now 0\.25\)\n$", line)


@pytest.mark.parametrize("how", ["no checkpoint", "finished", "at work", "unknown parent"])
def test_stage_that_cannot_be_resumed_is_not_mentioned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    stop(before := chain(tmp_path, FRESH))
    folder = before[1].folder
    if how == "no checkpoint":
        for path in (folder / CHECKPOINTS).iterdir():
            path.unlink()
    elif how == "finished":
        (folder / RESULT).write_text("{}")
    elif how == "unknown parent":
        (before[0].folder / MANIFEST).unlink()
    now = chain(tmp_path, FRESH, "trainer.devices=2")
    with lock(folder / LOCK) if how == "at work" else lock(tmp_path / "other"):
        line = begun(now, capsys)
    assert line == "" or how == "unknown parent"


def test_is_compared_for_sweep_jobs_and_study_arms(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_compared(composed())
    assert is_compared(composed("+arm=oracle"))
    monkeypatch.setenv(SWEEP_VARIABLE, "{}")
    assert is_compared(composed())
