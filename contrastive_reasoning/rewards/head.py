"""Contrastive heads: from mean-pooled hidden states to the space in which completions are compared.

A head is built when the first states arrive, which say how wide they are; its weights are a function of its seed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import nn

from contrastive_reasoning.policies.seeded import seeded


@runtime_checkable
class HeadBuilder(Protocol):
    def __call__(self, width: int) -> nn.Module:
        """A head for states of ``width`` numbers."""
        ...


@dataclass(frozen=True, kw_only=True)
class _Head(ABC):
    dimension: int
    """d, the width of the contrastive space."""
    seed: int

    def __post_init__(self) -> None:
        if self.dimension < 1:
            raise ValueError(f"head.dimension must be at least 1, got {self.dimension}")

    def __call__(self, width: int) -> nn.Module:
        with seeded(self.seed):
            return self.built(width)

    @abstractmethod
    def built(self, width: int) -> nn.Module: ...


class LinearHead(_Head):
    """z = W h without a bias, Eq. (8) of arXiv:2603.10101."""

    def built(self, width: int) -> nn.Module:
        return nn.Linear(width, self.dimension, bias=False)


class MLPHead(_Head):
    """z = W₂ max(0, W₁ h) with W₁ square, without biases: the other head of the paper's released code."""

    def built(self, width: int) -> nn.Module:
        return nn.Sequential(
            nn.Linear(width, width, bias=False), nn.ReLU(), nn.Linear(width, self.dimension, bias=False)
        )
