"""The entry: ``python -m experiments.run experiment=NAME [overrides]``, or ``-m`` for a Hydra multirun.

Only Hydra is imported here, and the configuration is composed once as a check, so that a typo is answered in a second;
everything else is imported when there is something to run.
"""

from __future__ import annotations

import sys

import hydra
from hydra._internal.utils import get_args_parser
from omegaconf import DictConfig

from experiments.quiet import be_quiet
from experiments.schema import register
from experiments.typo import explain

FAILED, USAGE_ERROR = 1, 2
register()


@hydra.main(version_base="1.3", config_path="pkg://conf", config_name="config")
def run(config: DictConfig) -> None:
    """Run the stages of one experiment; a part that refuses its arguments ends the process with one sentence."""
    be_quiet()
    from contrastive_reasoning.rewards.failures import RewardFailed
    from experiments.assemble import AssemblyError
    from experiments.kept_checkpoints import CheckpointError
    from experiments.stages import Interrupted, run_experiment

    try:
        run_experiment(config)
    except AssemblyError as error:
        sys.exit(_refuse(str(error)))
    except (CheckpointError, RewardFailed) as error:
        print(error, file=sys.stderr)
        sys.exit(FAILED)
    except Interrupted as stop:
        print(f"{stop}; to go on from there run the same command again", file=sys.stderr)
        sys.exit(130)


def main() -> None:
    """Check the overrides, then hand over to Hydra."""
    arguments = get_args_parser().parse_args()
    sentence = explain(arguments.overrides) if not arguments.help and not arguments.hydra_help else None
    if sentence is not None:
        sys.exit(_refuse(sentence))
    run()


def _refuse(sentence: str) -> int:
    print(sentence, file=sys.stderr)
    return USAGE_ERROR


if __name__ == "__main__":
    main()
