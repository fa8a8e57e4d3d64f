"""Scoring and update passes with compiled decoder layers and dynamic shapes.

All layers of a shape share one compiled code, whatever the lengths of a batch; planned attention stays outside it.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

VARIANTS = 64
"""Maximum number of compiled codes: padded or packed, with or without gradient, for each layer shape in the process."""


class CompiledLayer(nn.Module):
    """Computes one layer; it holds no weights of its own."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, *arguments: Any, **named: Any) -> Any:
        return _compiled_call()(self.layer, *arguments, **named)


def _call(layer: nn.Module, *arguments: Any, **named: Any) -> Any:
    return layer(*arguments, **named)


@cache  # one for all layers; creating it takes a second, most of it for imports
def _compiled_call() -> Any:
    # the compiled function takes the layer as an argument, so that all layers of a shape share its code
    return torch.compile(_call, dynamic=True, recompile_limit=VARIANTS)  # pyright: ignore[reportCallIssue]


def require_compilable(backbone: nn.Module) -> None:
    """Checks requirements that would otherwise fail in the first pass.

    Raises ValueError if the backbone has no ``layers``, or this machine has no C++ compiler or no Python headers.
    """
    if not isinstance(getattr(backbone, "layers", None), nn.ModuleList):
        raise ValueError(f"policy.compiled=true compiles a model's `layers`, and {type(backbone).__name__} has none")
    compiler = os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")
    if shutil.which(compiler) is None:
        raise ValueError(f"policy.compiled=true needs a C++ compiler: {compiler} is not there (CXX names another)")
    if not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
        raise ValueError("policy.compiled=true needs Python's headers: Python.h is not there (python3-dev has it)")
