"""The policy that a stage made, for a tracker: whole in Hugging Face format where it is small, else where it lies.

stages/grpo/194b5949ff48/policy/    config.json, model.safetensors, tokenizer.json …    see CausalLMPolicy.save
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.stages.plan import POLICY

MEGABYTE = 10**6


@dataclass(frozen=True, kw_only=True)
class ModelFiles:
    """The files that travel, and in words whether they do."""

    files: Sequence[Path]
    said: str


def model_files(stage: Path, *, most_megabytes: float) -> ModelFiles | None:
    """What travels of a finished stage's policy, which is all of it or nothing; None where the stage made none.

    Args:
        stage: its folder.
        most_megabytes: of 10⁶ bytes, of all files together; a policy that is larger stays where it is.
    """
    files = sorted(path for path in (stage / POLICY).rglob("*") if path.is_file())
    if not files:
        return None
    size = sum(path.stat().st_size for path in files) / MEGABYTE
    if size <= most_megabytes:
        return ModelFiles(files=files, said=f"{POLICY}/")
    limit = f"{size:,.1f} MB are more than logger.model_megabytes={most_megabytes:g}"
    return ModelFiles(files=[], said=f"{limit}: {stage / POLICY}")
