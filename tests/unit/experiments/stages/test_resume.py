"""Stages that are resumed, reused or started next to others, with real plans and folders but no training."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from experiments.run_folder.reader import MANIFEST, RESULT, SWEEP_VARIABLE
from experiments.stages import resume
from experiments.stages.checkpoints import CHECKPOINTS, kept_checkpoints, path_of, seal
from experiments.stages.experiment import is_compared as is_compared
from experiments.stages.experiment import plans
from experiments.stages.plan import StagePlan
from experiments.stages.resume import begin
from experiments.stages.stage_manifest import LOCK, read_manifest
from experiments.system.files import lock
from tests.config_kit import composed
from tests.unit.experiments.stages.test_plan import edit_code

FRESH = "policy.pretrained=null"
ACCEPT = "checkpoints.resume_changed_code=true"
BASE = ["experiment=llama_baseline"]


def chain(outputs: Path, *overrides: str) -> list[StagePlan]:
    """The stages as a run plans them, without the evaluation."""
    planned = plans(composed(*BASE, f"output_dir={outputs}", *overrides))
    return [plan for stage, plan in planned.items() if stage != "evaluate"]


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
    """Begins GRPO's stage; returns the line that this prints, or an empty text."""
    capsys.readouterr()
    begin(plans[1], plans)
    return capsys.readouterr().out


def test_unfinished_stage_of_changed_code_resumes_only_if_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stop(before := chain(tmp_path))
    edit_code(monkeypatch, "contrastive_reasoning.objectives.grpo")
    now = chain(tmp_path)
    assert not now[1].folder.exists()
    changed = rf"checkpoint 6 .*contrastive_reasoning\.objectives\.grpo .*{ACCEPT}"
    assert re.search(f"^grpo: .*{before[1].folder} .*{changed}", begun(now, capsys))
    accepted = chain(tmp_path, ACCEPT)
    assert "code changed since" in capsys.readouterr().out
    assert accepted == now
    assert not before[1].folder.exists()
    assert [path.name for path in (accepted[1].folder / CHECKPOINTS).glob("*.ckpt")] == ["step=000006.ckpt"]
    manifest = read_manifest(accepted[1].folder)
    assert (manifest["code"], manifest["earlier_code"]) == (accepted[1].code, [before[1].code])
    assert chain(tmp_path) == accepted, "it is the stage of today's code now"
    monkeypatch.undo()
    assert re.search(changed, begun(chain(tmp_path), capsys))


def test_newest_stage_that_differs_by_code_alone_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finish((first := chain(tmp_path))[0])
    finish(first[1])
    edit_code(monkeypatch, "contrastive_reasoning.objectives.grpo")
    stop(second := chain(tmp_path), step=3)
    edit_code(monkeypatch, "contrastive_reasoning.objectives.kl")
    os.utime(first[1].folder / RESULT, (1, 1))
    taken = chain(tmp_path, ACCEPT)[1]
    assert [one.step for one in kept_checkpoints(taken.folder / CHECKPOINTS)] == [3], "the one that stopped"
    assert not second[1].folder.exists()
    os.replace(taken.folder, second[1].folder)
    os.utime(second[1].folder / CHECKPOINTS, (0, 0))
    assert chain(tmp_path, ACCEPT)[1].folder == first[1].folder, "the one that finished"


def meanwhile(
    monkeypatch: pytest.MonkeyPatch, function_name: str, argument: object, action: Callable[[], object]
) -> None:
    """Calls ``action`` once, after ``resume.<function_name>`` has inspected ``argument``: another run in between."""
    original = getattr(resume, function_name)

    def patched(what: object, *further: object) -> object:
        found = original(what, *further)
        if what == argument:
            monkeypatch.setattr(resume, function_name, original)
            action()
        return found

    monkeypatch.setattr(resume, function_name, patched)


@pytest.mark.parametrize("function_name", ["left_by_others", "kept_checkpoints"])
def test_only_one_of_two_concurrent_runs_renames_a_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], function_name: str
) -> None:
    stop(before := chain(tmp_path))
    edit_code(monkeypatch, "contrastive_reasoning.objectives.grpo")
    now = chain(tmp_path)[1]
    at = now if function_name == "left_by_others" else now.folder / CHECKPOINTS
    meanwhile(monkeypatch, function_name, at, lambda: chain(tmp_path, ACCEPT))
    assert chain(tmp_path, ACCEPT)[1] == now
    assert [one.step for one in kept_checkpoints(now.folder / CHECKPOINTS)] == [6]
    assert read_manifest(now.folder)["earlier_code"] == [before[1].code]
    assert capsys.readouterr().out.count("resuming nevertheless") == 1


@pytest.mark.parametrize("whose", ["of other code", "of today's code"])
def test_stage_in_use_by_another_run_is_not_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    def other_run() -> None:
        folder.mkdir(exist_ok=True)
        works.enter_context(lock(folder / LOCK))
        (folder / "metrics.jsonl").write_text("of the other run")

    stop(before := chain(tmp_path))
    edit_code(monkeypatch, "contrastive_reasoning.objectives.grpo")
    now = chain(tmp_path)[1]
    folder = before[1].folder if whose == "of other code" else now.folder
    with ExitStack() as works:
        meanwhile(monkeypatch, "left_by_others", now, other_run)
        chain(tmp_path, ACCEPT)
    assert (folder / "metrics.jsonl").exists()
    assert [one.step for one in kept_checkpoints(before[1].folder / CHECKPOINTS)] == [6]


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


def test_other_devices_begin_anew_and_the_difference_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, now = chain(tmp_path, FRESH), chain(tmp_path, FRESH, "trainer=zero2")
    assert now[0].fingerprint != before[0].fingerprint, "the warm start is of other devices, too"
    stop(before)
    begin(now[0])
    line = begun(now, capsys)
    assert f"{before[1].folder} " in line
    assert "trainer.devices 1 (now 2), trainer.strategy auto (now absent), " in line
    assert line.endswith(", 5 more\n")


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


def test_long_or_differently_typed_settings_count_as_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long = "word " * 60
    stop(chain(tmp_path, f"rollout.sampling.stop=['{long}a']"))
    assert "rollout.sampling.stop" in begun(chain(tmp_path, f"rollout.sampling.stop=['{long}b']"), capsys)
    stop(chain(tmp_path / "kind", "rollout.sampling.stop='1'"))
    now = chain(tmp_path / "kind", "rollout.sampling.stop=1")
    assert "differs in values of another type that are printed the same" in begun(now, capsys)


def test_is_compared_for_sweep_jobs_and_study_arms(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_compared(composed())
    assert is_compared(composed("+arm=oracle"))
    monkeypatch.setenv(SWEEP_VARIABLE, "{}")
    assert is_compared(composed())
