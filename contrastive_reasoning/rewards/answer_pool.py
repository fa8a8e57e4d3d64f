"""The former place of ``AnswerPool``, which configurations of earlier runs name."""

from contrastive_reasoning.workers.answers import AnswerPool

__all__ = ["AnswerPool"]
