"""Countdown: combine all numbers by + − × ÷ to reach the target."""

from contrastive_reasoning.tasks.base import split_of
from contrastive_reasoning.tasks.countdown.game import apply, legal_moves
from contrastive_reasoning.tasks.countdown.generator import ProblemSpace
from contrastive_reasoning.tasks.countdown.longproc import longproc_scores
from contrastive_reasoning.tasks.countdown.oracle import best_moves, reachable, reachable_targets
from contrastive_reasoning.tasks.countdown.problem import CountdownProblem, problem_key
from contrastive_reasoning.tasks.countdown.states import encode_state
from contrastive_reasoning.tasks.countdown.steps import parse_steps
from contrastive_reasoning.tasks.countdown.task import CountdownTask
from contrastive_reasoning.tasks.countdown.trace import search_trace
from contrastive_reasoning.tasks.countdown.verifier import verify

__all__ = [
    "CountdownProblem",
    "CountdownTask",
    "ProblemSpace",
    "apply",
    "best_moves",
    "encode_state",
    "legal_moves",
    "longproc_scores",
    "parse_steps",
    "problem_key",
    "reachable",
    "reachable_targets",
    "search_trace",
    "split_of",
    "verify",
]
