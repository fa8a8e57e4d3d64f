"""Single-turn environments of the library verifiers as tasks, scored by their own rewards."""

from typing import TYPE_CHECKING

from contrastive_reasoning.lazy import lazy_getattr

if TYPE_CHECKING:
    from contrastive_reasoning.tasks.verifiers.environment import taskset_of as taskset_of
    from contrastive_reasoning.tasks.verifiers.scoring import score as score, scorer as scorer, verify as verify
    from contrastive_reasoning.tasks.verifiers.task import verifiers_task as verifiers_task

__getattr__ = lazy_getattr(__name__)
