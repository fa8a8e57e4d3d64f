from omegaconf import DictConfig

from experiments.cli.catalogue import catalogued
from experiments.cli.overrides import typed_overrides
from experiments.run_folder import record
from experiments.run_folder.record import SWEEP_VARIABLE as SWEEP
from experiments.run_folder.record import git_sha, sweep_of

__all__ = ["SWEEP", "git_sha", "open_record", "sweep_of"]


def open_record(config: DictConfig) -> record.RunRecord:
    return record.open_record(config, overrides=typed_overrides() or [], about=catalogued())
