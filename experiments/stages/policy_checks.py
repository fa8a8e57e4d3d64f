"""Checks the policy before it is loaded: the length of its prompts, its files of weights, the model of a vLLM server.

No weights are loaded: headers and sizes are compared, and the fields of the model's configuration.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from huggingface_hub.errors import LocalEntryNotFoundError
from omegaconf import DictConfig, OmegaConf
from safetensors import SafetensorError, safe_open

from contrastive_reasoning.policies.load import read_model_config, resolve, tokenizer_and_context
from contrastive_reasoning.policies.prompting import NO_SYSTEM, check_system, prompt_ids
from contrastive_reasoning.policies.tiny import TinyArchitecture
from contrastive_reasoning.rollout.requests import ServerError
from contrastive_reasoning.tasks.base import Problem, Split, Task
from experiments.assemble import AssemblyError, build
from experiments.config.composition import trains_warm_start
from experiments.config.known_models import HUB_NAME, ORIGIN, fetch_command, model_folder
from experiments.config.stages import STAGES
from experiments.run_folder.reader import read_json
from experiments.system.checksums import damage
from experiments.system.terminal import first_line, one_line

TRIED_PROMPTS = 32
"""Prompts per split whose length is checked here; the engine checks every prompt that it reads."""
WEIGHTS = ".safetensors"
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
"""The files that transformers reads: all weights in one file, or the index of several."""


def check_prompts_fit(config: DictConfig) -> None:
    """Checks the length of the first prompts of each split against the policy's context, with the tokenizer alone.

    Raises:
        AssemblyError: if a prompt leaves no tokens for a completion, if every training prompt is above the limit on
            their length, or if the task cannot load its problems.
    """
    problems: list[Problem] = []
    training: Sequence[Problem] = ()
    for where, task, split in _tasks_in_use(config):
        try:
            found = task.problems(split)
        except (ValueError, OSError) as error:
            raise AssemblyError(f"{where}: {error}") from error
        problems += found[:TRIED_PROMPTS]
        training = found if (where, split) == ("task", "train") else training
    policy = config.policy
    if policy.pretrained is None:
        return
    try:
        tokenizer, context = tokenizer_and_context(policy.pretrained, trust_remote_code=policy.trust_remote_code)
    except (ValueError, OSError) as error:
        raise AssemblyError(unreadable_policy(config, error)) from error
    rendering = {"chat_template": policy.chat_template, "system": policy.get("system", NO_SYSTEM)}
    try:
        check_system(tokenizer, **rendering)
    except ValueError as error:
        raise AssemblyError(str(error)) from error

    def length_of(problem: Problem) -> int:
        try:
            return len(prompt_ids(tokenizer, problem.prompt, **rendering))
        except ValueError as error:
            raise AssemblyError(str(error)) from error

    for problem in problems:
        if (length := length_of(problem)) >= context:
            raise AssemblyError(
                f"policy.pretrained={policy.pretrained}: the prompt of problem {problem.id} has {length} tokens, "
                f"which leaves none for a completion: the policy's context is {context} tokens; choose one with a "
                "longer context (scale=workstation, gpu or paper, or policy.pretrained)"
            )
    limit = OmegaConf.select(config, "prompts.max_prompt_tokens")
    if training and isinstance(limit, int) and all(length_of(problem) > limit for problem in training):
        raise AssemblyError(
            f"prompts.max_prompt_tokens={limit}: each of the {len(training)} training prompts is longer, the first one "
            f"has {length_of(training[0])} tokens"
        )


def _tasks_in_use(config: DictConfig) -> Iterator[tuple[str, Task, Split]]:
    """Yields (key, task, split) of every task that a stage reads."""
    if "grpo" in config.stages:
        task: Task = build(config, "task")
        yield "task", task, "train"
        yield "task", task, "validation"
    if "evaluate" in config.stages and "sets" in config.suite:
        for name, task in build(config, "suite.sets").items():
            yield f"suite.sets, {name}", task, "test"
    elif "evaluate" in config.stages:
        for name in map(str, config.suite.settings):
            split = config.suite.settings[name].get("split", "test")
            yield f"suite.settings.{name}.task", build(config, f"suite.settings.{name}.task"), split


def unreadable_policy(config: DictConfig, error: BaseException) -> str:
    """Returns one sentence on a policy that cannot be read, with the library's own reason."""
    pretrained, message = config.policy.pretrained, one_line(error)
    if isinstance(error.__cause__, LocalEntryNotFoundError):
        while error.__cause__ is not None:
            error = error.__cause__
        message = f"the hub cannot be reached ({one_line(error)})"
        if HUB_NAME.fullmatch(pretrained):
            message += (
                f"; with a network, {fetch_command(pretrained, config.output_dir)} puts the model into "
                f"{model_folder(pretrained, config.output_dir)}: set policy.pretrained to that folder"
            )
    return message if message.startswith("policy.") else f"policy.pretrained={pretrained}: {message}"


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
        build(config, "policy")


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
    engines = {stage: build(config, key) for stage in stages if (key := STAGES[stage].engine) is not None}
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
