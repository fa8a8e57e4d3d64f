"""Stages that go on, and stages that begin beside unfinished ones, under real plans and in real folders."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hydra import compose, initialize_config_module

from contrastive_reasoning import objectives
from experiments import rooms
from experiments.begun import BEGUN, LOCK, RESULT, begin, go_on
from experiments.kept_checkpoints import CHECKPOINTS, CheckpointError, path_of, seal
from experiments.lock import lock
from experiments.run_tree import read_json
from experiments.schema import register
from experiments.stage_plan import StagePlan, plan_stage

register()


def planned(outputs: Path, *overrides: str) -> StagePlan:
    with initialize_config_module("conf", version_base="1.3"):
        config = compose("config", ["experiment=llama_baseline", f"output_dir={outputs}", *overrides])
    return plan_stage("grpo", config, {})


@pytest.fixture
def edited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module of the objectives, in a copy of that room that the code hashes are taken of."""
    room = tmp_path / "objectives"
    room.mkdir()
    for path in rooms._folder("contrastive_reasoning.objectives").glob("*.py"):
        (room / path.name).write_bytes(path.read_bytes())
    folder_of = rooms._folder
    monkeypatch.setattr(
        rooms, "_folder", lambda name: room if name == "contrastive_reasoning.objectives" else folder_of(name)
    )
    return room / "dapo.py"


def test_under_the_same_code_nothing_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = planned(tmp_path)
    begin(plan, anew=False)
    go_on(plan, changed_code=False)
    assert capsys.readouterr().out == ""


def test_under_changed_code_it_goes_on_only_where_that_was_asked_for(
    tmp_path: Path, edited: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = planned(tmp_path)
    begin(plan, anew=False)
    before = read_json(plan.folder / BEGUN)["code"]
    edited.write_text(edited.read_text() + "\nEPSILON = 1.0\n")
    changed = rf"grpo: code changed since {plan.folder} was begun, in contrastive_reasoning\.objectives \(versions"
    with pytest.raises(CheckpointError, match=rf"{changed} did not\); .* with checkpoints\.resume_changed_code=true;"):
        go_on(plan, changed_code=False)
    go_on(plan, changed_code=True)
    assert "objectives (versions did not); going on all the same" in capsys.readouterr().out
    go_on(plan, changed_code=False)
    assert capsys.readouterr().out == "", "it is the stage's own code now"
    assert read_json(plan.folder / BEGUN)["earlier_code"] == [before]


def test_what_was_begun_before_codes_were_kept_goes_on_only_where_that_was_asked_for(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"in callbacks, contrastive_reasoning\.advantages, "):
        go_on(planned(tmp_path), changed_code=False)


TWO = ("advantage.epsilon=0.5", "seed=1")


def beside(first: StagePlan, second: StagePlan, capsys: pytest.CaptureFixture[str]) -> str:
    """What is said when the second begins and the first is unfinished."""
    begin(first, anew=False)
    assert capsys.readouterr().out == ""
    begin(second, anew=False)
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("override", "difference"),
    [
        ("advantage.epsilon=0.5", "advantage.epsilon 1e-06 (now 0.5)"),
        ("trainer.devices=2", "trainer.devices 1 (now 2)"),
    ],
)
def test_what_another_setting_leaves_unfinished_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], override: str, difference: str
) -> None:
    first = planned(tmp_path)
    said = beside(first, planned(tmp_path, override), capsys)
    assert said == f"grpo: {first.folder} is unfinished and stays so, it was begun with {difference}\n"


def test_what_other_data_leave_unfinished_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    problems = tmp_path / "problems.jsonl"
    plans: list[StagePlan] = []
    for line in ('{"nums": [1, 2, 3], "target": 6}', '{"nums": [1, 2, 4], "target": 7}'):
        problems.write_text(line)
        plans.append(planned(tmp_path, "task.train=file", f"task.train_file={problems}"))
    hashes = [plan.files[str(problems)] for plan in plans]
    said = beside(plans[0], plans[1], capsys)
    assert said.endswith(f"begun with files.{problems} {hashes[0]} (now {hashes[1]})\n")


