"""Plans of stages: settings, files and code determine the fingerprint; parents give values to later stages."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
from omegaconf import DictConfig

from contrastive_reasoning.policies.load import DTYPES, native_dtype
from contrastive_reasoning.workers.planned_code import ChangedCode, expect
from experiments.assemble import AssemblyError
from experiments.stages import plan as planning
from experiments.stages.checkpoints import CheckpointError
from experiments.stages.experiment import plans, run_stage
from experiments.stages.plan import NUMERICS, changed_since, plan_stage, plan_stages, values_from_parents
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
    assert plan_stage("grpo", composed(f"policy.pretrained={tmp_path / 'gone'}"), {}).settings != here.settings


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


def test_string_of_users_function_that_names_a_file_enters_by_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_rewards_of_words.py").write_text("def known(*_: object, **__: object) -> float:\n    return 1.0\n")
    words = tmp_path / "words.txt"
    words.write_text("one")
    named = ("+reward.function.lists=[words.txt,none.txt]", "+reward.function.rule={file: words.txt}")
    config = composed("reward=function", "reward.function._target_=own_rewards_of_words.known", *named)
    before = plan_stage("grpo", config, {})
    assert set(before.files) == {config.policy.pretrained, "words.txt"}
    words.write_text("two")
    after = plan_stage("grpo", config, {})
    assert (after.settings != before.settings, after.fingerprint != before.fingerprint) == (True, True)
    assert changed_since(before) == ["words.txt"]


SHIPPED = ["cpu", "gpu", "ddp", "zero1"]


@pytest.mark.parametrize("trainer", SHIPPED)
def test_shipped_trainers_enter_by_devices_and_precision_alone(trainer: str) -> None:
    assert set(plan_stage("grpo", composed(f"trainer={trainer}"), {}).config["trainer"]) == set(NUMERICS)


@pytest.mark.parametrize(
    ("override", "enters"),
    [
        ("+trainer.limit_train_batches=2", True),
        ("+trainer.overfit_batches=1", True),
        ("+trainer.accumulate_grad_batches=2", True),
        ("+trainer.gradient_clip_val=0.5", True),
        ("trainer.deterministic=true", True),
        ("trainer._target_=collections.OrderedDict", True),
        ("trainer.enable_progress_bar=false", False),
        ("+trainer.max_time='00:01:00:00'", False),
        ("+trainer.limit_train_batches=null", False),
    ],
)
def test_trainer_settings_enter_unless_neutral(override: str, enters: bool) -> None:
    before, after = (plan_stage("grpo", composed(*one), {}) for one in ((), (override,)))
    assert (after.fingerprint != before.fingerprint, after.settings != before.settings) == (enters, enters)


@pytest.mark.parametrize(
    ("target", "enters"),
    [
        ("lightning.pytorch.callbacks.StochasticWeightAveraging", True),
        ("callbacks.online_critic.OnlineCritic", True),
        ("own_callbacks.Act", True),
        ("callbacks.health.Health", False),
    ],
)
@pytest.mark.parametrize("group", ["every", "grpo"])
def test_callbacks_enter_unless_they_only_watch(group: str, target: str, enters: bool) -> None:
    override = f"+callbacks.{group}.further={{_target_: {target}}}"
    before, after = (plan_stages(composed(*one)) for one in ((), (override,)))
    assert (after["grpo"].fingerprint != before["grpo"].fingerprint) == enters
    assert ("callbacks" in after["grpo"].config) == enters
    assert (after["warm_start"].fingerprint != before["warm_start"].fingerprint) == (enters and group == "every")


def test_versions_of_libraries_enter_as_code(monkeypatch: pytest.MonkeyPatch) -> None:
    before = plan_stage("grpo", composed(), {})
    assert {"torch", "transformers", "peft"} <= set(before.code)
    monkeypatch.setattr(planning, "version", lambda name: "0.0.1")
    after = plan_stage("grpo", composed(), {})
    assert (after.settings == before.settings, after.fingerprint == before.fingerprint) == (True, False)
    assert {name for name in after.code if after.code[name] != before.code[name]} == {"torch", "transformers", "peft"}


def test_function_of_hydras_getter_in_a_folder_without_init_enters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own_folder_of_a_plan" / "rewards.py"
    own.parent.mkdir()
    own.write_text("def f(*_: object) -> float:\n    return 1.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    getter = ("reward.function._target_=hydra.utils.get_method", "+reward.function.path=own_folder_of_a_plan.rewards.f")
    config = composed("reward=function", *getter)
    before = plan_stage("grpo", config, {})
    own.write_text('def f(*_: object) -> float:\n    """Words."""\n    return 1.0\n')
    assert plan_stage("grpo", config, {}).fingerprint == before.fingerprint
    own.write_text("def f(*_: object) -> float:\n    return 0.5\n")
    assert plan_stage("grpo", config, {}).fingerprint != before.fingerprint


def test_later_imports_of_the_users_modules_must_be_as_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, a module that a function imports when it is called was whatever its file held by then."""
    own, late = tmp_path / "own_reward_of_a_run.py", tmp_path / "own_helper_of_a_run.py"
    own.write_text("def f(*_: object) -> float:\n    from own_helper_of_a_run import ONE\n    return ONE\n")
    late.write_text("ONE = 1.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    plans(composed("reward=function", "reward.function._target_=own_reward_of_a_run.f", f"output_dir={tmp_path}"))
    late.write_text("ONE = 2.0\n")
    with pytest.raises(ChangedCode, match=rf"{late} has changed since the run was planned"):
        import_module("own_reward_of_a_run").f()
    expect({})


def test_rewards_of_ones_own_share_the_critic_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("one", "two"):
        (tmp_path / f"own_reward_{name}.py").write_text(f"def f(*_: object) -> float:\n    return {len(name)}.0\n")
    critics, policies = set(), set()
    for name in ("one", "two"):
        own = ("reward=function", f"reward.function._target_=own_reward_{name}.f")
        config = composed("experiment=llama_critic", *own)
        critics.add(plan_stage("critic", config, {}).fingerprint)
        policies.add(plan_stage("grpo", config, {}).fingerprint)
    assert (len(critics), len(policies)) == (1, 2)


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
