"""Passes of scoring and update with their decoder layers compiled, shapes left open.

All layers of a shape share one compiled code, whatever the lengths of a batch; planned attention stays outside it.
Nothing of the model changes: for the time of a pass compiled layers stand in the place of its own, so that names,
copies, checkpoints and generation know nothing of it.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

VARIANTS = 64
"""Compiled codes at most: padded or packed, with or without gradient, for each shape of layer in the process."""


class _Compiled(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, *arguments: Any, **named: Any) -> Any:
        return _compiled_call()(self.layer, *arguments, **named)


def _call(layer: nn.Module, *arguments: Any, **named: Any) -> Any:
    return layer(*arguments, **named)


@cache  # one for all layers; asking for it takes a second, most of it for imports
def _compiled_call() -> Any:
    return torch.compile(_call, dynamic=True, recompile_limit=VARIANTS)  # pyright: ignore[reportCallIssue]


@contextmanager
def compiled_layers(backbone: Any) -> Iterator[None]:
    """The backbone with compiled layers in the place of its own, which are back at the end, whatever happens."""
    layers = backbone.layers
    backbone.layers = nn.ModuleList(_Compiled(layer) for layer in layers)
    try:
        yield
    finally:
        backbone.layers = layers


def require_compilable(backbone: nn.Module) -> None:
    """Refuse what could only fail in the first pass.

    Raises ValueError where the backbone has no ``layers``, or this machine no C++ compiler or no headers of Python.
    """
    if not isinstance(getattr(backbone, "layers", None), nn.ModuleList):
        raise ValueError(f"policy.compiled=true compiles a model's `layers`, and {type(backbone).__name__} has none")
    compiler = os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")
    if shutil.which(compiler) is None:
        raise ValueError(f"policy.compiled=true needs a C++ compiler: {compiler} is not there (CXX names another)")
    if not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
        raise ValueError("policy.compiled=true needs Python's headers: Python.h is not there (python3-dev has it)")
