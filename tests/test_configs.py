"""Every option of every group composes and builds, at every scale."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import wraps
from importlib.util import find_spec
from itertools import chain, product
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf

from contrastive_reasoning.policies import load
from contrastive_reasoning.policies.tiny import train_tokenizer
from contrastive_reasoning.rewards.critic import FRESH
from contrastive_reasoning.tasks.base import Problem
from contrastive_reasoning.tasks.countdown.problem import problem_key
from experiments.assemble import build
from experiments.config.composition import leaves, open_critics
from experiments.config.contradictions import contradiction
from experiments.config.stages import STAGES
from experiments.config.types import argument_flaws
from experiments.stages.plan import StagePlan, plan_stage
from tests.config_kit import CONF, EXPERIMENTS, SCALES, composed, content, options, overridden, part_of, raw, values
from tests.tiny_models import tiny_llama, tiny_qwen2

FIRST = SCALES[0]
"""The default, laptop. Pairs of siblings and settings are built there; all siblings, at all scales, are slow tests."""
AXES = {
    "task": ("task", "budget", "policy", "warm_start", "suite"),
    "budget": ("task", "budget"),
    "family": ("family", "policy"),
    "module": ("module", "objective"),
}
"""Groups that choose other groups or set their values: group → the parts that it changes."""

SET_BY_MODULE = "objective"
"""The group whose options have other values with another module."""


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders that replace the hub's models, so that the real loading code needs no download."""
    folders: dict[str, Path] = {}
    makes = {"llama": ("llama", tiny_llama), "qwen": ("qwen2", tiny_qwen2)}
    for family, (kind, make) in makes.items():
        tokenizer = train_tokenizer(["Numbers: [1, 2], target: 3\n1+2=3"], vocab_size=300, kind=kind)
        tokenizer.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}"
        folders[family] = tmp_path_factory.mktemp(family)
        make(tokenizer).save_pretrained(folders[family])
        tokenizer.save_pretrained(folders[family])
    return folders


def offline(config: DictConfig, models: dict[str, Path]) -> DictConfig:
    """Returns a copy of the configuration, with the hub's models replaced by tiny folders."""
    copy = deepcopy(config)
    localise(copy, str(models[config.family]))
    return copy


def localise(node: DictConfig, folder: str) -> None:
    """Replaces the hub's models in this node, in place."""
    for key in node:
        child = node._get_node(key)
        if isinstance(child, DictConfig) and not child._is_none() and not child._is_interpolation():
            localise(child, folder)
        elif key == "pretrained" and "/" in str(child):
            node[key] = folder


def nodes_changed_by(group: str, sibling: str, experiment: str, scale: str) -> dict[str, Any]:
    """Returns the unresolved nodes that a sibling changes; for an axis also the nodes that it chooses."""
    if group not in AXES:
        return {group: with_values(part_of(group, sibling), values(experiment).get(group))}
    own = overridden(experiment)
    chosen = {axis: own[axis] for axis in (*AXES, SET_BY_MODULE) if axis in own} | {group: sibling}
    changed = composed(f"scale={scale}", *(f"{axis}={option}" for axis, option in sorted(chosen.items())))
    set_here = values(experiment)
    nodes = {key: changed._get_node(key) for key in AXES[group] if key not in own or key in (group, SET_BY_MODULE)}
    return {key: with_values(node, set_here.get(key)) for key, node in nodes.items()}


def with_values(node: Any, of_experiment: Any) -> Any:
    """Returns the node with the values of the experiment."""
    if of_experiment is None:
        return node
    copy = deepcopy(node)
    OmegaConf.set_struct(copy, False)
    return OmegaConf.merge(copy, of_experiment)


def choices(experiment: str) -> Iterator[tuple[str, list[str]]]:
    """Yields each group that the experiment names, with the siblings of the chosen option."""
    for group, option in overridden(experiment).items():
        yield group, [name for name in options(group) if name != option]


def with_siblings(
    experiment: str, scale: str, models: dict[str, Path], *, wanted: Callable[[str, str], bool] = lambda *_: True
) -> Iterator[tuple[str, DictConfig]]:
    """Yields the experiment with each wanted sibling of each group that it names; valid until the next iteration."""
    config = offline(composed(f"experiment={experiment}", f"scale={scale}"), models)
    for group, others in choices(experiment):
        for sibling in others:
            if wanted(group, sibling):
                with exchanged_for(config, group, sibling, scale, models):
                    yield f"{group}={sibling}", config


