"""Checks that the parts of a configuration fit together, before the first stage runs.

The checks import classes and load tokenizers and problems, but build no policy, reward or critic. Checks that need the
configuration alone are in ``experiments.config.contradictions``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

import torch
from huggingface_hub.errors import LocalEntryNotFoundError
from omegaconf import DictConfig, OmegaConf

from contrastive_reasoning.advantages import Potential, TrustGate
from contrastive_reasoning.advantages.base import layers
from contrastive_reasoning.advantages.trust_gate import refuse_stale_trust
from contrastive_reasoning.critics.ensemble import EnsembleCritic
from contrastive_reasoning.policies.load import tokenizer_and_context
from contrastive_reasoning.policies.prompting import NO_SYSTEM, check_system, prompt_ids
from contrastive_reasoning.rewards.base import Credit, StepCredit
from contrastive_reasoning.rewards.calibrated import CalibratedReward
from contrastive_reasoning.rewards.critic import INNER
from contrastive_reasoning.tasks.base import Problem, Split, Task, Verdict
from experiments.assemble import AssemblyError, build
from experiments.config.composition import critic_checkpoints, reward_parts
from experiments.config.folders import is_ours
from experiments.config.known_models import HUB_NAME, fetch_command, model_folder
from experiments.system.terminal import one_line

TRIED_PROMPTS = 32
"""Prompts per split whose length is checked here; the engine checks every prompt that it reads."""


def check_credit_fits(config: DictConfig) -> None:
    """Checks that the advantage accepts the credit of the reward, and the reward the rollouts.

    The advantage is called with dummy credit of the kind that the reward gives.

    Raises:
        AssemblyError: if parts do not fit; the sentence names what to choose instead.
    """
    nodes = dict(reward_parts(config.reward))
    kinds = {path: _class_of(node) for path, node in nodes.items()}

    def having(attribute: str) -> list[str]:
        return [path for path, kind in kinds.items() if getattr(kind, attribute, False)]

    valuing = having("values_steps")
    # a user's own class is assumed to give verdicts, since its credit is unknown here
    verifies = any(getattr(kind, "verifies", not is_ours(kind.__module__)) for kind in kinds.values())
    credit = _made_up_credit(nodes, kinds, valuing, verifies=verifies)
    for path, kind in kinds.items():
        calibrates = isinstance(kind, type) and issubclass(kind, CalibratedReward)
        if calibrates and not hasattr(_class_of(nodes[path].source), "state_logits"):
            raise AssemblyError(
                f"{path}: source must have logits of states, as reward=critic, oracle and oracle_flipped have, got "
                f"{_class_of(nodes[path].source).__name__}"
            )
    advantages = [*layers(build(config, "advantage"))]
    # each layer is called: a gate calls its inner advantage only after it trusts the critic
    for advantage in advantages:
        try:
            advantage(credit, torch.ones(2, 1, dtype=torch.bool), 2)
        except ValueError as error:
            raise AssemblyError(f"advantage: {error}") from error
    judging = [kind for kind in (*kinds.values(), *map(type, advantages)) if getattr(kind, "reads_verdicts", False)]
    if judging and not verifies:
        raise AssemblyError(f"reward: none of its parts verifies, but {judging[0].__name__} judges values by verdicts")
    adding = [path for path in valuing if nodes[path].get("weight")]
    if adding and any(isinstance(advantage, TrustGate) for advantage in advantages):
        raise AssemblyError(
            f"advantage: a trust gate closes the credit of steps alone, and {adding[0]}.weight adds their values to "
            f"the outcome, which stays open: use {adding[0]}.weight=0 or an advantage without a gate"
        )
    if adding and any(isinstance(advantage, Potential) and advantage.weight == 1 for advantage in advantages):
        raise AssemblyError(
            f"advantage: a potential of weight 1 takes nothing of the outcome, to which {adding[0]}.weight adds "
            f"values: use {adding[0]}.weight=0 or an advantage with a smaller weight"
        )
    rollouts = _class_of(config.rollout)
    if (fitted := having("reads_all_groups")) and getattr(rollouts, "keeps_what_differs", False):
        raise AssemblyError(
            f"rollout: keeps the groups that differ, and {kinds[fitted[0]].__name__} learns chances of success from "
            "all of them: use rollout=engine"
        )
    if (reading := having("reads_prefix_values")) and not getattr(rollouts, "values_prefixes", False):
        raise AssemblyError(
            f"reward: {kinds[reading[0]].__name__} reads values drawn with the rollouts: use rollout=vineppo"
        )


def _made_up_credit(
    nodes: Mapping[str, DictConfig], kinds: Mapping[str, Any], valuing: Sequence[str], *, verifies: bool
) -> Credit:
    """Builds dummy credit of two rollouts, as these parts of a reward give it; ``valuing``: parts that value steps."""
    starts = any(
        critic_values_states(nodes[path].critic)
        if "critic" in nodes[path]
        else getattr(kinds[path], "values_starts", False)
        for path in valuing
    )
    step = StepCredit(0, 0, 0.5, depth=2)
    return Credit(
        outcome=torch.zeros(2),
        parts={kinds[path].__name__: torch.zeros(2) for path in valuing or [*kinds][:1]},
        steps=[[step], [step]] if valuing else None,
        starts=[0.5, 0.5] if starts else None,
        metrics={"steps/return": 0.5} if valuing else {},
        verdicts=[Verdict(status="wrong", reason="")] * 2 if verifies else None,
    )


def _class_of(node: DictConfig) -> Any:
    """Imports the class of a node's ``_target_``."""
    module, _, name = str(node._target_).rpartition(".")
    return getattr(import_module(module), name)


