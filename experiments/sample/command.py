"""Let a policy write on one problem, and see what the rules, the oracle and a critic say of each step:  make sample

python -m experiments.sample [the sample's own arguments] [overrides]

model=embedded:qwen_countdown         or a hub name, or the folder of a model, stage or run; else the configuration's
prompt='numbers=3,5,8 target=23'      a problem of Countdown, or any text; else a validation problem, by seed=1 another
answer=42                             what a text asks for: it is then judged
critic=FOLDER                         of a trained critic, of its stage, or of a run
n=3  temperature=1.0  max_tokens=48   completions, how they are drawn (0: greedy), tokens of each at most

Overrides choose the task and the rest: task=arithmetic, task.style=longproc, policy.compute_dtype=float32.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra import initialize_config_module
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig

from experiments.assemble import AssemblyError, build
from experiments.config.composition import composed as composed_lines
from experiments.config.folders import ConfigDirError, take_config_dir
from experiments.config.override_checks import override_error
from experiments.sample.options import Options, SampleError, parsed
from experiments.sample.question import Question, question
from experiments.schema import register

USAGE_ERROR = 2
BASE = ("name=sample", "stages=[evaluate]")
"""No experiment is needed, and none of its stages is run."""


def main(arguments: Sequence[str]) -> int:
    """Answer a mistake in a sentence, else write and show."""
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return 0
    register()
    try:
        options, overrides = parsed(take_config_dir(arguments))
        config = composed([*BASE, *overrides])
        asked = question(build(config, "task"), prompt=options.prompt, answer=options.answer, seed=config.seed)
        write_and_show(config, options, asked)
    except (SampleError, AssemblyError, ConfigDirError) as error:
        print(error, file=sys.stderr)
        return USAGE_ERROR
    return 0


def composed(overrides: Sequence[str]) -> DictConfig:
    """The configuration that these overrides make.

    Raises:
        SampleError: for a mistake in them, or for what would make several runs.
    """
    if (sentence := override_error(overrides)) is not None:
        raise SampleError(sentence)
    for override in OverridesParser.create().parse_overrides(list(overrides)):
        if override.is_sweep_override():
            raise SampleError(f"{override.input_line}: completions are of one configuration, give one value")
    with initialize_config_module("conf", version_base="1.3"):
        return composed_lines(*overrides)


def write_and_show(config: DictConfig, options: Options, asked: Question) -> None:
    """Draw the completions and print them.

    Everything heavy is imported here, after what can be told from the words has been answered.

    Args:
        config: names the task, the policy and how completions are drawn.
        options: how many, and what values their steps.
        asked: the problem, and who reads its completions.

    Raises:
        SampleError: for a critic that does not fit or read such problems, or a prompt without room for a completion.
        AssemblyError: for a model that is not found, or how completions are drawn.
    """
    from rich.console import Console

    from experiments.sample.page import show
    from experiments.sample.reading import readings
    from experiments.sample.trained_critic import trained_critic
    from experiments.stages.train import device_of

    critic: Any = None
    if options.critic is not None:
        critic = trained_critic(Path(options.critic).expanduser(), config)
    engine, sampling = build(config, "rollout.engine"), build(config, "rollout.sampling")
    policy, seed = build(config, "policy").eval().to(device_of(config)), (config.seed, "sample")
    try:
        rollouts = engine.generate(policy, [asked.problem], group_size=int(options.n), sampling=sampling, seed=seed)
        starts = None if critic is None else critic.start_values(rollouts)
        found = readings(asked, rollouts, critic)
    except ValueError as error:
        raise SampleError(str(error)) from error
    show(Console(highlight=False), asked.problem, found, start=starts and starts[0])
