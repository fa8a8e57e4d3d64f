"""Every YAML of every group: it composes, spells its constructor's arguments, and builds, at every scale."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import wraps
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf

from contrastive_reasoning.policies import load
from contrastive_reasoning.policies.tiny import tiny_llama, tiny_qwen2, train_tokenizer
from contrastive_reasoning.tasks.base import Problem
from contrastive_reasoning.tasks.countdown.problem import problem_key
from experiments.assemble import build
from experiments.config.composition import open_critics
from experiments.config.contradictions import contradiction
from experiments.config.override_checks import override_error
from experiments.config.whole import unread_keys
from experiments.stages.plan import StagePlan, plan_stage
from experiments.stages.train import PARTS
from tests.config_kit import CONF, EXPERIMENTS, SCALES, composed, overridden, part_of, raw, values

FIRST, *OTHERS = SCALES
"""Siblings at the default, laptop, are built in every check; those at other scales are among the slow tests."""
AXES = {
    "task": ("task", "budget", "policy", "warm_start", "suite"),
    "budget": ("task", "budget"),
    "family": ("family", "policy"),
}
"""Groups that other groups are chosen by, or that set values of others: group → the parts that it changes."""


def siblings(group: str) -> list[str]:
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders that stand for the hub's models: the real loading code, no download."""
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
    """The configuration with the hub's models replaced by tiny folders."""
    copy = deepcopy(config)
    localise(copy, str(models[config.family]))
    return copy


def localise(node: DictConfig, folder: str) -> None:
    """Replace the hub's models in this very node."""
    for key in node:
        child = node._get_node(key)
        if isinstance(child, DictConfig) and not child._is_none() and not child._is_interpolation():
            localise(child, folder)
        elif key == "pretrained" and "/" in str(child):
            node[key] = folder


def nodes_changed_by(group: str, sibling: str, experiment: str, scale: str) -> dict[str, Any]:
    """Every node that choosing a sibling changes, unresolved: of an axis also what is chosen by it."""
    if group not in AXES:
        return {group: with_values(part_of(group, sibling), values(experiment).get(group))}
    own = overridden(experiment)
    chosen = {axis: own[axis] for axis in AXES if axis in own} | {group: sibling}
    changed = composed(f"scale={scale}", *(f"{axis}={option}" for axis, option in sorted(chosen.items())))
    return {key: changed._get_node(key) for key in AXES[group] if key not in own or key == group}


def with_values(node: Any, of_experiment: Any) -> Any:
    """The node with what the experiment sets in it."""
    if of_experiment is None:
        return node
    copy = deepcopy(node)
    OmegaConf.set_struct(copy, False)
    return OmegaConf.merge(copy, of_experiment)


def choices(experiment: str) -> Iterator[tuple[str, list[str]]]:
    """Each group that the experiment names, with the siblings of what it chooses."""
    for group, option in overridden(experiment).items():
        yield group, [name for name in siblings(group) if name != option]


def with_siblings(experiment: str, scale: str, models: dict[str, Path]) -> Iterator[tuple[str, DictConfig]]:
    """The experiment with each sibling of each group it names; valid until the next is asked for."""
    config = offline(composed(f"experiment={experiment}", f"scale={scale}"), models)
    for group, others in choices(experiment):
        for sibling in others:
            with exchanged_for(config, group, sibling, scale, models):
                yield f"{group}={sibling}", config


@contextmanager
def exchanged_for(config: DictConfig, group: str, sibling: str, scale: str, models: dict[str, Path]) -> Iterator[None]:
    """Within it the configuration is as if composed with the sibling: the same, in a small part of the time."""
    parts = nodes_changed_by(group, sibling, config.name, scale)
    before = {key: config._get_node(key) for key in parts}
    for key, node in parts.items():
        config[key] = node
    if "policy" in parts:
        localise(config.policy, str(models[config.family]))
    try:
        yield
    finally:
        nodes_of: Any = config._content  # an assignment would copy the node, and what is known of it would not be found
        nodes_of.update(before)


@pytest.fixture(scope="module", autouse=True)
def policies_are_read_once() -> Iterator[None]:
    """The same few folders would be read two thousand times: half of all that building takes."""
    load_policy, read = load.load_policy, dict[str, Any]()

    @wraps(load_policy)  # whose arguments are read off it
    def load_once(**given: Any) -> Any:
        if given["pretrained"] is None:
            return load_policy(**given)
        mark = repr([(key, value) for key, value in sorted(given.items()) if key != "corpus"])
        read[mark] = read.get(mark) or load_policy(**given)
        return deepcopy(read[mark])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(load, "load_policy", load_once)
        yield


