"""The YAML files that Hydra composes, and the tables of options that it composes like files. Standard library only."""

from __future__ import annotations

from conf.experiments import EXPERIMENTS
from conf.options import OPTIONS, Variant

VARIANTS: dict[str, dict[str, Variant]] = {"experiment": EXPERIMENTS, **OPTIONS}
"""Group → name → option."""
GLOBAL = ("experiment", "budget")
"""Groups whose options set values anywhere in the configuration; in files, ``# @package _global_``."""
