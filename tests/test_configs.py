"""Every YAML of every group: it composes, spells its constructor's arguments, and builds, at both scales."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_module
from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf

from contrastive_reasoning.policies.tiny import tiny_llama, tiny_qwen2, train_tokenizer
from experiments.assemble import build, with_values
from experiments.checks import contradiction
from experiments.fits import PARTS
from experiments.rooms import OURS
from experiments.schema import register
from experiments.stage_plan import plan_stage
from experiments.typo import dotted_keys

CONF = Path(__file__).resolve().parent.parent / "conf"
FILES = sorted(CONF.glob("*/*.yaml"))
EXPERIMENTS = sorted(path.stem for path in (CONF / "experiment").glob("*.yaml"))
SCALES = sorted(path.stem for path in (CONF / "scale").glob("*.yaml"))
HYDRA_KEYS = {"_target_", "_partial_", "_convert_", "_recursive_", "_args_"}
register()


def composed(*overrides: str) -> DictConfig:
    with initialize_config_module("conf", version_base="1.3"):
        return compose("config", list(overrides))


def nodes(config: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every mapping with a ``_target_``, by its path."""
    if isinstance(config, dict):
        if "_target_" in config:
            yield path, config
        for key, value in config.items():
            yield from nodes(value, f"{path}.{key}")
    elif isinstance(config, list):
        for index, value in enumerate(config):
            yield from nodes(value, f"{path}[{index}]")


def raw(path: Path) -> dict[str, Any]:
    content: Any = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
    return content


def siblings(group: str) -> list[str]:
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


def overridden(experiment: str) -> dict[str, str]:
    """Group → option, as the experiment's defaults list says."""
    entries = raw(CONF / "experiment" / f"{experiment}.yaml").get("defaults", [])
    named = [next(iter(entry.items())) for entry in entries if isinstance(entry, dict)]
    return {key.removeprefix("override /"): option for key, option in named}


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_keys_are_the_constructors_arguments(path: Path) -> None:
    for where, node in nodes(raw(path)):
        target = node["_target_"]
        given = set(node) - HYDRA_KEYS
        takes = set(inspect.signature(get_object(target)).parameters)
        assert given <= takes, f"{where or 'the file'}: {target} does not take {sorted(given - takes)}"
        if target.split(".")[0] in OURS and not node.get("_partial_"):
            assert given == takes, f"{where or 'the file'}: {target} also takes {sorted(takes - given)}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_begins_with_a_line_that_says_what_it_is(path: Path) -> None:
    first = next(line for line in path.read_text().splitlines() if not line.startswith("# @"))
    assert first.startswith("# ")
    assert first[2:3].isupper() or first[2:3].isdigit() or not first[2:3].isalpha()


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_an_experiment_is_named_as_its_file(experiment: str) -> None:
    assert composed(f"experiment={experiment}").name == experiment


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_method_and_size_set_no_key_in_common(experiment: str) -> None:
    leaves = {key for key in _leaves(raw(CONF / "experiment" / f"{experiment}.yaml"))}
    for budget in (CONF / "budget").glob("*.yaml"):
        assert not leaves & {key for key in _leaves(raw(budget))}, budget.stem


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_what_an_experiment_sets_every_sibling_has(experiment: str) -> None:
    content = raw(CONF / "experiment" / f"{experiment}.yaml")
    for group in (group for group in content if (CONF / group).is_dir()):
        for sibling in siblings(group):
            keys = dotted_keys(composed(f"experiment={experiment}", f"{group}={sibling}"))
            assert {f"{group}.{key}" for key in _leaves(content[group])} <= keys, f"{group}={sibling}"


def _leaves(content: dict[str, Any], path: str = "") -> Iterator[str]:
    for key, value in content.items():
        if key != "defaults":
            here = f"{path}.{key}" if path else key
            yield from _leaves(value, here) if isinstance(value, dict) else [here]


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders that stand for the hub's models: the real loading code, no download."""
    tokenizer = train_tokenizer(["Numbers: [1, 2], target: 3\n1+2=3"], vocab_size=300)
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    folders: dict[str, Path] = {}
    for family, make in (("llama", tiny_llama), ("qwen", tiny_qwen2)):
        folders[family] = tmp_path_factory.mktemp(family)
        make(tokenizer).save_pretrained(folders[family])
        tokenizer.save_pretrained(folders[family])
    return folders


@pytest.fixture(scope="session")
def already_built() -> set[str]:
    """Resolved nodes that were built before: a part shared by many experiments is built once."""
    return set()


def offline(config: DictConfig, models: dict[str, Path]) -> DictConfig:
    """The configuration with the hub's models replaced by tiny folders."""
    local = str(models[config.family])
    named = [key for key in dotted_keys(config) if key.rpartition(".")[2] == "pretrained"]
    hub = [key for key in named if "/" in str(OmegaConf.select(config, key))]
    return with_values(config, {key: local for key in hub})


def cases() -> Iterator[Any]:
    """(experiment, further override) for each experiment as it is and with each sibling of each group it names."""
    for experiment in EXPERIMENTS:
        yield pytest.param(experiment, [], id=experiment)
        for group, option in overridden(experiment).items():
            for sibling in siblings(group):
                if sibling != option:
                    yield pytest.param(experiment, [f"{group}={sibling}"], id=f"{experiment}-{group}={sibling}")


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(("experiment", "overrides"), cases())
def test_every_experiment_builds(
    experiment: str,
    overrides: list[str],
    scale: str,
    tiny_models: dict[str, Path],
    already_built: set[str],
    tmp_path: Path,
) -> None:
    config = composed(f"experiment={experiment}", f"scale={scale}", f"output_dir={tmp_path}", *overrides)
    assert contradiction(config) is None
    config = offline(config, tiny_models)
    finished = {}
    for stage in config.stages:
        finished[stage] = plan_stage(stage, config, finished)
        for key in (*PARTS[stage], "trainer", "callbacks.every", f"callbacks.{stage}"):
            build_once(config, key, already_built)


def build_once(config: DictConfig, key: str, already_built: set[str]) -> None:
    resolved = OmegaConf.to_container(config, resolve=True)
    for part in key.split("."):
        resolved = resolved[part]  # type: ignore[index, call-overload]
    mark = json.dumps([key, resolved], sort_keys=True, default=str).replace(str(config.output_dir), "")
    if mark not in already_built:
        build(config, key)
        already_built.add(mark)
