"""Stages that go on, and stages that begin beside unfinished ones, under real plans and in real folders."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from contrastive_reasoning import objectives, policies
from experiments.run_folder import read_json
from experiments.run_folder.record import SWEEP_VARIABLE
from experiments.schema import register
from experiments.stages import code_hash as rooms
from experiments.stages.checkpoints import CHECKPOINTS, CheckpointError, path_of, seal
from experiments.stages.experiment import compared, plans
from experiments.stages.plan import StagePlan, plan_stage
from experiments.stages.resume import BEGUN, LOCK, RESULT, begin, check_left, go_on
from experiments.system.files import lock

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
    begin(plan)
    go_on(plan, changed_code=False)
    assert capsys.readouterr().out == ""


def test_under_changed_code_it_goes_on_only_where_that_was_asked_for(
    tmp_path: Path, edited: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = planned(tmp_path)
    begin(plan)
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
    begin(first)
    assert capsys.readouterr().out == ""
    begin(second)
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
    begin(far)
    capsys.readouterr()
    begin(planned(tmp_path))
    assert capsys.readouterr().out.endswith("rollout.sampling.top_p 0.9 (now 1.0), 1 more\n")
    begin(near)
    capsys.readouterr()
    begin(planned(tmp_path))
    assert str(near.folder) in capsys.readouterr().out


def test_what_is_finished_or_at_work_is_not_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done, busy = planned(tmp_path), planned(tmp_path, "seed=1")
    begin(done)
    (done.folder / RESULT).touch()
    busy.folder.mkdir(parents=True)
    with lock(busy.folder / LOCK):
        begin(busy)
        begin(planned(tmp_path, "seed=2"))
        assert capsys.readouterr().out == ""


def checkpointed(plan: StagePlan, step: int = 6, typed: list[str] | None = None) -> None:
    """Begun, and stopped after a checkpoint."""
    begin(plan, typed=typed)
    path = path_of(plan.folder / CHECKPOINTS, step)
    path.parent.mkdir()
    path.write_text("weights")
    seal(path, step=step, metric=None)


def chain(outputs: Path, *overrides: str) -> list[StagePlan]:
    """The warm start and GRPO on top of it, as a run plans them."""
    with initialize_config_module("conf", version_base="1.3"):
        config = compose("config", ["experiment=llama_baseline", f"output_dir={outputs}", *overrides])
    return [plan for stage, plan in plans(config).items() if stage != "evaluate"]


def stopped(chain: list[StagePlan], step: int = 6, typed: list[str] | None = None) -> None:
    """The warm start has finished, GRPO was stopped."""
    begin(chain[0])
    (chain[0].folder / RESULT).touch()
    checkpointed(chain[1], step, typed)


FRESH = "policy.pretrained=null"


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("trainer.devices=2", "trainer.devices 1 (now 2)"),
        (
            "trainer=zero2",
            "trainer.accelerator cpu (now auto), trainer.devices 1 (now 2), trainer.strategy auto (now absent), "
            "trainer.strategy._target_ absent (now lightning_modules.zero.ZeroStrategy), 6 more",
        ),
    ],
)
def test_an_unfinished_stage_of_other_devices_is_left_lying_only_where_that_was_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], override: str, told: str
) -> None:
    before, now = chain(tmp_path, FRESH), chain(tmp_path, FRESH, override)
    assert now[0].fingerprint != before[0].fingerprint, "the warm start is of other devices, too"
    stopped(before)
    said = re.escape(f"{before[1].folder} is unfinished at checkpoint 6, begun with {told};")
    with pytest.raises(CheckpointError, match=rf"^grpo: {said} set that back .* with checkpoints\.begin_anew=true$"):
        check_left(now, anew=False, compared=False)
    check_left(now, anew=True, compared=False)
    begin(now[0])
    begin(now[1], now)
    out = capsys.readouterr().out
    assert f"grpo: {before[1].folder} is unfinished and stays so, it was begun with {told}" in out


def test_what_goes_on_or_has_ended_leaves_nothing(tmp_path: Path) -> None:
    stopped(before := chain(tmp_path, FRESH))
    check_left(before, anew=False, compared=False)
    now = chain(tmp_path, FRESH, "trainer.devices=2")
    stopped(now)
    check_left(now, anew=False, compared=False)


def test_a_sibling_that_is_closer_hides_none(tmp_path: Path) -> None:
    before, closer = chain(tmp_path, FRESH), chain(tmp_path, FRESH, "trainer=zero2", "seed=1")
    stopped(before)
    stopped(closer)
    with pytest.raises(CheckpointError, match=re.escape(f"{before[1].folder} is unfinished at checkpoint 6")):
        check_left(chain(tmp_path, FRESH, "trainer=zero2"), anew=False, compared=False)


def test_so_is_one_of_other_data_or_of_an_older_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problems = tmp_path / "problems.jsonl"
    settings = ("task.train=file", f"task.train_file={problems}")
    problems.write_text('{"nums": [1, 2, 3], "target": 6}')
    stopped(chain(tmp_path, *settings))
    problems.write_text('{"nums": [1, 2, 4], "target": 7}')
    with pytest.raises(CheckpointError, match=r"begun with files\."):
        check_left(chain(tmp_path, *settings), anew=False, compared=False)
    stopped(chain(tmp_path, FRESH, "seed=1"))
    monkeypatch.setattr(policies, "VERSION", policies.VERSION + 1)
    with pytest.raises(CheckpointError, match=r"begun with versions\.contrastive_reasoning\.policies "):
        check_left(chain(tmp_path, FRESH, "seed=1"), anew=False, compared=False)


def test_code_of_ones_own_that_was_edited_is_another_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "own_rewards_of_a_test.py"
    monkeypatch.syspath_prepend(tmp_path)
    settings = ("reward=function", "reward.function._target_=own_rewards_of_a_test.brevity")
    own.write_text("def brevity(*_: object) -> float:\n    return 1.0\n")
    stopped(chain(tmp_path, *settings), typed=list(settings))
    own.write_text("def brevity(*_: object) -> float:\n    return 0.5\n")
    now = chain(tmp_path, *settings)
    check_left(now, anew=False, compared=False, typed=settings)
    begin(now[1], now)
    assert "it was begun with code.own_rewards_of_a_test.brevity " in capsys.readouterr().out


def test_another_setting_is_another_experiment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stopped(chain(tmp_path))
    now = chain(tmp_path, "advantage.epsilon=0.5", "trainer.devices=2")
    check_left(now, anew=False, compared=False)
    begin(now[1], now)
    assert capsys.readouterr().out.endswith("advantage.epsilon 1e-06 (now 0.5), trainer.devices 1 (now 2)\n")


def test_a_parent_of_which_nothing_is_known_is_another_one(tmp_path: Path) -> None:
    before, now = chain(tmp_path, FRESH), chain(tmp_path, FRESH, "trainer.devices=2")
    checkpointed(before[1])
    check_left(now, anew=False, compared=False)


def test_runs_that_are_compared_may_differ_by_their_devices_and_by_nothing_else_that_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped(chain(tmp_path, FRESH))
    check_left(chain(tmp_path, FRESH, "trainer.devices=2"), anew=False, compared=True)
    monkeypatch.setattr(policies, "VERSION", policies.VERSION + 1)
    for devices in (1, 2):
        with pytest.raises(CheckpointError, match=r"begun with .*versions\.contrastive_reasoning\.policies "):
            check_left(chain(tmp_path, FRESH, f"trainer.devices={devices}"), anew=False, compared=True)


def test_settings_that_differ_late_are_other_settings(tmp_path: Path) -> None:
    """A tracker cuts what is so long."""
    long = "word " * 60
    stopped(chain(tmp_path, f"rollout.sampling.stop=['{long}a']"))
    check_left(chain(tmp_path, f"rollout.sampling.stop=['{long}b']"), anew=False, compared=False)


def test_values_that_read_alike_are_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stopped(chain(tmp_path, "rollout.sampling.stop='1'"))
    now = chain(tmp_path, "rollout.sampling.stop=1")
    check_left(now, anew=False, compared=False)
    begin(now[1], now)
    assert "it was begun with values that read alike and are of another kind" in capsys.readouterr().out


def test_jobs_of_a_sweep_and_arms_of_a_study_differ_on_purpose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with initialize_config_module("conf", version_base="1.3"):
        config = compose("config", [f"output_dir={tmp_path}"])
    assert not compared(config)
    assert compared(OmegaConf.merge(config, {"arm": "oracle"}))
    monkeypatch.setenv(SWEEP_VARIABLE, "{}")
    assert compared(config)
