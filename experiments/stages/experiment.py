"""An experiment is a list of stages: run in order; finished ones are reused, a stopped one is resumed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import torch
from omegaconf import DictConfig

from contrastive_reasoning.distributed import barrier, from_first, ranks, this_rank
from contrastive_reasoning.policies.device_memory import let_go
from contrastive_reasoning.progress import clock
from experiments.assemble import build, with_values
from experiments.config.composition import critic_checkpoints, given_overrides, open_critics
from experiments.config.folders import summaries
from experiments.mlflow_sync.sync import LOG_FILE, missing_from_mlflow, start_sync, stop_sync
from experiments.run_folder import read_json
from experiments.run_folder.record import SWEEP_VARIABLE, git_sha, open_record, processor, write_failure
from experiments.stages import evaluate, evaluation_table, train
from experiments.stages.checkpoints import CHECKPOINTS, CheckpointError, kept
from experiments.stages.code_hash import changed_rooms, code_hashes
from experiments.stages.plan import StagePlan, changed_files, filled, plan_stage
from experiments.stages.result import reusable, write_result
from experiments.stages.resume import LOCK, RESULT, begin, check_left, go_on
from experiments.stages.stage_checkpoint import Interrupted
from experiments.stages.train import device_of, idle
from experiments.system.files import announced_lock, clear_partials, lock, write_yaml
from experiments.system.launch import launched, report_cause
from experiments.validation import check_credit_fits, check_online, check_prompts_fit

__all__ = ["Interrupted", "run_experiment"]

RUN: Mapping[str, Callable[[DictConfig, Path, Mapping[str, Path]], Mapping[str, object]]] = {
    "warm_start": train.warm_start,
    "critic": train.critic,
    "grpo": train.grpo,
    "evaluate": evaluate.evaluate,
}
"""Stage → what it does in its folder, given the folders of the stages before; what it returns is part of its result."""


FAILED_PATIENCE = 5.0
"""Seconds at most that MLflow is waited for by a rank that failed."""
ASKING_SECONDS = 2.0
"""Between the times that ranks ask whether another run of the stage has ended."""


def run_experiment(config: DictConfig) -> Path:
    """Run or reuse every stage; returns the experiment's folder.

    Raises:
        AssemblyError: where a part refuses its arguments.
        CheckpointError: where what a stage left, or its checkpoints, can neither be trusted nor made again.
        Interrupted: where the person stopped a stage; the same call goes on from its last checkpoint.
    """
    started = time.monotonic()
    if sentence := idle(device_of(config), torch.cuda.device_count(), taken=ranks() // config.trainer.num_nodes):
        print(sentence)
    if "grpo" in config.stages:
        check_light_parts(config)
    if "grpo" in config.stages or "evaluate" in config.stages:
        check_prompts_fit(config)
    planned = plans(config)
    settings, typed = config.checkpoints, given_overrides()
    check_left(list(planned.values()), anew=settings.begin_anew, compared=compared(config), typed=typed)
    record = open_record(config, overrides=typed or [], about=summaries("experiment"))
    stages: dict[str, tuple[StagePlan, bool]] = {}
    with synced_to_mlflow(config, record.folder):
        for stage in config.stages:
            if stage not in planned:
                print(f"{stage}: not needed, the reward's critic comes from a checkpoint")
                continue
            plan = planned[stage]
            with alone(plan):
                reused = reusable(plan)
                stages[stage] = (plan, reused)
                record.add_stage(stages)
                if reused:
                    print(_reuse_line(plan))
                    evaluation_table.show(plan.folder)
                else:
                    run_stage(plan, config, [plan for plan, _ in stages.values()])
        record.close(stages, time.monotonic() - started)
    print(f"{config.name}: done, results in {record.folder}")
    return record.folder


def plans(config: DictConfig) -> dict[str, StagePlan]:
    """Every stage that is needed, in order, before any runs: each stands on those before it by their fingerprints."""
    planned: dict[str, StagePlan] = {}
    for stage in config.stages:
        if needed(stage, config):
            planned[stage] = plan_stage(stage, config, planned)
    return planned


def compared(config: DictConfig) -> bool:
    """Whether this is a job of a sweep or an arm of a study: others of them may be of other devices on purpose."""
    return bool(config.get("arm")) or SWEEP_VARIABLE in os.environ


def alone(plan: StagePlan) -> AbstractContextManager[None]:
    """Within it no other run works in the stage's folder."""
    hold = announced_lock if ranks() == 1 else held_by_first
    return hold(plan.folder / LOCK, waiting=f"{plan.name}: waiting for another run of {plan.folder}")


