"""What an experiment costs before anything is loaded:  make plan name=grpo_gsm8k scale=paper gpus=8

python -m experiments.plan experiment=NAME [overrides] [the plan's own arguments]

gpus=8                 devices of the plan, GPUs; else as many as the trainer says, of its kind
gpu_memory=80          GiB of each
mfu=0.4                share of the peak that a step uses; train/throughput/step_utilisation of a run says it
tflops=989             peak of each device in 10¹² operations a second
prompt_tokens=200      of a prompt; else the budget's longest
completion_tokens=800  of a completion on average, for work and hours; memory is planned for the longest
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from hydra import compose, initialize_config_module
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from experiments.config.folders import take_config_dir
from experiments.config.override_checks import override_error
from experiments.plan.options import Options, PlanError, parsed
from experiments.schema import register

USAGE_ERROR = 2
CPU, GPU = "cpu", "gpu"


def main(arguments: Sequence[str]) -> int:
    """Answer a mistake in a sentence, else print the plan."""
    if not arguments or {"-h", "--help"} & set(arguments):
        print(__doc__)
        return 0 if arguments else USAGE_ERROR
    register()
    try:
        options, overrides = parsed(take_config_dir(arguments))
        overrides = with_trainer(overrides, options)
        if (sentence := override_error(overrides)) is not None:
            raise PlanError(sentence)
        refuse_several_runs(overrides)
        _show(*composed(overrides), options)
    except ValueError as error:  # PlanError and NoFolder are such
        print(error, file=sys.stderr)
        return USAGE_ERROR
    return 0


def with_trainer(overrides: Sequence[str], options: Options) -> list[str]:
    """``gpus=…`` plans for GPUs, whatever an experiment's own trainer is, unless the person chose one."""
    chosen = any(override.startswith("trainer=") for override in overrides)
    return [*overrides] if options.gpus is None or chosen else [*overrides, f"trainer={GPU}"]


def refuse_several_runs(overrides: Sequence[str]) -> None:
    """Raises PlanError for what would make several runs."""
    for override in OverridesParser.create().parse_overrides(list(overrides)):
        if override.is_sweep_override():
            raise PlanError(f"{override.input_line}: a plan is of one run, give one value")


def composed(overrides: Sequence[str]) -> tuple[Any, str]:
    """The configuration, and the choice of the group ``trainer``."""
    with initialize_config_module("conf", version_base="1.3"):
        config = compose("config", list(overrides), return_hydra_config=True)
    return config, config.hydra.runtime.choices.trainer


def _show(config: Any, trainer: str, options: Options) -> None:
    """Everything that takes longer to import is imported here, after what can be wrong has been answered."""
    from rich.console import Console

    from experiments.plan.page import page
    from experiments.plan.tables import show

    node: Any = OmegaConf.to_container(config.trainer, resolve=True)
    show(Console(), page(config, trainer, node, options))
