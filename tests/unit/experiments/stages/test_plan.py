"""Plans of stages: settings, files and code determine the fingerprint; parents give values to later stages."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
from omegaconf import DictConfig

from contrastive_reasoning.policies.load import DTYPES
from contrastive_reasoning.workers.planned_code import ChangedCode, expect
from experiments.assemble import AssemblyError, build
from experiments.stages import plan as planning
from experiments.stages.checkpoints import CheckpointError
from experiments.stages.experiment import plans, run_stage
from experiments.stages.plan import (
    NUMERICS,
    StagePlan,
    changed_since,
    parents,
    plan_stage,
    plan_stages,
    values_from_parents,
    with_compute_dtype,
)
from tests import config_kit


def composed(*overrides: str) -> DictConfig:
    return config_kit.composed("experiment=llama_baseline", *overrides)


def changed(before: StagePlan, after: StagePlan) -> tuple[bool, bool]:
    """Returns whether the settings and the fingerprint differ."""
    return before.settings != after.settings, before.fingerprint != after.fingerprint


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Returns a function that writes a module of the user's, by default one with a reward ``f``."""

    def write(name: str, content: str = "return 1.0", head: str = "def f(*_: object, **__: object) -> float:") -> Path:
        path = tmp_path / f"{name.replace('.', '/')}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{head}\n    {content}\n")
        return path

    monkeypatch.syspath_prepend(tmp_path)
    return write


def rewarded(target: str, *overrides: str) -> DictConfig:
    return composed("reward=function", f"reward.function._target_={target}", *overrides)


@pytest.mark.parametrize(
    ("stage", "file", "lines"),
    [
        ("grpo", "problems.jsonl", "task.train=file task.train_file={}/problems.jsonl"),
        ("grpo", "problems_of_july.jsonl", "task.train=file task.train_file={}/problems_*.jsonl"),
        ("critic", "config.json", "experiment=critic_text backbone.pretrained={}"),
        ("evaluate", "own.yaml", "harness=lm_eval harness.tasks=[own] harness.include_path={}"),
        *(
            (stage, "config.json", "warm_start.train=true policy.pretrained={}")
            for stage in ("warm_start", "grpo", "evaluate")
        ),
    ],
)
def test_files_enter_by_content(stage: str, file: str, lines: str, tmp_path: Path) -> None:
    """The files of a policy also enter the warm start and every later stage. A line inside a large file changes."""
    config = composed(*lines.format(tmp_path).split())

    def planned(content: list[str]) -> StagePlan:
        (tmp_path / file).write_text("".join(content))
        return plan_stages(config)[stage]

    content = ['{"nums": [1, 2, 3], "target": 6}\n'] * 100_000
    before = planned(content)
    assert planned(content) == before
    content[50_000] = '{"nums": [1, 2, 4], "target": 7}\n'
    assert changed(before, planned(content)) == (True, True)


