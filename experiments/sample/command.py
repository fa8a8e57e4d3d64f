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
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_module
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig

from experiments.sample.options import Options, SampleError, parsed
from experiments.schema import register
from experiments.typo import explain

USAGE_ERROR = 2
BASE = ("name=sample", "stages=[evaluate]")
"""No experiment is needed, and none of its stages is run."""
TEMPLATE = "policy.chat_template"


def main(arguments: Sequence[str]) -> int:
    """Answer a mistake in a sentence, else write and show."""
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return 0
    register()
    try:
        options, overrides = parsed(arguments)
        overrides = [*BASE, *overrides]
        if (sentence := explain(overrides)) is not None:
            raise SampleError(sentence)
        refuse_several(overrides)
        with initialize_config_module("conf", version_base="1.3"):
            config = compose("config", overrides)
        write_and_show(config, options, template=any(word.startswith(f"{TEMPLATE}=") for word in overrides))
    except (ValueError, OSError) as error:  # SampleError and AssemblyError are among them
        print(error, file=sys.stderr)
        return USAGE_ERROR
    return 0


def refuse_several(overrides: Sequence[str]) -> None:
    """Raises SampleError for what would make several runs."""
    for override in OverridesParser.create().parse_overrides(list(overrides)):
        if override.is_sweep_override():
            raise SampleError(f"{override.input_line}: completions are of one configuration, give one value")


def write_and_show(config: DictConfig, options: Options, *, template: bool) -> None:
    """Everything heavy is imported here, after what can be told from the words has been answered.

    Args:
        config: names the task, the policy and how completions are drawn.
        options: what is asked, and what stands in place of the configuration's.
        template: whether the person chose how prompts are rendered; else a model's own chat template is used.
    """
    from rich.console import Console

    from experiments.assemble import build, with_values
    from experiments.sample.page import show
    from experiments.sample.question import question
    from experiments.sample.reading import readings

    wanted = {"rollout.sampling.temperature": options.temperature, "rollout.sampling.max_tokens": options.max_tokens}
    config = with_values(config, {key: value for key, value in wanted.items() if value is not None})
    task, sampling = build(config, "task"), build(config, "rollout.sampling")
    asked = question(task, prompt=options.prompt, answer=options.answer, seed=config.seed)
    critic = None
    if options.critic is not None:
        from experiments.sample.trained_critic import trained_critic

        critic = trained_critic(Path(options.critic).expanduser(), task=task, temperature=config.loss.temperature)
    policy = policy_of(config, options.model, template=template).eval()
    rollouts = build(config, "rollout.engine").generate(
        policy, [asked.problem], group_size=options.n, sampling=sampling, seed=(config.seed, "sample")
    )
    starts = None if critic is None else critic.start_values(rollouts)
    show(Console(highlight=False), asked.problem, readings(asked, rollouts, critic), start=starts and starts[0])


def policy_of(config: DictConfig, model: str | None, *, template: bool) -> Any:
    """The policy of the configuration, or ``model`` in its place.

    Raises:
        SampleError: for a model that is not found, naming those that come with the package.
    """
    from contrastive_reasoning.policies.load import EMBEDDED, embedded_names
    from experiments.assemble import AssemblyError, build, with_values

    if model is None:
        return build(config, "policy")
    wanted = {"policy.pretrained": model} | ({} if template else {TEMPLATE: None})
    try:
        return build(with_values(config, wanted), "policy")
    except AssemblyError as error:
        ours = [f"{EMBEDDED}{name}" for name in embedded_names()]
        near = get_close_matches(model, [*ours, *embedded_names()], n=1, cutoff=0.6)
        choices = f"a hub name, the folder of a model, stage or run, or one of {', '.join(ours)}"
        meant = f"{EMBEDDED}{near[0].removeprefix(EMBEDDED)}" if near else None
        hint = f"did you mean {meant!r}?" if meant not in (None, model) else f"it takes {choices}"
        raise SampleError(f"model={model}: {str(error).removeprefix('policy: ')}; {hint}") from error
