"""Builds the parts of all stages before the first one runs, and checks relations that no constructor sees.

Policies, and rewards with a critic, may be large: of them only the classes are imported. A class states what its parts
need or give in attributes such as ``values_steps`` and ``reads_verdicts``. So may a user's own class.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from contrastive_reasoning.advantages.base import layers
from contrastive_reasoning.advantages.trust_gate import refuse_stale_trust
from contrastive_reasoning.critics.base import is_ensemble
from contrastive_reasoning.rewards.base import INNER, Credit, StepCredit
from contrastive_reasoning.rewards.critic import refuse_untrainable
from contrastive_reasoning.tasks.base import Verdict
from experiments.assemble import AssemblyError, build
from experiments.config.composition import critic_checkpoints, reward_parts, trains_warm_start
from experiments.config.contradictions import device_count
from experiments.config.folders import is_ours
from experiments.config.stages import STAGES, reads_policy
from experiments.config.types import argument_flaws
from experiments.stages.plan import needed
from experiments.stages.policy_checks import check_prompts_fit, check_weights
from experiments.system.terminal import first_line

WITHOUT_ACTIONS = ("annotated", "direct")
"""Styles of Countdown whose completions have no indented line of a search, so none of their lines is an action."""


def check_arguments(config: DictConfig) -> None:
    """Checks the arguments of all parts by name and type; builds nothing.

    Raises:
        AssemblyError: for the first that is unknown, missing or of another type; the message names its path.
    """
    if (flaw := next(argument_flaws(config), None)) is not None:
        raise AssemblyError(flaw)


def check_parts(config: DictConfig) -> None:
    """Builds and discards the parts of the stages except models, so that no error appears only after hours.

    A reward with a critic is skipped, because the critic may contain a large model.

    Raises:
        AssemblyError: if a part rejects its arguments or two parts do not fit together; the message names them.
    """
    build(config, "task")  # first, so that its errors are not those of a part that holds it
    for stage in (stage for stage in config.stages if builds(stage, config)):
        for key in (*STAGES[stage].light, "callbacks.every", f"callbacks.{stage}"):
            build(config, key)
        if (key := STAGES[stage].optimizer) is not None:
            optimizer = build(config, key)
            try:  # torch checks the settings only with a parameter
                optimizer([torch.nn.Parameter(torch.zeros(1))])
            except (ValueError, TypeError, IndexError) as error:
                raise AssemblyError(f"{key}: {first_line(error)}") from error
    if "grpo" in config.stages:
        check_credit_fits(config)
        if not any(True for _ in critic_checkpoints(config.reward)):
            build(config, "reward")
        check_online(config)
    if "grpo" in config.stages or "evaluate" in config.stages:
        check_prompts_fit(config)
    if reads_policy(config):
        check_weights(config)


def builds(stage: str, config: DictConfig) -> bool:
    """Whether the stage builds its parts; not if the policy or the critics are used as given.

    Raises:
        AssemblyError: if a policy has to be trained, but ``warm_start`` has no module.
    """
    if stage != "warm_start":
        return needed(stage, config)
    if trains_warm_start(config) and config.warm_start.module is None:
        if config.policy.pretrained is None:
            raise AssemblyError("policy.pretrained=null with warm_start=none: give the policy, or choose a warm_start")
        raise AssemblyError("warm_start.train=true with warm_start=none: choose what is taught, a warm_start")
    return trains_warm_start(config)


def check_credit_fits(config: DictConfig) -> None:
    """Checks that the reward fits the critic that it holds, the advantage that reads it, and the rollouts.

    Raises:
        AssemblyError: if parts do not fit; the sentence names what to choose instead.
    """
    nodes = dict(reward_parts(config.reward))
    reward = RewardParts(nodes=nodes, kinds={path: class_of(node) for path, node in nodes.items()})
    for flaws in (_critic_flaws, _advantage_flaws, _rollout_flaws):
        if (flaw := next(flaws(config, reward), None)) is not None:
            raise AssemblyError(flaw)


@dataclass(frozen=True, kw_only=True)
class RewardParts:
    """The parts of a reward by their path in the configuration; none is built."""

    nodes: dict[str, DictConfig]
    kinds: dict[str, Any]
    """The class, or function, of each."""

    def having(self, attribute: str) -> list[str]:
        return [path for path, kind in self.kinds.items() if getattr(kind, attribute, False)]

    @property
    def verifies(self) -> bool:
        """Whether any part gives verdicts. A user's own class is assumed to, since its credit is unknown here."""
        return any(getattr(kind, "verifies", not is_ours(kind.__module__)) for kind in self.kinds.values())

    def dummy_credit(self) -> Credit:
        """Returns credit of two rollouts, of the kind that these parts give."""
        valuing = self.having("values_steps")
        critics = {path: self.nodes[path].get("critic") for path in valuing}
        starts = any(
            getattr(self.kinds[path], "values_starts", False) if critic is None else critic_values_states(critic)
            for path, critic in critics.items()
        )
        step = StepCredit(0, 0, 0.5, depth=2)
        return Credit(
            outcome=torch.zeros(2),
            parts={self.kinds[path].__name__: torch.zeros(2) for path in valuing or [*self.kinds][:1]},
            steps=[[step], [step]] if valuing else None,
            starts=[0.5, 0.5] if starts else None,
            metrics={"steps/return": 0.5} if valuing else {},
            verdicts=[Verdict(status="wrong", reason="")] * 2 if self.verifies else None,
        )


