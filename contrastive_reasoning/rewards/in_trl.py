"""A reward of this project as a reward function of TRL's ``GRPOTrainer``.

    function = RewardInTRL(reward, policy=policy, problems=task.problems("train"), group_size=8)
    GRPOTrainer(
        model=policy.model, processing_class=policy.tokenizer, train_dataset=Dataset.from_list(function.rows()),
        reward_funcs=function, callbacks=[function.checkpoints()], args=GRPOConfig(num_generations=8, …),
    )

TRL's documentation (GRPOTrainer, "Using a custom reward function") describes what it passes and expects. It takes one
number for each completion, so a reward can pass on its ``outcome`` alone: credit on single steps is refused, unless it
adds to the outcome. Hidden states, which CLIPO reads, come from a pass of ``policy.model`` over the completions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.prompting import render
from contrastive_reasoning.ranges import at_least
from contrastive_reasoning.rewards.base import Credit, Reward, TrainedReward, parts_of, reads_states
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.rollout.requests import Completions, Requests, encode, pooled_states
from contrastive_reasoning.rollout.sampling import Sampling
from contrastive_reasoning.tasks.base import Problem

STATE = "reward.pt"
"""File of a checkpoint folder of the trainer with the state of a reward that learns."""


class RewardInTRL:
    """The outcome of ``reward`` for each completion, in the form that TRL calls.

    A completion on which the reward fails gets None, which TRL leaves out. While a reward that learns is warmed up
    (``warmup_steps`` batches), all completions get 0, so that the policy does not change. Metrics of the credit are
    logged under their own names.

    Args:
        reward: a built reward.
        policy: the policy whose ``model`` is trained; its tokenizer must be the trainer's ``processing_class``.
        problems: the problems of the data set, with unique ids.
        group_size: ``num_generations`` of the trainer.
        max_batch_tokens: limit of rows · (prompt + completion) in a pass for hidden states.

    Raises ValueError for a reward whose step values have weight 0 or that needs values of prefixes, problems with equal
    ids, and a group size below 1.
    """

    def __init__(
        self,
        reward: Reward,
        *,
        policy: CausalLMPolicy,
        problems: Sequence[Problem],
        group_size: int,
        max_batch_tokens: int = 65_536,
    ) -> None:
        at_least(1, group_size=group_size)
        self.__name__ = type(reward).__name__  # TRL logs the function under it
        parts = [*parts_of(reward)]
        if any(getattr(part, "reads_prefix_values", False) for part in parts):
            raise ValueError(f"{self.__name__} needs values of prefixes, which TRL does not sample")
        valuing = [part for part in parts if getattr(part, "values_steps", False)]
        if valuing and not any(getattr(part, "weight", 0.0) for part in valuing):
            raise ValueError(
                f"{self.__name__} gives its values to single steps (weight 0), and TRL takes one number for each "
                "completion: set reward.weight, which adds their mean to the outcome"
            )
        self.problems = {problem.id: problem for problem in problems}
        if len(self.problems) < len(problems):
            raise ValueError("problems have equal ids: TRL's rows are matched to problems by their id")
        self.reward = reward
        self.policy = policy
        self.group_size = group_size
        self.max_batch_tokens = max_batch_tokens
        self.calls = 0
        """Number of training batches rewarded so far."""

    def rows(self) -> list[dict[str, str]]:
        """Returns the problems as rows of a data set for TRL: ``id``, and ``prompt`` as text that is encoded as here.

        Raises ValueError for a prompt that the tokenizer would encode in another way, for example because it quotes a
        special token.
        """
        return [{"prompt": self._prompt(problem), "id": name} for name, problem in self.problems.items()]

    def _prompt(self, problem: Problem) -> str:
        policy, tokenizer = self.policy, self.policy.tokenizer
        text = render(tokenizer, problem.prompt, chat_template=policy.chat_template, system=policy.system)
        ids, start = policy.prompt_ids(problem.prompt), str(tokenizer.bos_token)
        # a template may write the beginning-of-text token that the tokenizer adds again, or only we may add it
        for written in (text, text.removeprefix(start), start + text):
            if tokenizer(written)["input_ids"] == ids:
                return written
        raise ValueError(f"problem {problem.id}: TRL would encode its prompt in another way than this project")

    def __call__(
        self,
        *,
        completion_ids: Sequence[Sequence[int]],
        id: Sequence[str],
        log_metric: Callable[[str, float], None] | None = None,
        **_: Any,
    ) -> list[float | None]:
        """Returns one number for each completion, None where the reward failed.

        Raises ValueError if the rows are no whole groups of known problems, or a reward that learns is used for
        evaluation, from which it would learn, too.
        """
        learning = self.reward if isinstance(self.reward, TrainedReward) else None
        if learning and not self.policy.model.training:
            raise ValueError(
                f"{self.__name__} learns from every batch that it rewards, so it cannot be used for evaluation: set "
                "eval_strategy='no'"
            )
        credit = self.credit(id, completion_ids)
        self.calls += 1
        if log_metric is not None:
            parts = {f"reward/{name}": part.float().mean().item() for name, part in credit.parts.items()}
            for name, value in {**parts, **credit.metrics}.items():
                log_metric(name, value)
        if learning and self.calls <= learning.warmup_steps:
            return [0.0] * len(completion_ids)
        numbers = credit.outcome.tolist()
        return [None if row in credit.failures else number for row, number in enumerate(numbers)]

    def credit(self, ids: Sequence[str], completion_ids: Sequence[Sequence[int]]) -> Credit:
        """Returns the credit of completions, given as tokens, of the problems with these ids.

        Raises ValueError if the rows are no whole groups of known problems.
        """
        size = self.group_size
        groups = [set(ids[row : row + size]) for row in range(0, len(ids), size)]
        if len(ids) % size or any(len(group) > 1 for group in groups):
            raise ValueError(
                f"a process must reward whole groups of {size} completions of one problem, got {len(ids)} rows: choose "
                "per_device_train_batch_size · gradient_accumulation_steps as a multiple of num_generations"
            )
        if unknown := set(ids) - self.problems.keys():
            raise ValueError(f"id={min(unknown)}: none of the {len(self.problems)} problems given has this id")
        rollouts, requests = self._rollouts([self.problems[one] for one in ids[::size]], completion_ids)
        if reads_states(self.reward):
            states = pooled_states(self.policy, requests, rollouts, max_batch_tokens=self.max_batch_tokens)
            rollouts = replace(rollouts, pooled=states)
        return self.reward(rollouts)

    def _rollouts(
        self, problems: Sequence[Problem], completion_ids: Sequence[Sequence[int]]
    ) -> tuple[RolloutBatch, Requests]:
        """Returns the rollouts with log-probs of 0, which no reward reads, and their requests."""
        policy, width = self.policy, max(map(len, completion_ids))
        sampling = Sampling(temperature=1.0, top_k=None, top_p=1.0, max_tokens=width, stop=())
        requests = encode(policy, problems, self.group_size, sampling, None)
        completions = Completions(len(completion_ids), width, policy.device)
        for row, tokens in enumerate(completion_ids):
            completions.ids[row, : len(tokens)] = torch.tensor(tokens)
            completions.lengths[row] = len(tokens)
            completions.stopped[row] = bool(tokens) and tokens[-1] in policy.eos_token_ids
        return completions.batch(policy, problems, requests, sampling), requests

    def checkpoints(self) -> TrainerCallback:
        """Returns a callback of the trainer that saves the state of a reward that learns, and restores it on resume.

        Resume in the same ``output_dir``: the trainer tells no callback of another folder.
        """
        return _Checkpoints(self)


class _Checkpoints(TrainerCallback):
    def __init__(self, function: RewardInTRL) -> None:
        self.function = function

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        reward = self.function.reward
        if isinstance(reward, TrainedReward) and state.is_world_process_zero:
            saved = {"calls": self.function.calls, "reward": reward.state_dict()}
            torch.save(saved, self._file(args, state))

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        reward = self.function.reward
        if isinstance(reward, TrainedReward) and state.global_step:
            saved = torch.load(self._file(args, state), weights_only=True, map_location="cpu")
            self.function.calls = saved["calls"]
            reward.load_state_dict(saved["reward"])

    @staticmethod
    def _file(args: Any, state: Any) -> Path:
        return Path(args.output_dir) / f"checkpoint-{state.global_step}" / STATE
