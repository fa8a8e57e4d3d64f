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

from contrastive_reasoning.policies.load import read_model_config, resolve
from contrastive_reasoning.policies.tiny import TinyArchitecture
from contrastive_reasoning.rollout.requests import ServerError
from experiments.assemble import AssemblyError, build
from experiments.config.composition import trains_warm_start
from experiments.config.known_models import ORIGIN, fetch_command, model_folder
from experiments.run_folder.reader import read_json
from experiments.system.checksums import damage
from experiments.system.terminal import first_line
from experiments.validation import unreadable_policy

ENGINES = {"grpo": "rollout.engine", "evaluate": "suite.engine"}
"""Stage → key of the engine that draws its rollouts."""
POLICY, WEIGHTS = "policy", ".safetensors"
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
"""The files that transformers reads: all weights in one file, or the index of several."""


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
    if flaw is None:
        return
    name = origin.get("name")
    if name is not None and folder.resolve() == model_folder(name, config.output_dir).resolve():
        flaw += f"; {fetch_command(name, config.output_dir, revision=origin.get('revision'))} fetches it again"
    raise AssemblyError(f"policy.pretrained={pretrained}: {flaw}")


def check_policy(config: DictConfig, stages: Iterable[str]) -> None:
    """Loads and discards a pretrained policy if the first of these stages does not load it, but a later one does.

    Raises:
        AssemblyError: if it cannot be loaded, for example because its family is not supported.
    """
    first, *later = [stage for stage in stages if stage != "warm_start" or trains_warm_start(config)] or [None]
    if config.policy.pretrained is not None and first == "critic" and later:
        build(config, POLICY)


def _flaw(folder: Path, origin: Mapping[str, Any]) -> str | None:
    """Returns what is wrong with a model's files of weights, as a clause; None if nothing is.

    Args:
        folder: the folder of the model.
        origin: the record of the files that were fetched; empty if there is none.
    """
    recorded = {name: mark for name, mark in origin.get("files", {}).items() if name.endswith(WEIGHTS)}
    if flaw := damage(folder, recorded, what="file", sizes_only=True):
        return flaw
    single = (folder / SINGLE).is_file()  # transformers then ignores the index
    for name in [SINGLE] if single else sorted(set(read_json(folder / INDEX).get("weight_map", {}).values())):
        if not (folder / name).is_file():
            return f"{name} is missing"
        try:
            with safe_open(str(folder / name), framework="pt"):  # compares the header with the size of the file
                pass
        except (SafetensorError, OSError) as error:
            return f"{name} is damaged ({first_line(error)})"
    return None


def check_server(config: DictConfig, stages: Iterable[str]) -> None:
    """Compares the policy, and how it draws, with each vLLM server from which these stages draw rollouts.

    Raises:
        AssemblyError: on every rank, if an engine rejects its arguments, or a server serves another model, computes
            other log-probs, asks for another key, cannot be reached or cannot report its model.
    """
    engines = {stage: build(config, ENGINES[stage]) for stage in stages if stage in ENGINES}
    served = {stage: engine for stage, engine in engines.items() if hasattr(engine, "served")}
    if not served:
        return
    from contrastive_reasoning.rollout.vllm_client import check_log_probs, on_first_rank

    ours = architecture_of(config)
    try:
        for stage, engine in served.items():
            on_first_rank(engine.served.server.check_key)
            report = on_first_rank(partial(engine.served.check_model, ours))
            if stage == "grpo":
                check_log_probs(report.logprobs_mode, build(config, "rollout.sampling"))
    except ServerError as error:
        raise AssemblyError(str(error)) from error


def architecture_of(config: DictConfig) -> dict[str, Any]:
    """Returns the ``architecture`` of the policy before it is loaded: from its config, or from a fresh one's sizes.

    That of a fresh policy has no vocabulary size, as its tokenizer is trained later.
    """
    from contrastive_reasoning.rollout.vllm_server.weight_sync import architecture

    policy = config.policy
    if policy.pretrained is not None:
        read = read_model_config(policy.pretrained, trust_remote_code=policy.trust_remote_code)
        return architecture(read.get_text_config())
    size: TinyArchitecture = build(config, "policy.architecture")
    return {
        "model_type": size.kind,
        "hidden_size": size.hidden_size,
        "intermediate_size": size.intermediate_size,
        "num_hidden_layers": size.layers,
        "num_attention_heads": size.heads,
        "num_key_value_heads": size.key_value_heads,
    }
