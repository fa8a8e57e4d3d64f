"""A model of a GGUF file as transformers keeps one: dense weights, a tokenizer, its chat template."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

STEPS = 3
"""Of a conversion, as ``done`` counts them."""


def convert_gguf(file: Path, folder: Path, *, dtype: str, done: Callable[[int], None]) -> None:
    """Write the tokenizer and, unpacked to ``dtype``, the weights of ``file`` into ``folder``.

    Unpacked weights have the values that quantisation left. ``done``: called after the tokenizer, once the weights are
    read, and once they are written. Needs the package ``gguf``.
    """
    source = {"gguf_file": file.name}
    AutoTokenizer.from_pretrained(file.parent, **source).save_pretrained(folder)
    done(1)
    model: Any = AutoModelForCausalLM.from_pretrained(
        file.parent, **source, quantization_config=GgufConfig(dequantize=True), dtype=getattr(torch, dtype)
    )
    done(2)
    model.config.quantization_config = None  # else a loaded copy is taken for a quantised one
    model.save_pretrained(folder)
    done(STEPS)