NEEDS_REFERENCE = "the objective compares with a reference over the whole vocabulary: choose module=grpo_reference"
NEEDS_CRITIC = "the reward needs a critic: add 'critic' to stages or give {}.checkpoint=FOLDER"
SEEN: set[tuple[str, ...]] = set()
"""What was checked before: many experiments with one sibling or another are the same but for their name."""
BUILT: set[tuple[str, ...]] = set()
"""Parts that were built before, as written and as resolved."""


class Written:
    """The parts of a configuration as they are written, and what a part can see of them."""

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
"""By identity, so that a part that stays is written out once; it is kept, so that no other takes its place."""
INTERPOLATED = re.compile(r"\$\{(\w+)")


def as_text(node: DictConfig, *, resolve: bool = False) -> str:
    return json.dumps(OmegaConf.to_container(node, resolve=resolve), sort_keys=True, default=str)


def build_once(config: DictConfig, written: Written, key: str) -> None:
    """Build a part, unless one was built that is written alike and reads alike, or that resolves to the same."""
    seen = written.seen_by(key)
    if seen not in BUILT:
        BUILT.add(seen)
        node = OmegaConf.select(config, key)
        resolved = (key, as_text(node, resolve=True) if isinstance(node, DictConfig) else str(node))
        if resolved not in BUILT:
            BUILT.add(resolved)
            build(config, key)


def build_parts(config: DictConfig, written: Written) -> None:
    """What the stages of an experiment are made of, each kind once."""
    callbacks = [f"callbacks.{name}" for name in config.callbacks]
    for key in (*chain.from_iterable(PARTS[stage] for stage in config.stages), *callbacks, "trainer"):
        build_once(config, written, key)


@pytest.mark.whole
@pytest.mark.parametrize(
    ("experiment", "scale"),
    [
        *(("critic_text", "laptop"), ("llama_critic", "workstation")),
        *(("clipo_batch_level", "paper"), ("qwen_vineppo", "gpu")),
    ],
)
def test_a_node_exchanged_is_the_sibling_composed(experiment: str, scale: str, tiny_models: dict[str, Path]) -> None:
    """As the tests below exchange them; at each scale one experiment shows it."""
    config = offline(composed(f"experiment={experiment}", f"scale={scale}"), tiny_models)
    for group, others in choices(experiment):
        wanted = offline(composed(f"experiment={experiment}", f"scale={scale}", f"{group}={others[-1]}"), tiny_models)
        with exchanged_for(config, group, others[-1], scale, tiny_models):
            assert as_text(offline(config, tiny_models)) == as_text(wanted), f"{group}={others[-1]}"


@pytest.mark.parametrize(
    "scale", ["laptop", "paper", *(pytest.param(scale, marks=pytest.mark.whole) for scale in ("gpu", "workstation"))]
)
@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_an_experiment_builds(experiment: str, scale: str, tiny_models: dict[str, Path]) -> None:
    config = offline(composed(f"experiment={experiment}", f"scale={scale}"), tiny_models)
    assert config.name == experiment
    assert contradiction(config) is None
    build_parts(config, Written(config))


def test_a_baseline_is_an_experiment_that_can_be_compared() -> None:
    configs = {name: composed(f"experiment={name}", f"scale={FIRST}") for name in EXPERIMENTS}
    compared = {name: config.baseline for name, config in configs.items() if config.baseline is not None}
    assert [name for name, other in compared.items() if configs[other].baseline is not None] == []
    assert [name for name, other in compared.items() if shared(configs[name]) != shared(configs[other])] == []


def shared(config: DictConfig) -> dict[str, Any]:
    """What partners share, but for the critic's own training."""
    whole: Any = OmegaConf.to_container(config, resolve=True)
    del whole["budget"]["critic"]
    return {key: whole[key] for key in ("seed", "task", "policy", "budget", "suite")}


def refused_for_a_value(experiment: str, exchange: str, config: DictConfig) -> bool:
    """Whether the sibling has no place for what the experiment sets: then the command line is refused for it."""
    unread = next(unread_keys(config), None)
    assert unread is None or OmegaConf.select(OmegaConf.create(values(experiment)), unread) is not None, exchange
    return unread is not None


