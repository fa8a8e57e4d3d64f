"""Conversion of a GGUF file to a ``transformers`` folder: dense weights, a tokenizer, its chat template."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

STEPS = 3
"""Number of steps of a conversion, as counted by ``done``."""


def convert_gguf(file: Path, folder: Path, *, dtype: str, done: Callable[[int], None]) -> None:
    """Writes the tokenizer and, dequantised to ``dtype``, the weights of ``file`` into ``folder``.

    The weights keep the values that quantisation left. ``done`` is called after the tokenizer is written, after the
    weights are read, and after they are written. Needs the package ``gguf``.
    """
    source = {"gguf_file": file.name}
    AutoTokenizer.from_pretrained(file.parent, **source).save_pretrained(folder)
    done(1)
    model: Any = AutoModelForCausalLM.from_pretrained(
        file.parent, **source, quantization_config=GgufConfig(dequantize=True), dtype=getattr(torch, dtype)
    )
    done(2)
    model.config.quantization_config = None  # otherwise a loaded copy would be treated as quantised
    model.save_pretrained(folder)
    done(STEPS)
