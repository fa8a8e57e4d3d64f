"""How good a policy is: completions judged on held-out problems, with intervals."""

from __future__ import annotations

from contrastive_reasoning.evaluation.evaluator import (
    Evaluation,
    correct_per_problem,
    evaluate,
    reason_kind,
    sampled_values,
    with_intervals,
)
from contrastive_reasoning.evaluation.interval import Interval, bootstrap, mean_interval, wilson
from contrastive_reasoning.evaluation.nested_bootstrap import (
    Estimate,
    interquartile_mean,
    nested_difference,
    nested_mean,
    probability_of_improvement,
)
from contrastive_reasoning.evaluation.pass_at_k import pass_at_k
from contrastive_reasoning.evaluation.problem_sets import problem_sets
from contrastive_reasoning.evaluation.so_far import GREEDY, SAMPLED, Rates, Watch
from contrastive_reasoning.evaluation.suite import Setting, Suite
from contrastive_reasoning.evaluation.track import Track

__all__ = [
    "GREEDY",
    "SAMPLED",
    "Estimate",
    "Evaluation",
    "Interval",
    "Rates",
    "Setting",
    "Suite",
    "Track",
    "Watch",
    "bootstrap",
    "correct_per_problem",
    "evaluate",
    "interquartile_mean",
    "mean_interval",
    "nested_difference",
    "nested_mean",
    "pass_at_k",
    "probability_of_improvement",
    "problem_sets",
    "reason_kind",
    "sampled_values",
    "wilson",
    "with_intervals",
]

VERSION = 1
"""Increment it when the same configuration would give another result: finished stages are then computed anew."""