@contextmanager
def held_by_first(path: Path, *, waiting: str) -> Iterator[None]:
    """``announced_lock``, which rank 0 holds for all ranks.

    It tells them again and again that they wait: in one exchange they would wait for so long and no longer.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    said = False
    while True:
        with lock(path, wait=False) if this_rank() == 0 else nullcontext(enter_result=False) as held:
            if from_first(held):
                yield
                return
        if not said:
            print(waiting, flush=True)  # heard of rank 0 alone
        said = True
        time.sleep(ASKING_SECONDS)


def check_light_parts(config: DictConfig) -> None:
    """Build what GRPO needs besides its policy, and let it go: a refusal then comes before a model is loaded.

    A reward with a critic is left out: what its critic reads with may be a large model.

    Raises:
        AssemblyError: naming the room whose part refuses its arguments, or the parts that do not fit.
    """
    for room in ("objective", "correction", "advantage", "optimizer"):
        build(config, room)
    if not any(True for _ in critic_checkpoints(config.reward)):
        build(config, "reward")
    check_credit_fits(config)
    check_online(config)


def needed(stage: str, config: DictConfig) -> bool:
    """False for the critic stage where GRPO takes all its critics from checkpoints."""
    given = "grpo" in config.stages and any(critic_checkpoints(config.reward)) and not open_critics(config)
    return not (stage == "critic" and given)


def run_stage(plan: StagePlan, config: DictConfig, up_to_it: Sequence[StagePlan]) -> None:
    """Run the last of the stages up to it in its folder; ``result.json`` is written last and says that it is complete.

    Rank 0 writes.

    Raises:
        CheckpointError: where it cannot go on, for one because the code has changed, or a file since it was planned.
    """
    if changed := from_first(changed_files(plan) if this_rank() == 0 else []):
        raise CheckpointError(f"{plan.name}: {changed[0]} has changed since this run began; run it again")
    if from_first(bool(kept(plan.folder / CHECKPOINTS))):
        go_on(plan, changed_code=config.checkpoints.resume_changed_code)
        print(f"{plan.name}: going on in {plan.folder}")
    else:
        begin(plan, up_to_it, typed=None if compared(config) else given_overrides())
        print(f"{plan.name}: running in {plan.folder}")
    if this_rank() == 0:
        clear_partials(plan.folder)
        # What seconds and the last digits depend on: who reuses the stage finds it with what it was made by.
        made_by = {"threads": torch.get_num_threads(), "processor": processor(), "git_sha": git_sha()}
        write_yaml(plan.folder / "config.yaml", {**plan.config, **made_by})
    started, folders = time.monotonic(), {one.name: one.folder for one in up_to_it}
    try:
        result = RUN[plan.name](with_values(config, filled(plan.name, config, folders)), plan.folder, folders)
    except KeyboardInterrupt as stop:  # outside a fit, which leaves a checkpoint of its own
        raise Interrupted(f"{plan.name}: stopped") from stop
    described = {
        "stage": plan.name,
        "fingerprint": plan.fingerprint,
        "parents": dict(plan.parents),
        "versions": dict(plan.versions),
        "code": code_hashes(plan.config),
        "seconds": round(time.monotonic() - started, 1),
    }
    if this_rank() == 0:
        write_result(plan.folder, described | dict(result))
        evaluation_table.show(plan.folder)  # after the result: a terminal that cannot print it costs no work
    barrier()
    let_go()
    print(f"{plan.name}: done after {clock(time.monotonic() - started)}")


def _reuse_line(plan: StagePlan) -> str:
    """One line that says what is reused, and which rooms' code has changed since."""
    then = read_json(plan.folder / RESULT).get("code", {})
    changed = changed_rooms(plan.config, then)
    since = f"; code changed since in {', '.join(changed)} (versions did not)" if changed else ""
    return f"{plan.name}: reusing {plan.folder}{since}"


@contextmanager
def synced_to_mlflow(config: DictConfig, folder: Path) -> Iterator[None]:
    """Within it a process of its own sends the run folder to MLflow; a failure is written down for it."""
    process = start_sync(folder) if config.logger.mirror and this_rank() == 0 else None
    patience = config.logger.patience
    try:
        yield
    except Interrupted:
        raise
    except Exception as error:
        # the others wait for this rank's end, and who started them for its cause
        if launched():
            report_cause(error)
            patience = min(patience, FAILED_PATIENCE)
        write_failure(folder, error)
        raise
    finally:
        if process is not None and not stop_sync(process, timeout=patience):
            print(missing_from_mlflow([folder], folder / LOG_FILE))