def test_what_another_version_leaves_unfinished_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = planned(tmp_path)
    monkeypatch.setattr(objectives, "VERSION", objectives.VERSION + 1)
    said = beside(first, planned(tmp_path), capsys)
    version = objectives.VERSION
    assert said.endswith(f"versions.contrastive_reasoning.objectives {version - 1} (now {version})\n")


def test_of_several_the_nearest_is_named_and_of_many_differences_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    others = [f"rollout.sampling.{value}" for value in ("temperature=0.5", "top_k=2", "top_p=0.9")]
    far = planned(tmp_path, *others, *TWO)
    near = planned(tmp_path, *TWO)
    begin(far, anew=False)
    capsys.readouterr()
    begin(planned(tmp_path), anew=False)
    assert capsys.readouterr().out.endswith("rollout.sampling.top_p 0.9 (now 1.0), 1 more\n")
    begin(near, anew=False)
    capsys.readouterr()
    begin(planned(tmp_path), anew=False)
    assert str(near.folder) in capsys.readouterr().out


def test_what_is_finished_or_at_work_is_not_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done, busy = planned(tmp_path), planned(tmp_path, "seed=1")
    begin(done, anew=False)
    (done.folder / RESULT).touch()
    busy.folder.mkdir(parents=True)
    with lock(busy.folder / LOCK):
        begin(busy, anew=False)
        begin(planned(tmp_path, "seed=2"), anew=False)
        assert capsys.readouterr().out == ""


def checkpointed(plan: StagePlan) -> None:
    """Begun, and stopped after a checkpoint."""
    begin(plan, anew=False)
    path = path_of(plan.folder / CHECKPOINTS, 6)
    path.parent.mkdir()
    path.write_text("weights")
    seal(path, step=6, metric=None)


def test_an_unfinished_stage_of_other_devices_is_left_lying_only_where_that_was_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, now = planned(tmp_path), planned(tmp_path, "trainer.devices=2")
    checkpointed(before)
    said = re.escape(
        f"{before.folder} is unfinished at checkpoint 6, begun with trainer.devices 1 (now 2); set that back"
    )
    with pytest.raises(CheckpointError, match=rf"^grpo: {said} .* with checkpoints\.begin_anew=true$"):
        begin(now, anew=False)
    assert not (now.folder / BEGUN).exists()
    begin(now, anew=True)
    assert capsys.readouterr().out.endswith("is unfinished and stays so, it was begun with trainer.devices 1 (now 2)\n")
    assert (now.folder / BEGUN).exists()


def test_so_is_one_of_other_data_or_of_an_older_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problems = tmp_path / "problems.jsonl"
    settings = ("task.train=file", f"task.train_file={problems}")
    problems.write_text('{"nums": [1, 2, 3], "target": 6}')
    checkpointed(planned(tmp_path, *settings))
    problems.write_text('{"nums": [1, 2, 4], "target": 7}')
    with pytest.raises(CheckpointError, match=r"begun with files\."):
        begin(planned(tmp_path, *settings), anew=False)
    checkpointed(planned(tmp_path, "seed=1"))
    monkeypatch.setattr(objectives, "VERSION", objectives.VERSION + 1)
    with pytest.raises(CheckpointError, match=r"begun with versions\.contrastive_reasoning\.objectives "):
        begin(planned(tmp_path, "seed=1"), anew=False)


def test_another_setting_is_another_experiment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpointed(planned(tmp_path))
    begin(planned(tmp_path, "advantage.epsilon=0.5", "trainer.devices=2"), anew=False)
    assert capsys.readouterr().out.endswith("advantage.epsilon 1e-06 (now 0.5), trainer.devices 1 (now 2)\n")
