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
    policy, problems = config.policy, first_problems(config)
    if policy.pretrained is None:
        return
    try:
        tokenizer, context = tokenizer_and_context(policy.pretrained, trust_remote_code=policy.trust_remote_code)
    except (ValueError, OSError) as error:
        raise AssemblyError(f"policy.pretrained={policy.pretrained}: {str(error).splitlines()[0]}") from error
    for problem in problems:
        length = len(prompt_ids(tokenizer, problem.prompt, chat_template=policy.chat_template))
        if length >= context:
            raise AssemblyError(
                f"policy.pretrained={policy.pretrained}: the prompt of problem {problem.id} has {length} tokens "
                f"and leaves no room for a completion in the context of {context}"
            )


def first_problems(config: DictConfig) -> list[Problem]:
    """The first problems of each split that some stage reads, those of the suite's own tasks included."""
    asked = [("task", split) for split in ("train", "validation") if "grpo" in config.stages]
    if "evaluate" in config.stages:
        asked += [(f"suite.settings.{name}.task", "test") for name in config.suite.settings]
    problems: list[Problem] = []
    for key, split in asked:
        task: Task = build(config, key)
        try:
            problems += task.problems(split)[:TRIED]  # pyright: ignore[reportArgumentType]
        except (ValueError, OSError) as error:
            raise AssemblyError(f"{key}: {error}") from error
    return problems