def settings_beside(experiment: str, group: str) -> set[str]:
    """Returns the options, the values and the stages that an experiment sets, without the option of this group.

    Nothing is built from the name of its baseline.
    """
    chosen = {f"{other}={option}" for other, option in overridden(experiment).items() if other != group}
    set_here = {f"{key}={value}" for key, value in leaves(OmegaConf.create(values(experiment))) if key != "baseline"}
    return chosen | set_here | {f"stages={content(experiment).get('stages')}"}


@contextmanager
def exchanged_for(config: DictConfig, group: str, sibling: str, scale: str, models: dict[str, Path]) -> Iterator[None]:
    """In the context the configuration equals the one composed with the sibling, in a small part of the time."""
    parts = nodes_changed_by(group, sibling, config.name, scale)
    before = {key: config._get_node(key) for key in parts}
    for key, node in parts.items():
        config[key] = node
    if "policy" in parts:
        localise(config.policy, str(models[config.family]))
    try:
        yield
    finally:
        nodes_of: Any = config._content  # an assignment would copy the node: no hit in TEXTS
        nodes_of.update(before)


@pytest.fixture(scope="module", autouse=True)
def cache_loaded_policies() -> Iterator[None]:
    """Without it, the same few folders would be read two thousand times, which is half of the build time."""
    load_policy, cache = load.load_policy, dict[str, Any]()

    @wraps(load_policy)  # because its signature is inspected
    def load_once(**given: Any) -> Any:
        if given["pretrained"] is None:
            return load_policy(**given)
        key = repr([(name, value) for name, value in sorted(given.items()) if name != "corpus"])
        cache[key] = cache.get(key) or load_policy(**given)
        return deepcopy(cache[key])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(load, "load_policy", load_once)
        yield


NEEDS_REFERENCE = (
    "objective.kl_weight={} weighs the KL to a reference, and there is none: choose module=grpo_reference, or set "
    "objective.kl_weight=0"
)
NEEDS_CRITIC = "the reward needs a critic: add 'critic' to stages or give {}.checkpoint=FOLDER"
SEEN: dict[tuple[str, ...], bool] = {}
"""Configuration checked before → whether it was built. Many experiments with some sibling differ only in their name."""
BUILT: set[tuple[str, ...]] = set()
"""Parts built before, as written and as resolved."""


class Written:
    """The unresolved parts of a configuration, and the parts that each part can reach."""

    def __init__(self, config: DictConfig) -> None:
        self.config = config
        self.parts = {key: self._text(key) for key in map(str, config) if key not in ("name", "experiment")}

    def _text(self, key: str) -> str:
        node = self.config._get_node(key)
        if not isinstance(node, DictConfig):
            return str(node)
        if id(node) not in TEXTS:
            TEXTS[id(node)] = node, as_text(node)
        return TEXTS[id(node)][1]

    def mark(self) -> tuple[str, ...]:
        return tuple(chain.from_iterable(self.parts.items()))

    def seen_by(self, key: str) -> tuple[str, ...]:
        """The part ``key``, and every part that it can reach by interpolations."""
        first, reached = key.split(".")[0], set[str]()
        waiting = [first]
        while waiting:
            part = waiting.pop()
            if part not in reached:
                reached.add(part)
                waiting += [name for name in INTERPOLATED.findall(self.parts[part]) if name in self.parts]
        return (key, *chain.from_iterable((part, self.parts[part]) for part in sorted(reached)))


TEXTS: dict[int, tuple[DictConfig, str]] = {}
"""By id, so that an unchanged part is serialised once. The node is kept, so that its id is not reused."""
INTERPOLATED = re.compile(r"\$\{(\w+)")


def as_text(node: DictConfig, *, resolve: bool = False) -> str:
    return json.dumps(OmegaConf.to_container(node, resolve=resolve), sort_keys=True, default=str)


def build_once(config: DictConfig, written: Written, key: str) -> None:
    """Builds a part, unless one with the same text and references, or the same resolved values, was built."""
    seen = written.seen_by(key)
    if seen not in BUILT:
        BUILT.add(seen)
        node = OmegaConf.select(config, key)
        resolved = (key, as_text(node, resolve=True) if isinstance(node, DictConfig) else str(node))
        if resolved not in BUILT:
            BUILT.add(resolved)
            build(config, key)


def build_parts(config: DictConfig, written: Written) -> None:
    """Builds the parts of all stages, each kind once."""
    callbacks = [f"callbacks.{name}" for name in config.callbacks]
    for key in (*chain.from_iterable(STAGES[stage].parts for stage in config.stages), *callbacks, "trainer"):
        build_once(config, written, key)


