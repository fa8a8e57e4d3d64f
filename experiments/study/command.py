"""Run what is left of a study, then show what there is:  make study name=countdown_credit

python -m experiments.study NAME [parallel=1] [only=arm,arm] [seeds=2]      fewer jobs at once, a part of the arms
python -m experiments.study NAME [progress=json]                            how its jobs say how far they are
python -m experiments.study NAME --config-dir FOLDER                        NAME, or what it names, of one's own
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from experiments.cli.arguments import USAGE_ERROR, KeyValueParser
from experiments.config.folders import ConfigDirError, take_config_dir
from experiments.config.hints import did_you_mean
from experiments.schema import register
from experiments.study.comparable import check_comparable
from experiments.study.jobs import check_jobs, jobs_of, start_jobs
from experiments.study.plan import Study, StudyError, find_study

INTERRUPTED = 130


def options(arguments: Sequence[str]) -> argparse.Namespace:
    """Flags may be written as overrides: ``parallel=1`` is ``--parallel=1``."""
    parser = KeyValueParser("experiments.study", __doc__)
    parser.add_argument("name", help="a file of conf/study/ or of your own study/, or the path of one")
    parser.add_argument("--parallel", type=int, help="jobs at once; else as the study says")
    parser.add_argument("--only", help="arms, with commas")
    parser.add_argument("--seeds", type=int, help="the first so many seeds of each arm")
    parser.add_argument("--progress", help="of the jobs: a file of conf/progress/")
    return parser.read(arguments)


def checked(study: Study, chosen: argparse.Namespace) -> dict[str, Any]:
    only = [arm.strip() for arm in chosen.only.strip("[]").split(",")] if chosen.only else []
    for arm in only:
        if arm not in study.arms:
            raise StudyError(f"only={arm}: no such arm; {did_you_mean(arm, study.arms)}")
    parallel = study.parallel if chosen.parallel is None else chosen.parallel
    for name, value in (("parallel", parallel), ("seeds", chosen.seeds)):
        if value is not None and value < 1:
            raise StudyError(f"{name} must be at least 1, got {value}")
    return {"parallel": parallel, "only": only, "seeds": chosen.seeds}


def showing(study: Study, progress: str | None) -> Study:
    """The study whose jobs say in this way how far they are; what they compute, and who finds it again, is the same."""
    return study if progress is None else replace(study, common=[*study.common, f"progress={progress}"])


def main(arguments: Sequence[str]) -> int:
    register()
    try:
        chosen = options(take_config_dir(arguments))
    except ConfigDirError as error:
        print(error, file=sys.stderr)
        return USAGE_ERROR
    # Also where a shell that started us in the background had switched Ctrl-C off, for us and for our jobs.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        study = showing(find_study(chosen.name), chosen.progress)
        wishes = checked(study, chosen)
        arms = jobs_of(study, {})
        check_jobs([*start_jobs(study).values(), *arms])
        check_comparable(study, arms)
        return _run(study, wishes)
    except StudyError as error:
        print(error, file=sys.stderr)
        return USAGE_ERROR
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(study: Study, wishes: dict[str, Any]) -> int:
    """Everything heavy is imported here, after what can be wrong has been answered."""
    from experiments.study.runner import run_study
    from experiments.track import TrackerError

    try:
        return run_study(study, **wishes)
    except TrackerError as error:
        print(error, file=sys.stderr)
        return USAGE_ERROR
