"""Countdown: combine all numbers by + − × ÷ to reach the target."""

from contrastive_reasoning.tasks.countdown.game import MAX_RESULT, OPERATIONS, Move, apply, legal_moves
from contrastive_reasoning.tasks.countdown.generator import ProblemSpace, draw, draw_distinct, split_of
from contrastive_reasoning.tasks.countdown.longproc import read_longproc, read_problem_lines, read_template
from contrastive_reasoning.tasks.countdown.longproc_scores import longproc_scores
from contrastive_reasoning.tasks.countdown.oracle import best_moves, reachable, reachable_targets
from contrastive_reasoning.tasks.countdown.problem import CountdownProblem, problem_key
from contrastive_reasoning.tasks.countdown.search import SearchTree, search, search_lines
from contrastive_reasoning.tasks.countdown.steps import parse_steps
from contrastive_reasoning.tasks.countdown.task import BareCountdownTask, CountdownTask
from contrastive_reasoning.tasks.countdown.trace import Style, Trace, search_trace, shuffled_trace
from contrastive_reasoning.tasks.countdown.verifier import verify

__all__ = [
    "MAX_RESULT",
    "OPERATIONS",
    "BareCountdownTask",
    "CountdownProblem",
    "CountdownTask",
    "Move",
    "ProblemSpace",
    "SearchTree",
    "Style",
    "Trace",
    "apply",
    "best_moves",
    "draw",
    "draw_distinct",
    "legal_moves",
    "longproc_scores",
    "parse_steps",
    "problem_key",
    "reachable",
    "reachable_targets",
    "read_longproc",
    "read_problem_lines",
    "read_template",
    "search",
    "search_lines",
    "search_trace",
    "shuffled_trace",
    "split_of",
    "verify",
]
