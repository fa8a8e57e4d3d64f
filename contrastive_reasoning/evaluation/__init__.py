"""Evaluation of a policy: completions verified on held-out problems, with intervals."""

from __future__ import annotations

from contrastive_reasoning.evaluation.evaluator import (
    GREEDY,
    SAMPLED,
    Evaluation,
    Rates,
    Watch,
    correct_per_problem,
    evaluate,
    pass_at_k,
    reason_kind,
    sampled_values,
    with_intervals,
)
from contrastive_reasoning.evaluation.intervals import (
    Estimate,
    Interval,
    bootstrap,
    interquartile_mean,
    mean_interval,
    nested_difference,
    nested_mean,
    probability_of_improvement,
    wilson,
)
from contrastive_reasoning.evaluation.lm_eval import HarnessFailed, LMEval
from contrastive_reasoning.evaluation.suite import Setting, Suite, Track
