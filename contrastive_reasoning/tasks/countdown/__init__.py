"""Countdown: combine all numbers by + − × ÷ to reach the target."""

from contrastive_reasoning.tasks.countdown.game import MAX_RESULT, OPERATIONS, Move, apply, legal_moves

__all__ = ["MAX_RESULT", "OPERATIONS", "Move", "apply", "legal_moves"]
