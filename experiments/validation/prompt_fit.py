"""Do the prompts fit the policy's context? Asked with its tokenizer alone, before the weights are loaded."""

from __future__ import annotations

from collections.abc import Iterator

from omegaconf import DictConfig

from contrastive_reasoning.policies.causal_lm import prompt_ids
from contrastive_reasoning.policies.load import tokenizer_and_context
from contrastive_reasoning.tasks.base import Problem, Split, Task
from experiments.assemble import AssemblyError, build
from experiments.system.first_line import first_line

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
        said, named = first_line(error), f"policy.pretrained={policy.pretrained}"
        raise AssemblyError(said if said.startswith("policy.") else f"{named}: {said}") from error
    for problem in problems:
        try:
            length = len(prompt_ids(tokenizer, problem.prompt, chat_template=policy.chat_template))
        except ValueError as error:
            raise AssemblyError(str(error)) from error
        if length >= context:
            raise AssemblyError(
                f"policy.pretrained={policy.pretrained}: the prompt of problem {problem.id} has {length} tokens "
                f"and leaves no room for a completion in the context of {context}"
            )


def first_problems(config: DictConfig) -> list[Problem]:
    """The first problems of each split that some stage reads, those of the suite's own tasks included."""
    problems: list[Problem] = []
    for where, task, split in asked(config):
        try:
            problems += task.problems(split)[:TRIED]
        except (ValueError, OSError) as error:
            raise AssemblyError(f"{where}: {error}") from error
    return problems


def asked(config: DictConfig) -> Iterator[tuple[str, Task, Split]]:
    """Every task that some stage reads, with its key and the split."""
    if "grpo" in config.stages:
        task: Task = build(config, "task")
        yield "task", task, "train"
        yield "task", task, "validation"
    if "evaluate" in config.stages and "sets" in config.suite:
        for name, task in build(config, "suite.sets").items():
            yield f"suite.sets, {name}", task, "test"
    elif "evaluate" in config.stages:
        for name in config.suite.settings:
            yield f"suite.settings.{name}.task", build(config, f"suite.settings.{name}.task"), "test"
