"""Where a model's shape is read, without its weights: a folder, the hub's cache, or the published table."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from huggingface_hub import try_to_load_from_cache

from contrastive_reasoning.policies.published_shapes import PUBLISHED
from contrastive_reasoning.policies.shape import ModelShape

EMBEDDED = "embedded:"


@dataclass(frozen=True, kw_only=True)
class FoundShape:
    """A shape, and where it comes from in words."""

    shape: ModelShape
    source: str


def find_shape(pretrained: str) -> FoundShape:
    """The shape of ``policy.pretrained``. The hub itself is not asked: an answer must not wait for it.

    Raises:
        ValueError: for a model whose shape is neither at hand nor in the table, or of a kind that is not counted.
    """
    if (config := _config_at_hand(pretrained)) is not None:
        try:
            return FoundShape(shape=ModelShape.of(json.loads(config.read_text(encoding="utf-8"))), source=str(config))
        except (KeyError, ValueError) as error:
            said = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
            raise ValueError(f"{config}: {said}") from error
    if pretrained in PUBLISHED:
        return FoundShape(shape=PUBLISHED[pretrained], source="the table of published shapes")
    raise ValueError(
        f"policy.pretrained={pretrained}: its shape is not at hand; there is no config.json in that folder or in the "
        f"hub's cache, and the table of published shapes holds {', '.join(PUBLISHED)}"
    )


def _config_at_hand(pretrained: str) -> Path | None:
    folder = Path(pretrained).expanduser()
    if pretrained.startswith(EMBEDDED):
        name = pretrained.removeprefix(EMBEDDED)
        folder = Path(str(files("contrastive_reasoning.policies"))) / "embedded" / name
    for config in (folder / "config.json", folder / "policy" / "config.json"):
        if config.is_file():
            return config
    if pretrained.count("/") != 1 or pretrained.startswith((".", "/", "~")):
        return None
    cached = try_to_load_from_cache(pretrained, "config.json")
    return Path(cached) if isinstance(cached, str) else None
