"""The loggers of a stage: its run folder, from which MLflow is filled, and Lightning's own loggers beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from lightning.pytorch.loggers import Logger, WandbLogger
from omegaconf import DictConfig

from contrastive_reasoning.distributed import this_rank
from experiments.assemble import AssemblyError, build, with_values
from experiments.run_folder.logger import RunFolderLogger
from experiments.run_folder.reader import read_json
from experiments.stages.plan import StagePlan
from experiments.system.files import write_json
from experiments.system.terminal import first_line

FILE = "loggers.json"
"""File in a stage's folder: ``{"id": …}``, under which a logger continues when the stage is resumed."""


@contextmanager
def stage_loggers(config: DictConfig, plan: StagePlan, *, run: str) -> Iterator[list[Logger]]:
    """Yields the run folder's logger and those of ``logger.also``, which have begun; ends them with the stage.

    A stage that is reused logs nothing, so only MLflow shows it in every run.

    Args:
        config: the configuration of the stage.
        plan: its plan; its settings are the hyperparameters of the other loggers.
        run: the name of the run.

    Raises:
        AssemblyError: if a logger cannot begin, for example without its package or a login.
    """
    others: dict[str, Logger] = {}
    if config.logger.also:
        own = {"run": run.replace("/", "_"), "stage": plan.name, "folder": str(plan.folder), "id": _id(plan.folder)}
        others = build(with_values(config, {f"logger.{key}": value for key, value in own.items()}), "logger.also")
    for name, logger in others.items():
        try:
            logger.log_hyperparams(dict(plan.config))
        except Exception as error:  # of a library: it may have no common type
            raise AssemblyError(f"logger.also.{name}: {first_line(error)}") from error
    exit_code = 1
    try:
        yield [RunFolderLogger(folder=plan.folder), *others.values()]
        exit_code = 0
    finally:
        for logger in others.values():
            if isinstance(logger, WandbLogger):  # otherwise the next stage would go on in this stage's run
                logger.experiment.finish(exit_code=exit_code)


def run_folder_of(loggers: Sequence[Logger]) -> RunFolderLogger:
    """Returns the run folder's logger among these."""
    return next(logger for logger in loggers if isinstance(logger, RunFolderLogger))


def _id(folder: Path) -> str:
    """Returns the stage's name for loggers, drawn once."""
    found = read_json(folder / FILE).get("id") or uuid4().hex[:12]
    if this_rank() == 0:
        write_json(folder / FILE, {"id": found})
    return str(found)
