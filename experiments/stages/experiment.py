"""Runs the stages of an experiment in order. Finished stages are reused, and a stopped stage is resumed."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from uuid import uuid4

import torch
from hydra.core.hydra_config import HydraConfig
from lightning.pytorch.loggers import Logger, WandbLogger
from omegaconf import DictConfig

from contrastive_reasoning.distributed import barrier, from_first, ranks, this_rank
from contrastive_reasoning.progress import clock
from contrastive_reasoning.workers.functions import describe
from contrastive_reasoning.workers.planned_code import ChangedCode, expect
from experiments.assemble import AssemblyError, build, with_values
from experiments.config.folders import config_dir_option, summaries
from experiments.config.hints import command_line
from experiments.config.stages import STAGES
from experiments.run_folder.logger import RunFolderLogger
from experiments.run_folder.mirror import LOG_FILE, missing_from_mlflow, start_sync, stop_sync
from experiments.run_folder.reader import RESULT, SWEEP_VARIABLE, read_json
from experiments.run_folder.record import git_sha, new_run_folder, processor, write_failure, write_stages, write_summary
from experiments.stages import evaluation_table, train
from experiments.stages.building import check_arguments, check_parts
from experiments.stages.checkpoints import CheckpointError
from experiments.stages.code_hash import planned_sources
from experiments.stages.plan import StagePlan, changed_since, values_from_parents, with_compute_dtype
from experiments.stages.policy_checks import check_policy, check_server
from experiments.stages.resume import begin, reusable, stages_taken
from experiments.stages.stage_checkpoint import Interrupted, StopRequest
from experiments.stages.stage_manifest import LOCK, write_result
from experiments.system.files import clear_partials, lock, write_json, write_yaml
from experiments.system.launch import is_launched, report_cause
from experiments.system.terminal import first_line

FAILED_PATIENCE, LOCK_POLL_SECONDS = 5.0, 2.0  # the first: seconds for MLflow after a rank failed
LOGGERS = "loggers.json"
"""File in a stage's folder: ``{"id": …}``, under which a logger continues when the stage is resumed."""


def run_experiment(config: DictConfig) -> Path:
    """Runs or reuses every stage; returns the run folder.

    Raises:
        AssemblyError: before the first stage runs, if a part rejects its arguments, a vLLM server cannot be reached or
            serves another model, or the policy cannot be loaded.
        CheckpointError: if results or checkpoints of a stage are damaged and cannot be restored, a checkpoint cannot be
            written, or files or code have changed since planning.
        Interrupted: if the user stopped a stage; the same call resumes from its last checkpoint.
        ServerError: if a vLLM server fails while a stage runs.
        StageFailed: if a stage made fewer steps than planned, learned nothing, or was ended by SystemExit.
    """
    started = time.monotonic()
    check_arguments(config)
    device, taken = train.device_of(config), ranks() // config.trainer.num_nodes
    if sentence := train.idle(device, torch.cuda.device_count(), taken=taken):
        print(sentence)
    check_parts(config)
    resolved = with_compute_dtype(config)
    planned = plans(resolved)
    # in a job of a sweep, those of the job
    overrides = [*HydraConfig.get().overrides.task, *config_dir_option()] if HydraConfig.initialized() else []
    unfinished = from_first([name for name, plan in planned.items() if not (plan.folder / RESULT).is_file()])
    check_policy(resolved, unfinished)
    check_server(config, unfinished)
    folder = new_run_folder(config, overrides=overrides, about=summaries("experiment"))
    entries: dict[str, dict[str, str | bool]] = {}
    with synced_to_mlflow(config, folder):
        for stage in config.stages:
            if stage not in planned:
                print(f"{stage}: not needed, the reward's critic comes from a checkpoint")
                continue
            plan = planned[stage]
            with held_by_first(plan.folder / LOCK, waiting=f"{stage}: waiting for another run of {plan.folder}"):
                reused = reusable(plan, changed_code=config.checkpoints.resume_changed_code)
                entries[stage] = {"folder": str(plan.folder), "fingerprint": plan.fingerprint, "reused": reused}
                write_stages(folder, entries)
                if reused:
                    print(f"{stage}: reusing {plan.folder}")
                else:
                    run_stage(plan, resolved, planned, run=_display_name(config, folder))
                evaluation_table.show(plan.folder)
        write_summary(folder, seconds=time.monotonic() - started)
    print(f"{config.name}: done, results in {folder}")
    if (line := closing_line(config, overrides)) is not None:
        print(line)
    return folder


def _display_name(config: DictConfig, folder: Path) -> str:
    """Returns the run's name for loggers beside MLflow, if there are any."""
    if not config.logger.also:
        return ""
    from experiments.mlflow_sync.describe import run_name  # its package is loaded by another process

    return run_name(folder)


def closing_line(config: DictConfig, overrides: Sequence[str]) -> str | None:
    """Returns the last line of a finished run; None if it has none.

    It names the commands that compare the run with its baseline. After ``debug=…`` it states that figures mean nothing.
    """
    debug = next((line for line in overrides if line.startswith("debug=")), None)
    if debug is not None:
        return f"{config.name}: {debug} tries the code; its figures mean nothing"
    if config.baseline is None or "grpo" not in config.stages or is_compared(config):
        return None
    return comparing(config.baseline, config.name)


