"""A trainer on the CPU that by default logs, saves and prints nothing."""

from __future__ import annotations

from typing import Any

from lightning import Trainer


def quiet_trainer(**settings: Any) -> Trainer:
    defaults: dict[str, Any] = {
        "accelerator": "cpu",
        "max_epochs": -1 if "max_steps" in settings else 1,
        "logger": False,
        "log_every_n_steps": 1,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "num_sanity_val_steps": 0,
    }
    return Trainer(**defaults | settings)