def lacks_library(config: DictConfig) -> bool:
    """Whether the task needs an optional library that is not installed."""
    target = str(config.task.get("_target_", ""))
    return target.startswith("contrastive_reasoning.tasks.verifiers.") and find_spec("verifiers") is None


@pytest.mark.whole
@pytest.mark.parametrize(
    ("experiment", "scale"),
    [
        *(("critic_text", "laptop"), ("llama_critic", "workstation")),
        *(("clipo_batch_level", "paper"), ("qwen_vineppo", "gpu")),
    ],
)
def test_exchanged_node_equals_composed_sibling(experiment: str, scale: str, tiny_models: dict[str, Path]) -> None:
    """Checks the exchange that the tests below use, with one experiment at each scale."""
    config = offline(composed(f"experiment={experiment}", f"scale={scale}"), tiny_models)
    for group, others in choices(experiment):
        wanted = offline(composed(f"experiment={experiment}", f"scale={scale}", f"{group}={others[-1]}"), tiny_models)
        with exchanged_for(config, group, others[-1], scale, tiny_models):
            assert as_text(offline(config, tiny_models)) == as_text(wanted), f"{group}={others[-1]}"


@pytest.mark.parametrize(
    "scale", ["laptop", "paper", *(pytest.param(scale, marks=pytest.mark.whole) for scale in ("gpu", "workstation"))]
)
@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_experiment_builds(experiment: str, scale: str, tiny_models: dict[str, Path]) -> None:
    config = offline(composed(f"experiment={experiment}", f"scale={scale}"), tiny_models)
    assert config.name == experiment
    assert [*argument_flaws(config)] == []
    assert contradiction(config) is None
    if lacks_library(config):
        pytest.skip("needs the extra: pip install '.[verifiers]'")
    build_parts(config, Written(config))


def test_baseline_shares_settings_with_its_experiments() -> None:
    configs = {name: composed(f"experiment={name}", f"scale={FIRST}") for name in EXPERIMENTS}
    compared = {name: config.baseline for name, config in configs.items() if config.baseline is not None}
    assert [name for name, other in compared.items() if configs[other].baseline is not None] == []
    assert [name for name, other in compared.items() if shared(configs[name]) != shared(configs[other])] == []


def shared(config: DictConfig) -> dict[str, Any]:
    """Returns what an experiment shares with its baseline, without the critic's own training."""
    whole: Any = OmegaConf.to_container(config, resolve=True)
    del whole["budget"]["critic"]
    return {key: whole[key] for key in ("seed", "task", "policy", "budget", "suite")}


def refused_for_a_value(experiment: str, exchange: str, config: DictConfig) -> bool:
    """Whether the sibling lacks a key that the experiment sets; then the run is refused before its first stage."""
    flaw = next(argument_flaws(config), None)
    key, _, reason = (flaw or "").partition(": ")
    set_there = flaw is not None and OmegaConf.select(OmegaConf.create(values(experiment)), key) is not None
    assert flaw is None or (set_there and reason.startswith("no such key")), f"{exchange}: {flaw}"
    return flaw is not None


def refused_for_its_critic(config: DictConfig) -> bool:
    """Whether the reward needs a critic of lines of searches, and the critic cannot encode them.

    Or its critic is fresh, and nothing trains it.
    """
    ramped = str(config.reward._target_).endswith(".RampedCriticReward")
    fresh = OmegaConf.select(config, "reward.source.checkpoint") == FRESH
    untrained = fresh and not str(config.online._target_).endswith(".OutcomeCritic")
    return untrained or (ramped and not hasattr(get_object(config.critic._target_), "encode_actions"))


PAIRED: dict[str, set[str]] = {}
"""Sibling → the settings beside which it was built. A refused exchange does not count."""


@pytest.mark.whole
@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_each_pair_of_sibling_and_setting_builds(experiment: str, tiny_models: dict[str, Path]) -> None:
    """Each sibling beside each setting of any experiment that takes it; beside all of each experiment's below."""

    def is_new(group: str, sibling: str) -> bool:
        return not settings_beside(experiment, group) <= PAIRED.get(f"{group}={sibling}", set())

    for label, config in with_siblings(experiment, FIRST, tiny_models, wanted=is_new):
        if builds(experiment, label, config):
            PAIRED.setdefault(label, set()).update(settings_beside(experiment, label.partition("=")[0]))


@pytest.mark.slow
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_experiment_builds_with_every_sibling(experiment: str, scale: str, tiny_models: dict[str, Path]) -> None:
    for label, config in with_siblings(experiment, scale, tiny_models):
        builds(experiment, label, config)


