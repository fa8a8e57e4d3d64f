"""Evaluation of a policy: completions verified on held-out problems, with intervals."""

from __future__ import annotations

from contrastive_reasoning.evaluation.evaluator import (
    GREEDY as GREEDY,
    SAMPLED as SAMPLED,
    Evaluation as Evaluation,
    Rates as Rates,
    Watch as Watch,
    evaluate as evaluate,
    pass_at_k as pass_at_k,
    reason_kind as reason_kind,
    with_intervals as with_intervals,
)
from contrastive_reasoning.evaluation.intervals import (
    Estimate as Estimate,
    Interval as Interval,
    bootstrap as bootstrap,
    interquartile_mean as interquartile_mean,
    mean_interval as mean_interval,
    nested_difference as nested_difference,
    nested_mean as nested_mean,
    probability_of_improvement as probability_of_improvement,
    wilson as wilson,
)
from contrastive_reasoning.evaluation.suite import Setting as Setting, Suite as Suite, Track as Track
