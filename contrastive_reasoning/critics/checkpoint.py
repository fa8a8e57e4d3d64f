"""A critic on disk: ``critic.safetensors`` with trained weights, ``critic.json`` with its class and configuration.

Frozen weights, such as those of a language model under adapters, are left out; building the critic loads them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

WEIGHTS, DESCRIPTION = "critic.safetensors", "critic.json"


def save_critic(critic: nn.Module, folder: str | Path, config: Mapping[str, Any]) -> None:
    """Writes the critic's trained weights and buffers, its class and the configuration that it was built from.

    The folder is created if absent; a critic in it is replaced.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    frozen = {name for name, parameter in critic.named_parameters() if not parameter.requires_grad}
    state = critic.state_dict()
    # contiguous, because safetensors refuses a view such as a transpose
    kept = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items() if name not in frozen}
    save_file(kept, folder / WEIGHTS)
    description = {"class": _class_name(critic), "config": config, "frozen": sorted(frozen & state.keys())}
    (folder / DESCRIPTION).write_text(json.dumps(description, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def load_critic_weights(critic: nn.Module, folder: str | Path) -> None:
    """Loads the weights of a saved critic into a critic that was built from the same configuration.

    Raises ValueError, in one sentence that names the first cause: no critic in the folder, files that are damaged or of
    another kind, a critic of another class, or weights that are missing, unexpected or of another shape.
    """
    folder = Path(folder).expanduser()
    for name in (WEIGHTS, DESCRIPTION):
        if not (folder / name).is_file():
            raise ValueError(f"no critic in {folder}: {name} is missing")
    description = read_description(folder)
    if description["class"] != _class_name(critic):
        raise ValueError(f"the critic in {folder} is a {description['class']}, expected a {_class_name(critic)}")
    try:
        weights = load_file(folder / WEIGHTS)
    except SafetensorError as error:
        raise ValueError(f"the critic in {folder} cannot be read: {WEIGHTS} holds no weights ({error})") from error
    own, frozen = critic.state_dict(), set(description["frozen"])
    if missing := sorted(own.keys() - weights.keys() - frozen):
        raise ValueError(f"the critic in {folder} has no weights for {missing[0]} ({len(missing)} missing)")
    if unknown := sorted((weights.keys() | frozen) - own.keys()):
        raise ValueError(f"the critic in {folder} has {len(unknown)} weights that this one does not have: {unknown[0]}")
    for name, tensor in weights.items():
        if tensor.shape != own[name].shape:
            shapes = f"{tuple(tensor.shape)}, expected {tuple(own[name].shape)}"
            raise ValueError(f"the critic in {folder} has {name} of shape {shapes}")
    critic.load_state_dict(weights, strict=False)  # the frozen weights are absent; all else was compared above


def read_description(folder: Path) -> dict[str, Any]:
    """Returns the class, configuration and names of frozen weights of a saved critic, as ``save_critic`` wrote them.

    Raises ValueError for a file that is not JSON or lacks the class or the names of frozen weights.
    """
    try:
        description = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the critic in {folder} cannot be read: {DESCRIPTION} is not JSON ({error})") from error
    known = isinstance(description, dict) and isinstance(description.get("class"), str)
    frozen = description.get("frozen") if known else None
    if not isinstance(frozen, list) or not all(isinstance(name, str) for name in frozen):
        raise ValueError(f"the critic in {folder} cannot be read: {DESCRIPTION} must name its class and what is frozen")
    return description


def _class_name(critic: nn.Module) -> str:
    return f"{type(critic).__module__}.{type(critic).__qualname__}"