def builds(experiment: str, label: str, config: DictConfig) -> bool:
    """Builds the configuration, or checks that it is refused for the reason that its exchange gives; whether it built.

    Without a library that the task needs, all but the building is checked.
    """
    written = Written(config)
    mark = written.mark()
    if mark in SEEN:
        return SEEN[mark]
    SEEN[mark] = False
    if refused_for_a_value(experiment, label, config):
        assert label.partition("=")[0] in values(experiment)
        return False
    missing = open_critics(config)
    expected = NEEDS_CRITIC.format(missing[0]) if missing and "critic" not in config.stages else None
    if refused_for_its_critic(config):
        return False  # see test_contradictions.py and test_building.py
    weight = config.objective.get("kl_weight", 0.0)
    if "grpo" in config.stages and weight > 0 and config.module.reference is None:
        assert label in ("objective=grpo_full_kl", "module=grpo")
        assert contradiction(config) == NEEDS_REFERENCE.format(weight), label
        return False
    assert contradiction(config) == expected, label
    if not lacks_library(config):
        build_parts(config, written)
    SEEN[mark] = True
    return True


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_stage_can_be_planned(experiment: str, tiny_models: dict[str, Path]) -> None:
    config = offline(composed(f"experiment={experiment}", "scale=paper"), tiny_models)
    finished: dict[str, StagePlan] = {}
    for stage in config.stages:
        finished[stage] = plan_stage(stage, config, finished)
    assert len({plan.fingerprint for plan in finished.values()}) == len(finished)


@pytest.mark.parametrize("sweep", options("sweep"))
def test_every_value_of_sweep_composes(sweep: str) -> None:
    parameters = raw(CONF / "sweep" / f"{sweep}.yaml")["hydra"]["sweeper"]["params"]
    values = [[(key, value) for value in str(listed).split(",")] for key, listed in parameters.items()]
    for job in product(*values):
        config = composed("experiment=clipo_laptop", *(f"{key}={value}" for key, value in job))
        assert contradiction(config) is None
        for key, value in job:
            if not (CONF / key).is_dir():
                assert OmegaConf.select(config, key) == yaml.safe_load(value)


@pytest.mark.parametrize(
    ("overrides", "size"),
    [
        (["experiment=critic_numeric_v1"], (5000, 256, 20_000)),
        (["experiment=critic_numeric_v2", "budget=numeric_paper"], (240_000, 16, 320_000)),
        (["experiment=llama_critic_published"], (1500, 16, 20_000)),
    ],
)
def test_numeric_critics_have_expected_sizes(overrides: list[str], size: tuple[int, int, int]) -> None:
    config = composed(*overrides)
    assert (config.budget.critic.steps, config.datamodule.batch_size, config.datamodule.trajectories) == size
    assert config.pretraining.optimizer.total_steps == config.budget.critic.steps


@pytest.mark.parametrize(
    ("scale", "training", "rate"),
    [
        *(("laptop", "FullTraining", 1e-3), ("workstation", "FullTraining", 1e-3)),
        *(("gpu", "LoRATraining", 2e-4), ("paper", "LoRATraining", 2e-4)),
    ],
)
def test_text_critic_training_mode_depends_on_scale(scale: str, training: str, rate: float) -> None:
    config = composed("experiment=critic_text", f"scale={scale}")
    assert config.critic.encoder.training._target_.endswith(f".{training}")
    assert config.pretraining.optimizer.learning_rate == rate


def test_far_suite_excludes_training_problems_from_file(tmp_path: Path) -> None:
    """Each setting has its own task, and a task excludes only the problems of a file that it knows."""
    far = "experiment=llama_baseline", "suite=countdown_far"
    settings = ("larger", "longproc_ranges")
    posed = [build(composed(*far), f"suite.settings.{name}.task").problems("test")[:20] for name in settings]
    file = tmp_path / "mine.jsonl"
    rows = [
        {"nums": [*problem.fields["numbers"]], "target": problem.fields["target"]}
        for problems in posed
        for problem in problems
    ]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    config = composed(*far, "task.train=file", f"task.train_file={file}")
    trained = keys_of(build(config, "task").problems("train"))
    assert len(trained) == 40
    for name in ("main", *settings):
        assert not trained & keys_of(build(config, f"suite.settings.{name}.task").problems("test"))


def keys_of(problems: Sequence[Problem]) -> set[Any]:
    return {problem_key(problem.fields["numbers"], problem.fields["target"]) for problem in problems}