@pytest.mark.parametrize(
    ("accelerator", "gpu", "dtype"),
    [
        ("cpu", (8, 0), "float32"),
        ("cuda", (8, 0), "bfloat16"),
        ("gpu", (7, 5), "float32"),
        ("auto", (9, 0), "bfloat16"),
        ("auto", None, "float32"),
    ],
)
def test_auto_compute_dtype_is_planned_and_built_as_that_of_trainers_device(
    accelerator: str, gpu: tuple[int, int] | None, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The processor multiplies bfloat16 only if the GPU does not: the answer for the other device would differ."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu is not None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: int(gpu is not None))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: gpu)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: gpu is not None and gpu[0] < 8)
    config = composed("stages=[grpo]", "policy.compute_dtype=auto", f"trainer.accelerator={accelerator}")
    automatic = plan_stages(config)["grpo"]
    assert automatic.config["policy"]["compute_dtype"] == dtype
    assert automatic.config["module"]["reference"]["compute_dtype"] == dtype
    lines = ("stages=[grpo]", f"policy.compute_dtype={dtype}", f"trainer.accelerator={accelerator}")
    assert plan_stages(composed(*lines))["grpo"] == automatic
    assert build(with_compute_dtype(config), "policy").compute_dtype == DTYPES[dtype]


def test_code_edit_changes_fingerprints_of_all_stages_but_not_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    config = composed("policy.pretrained=null")
    before = plan_stages(config)
    edit_code(monkeypatch, "datamodules.plays")
    after = plan_stages(config)
    assert before["grpo"].code["datamodules.plays"] != after["grpo"].code["datamodules.plays"]
    assert {changed(plan, after[stage]) for stage, plan in before.items()} == {(False, True)}
    assert before["evaluate"].parents == {name: before[name].fingerprint for name in ("warm_start", "grpo")}


def edit_code(monkeypatch: pytest.MonkeyPatch, module: str, content: str = "edited") -> None:
    """Changes the hash of one module in all later plans."""
    original = planning.code_hashes

    def edited(*arguments: object) -> dict[str, str]:
        hashes = original(*arguments)  # pyright: ignore[reportArgumentType]
        return {name: content if name == module else digest for name, digest in hashes.items()}

    monkeypatch.setattr(planning, "code_hashes", edited)


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
    folders = {"warm_start": tmp_path}
    loaded = {"policy.pretrained": str(tmp_path / "policy")}
    for stage in ("grpo", "evaluate"):
        assert ("warm_start" in parents(stage, config)) == trained
        assert values_from_parents(stage, config, folders) == (loaded if trained else {})
    assert values_from_parents("warm_start", config, folders) == {}


def test_settings_depend_on_policy_content_but_not_its_path(tmp_path: Path) -> None:
    plans = []
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
        plans.append(plan_stage("grpo", composed(f"policy.pretrained={tmp_path / name}"), {}))
    here, there = plans
    assert changed(here, there) == (False, True)
    assert plan_stage("grpo", composed(f"policy.pretrained={tmp_path / 'gone'}"), {}).settings != here.settings


def test_run_as_policy_enters_by_the_policy_that_it_trained_last(tmp_path: Path) -> None:
    run, stages = tmp_path / "runs" / "mine" / "now", {}
    run.mkdir(parents=True)
    settings = set()
    for stage in ("warm_start", "grpo"):
        stages[stage] = {"folder": str(tmp_path / "stages" / stage / "abc")}
        policy = Path(stages[stage]["folder"], "policy")
        policy.mkdir(parents=True)
        (policy / "config.json").write_text(f'{{"of": "{stage}"}}')
        (run / "stages.json").write_text(json.dumps(stages))
        named = [
            plan_stage("evaluate", composed(f"policy.pretrained={folder}"), {}).settings for folder in (run, policy)
        ]
        assert len(set(named)) == 1
        settings.add(named[0])
        (run / "mirror.log").write_text(f"{stage} was sent\n")
    assert len(settings) == 2


def test_edit_of_user_module_changes_fingerprint_but_not_settings(own: Callable[..., Path]) -> None:
    own("own_rewards_of_a_plan")
    config = rewarded("own_rewards_of_a_plan.f")
    plan = plan_stage("grpo", config, {})
    own("own_rewards_of_a_plan", "return 0.5")
    assert changed_since(plan) == ["own_rewards_of_a_plan"]
    assert changed(plan, plan_stage("grpo", config, {})) == (False, True)


def test_string_of_users_function_that_names_a_file_enters_by_content(
    own: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own("own_rewards_of_words")
    words = tmp_path / "words.txt"
    words.write_text("one")
    named = ("+reward.function.lists=[words.txt,none.txt]", "+reward.function.rule={file: words.txt}")
    config = rewarded("own_rewards_of_words.f", *named)
    before = plan_stage("grpo", config, {})
    assert set(before.files) == {config.policy.pretrained, "words.txt"}
    words.write_text("two")
    assert changed(before, plan_stage("grpo", config, {})) == (True, True)
    assert changed_since(before) == ["words.txt"]


@pytest.mark.parametrize("trainer", ["cpu", "gpu", "ddp", "zero1"])
def test_shipped_trainers_enter_by_devices_and_precision_alone(trainer: str) -> None:
    assert set(plan_stage("grpo", composed(f"trainer={trainer}"), {}).config["trainer"]) == set(NUMERICS)


def further(group: str, target: str) -> str:
    return f"+callbacks.{group}.further={{_target_: {target}}}"


AVERAGING = "lightning.pytorch.callbacks.StochasticWeightAveraging"


@pytest.mark.parametrize(
    ("override", "stages"),
    [
        ("+trainer.limit_train_batches=2", "warm_start grpo"),
        ("+trainer.overfit_batches=1", "warm_start grpo"),
        ("+trainer.accumulate_grad_batches=2", "warm_start grpo"),
        ("+trainer.gradient_clip_val=0.5", "warm_start grpo"),
        ("trainer.deterministic=true", "warm_start grpo"),
        ("trainer._target_=collections.OrderedDict", "warm_start grpo"),
        ("+trainer.max_time='00:01:00:00'", ""),
        ("+trainer.limit_train_batches=null", ""),
        ("trainer.enable_progress_bar=false", ""),
        (further("every", AVERAGING), "warm_start grpo"),
        (further("every", "own_callbacks.Act"), "warm_start grpo"),
        (further("grpo", AVERAGING), "grpo"),
        (further("grpo", "own_callbacks.Act"), "grpo"),
        (further("grpo", "callbacks.online_critic.OnlineCritic"), "grpo"),
        (further("every", "callbacks.health.Health"), ""),
        (further("grpo", "callbacks.health.Health"), ""),
    ],
)
def test_trainer_settings_and_callbacks_enter_unless_they_are_neutral(override: str, stages: str) -> None:
    for stage in ("warm_start", "grpo"):
        after = plan_stage(stage, composed(override), {})
        enters = stage in stages.split()
        assert changed(usual_plan(stage), after) == (enters, enters), stage


@cache
def usual_plan(stage: str) -> StagePlan:
    return plan_stage(stage, composed(), {})


def test_versions_of_libraries_enter_as_code(monkeypatch: pytest.MonkeyPatch) -> None:
    before = plan_stage("grpo", composed(), {})
    assert {"torch", "transformers", "peft"} <= set(before.code)
    monkeypatch.setattr(planning, "version", lambda name: "0.0.1")
    after = plan_stage("grpo", composed(), {})
    assert changed(before, after) == (False, True)
    others = {name for name in after.code if after.code[name] != before.code[name]}
    assert {"torch", "transformers", "peft"} <= others < set(after.code)


@pytest.mark.parametrize(
    ("experiment", "library"),
    [("grpo_reasoning_gym", "reasoning_gym"), ("grpo_gsm8k", "math-verify"), ("llama_critic", "scikit-learn")],
)
def test_version_of_a_library_enters_only_where_its_problems_verdicts_or_fits_are_used(
    experiment: str, library: str
) -> None:
    used = plan_stage("grpo", config_kit.composed(f"experiment={experiment}"), {})
    assert used.code[library] == version(library)
    assert library == "math-verify" or library not in plan_stage("grpo", composed(), {}).code


def test_version_of_verifiers_and_code_of_the_environment_enter(
    own: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "version", lambda name: f"{name} 1.0")
    own("own_environment_of_a_plan")
    config = config_kit.composed("experiment=grpo_verifiers", "task.environment=me/own-environment-of-a-plan")
    before = plan_stage("grpo", config, {})
    assert before.code["verifiers"] == "verifiers 1.0"
    assert "own_environment_of_a_plan" in before.code
    assert "verifiers" not in plan_stage("grpo", composed(), {}).code
    own("own_environment_of_a_plan", "return 0.5")
    assert changed(before, plan_stage("grpo", config, {})) == (False, True)


def test_version_of_an_installed_environment_enters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its code is a library's, which is not hashed."""
    config = config_kit.composed("experiment=grpo_verifiers", "task.environment=yaml")
    assert plan_stage("grpo", config, {}).code["PyYAML"] == version("PyYAML")


def test_version_of_installed_code_that_the_configuration_names_enters(
    own: Callable[..., Path], tmp_path: Path
) -> None:
    own("own_installed_rewards")
    config = rewarded("own_installed_rewards.f")
    about = tmp_path / "own_rewards-1.0.dist-info"
    about.mkdir()
    (about / "top_level.txt").write_text("own_installed_rewards\n")
    plans = []
    for number in ("1.0", "1.1"):
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: own-rewards\nVersion: {number}\n")
        plans.append(plan_stage("grpo", config, {}))
        assert plans[-1].code["own-rewards"] == number
        assert "own_installed_rewards" not in plans[-1].code
    assert changed(*plans) == (False, True)
    assert (
        "own-rewards"
        not in plan_stage("critic", rewarded("own_installed_rewards.f", "experiment=llama_critic"), {}).code
    )


def test_later_imports_of_the_users_modules_must_be_as_planned(own: Callable[..., Path], tmp_path: Path) -> None:
    """Before, a module that a function imports when it is called was whatever its file held by then."""
    own("own_reward_of_a_run", "from own_helper_of_a_run import f\n    return f()")
    late = own("own_helper_of_a_run")
    plans(rewarded("own_reward_of_a_run.f", f"output_dir={tmp_path}"))
    own("own_helper_of_a_run", "return 2.0")
    with pytest.raises(ChangedCode, match=str(late)):
        import_module("own_reward_of_a_run").f()
    expect({})


def test_rewards_of_ones_own_share_the_critic_stage(own: Callable[..., Path]) -> None:
    critics, policies = set(), set()
    for number, name in enumerate(("own_reward_one", "own_reward_two")):
        own(name, f"return {number}.0")
        config = rewarded(f"{name}.f", "experiment=llama_critic")
        critics.add(plan_stage("critic", config, {}).fingerprint)
        policies.add(plan_stage("grpo", config, {}).fingerprint)
    assert (len(critics), len(policies)) == (1, 2)


def test_run_stage_rejects_data_file_changed_since_planning(tmp_path: Path) -> None:
    problems = tmp_path / "problems.jsonl"
    problems.write_text('{"nums": [1, 2, 3], "target": 6}\n')
    config = composed("task.train=file", f"task.train_file={problems}", f"output_dir={tmp_path}")
    plan = plan_stage("grpo", config, {})
    assert changed_since(plan) == []
    problems.write_text('{"nums": [2, 2, 3], "target": 7}\n')
    with pytest.raises(CheckpointError, match=f"^grpo: {problems}"):
        run_stage(plan, config, {"grpo": plan}, run="")
    assert not plan.folder.exists()


def test_missing_embedded_policy_raises_assembly_error() -> None:
    with pytest.raises(AssemblyError, match="'nothing'"):
        plan_stage("grpo", composed("policy.pretrained=embedded:nothing"), {})
