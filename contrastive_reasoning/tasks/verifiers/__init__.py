"""Single-turn environments of the library verifiers as tasks, scored by their own rewards."""

from contrastive_reasoning.tasks.verifiers.environment import taskset_of
from contrastive_reasoning.tasks.verifiers.score import score, scorer, verify
from contrastive_reasoning.tasks.verifiers.task import verifiers_task

__all__ = ["score", "scorer", "taskset_of", "verifiers_task", "verify"]
