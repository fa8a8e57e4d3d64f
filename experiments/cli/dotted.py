"""The keys of a configuration by their dotted paths."""

from __future__ import annotations

from omegaconf import DictConfig, OmegaConf


def dotted_keys(config: DictConfig, above: str = "") -> set[str]:
    """Every key under ``above``; values are not resolved."""
    keys: set[str] = set()
    for key in config:
        keys.add(f"{above}{key}")
        value = None if OmegaConf.is_missing(config, key) else config._get_node(key)
        if isinstance(value, DictConfig) and not value._is_none() and not value._is_interpolation():
            keys |= dotted_keys(value, f"{above}{key}.")
    return keys