def class_of(node: DictConfig) -> Any:
    """Imports what a node's ``_target_`` names."""
    return resolve_name(str(node._target_))


def critic_values_states(critic: DictConfig) -> bool:
    """Whether the critic of this node, or the members of this ensemble, read states alone. Nothing is built."""
    kind = class_of(critic)
    return critic_values_states(critic.member) if is_ensemble(kind) else bool(getattr(kind, "values_states", False))


def _critic_flaws(config: DictConfig, reward: RewardParts) -> Iterator[str]:
    for path in reward.having("reads_logits"):
        source = class_of(reward.nodes[path].source)
        if not hasattr(source, "state_logits"):
            yield (
                f"{path}: source must have logits of states, as reward=critic, oracle and oracle_flipped have, got "
                f"{source.__name__}"
            )
    style = OmegaConf.select(config, "task.style")
    for path in reward.having("reads_search_lines"):
        critic = class_of(reward.nodes[path].critic)
        if isinstance(critic, type) and not hasattr(critic, "encode_actions"):
            yield (
                f"{path}.critic: {critic.__name__} reads no lines of a search: choose critic=number_embedding or "
                "critic=text"
            )
        if style in WITHOUT_ACTIONS:
            yield (
                f"task.style={style}: no line of such a completion is an action that {path} can value, so its critic "
                "would learn nothing: choose task.style=released, or task.style=longproc with critic=text"
            )


def _advantage_flaws(config: DictConfig, reward: RewardParts) -> Iterator[str]:
    """Calls each layer with dummy credit, because a gate calls its inner advantage only once it trusts the critic."""
    advantages, credit = [*layers(build(config, "advantage"))], reward.dummy_credit()
    for advantage in advantages:
        try:
            advantage(credit, torch.ones(2, 1, dtype=torch.bool), 2)
        except ValueError as error:
            yield f"advantage: {error}"
    kinds = [*reward.kinds.values(), *map(type, advantages)]
    judging = [kind.__name__ for kind in kinds if getattr(kind, "reads_verdicts", False)]
    if judging and not reward.verifies:
        yield f"reward: none of its parts verifies, but {judging[0]} judges values by verdicts"
    adding = [path for path in reward.having("values_steps") if reward.nodes[path].get("weight")]
    for reason in filter(None, (getattr(advantage, "refuses_added_values", None) for advantage in advantages)):
        if adding:
            yield (
                f"advantage: {reason}, and {adding[0]}.weight adds values of steps to the outcome: use "
                f"{adding[0]}.weight=0 or another advantage"
            )


def _rollout_flaws(config: DictConfig, reward: RewardParts) -> Iterator[str]:
    rollouts = class_of(config.rollout)
    fitted = [reward.kinds[path] for path in reward.having("reads_all_groups")]
    if "updates" in config.online and getattr(online := class_of(config.online), "reads_all_groups", False):
        fitted.append(online)
    if fitted and getattr(rollouts, "keeps_what_differs", False):
        yield (
            f"rollout: keeps the groups that differ, and {fitted[0].__name__} learns chances of success from all of "
            "them: use rollout=engine"
        )
    if (reading := reward.having("reads_prefix_values")) and not getattr(rollouts, "values_prefixes", False):
        yield f"reward: {reward.kinds[reading[0]].__name__} reads values drawn with the rollouts: use rollout=vineppo"
    ranks = (device_count(config.trainer) or 1) * config.trainer.get("num_nodes", 1)
    served = getattr(class_of(config.rollout.engine), "draws_for_all_ranks", False)
    if ranks > 1 and served and not getattr(rollouts, "draws_once", False):
        yield (
            f"rollout: {rollouts.__name__} cannot draw from a vLLM server on {ranks} ranks, since each draws again as "
            "often as it needs, and the server draws for all together: choose rollout=vllm, an engine in the process, "
            "or trainer.devices=1"
        )


def check_online(config: DictConfig) -> None:
    """Checks the settings of the online critic, and that the reward has one critic that it can train.

    Raises:
        AssemblyError: if not; the sentence names what to choose instead.
    """
    online = build(config, "online")
    if "updates" not in config.online:
        return
    critics = [path for path, _ in critic_checkpoints(config.reward)]
    try:
        if "refresh_every" in config.online:
            refuse_stale_trust(build(config, "advantage"), online.refresh_every)
        if len(critics) != 1:
            raise ValueError(f"trains the one critic of the reward, which has {len(critics)}: use reward=critic")
        critic = OmegaConf.select(config, f"{critics[0]}.critic")
        refuse_untrainable(class_of(critic), of_states=critic_values_states(critic))
    except ValueError as error:
        raise AssemblyError(f"online: {error}, or online=none") from error
    keys = critics[0].split(".")
    for depth in range(1, len(keys)):
        if keys[depth] not in (*INNER, "rewards") and keys[depth - 1] != "rewards":
            hiding = class_of(OmegaConf.select(config, ".".join(keys[:depth])))
            raise AssemblyError(
                f"online: finds no critic within {hiding.__name__}, which holds it under a name other than "
                f"{', '.join(INNER)} or rewards: use reward=critic, or online=none"
            )
