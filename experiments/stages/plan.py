"""What a stage is about to do: its relevant configuration, its parents, and the fingerprint that it is known by."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from experiments.assemble import AssemblyError
from experiments.config.composition import critic_checkpoints, open_critics, teaches
from experiments.config.folders import EMBEDDED
from experiments.import_paths import with_current_targets
from experiments.run_folder.reader import CRITIC, POLICY
from experiments.stages.code_hash import code_hashes
from experiments.system.checksums import BLOCK, STRIDE, content_hash, fingerprint

KEYS = {
    "warm_start": "seed policy warm_start",
    "critic": "seed task critic loss datamodule pretraining",
    "grpo": "seed policy prompts rollout online objective correction advantage reward optimizer module",
    "evaluate": "seed policy suite",
}
"""Of the configuration, what decides the result of each stage; ``budget.<stage>`` and the numerics are added."""
NUMERICS = ("accelerator", "devices", "num_nodes", "strategy", "precision")
"""Of the trainer, what decides the result."""
DRIVERS = {
    "warm_start": "experiments.stages.train.warm_start",
    "critic": "experiments.stages.train.critic",
    "grpo": "experiments.stages.train.grpo",
    "evaluate": "experiments.stages.evaluate.evaluate",
}
"""The function that runs each stage."""
NAMING = {
    **dict.fromkeys(("pretrained", "checkpoint"), STRIDE),
    **dict.fromkeys(("train_file", "longproc_dir", "prompt_file", "path"), BLOCK),
}
"""Keys whose value may be a path: what lies there decides the result, not only its name. Data sets are read whole."""


@dataclass(frozen=True, kw_only=True)
class StagePlan:
    """One stage of one experiment, before it runs."""

    name: str
    config: Mapping[str, Any]
    """Its relevant part of the configuration, resolved."""
    parents: Mapping[str, str]
    """Stage → fingerprint of what it builds on."""
    files: Mapping[str, str]
    """Name in the configuration → hash of what lies there."""
    code: Mapping[str, str]
    """Module → hash of its code, of all that decide the result."""
    settings: str
    """Hash of the configuration and what it names, the parents' too, without code: a study knows its runs by it."""
    fingerprint: str
    """Hash of all of this: the name of the stage's folder."""
    folder: Path


def plan_stages(
    config: DictConfig,
    *,
    elsewhere: Mapping[str, str] | None = None,
    accept: Callable[[StagePlan], StagePlan] | None = None,
) -> dict[str, StagePlan]:
    """Every stage that the experiment needs, in order, none of which has to have run.

    ``accept`` gives the stage that is taken in the place of a planned one, before later ones are planned on top of it.
    """
    planned: dict[str, StagePlan] = {}
    for stage in config.stages:
        if needed(stage, config):
            plan = plan_stage(stage, config, planned, elsewhere=elsewhere)
            planned[stage] = accept(plan) if accept else plan
    return planned


def plan_stage(
    stage: str, config: DictConfig, earlier: Mapping[str, StagePlan], *, elsewhere: Mapping[str, str] | None = None
) -> StagePlan:
    """Plan ``stage`` on top of the ``earlier`` ones.

    ``elsewhere``: hashes of what the configuration names, by name, where they are not to be read on this machine.
    """
    relevant = relevant_config(stage, config)
    above = {name: earlier[name] for name in parents(stage, config) if name in earlier}
    files = file_hashes(relevant, elsewhere or {})
    chosen = {"config": _with_contents(with_current_targets(relevant), files)}
    settings = fingerprint(chosen | {"parents": {name: plan.settings for name, plan in above.items()}})
    content = {
        "config": relevant,
        "parents": {name: plan.fingerprint for name, plan in above.items()},
        "files": files,
        "code": code_hashes(relevant, [DRIVERS[stage]]),
    }
    mark = fingerprint(content)
    folder = Path(config.output_dir) / "stages" / stage / mark
    return StagePlan(name=stage, **content, settings=settings, fingerprint=mark, folder=folder)


def needed(stage: str, config: DictConfig) -> bool:
    """False for the critic stage where GRPO takes all its critics from checkpoints."""
    given = "grpo" in config.stages and any(critic_checkpoints(config.reward)) and not open_critics(config)
    return not (stage == "critic" and given)


