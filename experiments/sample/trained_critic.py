"""A trained critic from its folder, whatever the configuration at hand. The folder is data: it names parts of ours."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from contrastive_reasoning.critics.checkpoint import DESCRIPTION, read_description
from contrastive_reasoning.rewards import CriticReward, VerifierReward
from experiments.assemble import build
from experiments.run_folder import read_config, stage_folders
from experiments.sample.options import SampleError
from experiments.stages.plan import CRITIC

CRITICS, ENCODER = "contrastive_reasoning.critics", "load_encoder"
PARTS = (CRITICS, "contrastive_reasoning.losses", "contrastive_reasoning.policies.pooling")
"""The rooms whose names a saved critic may be made of; of the functions of critics, which write folders too, one."""
OURS = "contrastive_reasoning."
PAIRS = 16384
"""In one forward pass."""


def trained_critic(folder: Path, config: DictConfig) -> CriticReward:
    """What values steps by the critic that lies in ``folder``, or was trained by the stage or run there.

    Args:
        folder: of the critic, of its stage, or of a run.
        config: names the task, and τ where no stage beside the critic tells with which it was trained.

    Raises:
        SampleError: no critic there, one that is made of anything but the package's own parts, or files that are
            damaged or do not fit each other.
        AssemblyError: for arguments that its class refuses.
    """
    place = next((path for path in _places(folder) if (path / DESCRIPTION).is_file()), None)
    if place is None:
        raise SampleError(f"critic={folder}: no critic there ({DESCRIPTION} is missing)")
    try:
        made_of = read_description(place).get("config")
        if foreign := next(foreign_parts(made_of), None):
            raise SampleError(f"critic={folder}: {DESCRIPTION} names {foreign}, which is no part of a critic")
        loss = read_config(place.parent).get("loss", config.loss)
        return CriticReward(
            outcome=VerifierReward(task=build(config, "task")),
            task=build(config, "task"),
            critic=build(OmegaConf.create({"critic": made_of}), "critic"),
            checkpoint=str(place),
            weight=0.0,
            temperature=float(loss["temperature"]),
            batch_size=PAIRS,
        )
    except ValueError as error:
        raise SampleError(str(error)) from error


def foreign_parts(node: Any) -> Iterator[str]:
    """Whatever would call or load more than the package's own parts when the node is built."""
    if isinstance(node, dict):
        target = node.get("_target_")
        if target is not None and not _is_part(str(target)):
            yield str(target)
        if node.get("trust_remote_code"):
            yield "trust_remote_code"
    for inner in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from foreign_parts(inner)


def _is_part(target: str) -> bool:
    """Whether it names what a room of ``PARTS`` made itself: they hold others' functions too, as ``import_module``."""
    room, _, name = target.rpartition(".")
    found = getattr(import_module(room), name, None) if room in PARTS else None
    made_here = str(getattr(found, "__module__", "")).startswith(OURS)
    return made_here and (isinstance(found, type) or room != CRITICS or name == ENCODER)


def _places(folder: Path) -> Iterator[Path]:
    yield folder
    yield folder / CRITIC
    yield from (place / CRITIC for stage, place, _ in stage_folders(folder) if stage == CRITIC)
