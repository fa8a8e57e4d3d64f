"""A stage is known by its settings, by what its files hold, and by its code."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import DictConfig

from contrastive_reasoning.policies.load import DTYPES, native_dtype
from experiments.assemble import AssemblyError
from experiments.stages import plan as planning
from experiments.stages.checkpoints import CheckpointError
from experiments.stages.experiment import run_stage
from experiments.stages.plan import changed_since, plan_stage, plan_stages, values_from_parents
from tests import config_kit


def composed(*overrides: str) -> DictConfig:
    return config_kit.composed("experiment=llama_baseline", *overrides)


def on_problems(path: Path) -> list[str]:
    path.write_text('{"nums": [1, 2, 3], "target": 6}\n')
    return ["task.train=file", f"task.train_file={path}"]


def test_one_letter_in_the_midst_of_a_large_problem_file_makes_another_stage(tmp_path: Path) -> None:
    problems = tmp_path / "problems.jsonl"
    config = composed(*on_problems(problems))
    lines = ['{"nums": [1, 2, 3], "target": 6}\n'] * 100_000
    problems.write_text("".join(lines))
    before = plan_stage("grpo", config, {})
    assert plan_stage("grpo", config, {}) == before
    lines[50_000] = '{"nums": [1, 2, 4], "target": 7}\n'
    problems.write_text("".join(lines))
    after = plan_stage("grpo", config, {})
    assert (after.fingerprint == before.fingerprint, after.settings == before.settings) == (False, False)


def test_a_text_critic_is_known_by_the_weights_it_reads_with(tmp_path: Path) -> None:
    encoder = tmp_path / "encoder"
    encoder.mkdir()
    (encoder / "config.json").write_text("{}")
    config = composed("experiment=critic_text", f"backbone.pretrained={encoder}")
    before = plan_stage("critic", config, {}).fingerprint
    (encoder / "config.json").write_text('{"hidden_size": 8}')
    assert plan_stage("critic", config, {}).fingerprint != before


def test_a_stage_is_known_by_the_dtype_that_this_machine_computes_in() -> None:
    automatic = plan_stage("grpo", composed("policy.compute_dtype=auto"), {})
    assert automatic.config["policy"]["compute_dtype"] == native_dtype()
    assert automatic.config["module"]["reference"]["compute_dtype"] == native_dtype()
    named = {dtype: plan_stage("grpo", composed(f"policy.compute_dtype={dtype}"), {}) for dtype in DTYPES}
    assert [dtype for dtype in DTYPES if named[dtype] == automatic] == [native_dtype()]


def test_other_code_makes_another_stage_of_the_same_settings_and_so_of_what_builds_on_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = composed("policy.pretrained=null")
    before = plan_stages(config)
    edit_code(monkeypatch, "datamodules.plays")
    after = plan_stages(config)
    assert before["grpo"].code["datamodules.plays"] != after["grpo"].code["datamodules.plays"]
    for stage, plan in before.items():
        assert plan.fingerprint != after[stage].fingerprint
        assert plan.settings == after[stage].settings
    assert before["evaluate"].parents == {name: before[name].fingerprint for name in ("warm_start", "grpo")}


def edit_code(monkeypatch: pytest.MonkeyPatch, module: str, content: str = "edited") -> None:
    """Have a module another hash wherever it is used."""
    hashed = planning.code_hashes

    def edited(*arguments: object) -> dict[str, str]:
        found = hashed(*arguments)  # pyright: ignore[reportArgumentType]
        return {name: content if name == module else mark for name, mark in found.items()}

    monkeypatch.setattr(planning, "code_hashes", edited)


def test_what_a_pretrained_policy_was_made_by_decides_nothing() -> None:
    """It is known by what it holds: the warm start that is not run is no parent."""
    assert plan_stages(composed())["grpo"].parents == {}


@pytest.mark.parametrize(
    ("overrides", "taught"),
    [
        ((), False),
        (("policy.pretrained=null",), True),
        (("warm_start.train=true",), True),
        (("warm_start.train=true", "policy.pretrained=null"), True),
        (("warm_start.train=false",), False),
        (("warm_start.train=false", "policy.pretrained=null"), False),
    ],
)
def test_what_builds_on_a_warm_start_begins_from_the_policy_that_it_taught(
    overrides: tuple[str, ...], taught: bool, tmp_path: Path
) -> None:
    config = composed(*overrides)
    planned = plan_stages(config)
    folders = {"warm_start": tmp_path}
    begun = {"policy.pretrained": str(tmp_path / "policy")}
    for stage in ("grpo", "evaluate"):
        assert ("warm_start" in planned[stage].parents) == taught
        assert values_from_parents(stage, config, folders) == (begun if taught else {})
    assert values_from_parents("warm_start", config, folders) == {}


def test_a_taught_policy_is_known_by_what_it_was_before(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    config = composed("warm_start.train=true", f"policy.pretrained={tmp_path}")
    before = plan_stages(config)
    (tmp_path / "config.json").write_text('{"hidden_size": 8}')
    after = plan_stages(config)
    for stage, plan in before.items():
        assert plan.settings != after[stage].settings, stage


def test_settings_know_a_policy_by_what_it_holds_wherever_it_lies(tmp_path: Path) -> None:
    plans = []
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
        plans.append(plan_stage("grpo", composed(f"policy.pretrained={tmp_path / name}"), {}))
    here, there = plans
    assert here.settings == there.settings
    assert here.fingerprint != there.fingerprint
    elsewhere = {str(tmp_path / "gone"): here.files[str(tmp_path / "here")]}
    gone = composed(f"policy.pretrained={tmp_path / 'gone'}")
    assert plan_stage("grpo", gone, {}, elsewhere=elsewhere).settings == here.settings
    assert plan_stage("grpo", gone, {}).settings != here.settings


def test_an_edited_file_of_ones_own_is_other_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "own_rewards_of_a_plan.py"
    monkeypatch.syspath_prepend(tmp_path)
    own.write_text("def brevity(*_: object) -> float:\n    return 1.0\n")
    config = composed("reward=function", "reward.function._target_=own_rewards_of_a_plan.brevity")
    plan = plan_stage("grpo", config, {})
    own.write_text("def brevity(*_: object) -> float:\n    return 0.5\n")
    assert changed_since(plan) == ["own_rewards_of_a_plan"]
    after = plan_stage("grpo", config, {})
    assert (after.settings, after.fingerprint != plan.fingerprint) == (plan.settings, True)


def test_a_file_that_changes_after_it_was_planned_with_is_named_before_the_stage_reads_it(tmp_path: Path) -> None:
    problems = tmp_path / "problems.jsonl"
    config = composed(*on_problems(problems), f"output_dir={tmp_path}")
    plan = plan_stage("grpo", config, {})
    assert changed_since(plan) == []
    problems.write_text('{"nums": [2, 2, 3], "target": 7}\n')
    with pytest.raises(CheckpointError, match=rf"^grpo: {problems} has changed since this run began; run it again$"):
        run_stage(plan, config, {"grpo": plan})
    assert not plan.folder.exists()


def test_an_embedded_policy_that_does_not_exist_is_one_sentence() -> None:
    with pytest.raises(AssemblyError, match="no embedded policy 'nothing'"):
        plan_stage("grpo", composed("policy.pretrained=embedded:nothing"), {})