def parents(stage: str, config: DictConfig) -> list[str]:
    """The stages of this experiment whose results ``stage`` uses."""
    earlier = list(config.stages)[: list(config.stages).index(stage)]
    start = ("warm_start",) if teaches(config) else ()
    wanted = {
        "warm_start": (),
        "critic": (),
        "grpo": (*start, *(("critic",) if open_critics(config) else ())),
        "evaluate": (*start, "grpo"),
    }[stage]
    return [name for name in wanted if name in earlier]


def values_from_parents(stage: str, config: DictConfig, folders: Mapping[str, Path]) -> dict[str, Any]:
    """The values, by dotted path, that finished stages give to the configuration of ``stage``."""
    values: dict[str, Any] = {}
    if teaches(config) and stage in ("grpo", "evaluate") and "warm_start" in folders:
        values |= {"policy.pretrained": str(folders["warm_start"] / POLICY)}
    if stage == "grpo" and "critic" in folders:
        values |= {f"{path}.checkpoint": str(folders["critic"] / CRITIC) for path in open_critics(config)}
    return values


def changed_since(plan: StagePlan) -> list[str]:
    """What of the plan's files, and of its code that is not loaded yet, has changed since it was planned."""
    files = file_hashes(plan.config, {})
    code = code_hashes(plan.config, [DRIVERS[plan.name]])
    changed = [name for name in plan.files.keys() | files.keys() if plan.files.get(name) != files.get(name)]
    late = {module for module in plan.code.keys() | code.keys() if module not in sys.modules}
    return sorted(changed) + sorted(module for module in late if plan.code.get(module) != code.get(module))


def relevant_config(stage: str, config: DictConfig) -> dict[str, Any]:
    """What decides the stage's result, interpolations resolved."""
    parts = {key: _with_dtype(plain(config[key])) for key in KEYS[stage].split()}
    return parts | {
        "trainer": {key: plain(config.trainer[key]) for key in NUMERICS},
        "budget": plain(config.budget[stage]),
    }


def _with_dtype(node: Any) -> Any:
    """A copy in which each ``compute_dtype: auto`` is what this machine makes of it, for it changes the result."""
    if isinstance(node, Mapping):
        return {
            key: _native_dtype() if (key, value) == ("compute_dtype", "auto") else _with_dtype(value)
            for key, value in node.items()
        }
    return [_with_dtype(value) for value in node] if isinstance(node, list) else node


def _native_dtype() -> str:
    from contrastive_reasoning.policies.load import native_dtype  # imports torch, and a typo is answered before that

    return native_dtype()


def plain(value: Any) -> Any:
    """Dictionaries, lists and scalars, interpolations resolved."""
    return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value


def file_hashes(relevant: Mapping[str, Any], elsewhere: Mapping[str, str]) -> dict[str, str]:
    """Name → hash of what the configuration only names: policies, critics, problems; names of the hub have none."""
    hashes: dict[str, str] = {}
    for key, name in sorted({*named_things(relevant)}, key=lambda one: -NAMING[one[0]]):  # in both ways: read whole
        if name in elsewhere:
            hashes[name] = elsewhere[name]
        elif (path := _local(name)) is not None:
            hashes[name] = content_hash(path, stride=NAMING[key])
    return hashes


def named_things(node: Any) -> Iterator[tuple[str, str]]:
    """Key and value, of everything in a configuration that may be a path."""
    if isinstance(node, Mapping):
        yield from ((key, value) for key, value in node.items() if key in NAMING and isinstance(value, str))
        node = list(node.values())
    if isinstance(node, list):
        for value in node:
            yield from named_things(value)


def _with_contents(node: Any, files: Mapping[str, str]) -> Any:
    """A copy of a configuration in which what lies at a path stands in the place of the path."""
    if isinstance(node, Mapping):
        return {
            key: files.get(value, value) if key in NAMING and isinstance(value, str) else _with_contents(value, files)
            for key, value in node.items()
        }
    return [_with_contents(value, files) for value in node] if isinstance(node, list) else node


def _local(name: str) -> Path | None:
    """Where a named thing lies on this machine; None for a name on the hub."""
    from contrastive_reasoning.policies.load import resolve  # imports torch, and a typo is answered before that

    try:
        path = Path(resolve(name)) if name.startswith(EMBEDDED) else Path(name).expanduser()
    except (ValueError, OSError) as error:
        raise AssemblyError(str(error)) from error
    return path if path.exists() else None
