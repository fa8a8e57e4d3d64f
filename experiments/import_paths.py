"""Maps the import paths in saved configurations, critics and checkpoints to today's paths.

Every moved ``_target_`` needs a line here, so that files saved by earlier versions still load. Names that a package
re-exports (``contrastive_reasoning.critics.NumericV2``) do not.
"""

from __future__ import annotations

from typing import Any

OURS = ("contrastive_reasoning", "lightning_modules", "datamodules", "callbacks", "experiments")
"""Packages of this project."""
MOVED: dict[str, str] = {
    "contrastive_reasoning.policies.adapters.LoRA": "contrastive_reasoning.policies.load.LoRA",
    "contrastive_reasoning.evaluation.problem_sets": "contrastive_reasoning.tasks.problem_set.problem_sets",
    "callbacks.action_probe.ActionProbe": "callbacks.critic_validation.ActionProbe",
    "callbacks.alarms.Alarms": "callbacks.health.Alarms",
    "callbacks.calibration.Calibration": "callbacks.critic_validation.Calibration",
    "callbacks.completion_projection.CompletionProjection": "callbacks.projections.CompletionProjection",
    "callbacks.critic_lessons.CriticLessons": "callbacks.online_critic.CriticUpdates",
    "callbacks.dynamic_sampling.DynamicSampling": "callbacks.rollout_generation.DynamicSampling",
    "callbacks.embedding_projection.EmbeddingProjection": "callbacks.projections.EmbeddingProjection",
    "callbacks.geometry_probe.GeometryProbe": "callbacks.critic_validation.GeometryProbe",
    "callbacks.similarity_heatmap.SimilarityHeatmap": "callbacks.critic_validation.SimilarityHeatmap",
    "callbacks.spent.Spent": "callbacks.cost.Cost",
    "callbacks.stage_curves.StageCurves": "callbacks.figures.StageCurves",
    "callbacks.step_credit.StepCredit": "callbacks.credit.StepCredit",
    "callbacks.throughput.Throughput": "callbacks.cost.Throughput",
    "callbacks.training_completions.TrainingCompletions": "callbacks.completions.TrainingCompletions",
    "callbacks.vineppo_rollouts.VinePPORollouts": "callbacks.rollout_generation.VinePPORollouts",
    "callbacks.watchdog.Watchdog": "callbacks.phases.Watchdog",
    "callbacks.zero_sharding.ZeroSharding": "lightning_modules.zero.ZeroSharding",
    "contrastive_reasoning.tasks.answer_task.AnswerTask": "contrastive_reasoning.tasks.problem_set.AnswerTask",
    "contrastive_reasoning.tasks.example_reward.mentions_answer": (
        "contrastive_reasoning.tasks.examples.mentions_answer"
    ),
    "contrastive_reasoning.tasks.example_trl_reward.mentions_answer": (
        "contrastive_reasoning.tasks.examples.mentions_answers"
    ),
    "contrastive_reasoning.tasks.example_verify.same_text": "contrastive_reasoning.tasks.examples.same_text",
    "contrastive_reasoning.tasks.function_task.FunctionTask": "contrastive_reasoning.tasks.problem_set.FunctionTask",
    "contrastive_reasoning.tasks.stand_in.StandInTask": "contrastive_reasoning.tasks.problem_set.stand_in_task",
    "datamodules.shuffled_searches.ShuffledSearches": "datamodules.plays.ShuffledSearches",
    "datamodules.pairing.EveryGoal": "datamodules.hindsight_states.EveryGoal",
    "datamodules.pairing.OwnGoal": "datamodules.hindsight_states.OwnGoal",
    "datamodules.trace_arrays.TracesV1": "datamodules.traces.TracesV1",
    "datamodules.trace_arrays.TracesV2": "datamodules.traces.TracesV2",
    "datamodules.traces_text.TracesText": "datamodules.traces.TracesText",
    "datamodules.traces_v1.TracesV1": "datamodules.traces.TracesV1",
    "datamodules.traces_v2.TracesV2": "datamodules.traces.TracesV2",
    "contrastive_reasoning.rewards.pool.AnswerPool": "contrastive_reasoning.rewards.answer_pool.AnswerPool",
}
"""Dotted path of an earlier version → dotted path of today."""


def is_ours(path: str) -> bool:
    """Whether a dotted path belongs to this project."""
    return path.partition(".")[0] in OURS


def current(target: str) -> str:
    """Returns today's path of a saved ``_target_``; a path that did not move is unchanged."""
    return MOVED.get(target, target)


def with_current_targets(config: Any) -> Any:
    """Returns a copy of nested containers in which every ``_target_`` is today's path."""
    if isinstance(config, dict):
        return {
            key: current(value) if key == "_target_" else with_current_targets(value) for key, value in config.items()
        }
    return [with_current_targets(value) for value in config] if isinstance(config, list) else config
