"""The entry: ``python -m experiments.run experiment=NAME [overrides]``, or ``-m`` for a Hydra multirun.

The configuration is composed once as a check, which imports no large library but Hydra and rich. So a typo is reported
within a second. torch and other large libraries are imported only when a stage has to run.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from experiments.config.composition import JOB_MODE, compose_lines, expand_home, parse, single_runs
from experiments.config.contradictions import device_count
from experiments.config.folders import ConfigDirError, take_config_dir
from experiments.config.hints import command_line
from experiments.config.override_checks import nothing_to_sweep, override_error, starts_multirun
from experiments.schema import composing, register
from experiments.system.launch import (
    FAILED,
    INTERRUPTED,
    is_launched,
    is_rank_zero,
    launch,
    launcher_reports_cause,
    process_group,
)
from experiments.system.terminal import USAGE_ERROR, be_quiet, first_line, protect_output

DISK_ERRORS = {errno.EROFS, errno.ENOSPC, errno.EDQUOT}
"""Errors of the machine, in whichever code they occur."""
PATH_ERRORS = {errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.ENAMETOOLONG}
"""Errors of the user's folders if they concern a folder that a run writes; elsewhere they are bugs."""
register()  # here, because hydra.main composes outside the context `composing`


@hydra.main(version_base="1.3", config_path="pkg://conf", config_name="config")
def run(config: DictConfig) -> float | None:
    """Runs the stages of one experiment; in a sweep, starts a process that does so for one job.

    If a part rejects its arguments, the process ends with one sentence. Returns the value that a sweeper optimizes.
    """
    expand_home(config)
    if HydraConfig.get().mode == RunMode.MULTIRUN and not is_launched():
        from experiments.jobs.runner import supervise

        _raise_on_ctrl_c()
        return supervise(HydraConfig.get())
    if not is_launched():
        from experiments.system.devices import unusable_device

        if (sentence := unusable_device(config.trainer.get("accelerator"))) is not None:
            _end(sentence, USAGE_ERROR)
    ranks = (device_count(config.trainer) or 1) * config.trainer.num_nodes
    if ranks > 1 and not is_launched():
        run_on_ranks(ranks)
        return None
    if config.keep_freed_memory:
        from experiments.system.devices import keep_freed_memory

        keep_freed_memory()
    import torch

    from contrastive_reasoning.errors import EndsRun
    from contrastive_reasoning.workers.functions import describe
    from experiments.stages.experiment import run_experiment

    _raise_on_ctrl_c()
    try:
        with process_group():
            run_experiment(config)
    except EndsRun as error:
        _end(f"{error}{error.advice}", error.exit_code, alone=error.alone)
    except torch.OutOfMemoryError as error:
        _end(f"{first_line(error)}; make plan shows what needs the memory, and which trainer fits", FAILED, alone=True)
    except OSError as error:
        if (sentence := _disk_error(error, config.output_dir)) is None:
            raise
        _end(sentence, FAILED, alone=True)
    except KeyboardInterrupt:
        _end("stopped outside a stage; run the same command again to go on", INTERRUPTED)
    except SystemExit as error:  # of the user's code, while it is imported or built
        _end(f"ended by {describe(error)}", FAILED)
    return None


def run_on_ranks(ranks: int) -> None:
    """Starts this run again as ``ranks`` processes; returns when all have succeeded, else exits with their code."""
    from experiments.run_folder.record import SWEEP_VARIABLE, sweep_of

    hydra = HydraConfig.get()
    # a preset of conf/sweep would turn each rank of a job into a sweep of its own
    command = [sys.executable, "-m", "experiments.run", *hydra.overrides.task, JOB_MODE]
    sweep = sweep_of(hydra)
    code = launch(command, ranks, variables={} if sweep is None else {SWEEP_VARIABLE: json.dumps(sweep)})
    if code:
        sys.exit(code)


def main() -> None:
    """Checks the overrides, then starts Hydra."""
    protect_output()
    be_quiet()
    if sys.flags.optimize > 1:
        _end("PYTHONOPTIMIZE=2 removes docstrings, and transformers needs them: unset it, or set it to 1", USAGE_ERROR)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else Ctrl-C is ignored or handled
        signal.signal(signal.SIGINT, _leave)
    try:
        sys.argv[1:] = take_config_dir(sys.argv[1:])
    except ConfigDirError as error:
        _end(str(error), USAGE_ERROR)
    arguments, multirun = get_args_parser().parse_args(), False
    if not (arguments.help or arguments.hydra_help or arguments.shell_completion):
        lines, only_shows = arguments.overrides, arguments.cfg is not None or arguments.info is not None
        if only_shows and arguments.multirun:
            _end(f"--cfg and --info show a single run: use {command_line('exp')}, without several values", USAGE_ERROR)
        multirun = arguments.multirun or starts_multirun(lines)
        error = override_error(lines, multirun=multirun, loads=not only_shows)
        if error is None and not only_shows:
            error = (nothing_to_sweep(lines) if multirun else None) or _folder_error(lines)
        if error is not None:
            _end(error, USAGE_ERROR)
    if multirun:
        from experiments.sweep import CALLBACK, watch

        # beside the other overrides, because argparse takes them from one place
        sys.argv.insert(sys.argv.index(arguments.overrides[0]) if arguments.overrides else len(sys.argv), CALLBACK)
        watch(run)
    else:
        run()


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """Ends the process on Ctrl-C while it has only imported modules and checked its arguments."""
    sys.exit(INTERRUPTED)


def _raise_on_ctrl_c() -> None:
    """Makes Ctrl-C raise KeyboardInterrupt again, which sweeps and stages handle."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _disk_error(error: OSError, output_dir: str) -> str | None:
    """Returns a sentence on what cannot be written; None for any other error, whose traceback is needed."""
    path = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else None
    ours = path and any(Path(path).absolute().is_relative_to(Path(one).absolute()) for one in (output_dir, "mlruns"))
    if error.errno in DISK_ERRORS or (error.errno in PATH_ERRORS and ours):
        return f"{path or output_dir}: {error.strerror}"
    return None


def _folder_error(overrides: Sequence[str]) -> str | None:
    """Returns a sentence if the output folder is not writable, else None."""
    with composing():
        folder = Path(compose_lines(*next(single_runs(parse(overrides)))).output_dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        return f"output_dir={folder}: {error.strerror}; choose a folder that can be written, output_dir=FOLDER"
    return None


def _end(sentence: str, code: int, *, alone: bool = False) -> NoReturn:
    """Prints the reason and ends the process.

    If all ranks stop for the same reason, only rank 0 prints it. A rank that may stop ``alone`` prints its own reason,
    unless its launcher does.
    """
    if is_rank_zero():
        print(sentence, file=sys.stderr)
    elif alone and not launcher_reports_cause():
        print(f"rank {os.environ['RANK']}: {sentence}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
