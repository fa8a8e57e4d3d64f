"""The last stage: the policy before and after training in every setting of the suite, with the same problems."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from contrastive_reasoning.ranks import this_rank
from experiments import evaluation_table
from experiments.assemble import build, with_values
from experiments.run_folder import RunFolderLogger
from experiments.wiring import POLICY


def evaluate(config: DictConfig, folder: Path, folders: Mapping[str, Path]) -> Mapping[str, Any]:
    """Log ``test/…`` of the final policy and, where GRPO made it, ``start/…`` of the one before."""
    policies = {"test": config}
    if "grpo" in folders:
        trained = {"policy.pretrained": str(folders["grpo"] / POLICY), "policy.architecture": None, "policy.lora": None}
        policies = {"start": config, "test": with_values(config, trained)}
    logger = RunFolderLogger(folder=folder)
    suite = build(config, "suite")
    results = {
        split: evaluate_one(suite, build(wired, "policy"), split, logger, config.seed)
        for split, wired in policies.items()
    }
    if unusable := left_out(suite):
        logger.log_table("test/left_out", unusable, step=0)
    rows, caption = evaluation_table.summary_rows(suite, results), evaluation_table.caption(suite)
    logger.log_table(evaluation_table.NAME, rows, step=0)
    logger.finalize("success")
    if this_rank() == 0:
        evaluation_table.write(folder, rows, caption)
        evaluation_table.show(folder)
    return {"metrics": {f"{split}/{name}": value for split, found in results.items() for name, value in found.items()}}


def evaluate_one(suite: Any, policy: Any, split: str, logger: RunFolderLogger, seed: int) -> Mapping[str, float]:
    """Evaluate one policy and log its numbers, its completions and why they failed."""
    found = suite(policy.eval(), seed=seed)
    logger.log_metrics({f"{split}/{name}": value for name, value in found.metrics.items()}, step=0)
    logger.log_table(f"{split}/completions", found.rows, step=0)
    logger.log_table(f"{split}/reasons", [{"reason": k, "count": n} for k, n in found.reasons.items()], step=0)
    return found.metrics


def left_out(suite: Any) -> list[dict[str, str]]:
    """The rows of the suite's sets that are no problem: what the figures do not count."""
    tasks = {name: setting.task for name, setting in suite.settings.items()}
    listed = {name: task.left_out("test") for name, task in tasks.items() if hasattr(task, "left_out")}
    return [{"setting": name, "row": sentence} for name, sentences in listed.items() for sentence in sentences]