def critic_values_states(critic: DictConfig) -> bool:
    """Whether the critic of this node reads states alone. The critic is not built.

    For an ensemble, the answer for its member is returned.
    """
    found = getattr(_class_of(critic), "values_states", False)
    return critic_values_states(critic.member) if isinstance(found, property) else bool(found)


def check_online(config: DictConfig) -> None:
    """Checks the settings of the online critic, and that the reward has one critic that it can train.

    Raises:
        AssemblyError: if not; the sentence names what to choose instead.
    """
    online = build(config, "online")
    if "lessons" not in config.online:
        return
    if "refresh_every" in config.online:
        try:
            refuse_stale_trust(build(config, "advantage"), online.refresh_every)
        except ValueError as error:
            raise AssemblyError(f"online: {error}") from error
    critics = [path for path, _ in critic_checkpoints(config.reward)]
    if len(critics) != 1:
        raise AssemblyError(f"online: trains the one critic of the reward, which has {len(critics)}: use reward=critic")
    path, node = critics[0], OmegaConf.select(config, f"{critics[0]}.critic")
    kind = _class_of(node)
    if issubclass(kind, EnsembleCritic):
        raise AssemblyError(
            f"online: trains one critic, and the members of an {kind.__name__} learn each from its own draws: "
            "use critic=joint or critic=numeric_v2, or online=none"
        )
    if not critic_values_states(node):
        raise AssemblyError(
            f"online: trains critics that read states, {kind.__name__} reads more: use critic=joint or "
            "critic=numeric_v2, or online=none"
        )
    keys = path.split(".")
    for depth in range(1, len(keys)):
        if keys[depth] not in (*INNER, "rewards") and keys[depth - 1] != "rewards":
            hiding = _class_of(OmegaConf.select(config, ".".join(keys[:depth])))
            raise AssemblyError(
                f"online: finds no critic within {hiding.__name__}, which holds it under a name other than "
                f"{', '.join(INNER)} or rewards: use reward=critic, or online=none"
            )


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
                f"which leaves none for a completion: the policy's context is {context} tokens"
            )
    limit = OmegaConf.select(config, "prompts.max_prompt_tokens")
    if training and isinstance(limit, int) and all(length_of(problem) > limit for problem in training):
        raise AssemblyError(
            f"prompts.max_prompt_tokens={limit}: each of the {len(training)} training prompts is longer, the first one "
            f"has {length_of(training[0])} tokens"
        )


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