def comparing(baseline: str, name: str) -> str:
    compare = command_line("compare", f"'{baseline} {name}'")
    return f"{name}: its baseline is {command_line('exp', baseline)}; to compare the two: {compare}"


def plans(config: DictConfig) -> dict[str, StagePlan]:
    """Plans the needed stages, in order. From then on modules of the user can be imported only as planned."""
    planned = stages_taken(config)
    expect({module: source for plan in planned.values() for module, source in planned_sources(plan.code).items()})
    return planned


def is_compared(config: DictConfig) -> bool:
    """Whether this is a job of a sweep or an arm of a study, whose runs may differ in devices on purpose."""
    return bool(config.get("arm")) or SWEEP_VARIABLE in os.environ


@contextmanager
def held_by_first(path: Path, *, waiting: str) -> Iterator[None]:
    """Holds a file lock, taken by rank 0 for all ranks. Prints ``waiting`` if another process holds it.

    Ranks poll rank 0, because a single collective would fail after its timeout.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    announced = False
    while True:
        with lock(path, wait=False) if this_rank() == 0 else nullcontext(enter_result=False) as held:
            if from_first(held):
                yield
                return
        if not announced:
            print(waiting, flush=True)  # only rank 0's output is shown
        announced = True
        time.sleep(LOCK_POLL_SECONDS)


def run_stage(plan: StagePlan, config: DictConfig, planned: Mapping[str, StagePlan], *, run: str) -> None:
    """Runs a stage in its folder after the earlier ones have finished. Rank 0 writes, ``result.json`` last.

    ``run`` is the name of the run, for loggers.

    Raises:
        CheckpointError: if it cannot resume, or its files or code have changed since it was planned.
        StageFailed: if it ended without a result.
    """
    if changed := from_first(changed_since(plan) if this_rank() == 0 else []):
        raise CheckpointError(f"{plan.name}: {changed[0]} has changed since this run began; run it again")
    begin(plan)
    if this_rank() == 0:
        clear_partials(plan.folder)
        # timings and last digits depend on these
        made_by = {"threads": torch.get_num_threads(), "processor": processor(), "git_sha": git_sha()}
        write_yaml(plan.folder / "config.yaml", {**plan.config, **made_by})
    started, order = time.monotonic(), list(planned)
    folders = {name: planned[name].folder for name in order[: order.index(plan.name)]}
    wired = with_values(config, values_from_parents(plan.name, config, folders))
    stop = StopRequest()
    try:
        with stop.listening(), stage_loggers(wired, plan, run=run) as loggers:
            module, _, function = STAGES[plan.name].run.rpartition(".")
            result = getattr(import_module(module), function)(wired, plan.folder, folders, loggers)
    except KeyboardInterrupt as end:  # outside a fit; a fit leaves its own checkpoint
        if stop.signal_name is None:
            raise train.StageFailed(f"{plan.name}: ended by {describe(end)}, which no signal caused") from end
        raise Interrupted(f"{plan.name}: stopped") from end
    except SystemExit as end:  # of a part or a function; a signal would have raised Interrupted
        raise train.StageFailed(f"{plan.name}: ended by {describe(end)}") from end
    except ChangedCode as error:
        raise CheckpointError(f"{plan.name}: {error}") from error
    described = {
        "stage": plan.name,
        "fingerprint": plan.fingerprint,
        "settings": plan.settings,
        "parents": dict(plan.parents),
        "code": dict(plan.code),
        "seconds": round(time.monotonic() - started, 1),
    }
    if this_rank() == 0:
        write_result(plan.folder, described | dict(result))
    barrier()
    gc.collect()  # trainer and module refer to each other, so nothing else frees their memory soon
    torch.cuda.empty_cache()
    print(f"{plan.name}: done after {clock(time.monotonic() - started)}")


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
        own = {"run": run.replace("/", "_"), "stage": plan.name, "folder": str(plan.folder)}
        own["id"] = _logger_id(plan.folder)
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


def _logger_id(folder: Path) -> str:
    found = read_json(folder / LOGGERS).get("id") or uuid4().hex[:12]
    if this_rank() == 0:
        write_json(folder / LOGGERS, {"id": found})
    return str(found)


@contextmanager
def synced_to_mlflow(config: DictConfig, folder: Path) -> Iterator[None]:
    """Starts a separate process that sends the run folder to MLflow; on an error, writes ``failure.json`` for it."""
    process = start_sync(folder) if config.logger.mirror and this_rank() == 0 else None
    patience = config.logger.patience
    try:
        yield
    except Interrupted:
        raise
    except Exception as error:
        # other ranks wait for this one to exit, and the launcher for its cause
        if is_launched():
            report_cause(error)
            patience = min(patience, FAILED_PATIENCE)
        write_failure(folder, error)
        raise
    finally:
        if process is not None and not stop_sync(process, timeout=patience):
            print(missing_from_mlflow([folder], folder / LOG_FILE))