@pytest.mark.parametrize("experiment", [name for name in EXPERIMENTS if values(name)])
def test_a_value_of_an_experiment_has_its_place_or_is_refused(experiment: str, tiny_models: dict[str, Path]) -> None:
    refused = [
        exchange
        for exchange, config in with_siblings(experiment, FIRST, tiny_models)
        if refused_for_a_value(experiment, exchange, config)
    ]
    for exchange in refused[:1]:
        said = override_error([f"experiment={experiment}", exchange])
        assert said is not None
        assert said.startswith(f"{exchange}: experiment={experiment} sets ")
        assert "\n" not in said
    assert all(exchange.partition("=")[0] in values(experiment) for exchange in refused)
    own = values(experiment)
    assert bool(refused) == ("reward" in own or "depth_shares" in own.get("datamodule", {}))


def refused_for_its_critic(config: DictConfig) -> bool:
    """Whether the reward's critic learns from lines of searches and can read none."""
    ramped = str(config.reward._target_).endswith(".RampedCriticReward")
    return ramped and not hasattr(get_object(config.critic._target_), "encode_actions")


@pytest.mark.whole
@pytest.mark.parametrize("scale", [FIRST, *(pytest.param(scale, marks=pytest.mark.slow) for scale in OTHERS)])
@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_an_experiment_builds_with_every_sibling(experiment: str, scale: str, tiny_models: dict[str, Path]) -> None:
    for label, config in with_siblings(experiment, scale, tiny_models):
        written = Written(config)
        if written.mark() in SEEN:
            continue
        SEEN.add(written.mark())
        if refused_for_a_value(experiment, label, config):
            continue
        asking = open_critics(config)
        expected = NEEDS_CRITIC.format(asking[0]) if asking and "critic" not in config.stages else None
        if refused_for_its_critic(config):
            continue  # a sentence of its own, see test_contradictions.py
        if label == "objective=grpo_full_kl" and config.module.reference is None:
            expected = NEEDS_REFERENCE
        assert contradiction(config) == expected, label
        build_parts(config, written)


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_stage_can_be_planned(experiment: str, tiny_models: dict[str, Path]) -> None:
    config = offline(composed(f"experiment={experiment}", "scale=paper"), tiny_models)
    finished: dict[str, StagePlan] = {}
    for stage in config.stages:
        finished[stage] = plan_stage(stage, config, finished)
    assert len({plan.fingerprint for plan in finished.values()}) == len(finished)


@pytest.mark.parametrize("sweep", siblings("sweep"))
def test_every_value_of_a_sweep_can_be_taken(sweep: str) -> None:
    parameters = raw(CONF / "sweep" / f"{sweep}.yaml")["hydra"]["sweeper"]["params"]
    for key, listed in parameters.items():
        for value in str(listed).split(","):
            config = composed("experiment=clipo_laptop", f"{key}={value}")
            assert contradiction(config) is None
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
def test_sizes_of_the_numeric_critics(overrides: list[str], size: tuple[int, int, int]) -> None:
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
def test_a_text_critic_is_trained_whole_or_by_adapters(scale: str, training: str, rate: float) -> None:
    config = composed("experiment=critic_text", f"scale={scale}")
    assert config.critic.encoder.training._target_.endswith(f".{training}")
    assert config.pretraining.optimizer.learning_rate == rate


def test_no_setting_of_the_far_suite_poses_what_a_file_trains_on(tmp_path: Path) -> None:
    """Its settings make problems of their own, and a task keeps out of its problems only the file that it knows."""
    far = "experiment=llama_baseline", "suite=countdown_far"
    settings = ("larger", "longproc_ranges")
    asked = [build(composed(*far), f"suite.settings.{name}.task").problems("test")[:20] for name in settings]
    mine = tmp_path / "mine.jsonl"
    rows = [
        {"nums": [*problem.fields["numbers"]], "target": problem.fields["target"]}
        for problems in asked
        for problem in problems
    ]
    mine.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    config = composed(*far, "task.train=file", f"task.train_file={mine}")
    trained = keys_of(build(config, "task").problems("train"))
    assert len(trained) == 40
    for name in ("main", *settings):
        assert not trained & keys_of(build(config, f"suite.settings.{name}.task").problems("test"))


def keys_of(problems: Sequence[Problem]) -> set[Any]:
    return {problem_key(problem.fields["numbers"], problem.fields["target"]) for problem in problems}
