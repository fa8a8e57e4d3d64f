"""What a stage is about to do, and whether it was done before: its relevant configuration, parents and fingerprint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from experiments.assemble import AssemblyError
from experiments.config.composition import open_critics
from experiments.config.folders import EMBEDDED
from experiments.stages.code_hash import own_files, versions
from experiments.system.checksums import BLOCK, STRIDE, content_hash, fingerprint

POLICY, CRITIC = "policy", "critic"
"""The folders in which a stage leaves what later stages need."""
KEYS = {
    "warm_start": ("seed", "policy", "warm_start"),
    "critic": ("seed", "task", "critic", "loss", "datamodule", "pretraining"),
    "grpo": (
        "seed",
        "policy",
        "prompts",
        "rollout",
        "online",
        "objective",
        "correction",
        "advantage",
        "reward",
        "optimizer",
        "module",
    ),
    "evaluate": ("seed", "policy", "suite"),
}
"""Of the configuration, what decides the result of each stage; ``budget.<stage>`` and the numerics are added."""
NUMERICS = ("accelerator", "devices", "num_nodes", "strategy", "precision")
"""Of the trainer, what decides the result."""


@dataclass(frozen=True, kw_only=True)
class StagePlan:
    """One stage of one experiment, before it runs."""

    name: str
    config: Mapping[str, Any]
    """Its relevant part of the configuration, resolved."""
    parents: Mapping[str, str]
    """Stage → fingerprint of what it builds on."""
    versions: Mapping[str, int]
    """Module or room → version, of the code it uses."""
    files: Mapping[str, str]
    """Name in the configuration → hash of what lies there."""
    fingerprint: str
    folder: Path


def plan_stage(
    stage: str,
    config: DictConfig,
    finished: Mapping[str, StagePlan],
    *,
    elsewhere: Mapping[str, str] | None = None,
) -> StagePlan:
    """Plan ``stage`` on top of the stages that have finished.

    Args:
        stage: its name.
        config: of the experiment.
        finished: what it may stand on.
        elsewhere: hashes of what the configuration names and is not on this machine, to tell the stage's fingerprint.
    """
    relevant = relevant_config(stage, config)
    above = {name: finished[name].fingerprint for name in parents(stage, config) if name in finished}
    used = versions(relevant)
    content = {"config": relevant, "parents": above, "versions": used, "files": file_hashes(relevant, elsewhere or {})}
    mark = fingerprint(content)
    folder = Path(config.output_dir) / "stages" / stage / mark
    return StagePlan(name=stage, **content, fingerprint=mark, folder=folder)


def changed_files(plan: StagePlan) -> list[str]:
    """What of ``plan.files`` is not as it was when the stage was planned, which may be hours ago."""
    now = file_hashes(plan.config, {})
    return sorted(name for name in plan.files.keys() | now.keys() if plan.files.get(name) != now.get(name))


def relevant_config(stage: str, config: DictConfig) -> dict[str, Any]:
    """What decides the stage's result, interpolations resolved."""
    trainer = {key: plain(config.trainer[key]) for key in NUMERICS}
    budget = plain(config.budget[stage])
    return {key: plain(config[key]) for key in KEYS[stage]} | {"trainer": trainer, "budget": budget}


def plain(value: Any) -> Any:
    """Dictionaries, lists and scalars, interpolations resolved."""
    return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value


NAMING = {"pretrained": STRIDE, "checkpoint": STRIDE, "train_file": BLOCK, "longproc_dir": BLOCK, "path": BLOCK}
"""Keys whose value may be a path: what lies there decides the result, not only its name. Data sets are read whole."""


def file_hashes(relevant: Mapping[str, Any], elsewhere: Mapping[str, str]) -> dict[str, str]:
    """Name → hash of what the configuration only names: policies, critics, problems, code of one's own.

    Of what is not on this machine as ``elsewhere`` says.
    """
    found = {(name, _local(name), NAMING[key]) for key, name in named_things(relevant)}
    ordered = sorted(found, key=lambda one: (one[0], -one[2]))  # named in both ways it is read whole
    named = {name: content_hash(path, stride=stride) for name, path, stride in ordered if path is not None}
    named |= {name: elsewhere[name] for name, path, _ in ordered if path is None and name in elsewhere}
    return named | {target: content_hash(path, stride=BLOCK) for target, path in own_files(relevant).items()}


def named_things(node: Any) -> Iterator[tuple[str, str]]:
    """Key and value, of everything in a configuration that may be a path."""
    if isinstance(node, Mapping):
        yield from ((key, value) for key, value in node.items() if key in NAMING and isinstance(value, str))
        for value in node.values():
            yield from named_things(value)
    elif isinstance(node, list):
        for value in node:
            yield from named_things(value)


def _local(name: str) -> Path | None:
    """Where a named thing lies on this machine; None for a name on the hub."""
    from contrastive_reasoning.policies.load import resolve  # imports torch, and a typo is answered before that

    try:
        path = Path(resolve(name)) if name.startswith(EMBEDDED) else Path(name).expanduser()
    except (ValueError, OSError) as error:
        raise AssemblyError(str(error)) from error
    return path if path.exists() else None


def parents(stage: str, config: DictConfig) -> list[str]:
    """The stages of this experiment whose results ``stage`` uses."""
    earlier = list(config.stages)[: list(config.stages).index(stage)]
    wanted = {
        "warm_start": (),
        "critic": (),
        "grpo": ("warm_start", *(("critic",) if open_critics(config) else ())),
        "evaluate": ("warm_start", "grpo"),
    }[stage]
    return [name for name in wanted if name in earlier]


def filled(stage: str, config: DictConfig, folders: Mapping[str, Path]) -> dict[str, Any]:
    """The values, by dotted path, that finished stages give to the configuration of ``stage``."""
    values: dict[str, Any] = {}
    if config.policy.pretrained is None and stage in ("grpo", "evaluate") and "warm_start" in folders:
        values |= {"policy.pretrained": str(folders["warm_start"] / POLICY)}
    if stage == "grpo" and "critic" in folders:
        values |= {f"{path}.checkpoint": str(folders["critic"] / CRITIC) for path in open_critics(config)}
    return values
