"""Checks the files of the policy's weights, and the vLLM server that draws its rollouts, before the first stage runs.

No weights are loaded: headers and sizes are compared, and the fields of the model's configuration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from safetensors import SafetensorError, safe_open

from contrastive_reasoning.policies.load import resolve
from contrastive_reasoning.rollout.vllm import VLLMEngine
from contrastive_reasoning.rollout.vllm_client import architecture_of, on_first_rank
from experiments.assemble import AssemblyError, build
from experiments.config.known_models import ORIGIN, fetch_command, model_folder
from experiments.run_folder.reader import read_json
from experiments.system.checksums import damage
from experiments.system.terminal import first_line
from experiments.validation import unreadable_policy

ENGINES = {"grpo": "rollout.engine", "evaluate": "suite.engine"}
"""Stage → key of the engine that draws its rollouts."""
WEIGHTS, INDEX = ".safetensors", "model.safetensors.index.json"


def check_weights(config: DictConfig) -> None:
    """Checks the safetensors files of a policy in a local folder.

    Raises:
        AssemblyError: if a file is damaged or missing; the sentence names the command that fetches the model again.
    """
    pretrained = config.policy.pretrained
    if pretrained is None:
        return
    try:
        folder = Path(resolve(pretrained))
        origin = read_json(folder / ORIGIN)
        flaw = _flaw(folder, origin) if folder.is_dir() else None  # else a name on the hub
    except (ValueError, OSError) as error:
        raise AssemblyError(unreadable_policy(config, error)) from error
    if flaw is not None:
        fetched = "name" in origin and folder.resolve() == model_folder(origin["name"], config.output_dir).resolve()
        again = f"; {fetch_command(origin['name'], config.output_dir)} fetches it again" if fetched else ""
        raise AssemblyError(f"policy.pretrained={pretrained}: {flaw}{again}")


def _flaw(folder: Path, origin: Mapping[str, Any]) -> str | None:
    """Returns what is wrong with a model's files of weights, as a clause; None if nothing is.

    Args:
        folder: the folder of the model.
        origin: the record of the files that were fetched; empty if there is none.
    """
    recorded = {name: mark for name, mark in origin.get("files", {}).items() if name.endswith(WEIGHTS)}
    if flaw := damage(folder, recorded, what="file", sizes_only=True):
        return flaw
    for name in sorted(set(read_json(folder / INDEX).get("weight_map", {}).values())):
        if not (folder / name).is_file():
            return f"{name} is missing"
    for file in sorted(folder.glob(f"*{WEIGHTS}")):
        try:
            with safe_open(str(file), framework="pt"):  # compares the header with the size of the file
                pass
        except (SafetensorError, OSError) as error:
            return f"{file.name} is damaged ({first_line(error)})"
    return None


def check_server(config: DictConfig, stages: Iterable[str]) -> None:
    """Compares the policy with the model of each vLLM server from which these stages draw rollouts.

    Raises:
        AssemblyError: if an engine rejects its arguments.
        ServerError: on every rank, if a server serves another model, cannot be reached or cannot report its model.
    """
    engines = [build(config, ENGINES[stage]) for stage in stages if stage in ENGINES]
    served = {engine.server.url: engine.served for engine in engines if isinstance(engine, VLLMEngine)}
    if not served:
        return
    policy = config.policy
    size = build(config, "policy.architecture") if policy.pretrained is None else None
    ours = architecture_of(policy.pretrained, size, trust_remote_code=policy.trust_remote_code)
    for model in served.values():
        on_first_rank(partial(model.check_model, ours))
