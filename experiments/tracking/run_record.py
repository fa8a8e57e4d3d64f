from omegaconf import DictConfig

from experiments.config.composition import given_overrides
from experiments.config.folders import summaries
from experiments.run_folder import record
from experiments.run_folder.record import SWEEP_VARIABLE as SWEEP
from experiments.run_folder.record import git_sha, sweep_of

__all__ = ["SWEEP", "git_sha", "open_record", "sweep_of"]


def open_record(config: DictConfig) -> record.RunRecord:
    return record.open_record(config, overrides=given_overrides() or [], about=summaries("experiment"))
