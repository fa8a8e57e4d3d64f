"""Stages that are resumed, reused or started next to others, with real plans and folders but no training."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from experiments.run_folder.reader import MANIFEST, RESULT, SWEEP_VARIABLE
from experiments.stages import resume
from experiments.stages.checkpoints import CHECKPOINTS, CheckpointError, kept_checkpoints, path_of, seal
from experiments.stages.experiment import is_compared as is_compared
from experiments.stages.experiment import plans
from experiments.stages.plan import StagePlan
from experiments.stages.resume import begin, check_unfinished
from experiments.stages.stage_manifest import LOCK, read_manifest
from experiments.system.files import lock
from tests.config_kit import composed
from tests.unit.experiments.stages.test_plan import edit_code

FRESH = "policy.pretrained=null"
ACCEPT, ANEW = "checkpoints.resume_changed_code=true", "checkpoints.begin_anew=true"
BASE = ["experiment=llama_baseline"]
WIDER = [*BASE, "advantage.epsilon=0.5"]


def chain(outputs: Path, *overrides: str) -> list[StagePlan]:
    """The stages as a run plans them, without the evaluation."""
    planned = plans(composed(*BASE, f"output_dir={outputs}", *overrides))
    return [plan for stage, plan in planned.items() if stage != "evaluate"]


def finish(plan: StagePlan) -> None:
    begin(plan)
    (plan.folder / RESULT).write_text("{}")


def stop(chain: Sequence[StagePlan], step: int = 6, overrides: Sequence[str] | None = None) -> None:
    """Leaves a finished warm start, and GRPO stopped after a checkpoint."""
    finish(chain[0])
    begin(chain[1], overrides=overrides)
    path = path_of(chain[1].folder / CHECKPOINTS, step)
    path.parent.mkdir()
    path.write_text("weights")
    seal(path, step=step, metric=None)


def check(
    plans: Sequence[StagePlan], overrides: Sequence[str] | None = None, *, anew: bool = False, compared: bool = False
) -> None:
    check_unfinished(plans, anew=anew, compared=compared, overrides=overrides)


def test_unfinished_stage_of_changed_code_resumes_only_if_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stop(before := chain(tmp_path), overrides=BASE)
    check(before)
    edit_code(monkeypatch, "contrastive_reasoning.objectives.grpo")
    changed = f"grpo: code changed since {before[1].folder} was started, in contrastive_reasoning.objectives.grpo"
    now = chain(tmp_path)
    for compared in (False, True):
        with pytest.raises(
            CheckpointError, match=rf"^{re.escape(changed)}; {ACCEPT} resumes its checkpoint 6, .*; {ANEW} .*"
        ):
            check(now, compared=compared)
    check(now, anew=True)
    accepted = chain(tmp_path, ACCEPT)
    assert f"{changed}; resuming nevertheless\n" in capsys.readouterr().out
    check(accepted)
    assert not before[1].folder.exists()
    assert [path.name for path in (accepted[1].folder / CHECKPOINTS).glob("*.ckpt")] == ["step=000006.ckpt"]
    manifest = read_manifest(accepted[1].folder)
    assert (manifest["code"], manifest["earlier_code"]) == (accepted[1].code, [before[1].code])
    assert manifest["overrides"] == BASE
    check(chain(tmp_path))  # the manifest has the new code now
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="code changed since"):
        check(chain(tmp_path))


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
    stop(before := chain(tmp_path), overrides=BASE)
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

    stop(before := chain(tmp_path), overrides=BASE)
    edit_code(monkeypatch, "contrastive_reasoning.objectives.grpo")
    now = chain(tmp_path)[1]
    folder = before[1].folder if whose == "of other code" else now.folder
    with ExitStack() as works:
        meanwhile(monkeypatch, "left_by_others", now, other_run)
        chain(tmp_path, ACCEPT)
    assert (folder / "metrics.jsonl").exists()
    assert [one.step for one in kept_checkpoints(before[1].folder / CHECKPOINTS)] == [6]


def test_changed_code_of_parent_stage_raises_unless_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stop(before := chain(tmp_path, FRESH))
    edit_code(monkeypatch, "lightning_modules.warm_start")
    now = chain(tmp_path, FRESH)
    with pytest.raises(CheckpointError, match=rf"^grpo: .*{before[1].folder} .* in lightning_modules\.warm_start; "):
        check(now)
    begin(now[0])
    assert capsys.readouterr().out == (
        f"warm_start: code changed since {before[0].folder} was made, in lightning_modules.warm_start; "
        f"it runs again ({ACCEPT} reuses it)\n"
    )
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


def test_unfinished_stage_of_other_devices_raises_unless_a_new_stage_is_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, now = chain(tmp_path, FRESH), chain(tmp_path, FRESH, "trainer=zero2")
    assert now[0].fingerprint != before[0].fingerprint, "the warm start is of other devices, too"
    stop(before)
    difference = (
        "trainer.accelerator cpu (now auto), trainer.devices 1 (now 2), trainer.strategy auto (now absent), "
        "trainer.strategy._target_ absent (now lightning_modules.zero.ZeroStrategy), 5 more"
    )
    shown = re.escape(f"{before[1].folder} is unfinished at checkpoint 6, started with {difference};")
    with pytest.raises(CheckpointError, match=rf"^grpo: {shown} set that back .* with {ANEW}$"):
        check(now)
    check(now, anew=True)
    check(now, compared=True)
    begin(now[0])
    begin(now[1], now)
    out = capsys.readouterr().out
    assert f"grpo: {before[1].folder} remains unfinished; it was started with {difference}\n" in out


def test_unfinished_stage_of_other_data_raises(tmp_path: Path) -> None:
    problems = tmp_path / "problems.jsonl"
    settings = ("task.train=file", f"task.train_file={problems}")
    problems.write_text('{"nums": [1, 2, 3], "target": 6}')
    stop(before := chain(tmp_path, *settings))
    problems.write_text('{"nums": [1, 2, 4], "target": 7}')
    now = chain(tmp_path, *settings)
    hashes = [plan[1].files[str(problems)] for plan in (before, now)]
    named = re.escape(f"started with files.{problems} {hashes[0]} (now {hashes[1]})")
    for compared in (False, True):
        with pytest.raises(CheckpointError, match=named):
            check(now, compared=compared)


@pytest.mark.parametrize(
    ("then", "now"),
    [
        (BASE, BASE),  # a default was edited
        (WIDER, BASE),  # an override was forgotten
        (BASE, [*BASE, "progress=quiet", "output_dir=here", "checkpoints.keep=3", "+logger.more=1"]),
    ],
)
def test_unfinished_stage_of_unintended_settings_raises_unless_a_new_stage_is_started(
    tmp_path: Path, then: list[str], now: list[str]
) -> None:
    stop(before := chain(tmp_path, "advantage.epsilon=0.5"), overrides=then)
    after = chain(tmp_path)
    shown = f"{before[1].folder} is unfinished at checkpoint 6, started with advantage.epsilon 0.5 (now 1e-06);"
    with pytest.raises(CheckpointError, match=rf"^grpo: {re.escape(shown)} .* with {ANEW}$"):
        check(after, now)
    check(after, now, anew=True)
    check(after, now, compared=True)


@pytest.mark.parametrize("which", ["debug=fast", "seed=1", "experiment=llama_critic", "+arm=x"])
def test_omitted_run_selection_means_a_different_run(tmp_path: Path, which: str) -> None:
    stop(chain(tmp_path, "advantage.epsilon=0.5"), overrides=[*WIDER, which])
    check(chain(tmp_path), BASE)


@pytest.mark.parametrize("then", [BASE, None])
def test_new_settings_start_a_new_stage_and_print_the_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], then: list[str] | None
) -> None:
    stop(chain(tmp_path), overrides=then)
    now = chain(tmp_path, "advantage.epsilon=0.5", "trainer.devices=2")
    check(now, WIDER)
    check(now)
    begin(now[1], now)
    assert capsys.readouterr().out.endswith("advantage.epsilon 1e-06 (now 0.5), trainer.devices 1 (now 2)\n")


def test_begin_names_unfinished_stage_with_fewest_differences(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    others = [f"rollout.sampling.{value}" for value in ("temperature=0.5", "top_k=2", "top_p=0.9")]
    two = ("advantage.epsilon=0.5", "seed=1")
    stop(chain(tmp_path, *others, *two))
    begin(chain(tmp_path)[1])
    assert capsys.readouterr().out.endswith("rollout.sampling.top_p 0.9 (now 1.0), 1 more\n")
    stop(near := chain(tmp_path, *two))
    capsys.readouterr()
    begin(chain(tmp_path)[1])
    assert str(near[1].folder) in capsys.readouterr().out


def test_intended_difference_does_not_hide_unintended_one(tmp_path: Path) -> None:
    before, nearer = chain(tmp_path, FRESH), chain(tmp_path, FRESH, "trainer=zero2", "seed=1")
    stop(before)
    stop(nearer)
    with pytest.raises(CheckpointError, match=re.escape(f"{before[1].folder} is unfinished at checkpoint 6")):
        check(chain(tmp_path, FRESH, "trainer=zero2"))


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
        check(now)
        if how != "unknown parent":
            begin(now[1], now)
    assert capsys.readouterr().out == ""


def test_long_or_differently_typed_settings_count_as_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long = "word " * 60
    stop(chain(tmp_path, f"rollout.sampling.stop=['{long}a']"))
    check(chain(tmp_path, f"rollout.sampling.stop=['{long}b']"))
    stop(chain(tmp_path / "kind", "rollout.sampling.stop='1'"))
    now = chain(tmp_path / "kind", "rollout.sampling.stop=1")
    check(now)
    begin(now[1], now)
    assert "it was started with values of another type that are printed the same" in capsys.readouterr().out


def test_is_compared_for_sweep_jobs_and_study_arms(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_compared(composed())
    assert is_compared(composed("+arm=oracle"))
    monkeypatch.setenv(SWEEP_VARIABLE, "{}")
    assert is_compared(composed())
