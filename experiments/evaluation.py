"""The last stage: the policy before and after training in every setting of the suite, with the same problems."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

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
    logger.finalize("success")
    return {"metrics": {f"{split}/{name}": value for split, found in results.items() for name, value in found.items()}}


def evaluate_one(suite: Any, policy: Any, split: str, logger: RunFolderLogger, seed: int) -> Mapping[str, float]:
    """Evaluate one policy and log its numbers, its completions and why they failed."""
    found = suite(policy.eval(), seed=seed)
    logger.log_metrics({f"{split}/{name}": value for name, value in found.metrics.items()}, step=0)
    logger.log_table(f"{split}/completions", found.rows, step=0)
    logger.log_table(f"{split}/reasons", [{"reason": k, "count": n} for k, n in found.reasons.items()], step=0)
    return found.metrics
