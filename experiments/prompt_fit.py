"""Do the prompts fit the policy's context? Asked with its tokenizer alone, before the weights are loaded."""

from __future__ import annotations

from omegaconf import DictConfig

from contrastive_reasoning.policies.load import tokenizer_and_context
from contrastive_reasoning.policies.prompting import prompt_ids
from contrastive_reasoning.tasks.base import Problem, Task
from experiments.assemble import AssemblyError, build

TRIED = 32
"""Prompts of each split that are tried; the engine checks every one when it reads it."""


def check_prompts_fit(config: DictConfig) -> None:
    """Compare the first prompts of each split with the context.

    Raises:
        AssemblyError: for a prompt that leaves no room for a completion, or a task that cannot give its problems.
    """
    policy = config.policy
    if policy.pretrained is None:
        return
    tokenizer, context = tokenizer_and_context(policy.pretrained, trust_remote_code=policy.trust_remote_code)
    for problem in first_problems(config):
        length = len(prompt_ids(tokenizer, problem.prompt, chat_template=policy.chat_template))
        if length >= context:
            raise AssemblyError(
                f"policy.pretrained={policy.pretrained}: the prompt of problem {problem.id} has {length} tokens "
                f"and leaves no room for a completion in the context of {context}"
            )


def first_problems(config: DictConfig) -> list[Problem]:
    """The first problems of the training and of the validation split."""
    task: Task = build(config, "task")
    try:
        return [problem for split in ("train", "validation") for problem in task.problems(split)[:TRIED]]
    except (ValueError, OSError) as error:
        raise AssemblyError(f"task: {error}") from error
