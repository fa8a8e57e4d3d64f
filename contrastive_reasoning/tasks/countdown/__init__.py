"""Countdown: combine all numbers by + − × ÷ to reach the target."""

from contrastive_reasoning.tasks.countdown.game import MAX_RESULT, OPERATIONS, Move, apply, legal_moves
from contrastive_reasoning.tasks.countdown.oracle import best_moves, reachable, reachable_targets
from contrastive_reasoning.tasks.countdown.search import Node, SearchTree, search
from contrastive_reasoning.tasks.countdown.trace import Style, Trace, search_trace

__all__ = [
    "MAX_RESULT",
    "OPERATIONS",
    "Move",
    "Node",
    "SearchTree",
    "Style",
    "Trace",
    "apply",
    "best_moves",
    "legal_moves",
    "reachable",
    "reachable_targets",
    "search",
    "search_trace",
]
