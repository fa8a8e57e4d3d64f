"""Conversion of a GGUF file to a ``transformers`` folder: dense weights, a tokenizer, its chat template."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig


def convert_gguf(file: Path, folder: Path, *, dtype: str) -> None:
    """Writes the tokenizer and, dequantised to ``dtype``, the weights of ``file`` into ``folder``.

    The weights keep the values that quantisation left. Needs the package ``gguf``.
    """
    source = {"gguf_file": file.name}
    AutoTokenizer.from_pretrained(file.parent, **source).save_pretrained(folder)
    model: Any = AutoModelForCausalLM.from_pretrained(
        file.parent, **source, quantization_config=GgufConfig(dequantize=True), dtype=getattr(torch, dtype)
    )
    model.config.quantization_config = None  # otherwise a loaded copy would be treated as quantised
    model.save_pretrained(folder)
