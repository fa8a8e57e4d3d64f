"""The entry: ``python -m experiments.run experiment=NAME [overrides]``, or ``-m`` for a Hydra multirun.

Only Hydra is imported here, and the configuration is composed once as a check, so that a typo is answered in a second;
everything else is imported when there is something to run.
"""

from __future__ import annotations

import json
import os
import sys

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from experiments.config.composition import JOB_MODE
from experiments.config.contradictions import device_count
from experiments.config.folders import ConfigDirError, take_config_dir
from experiments.config.override_checks import override_error
from experiments.schema import register
from experiments.sweep.watch import watched
from experiments.system.launch import (
    FAILED,
    INTERRUPTED,
    is_rank_zero,
    launch,
    launched,
    launcher_reports_cause,
    process_group,
)
from experiments.system.terminal import be_quiet, protect_output

USAGE_ERROR = 2
register()


@hydra.main(version_base="1.3", config_path="pkg://conf", config_name="config")
def run(config: DictConfig) -> float | None:
    """Run the stages of one experiment, or have a process of its own do so for a job of a sweep.

    A part that refuses its arguments ends the process with one sentence. The number is what a sweeper may learn from.
    """
    if HydraConfig.get().mode == RunMode.MULTIRUN and not launched():
        from experiments.sweep.supervise import supervise

        return supervise(HydraConfig.get())
    ranks = (device_count(config.trainer) or 1) * config.trainer.num_nodes
    if ranks > 1 and not launched():
        run_on_ranks(ranks)
        return None
    be_quiet()
    from contrastive_reasoning.rewards.base import RewardFailed, VerifierFailed
    from experiments.assemble import AssemblyError
    from experiments.stages.checkpoints import CheckpointError
    from experiments.stages.experiment import Interrupted, run_experiment

    try:
        with process_group():
            run_experiment(config)
    except AssemblyError as error:
        sys.exit(_refuse(str(error)))
    except VerifierFailed as error:
        _say_of_rank(str(error))
        sys.exit(FAILED)
    except (CheckpointError, RewardFailed) as error:
        _say(str(error))
        sys.exit(FAILED)
    except Interrupted as stop:
        _say(f"{stop}; to go on from there run the same command again")
        sys.exit(INTERRUPTED)
    return None


def run_on_ranks(ranks: int) -> None:
    """This run again, as so many processes; returns when all have ended well."""
    from experiments.run_folder.record import SWEEP_VARIABLE, sweep_of

    hydra = HydraConfig.get()
    # a preset of conf/sweep makes a sweep of whatever names it, each rank of one of its jobs too
    command = [sys.executable, "-m", "experiments.run", *hydra.overrides.task, JOB_MODE]
    sweep = sweep_of(hydra)
    code = launch(command, ranks, variables={} if sweep is None else {SWEEP_VARIABLE: json.dumps(sweep)})
    if code:
        sys.exit(code)


def main() -> None:
    """Check the overrides, then hand over to Hydra."""
    protect_output()
    try:
        sys.argv[1:] = take_config_dir(sys.argv[1:])
    except ConfigDirError as error:
        sys.exit(_refuse(str(error)))
    arguments = get_args_parser().parse_args()
    sentence = override_error(arguments.overrides) if not arguments.help and not arguments.hydra_help else None
    if sentence is not None:
        sys.exit(_refuse(sentence))
    watched(run)


def _refuse(sentence: str) -> int:
    _say(sentence)
    return USAGE_ERROR


def _say(sentence: str) -> None:
    """Once: ranks other than 0 stop for the same reason, or who started them says why."""
    if is_rank_zero():
        print(sentence, file=sys.stderr)


def _say_of_rank(sentence: str) -> None:
    """What one rank alone may stop for: where nobody answers for it, it says so itself."""
    if is_rank_zero() or launcher_reports_cause():
        _say(sentence)
    else:
        print(f"rank {os.environ['RANK']}: {sentence}", file=sys.stderr)


if __name__ == "__main__":
    main()
