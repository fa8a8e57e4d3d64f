"""Estimate what an experiment costs before anything is loaded:  make plan name=grpo_gsm8k scale=paper gpus=8

python -m experiments.plan experiment=NAME [overrides] [the plan's own arguments]
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence

from hydra import compose

from experiments.cli.arguments import split_own_keys
from experiments.cli.commands import COMMANDS
from experiments.config.composition import expand_home
from experiments.config.folders import take_config_dir
from experiments.config.override_checks import override_error
from experiments.schema import composing
from experiments.system.terminal import USAGE_ERROR, be_quiet, protect_output


def parse_arguments(arguments: Sequence[str]) -> tuple[Namespace, list[str]]:
    """Splits the arguments into the plan's own and the overrides for Hydra.

    ``gpus=…`` sets ``trainer=gpu``, whatever the experiment's trainer is, unless an override chooses a trainer.

    Raises:
        ValueError: for a mistyped name.
        SystemExit: for a value that is not a number or out of range.
    """
    parser = COMMANDS["plan"]
    given, overrides = split_own_keys(arguments, parser.own_keys)
    options = parser.read([f"{key}={value}" for key, value in given.items()])
    chosen = any(override.startswith("trainer=") for override in overrides)
    return options, overrides if options.gpus is None or chosen else [*overrides, "trainer=gpu"]


def main(arguments: Sequence[str]) -> int:
    """Prints the plan, or one sentence for an invalid argument. Returns the exit code."""
    if not arguments or {"-h", "--help"} & set(arguments):
        COMMANDS["plan"].print_help()
        return 0 if arguments else USAGE_ERROR
    try:
        options, overrides = parse_arguments(take_config_dir(arguments))
        if (error := override_error(overrides, multirun=False)) is not None:
            raise ValueError(error)
        with composing():
            config = expand_home(compose("config", overrides, return_hydra_config=True))
        from experiments.plan.page import show  # slow imports come after the checks

        show(config, options)
    except ValueError as error:
        print(error, file=sys.stderr)
        return USAGE_ERROR
    return 0


if __name__ == "__main__":
    be_quiet()
    protect_output()
    sys.exit(main(sys.argv[1:]))
