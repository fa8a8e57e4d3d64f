"""Plans of stages: settings, files and code determine the fingerprint; parents give values to later stages."""

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


def test_edit_inside_large_problem_file_changes_fingerprint_and_settings(tmp_path: Path) -> None:
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


def test_fingerprint_of_text_critic_includes_encoder_files(tmp_path: Path) -> None:
    encoder = tmp_path / "encoder"
    encoder.mkdir()
    (encoder / "config.json").write_text("{}")
    config = composed("experiment=critic_text", f"backbone.pretrained={encoder}")
    before = plan_stage("critic", config, {}).fingerprint
    (encoder / "config.json").write_text('{"hidden_size": 8}')
    assert plan_stage("critic", config, {}).fingerprint != before


def test_auto_compute_dtype_is_planned_as_native_dtype() -> None:
    automatic = plan_stage("grpo", composed("policy.compute_dtype=auto"), {})
    assert automatic.config["policy"]["compute_dtype"] == native_dtype()
    assert automatic.config["module"]["reference"]["compute_dtype"] == native_dtype()
    named = {dtype: plan_stage("grpo", composed(f"policy.compute_dtype={dtype}"), {}) for dtype in DTYPES}
    assert [dtype for dtype in DTYPES if named[dtype] == automatic] == [native_dtype()]


def test_code_edit_changes_fingerprints_of_all_stages_but_not_settings(
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
    """Changes the hash of one module in all later plans."""
    original = planning.code_hashes

    def edited(*arguments: object) -> dict[str, str]:
        hashes = original(*arguments)  # pyright: ignore[reportArgumentType]
        return {name: content if name == module else digest for name, digest in hashes.items()}

    monkeypatch.setattr(planning, "code_hashes", edited)


def test_grpo_with_pretrained_policy_has_no_parents() -> None:
    """The content of the policy identifies it. A warm start that does not run is no parent."""
    assert plan_stages(composed())["grpo"].parents == {}


@pytest.mark.parametrize(
    ("overrides", "trained"),
    [
        ((), False),
        (("policy.pretrained=null",), True),
        (("warm_start.train=true",), True),
        (("warm_start.train=true", "policy.pretrained=null"), True),
        (("warm_start.train=false",), False),
        (("warm_start.train=false", "policy.pretrained=null"), False),
    ],
)
def test_later_stages_load_policy_of_trained_warm_start(
    overrides: tuple[str, ...], trained: bool, tmp_path: Path
) -> None:
    config = composed(*overrides)
    planned = plan_stages(config)
    folders = {"warm_start": tmp_path}
    loaded = {"policy.pretrained": str(tmp_path / "policy")}
    for stage in ("grpo", "evaluate"):
        assert ("warm_start" in planned[stage].parents) == trained
        assert values_from_parents(stage, config, folders) == (loaded if trained else {})
    assert values_from_parents("warm_start", config, folders) == {}


def test_settings_of_all_stages_include_policy_before_warm_start(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    config = composed("warm_start.train=true", f"policy.pretrained={tmp_path}")
    before = plan_stages(config)
    (tmp_path / "config.json").write_text('{"hidden_size": 8}')
    after = plan_stages(config)
    for stage, plan in before.items():
        assert plan.settings != after[stage].settings, stage


def test_settings_depend_on_policy_content_but_not_its_path(tmp_path: Path) -> None:
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


def test_edit_of_user_module_changes_fingerprint_but_not_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own_rewards_of_a_plan.py"
    monkeypatch.syspath_prepend(tmp_path)
    own.write_text("def brevity(*_: object) -> float:\n    return 1.0\n")
    config = composed("reward=function", "reward.function._target_=own_rewards_of_a_plan.brevity")
    plan = plan_stage("grpo", config, {})
    own.write_text("def brevity(*_: object) -> float:\n    return 0.5\n")
    assert changed_since(plan) == ["own_rewards_of_a_plan"]
    after = plan_stage("grpo", config, {})
    assert (after.settings, after.fingerprint != plan.fingerprint) == (plan.settings, True)


def test_run_stage_rejects_data_file_changed_since_planning(tmp_path: Path) -> None:
    problems = tmp_path / "problems.jsonl"
    config = composed(*on_problems(problems), f"output_dir={tmp_path}")
    plan = plan_stage("grpo", config, {})
    assert changed_since(plan) == []
    problems.write_text('{"nums": [2, 2, 3], "target": 7}\n')
    with pytest.raises(CheckpointError, match=rf"^grpo: {problems} has changed since this run began; run it again$"):
        run_stage(plan, config, {"grpo": plan})
    assert not plan.folder.exists()


def test_missing_embedded_policy_raises_assembly_error() -> None:
    with pytest.raises(AssemblyError, match="no embedded policy 'nothing'"):
        plan_stage("grpo", composed("policy.pretrained=embedded:nothing"), {})
