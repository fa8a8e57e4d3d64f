"""Single-turn environments of the library verifiers as tasks, scored by their own rewards."""

from typing import TYPE_CHECKING

from contrastive_reasoning.lazy import lazy_getattr

if TYPE_CHECKING:
    from contrastive_reasoning.tasks.verifiers.environment import taskset_of
    from contrastive_reasoning.tasks.verifiers.scoring import score, scorer, verify
    from contrastive_reasoning.tasks.verifiers.task import verifiers_task

__getattr__ = lazy_getattr(__name__)
