"""The last stage: evaluates the policy before and after training in every setting of the suite, on equal problems.

Another evaluation harness, if one is chosen, evaluates the same policies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger
from omegaconf import DictConfig, OmegaConf

from contrastive_reasoning.distributed import this_rank
from contrastive_reasoning.evaluation import GREEDY, SAMPLED, Rates, Watch
from contrastive_reasoning.progress import Phase, Quiet
from contrastive_reasoning.stack_dump import StackDump
from experiments.assemble import build, with_values
from experiments.run_folder.logger import run_folder_of
from experiments.run_folder.reader import POLICY
from experiments.stages import evaluation_table
from experiments.stages.train import device_of


def evaluate(
    config: DictConfig, folder: Path, folders: Mapping[str, Path], loggers: Sequence[Logger]
) -> Mapping[str, Any]:
    """Logs ``test/…`` of the final policy and, after GRPO, ``start/…`` of the policy before training."""
    policies = {"test": config}
    if "grpo" in folders:
        trained = {"policy.pretrained": str(folders["grpo"] / POLICY), "policy.architecture": None, "policy.lora": None}
        policies = {"start": config, "test": with_values(config, trained)}
    suite, harness, device = build(config, "suite"), build(config, "harness"), device_of(config)
    display: Quiet = build(config, "progress") if this_rank() == 0 else Quiet()
    results: dict[str, Mapping[str, float]] = {}
    others: dict[str, Mapping[str, float]] = {}
    stacks = folder / "stacks" / f"rank{this_rank()}.txt"
    limit = OmegaConf.select(config, "callbacks.every.watchdog.limits.evaluation")
    with (
        StackDump({"evaluation": limit}, path=stacks) as heart,
        Phase(display, stage="evaluate", unit="problems", total=len(policies) * suite.size) as phase,
    ):
        for number, (split, wired) in enumerate(policies.items()):
            heart.beat("evaluation", f"of {split}", always=True)
            watch = watch_progress(phase, heart, split, before=number * suite.size)
            policy = build(wired, "policy").to(device)
            if harness is not None:  # first: it ends soon if it cannot load a task's data
                alive = partial(heart.beat, "evaluation", f"of {split} by the harness", always=True)
                others[split] = evaluate_by_harness(harness, policy, split, loggers, config.seed, alive)
            results[split] = evaluate_one(suite, policy, split, loggers, config.seed, watch)
            del policy  # frees memory before the next one is loaded
            phase.show((number + 1) * suite.size, success(split, results[split]))
    run_folder = run_folder_of(loggers)
    if unusable := left_out(suite):
        run_folder.log_table("test/left_out", unusable, step=0)
    model = config.policy.get("pretrained")
    columns = harness.columns(others["test"]) if harness is not None else {}
    results = {split: {**found, **others.get(split, {})} for split, found in results.items()}
    rows = evaluation_table.summary_rows(suite, results, model=model, more=columns)
    run_folder.log_table(evaluation_table.NAME, rows, step=0)
    for logger in loggers:
        logger.finalize("success")  # in the other stages the trainer does it
    if this_rank() == 0:
        evaluation_table.write(folder, rows, evaluation_table.caption(suite, model=model))
    metrics = {f"{split}/{name}": value for split, found in results.items() for name, value in found.items()}
    return {"metrics": metrics, "problems": getattr(suite, "main_problems", None)}


def evaluate_one(
    suite: Any, policy: Any, split: str, loggers: Sequence[Logger], seed: int, watch: Watch
) -> Mapping[str, float]:
    """Evaluates one policy and logs its metrics, its completions and the reasons of failures."""
    found = suite(policy.eval(), seed=seed, watch=watch)
    for logger in loggers:
        logger.log_metrics({f"{split}/{name}": value for name, value in found.metrics.items()}, step=0)
    run_folder = run_folder_of(loggers)
    run_folder.log_table(f"{split}/completions", found.rows, step=0)
    run_folder.log_table(f"{split}/reasons", [{"reason": k, "count": n} for k, n in found.reasons.items()], step=0)
    return found.metrics


def evaluate_by_harness(
    harness: Any, policy: Any, split: str, loggers: Sequence[Logger], seed: int, alive: Callable[[], object]
) -> Mapping[str, float]:
    """Evaluates one policy by another harness and logs its metrics and rows."""
    found = harness(policy.eval(), seed=seed, alive=alive)
    for logger in loggers:
        logger.log_metrics({f"{split}/{name}": value for name, value in found.metrics.items()}, step=0)
    run_folder_of(loggers).log_table(f"{split}/harness", found.rows, step=0)
    return found.metrics


def watch_progress(phase: Phase, heart: StackDump, split: str, *, before: int) -> Watch:
    """Returns a callback that reports progress and resets the watchdog; ``before``: problems of earlier policies."""

    def report(done: int, rates: Rates) -> None:
        heart.beat("evaluation", f"of {split}, after {done} problems,")
        phase.move(before + done, lambda: success(split, rates()))

    return report


def success(split: str, metrics: Mapping[str, float]) -> dict[str, float]:
    """Returns the metrics shown during the evaluation, for every setting, under their logged names."""
    return {f"{split}/{name}": value for name, value in metrics.items() if name.endswith((GREEDY, SAMPLED))}


def left_out(suite: Any) -> list[dict[str, str]]:
    """Returns the rows of the suite's sets that could not be read as problems."""
    tasks = {name: setting.task for name, setting in suite.settings.items()}
    listed = {name: task.left_out("test") for name, task in tasks.items() if hasattr(task, "left_out")}
    return [{"setting": name, "row": sentence} for name, sentences in listed.items() for sentence in sentences]
