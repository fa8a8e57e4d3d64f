"""Countdown: combine all numbers by + − × ÷ to reach the target."""

from contrastive_reasoning.tasks.base import split_of as split_of
from contrastive_reasoning.tasks.countdown.game import apply as apply, legal_moves as legal_moves
from contrastive_reasoning.tasks.countdown.generator import ProblemSpace as ProblemSpace
from contrastive_reasoning.tasks.countdown.longproc import longproc_scores as longproc_scores
from contrastive_reasoning.tasks.countdown.oracle import (
    best_moves as best_moves,
    reachable as reachable,
    reachable_targets as reachable_targets,
)
from contrastive_reasoning.tasks.countdown.problem import (
    CountdownProblem as CountdownProblem,
    problem_key as problem_key,
)
from contrastive_reasoning.tasks.countdown.states import encode_state as encode_state
from contrastive_reasoning.tasks.countdown.steps import parse_steps as parse_steps
from contrastive_reasoning.tasks.countdown.task import CountdownTask as CountdownTask
from contrastive_reasoning.tasks.countdown.trace import search_trace as search_trace
from contrastive_reasoning.tasks.countdown.verifier import verify as verify
