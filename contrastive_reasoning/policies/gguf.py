"""Conversion of a GGUF file to a ``transformers`` folder: dense weights, a tokenizer, its chat template."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

from contrastive_reasoning.policies.load import REPORTING, require_weights


def convert_gguf(file: Path, folder: Path, *, dtype: str) -> None:
    """Writes the tokenizer and, dequantised to ``dtype``, the weights of ``file`` into ``folder``.

    The weights keep the values that quantisation left. Needs the package ``gguf``.

    Raises ValueError if the file lacks weights of the model.
    """
    source = {"gguf_file": file.name}
    AutoTokenizer.from_pretrained(file.parent, **source).save_pretrained(folder)
    settings: dict[str, Any] = {"quantization_config": GgufConfig(dequantize=True), "dtype": getattr(torch, dtype)}
    loaded: Any = AutoModelForCausalLM.from_pretrained(file.parent, **source, **settings, **REPORTING)
    model, info = loaded
    require_weights(info, str(file))
    model.config.quantization_config = None  # otherwise a loaded copy would be treated as quantised
    model.save_pretrained(folder)
