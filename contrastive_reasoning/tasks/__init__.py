"""Tasks: text in, verdict out. Pure Python, testable without any framework."""

from contrastive_reasoning.tasks.base import (
    Problem as Problem,
    Split as Split,
    Status as Status,
    Step as Step,
    Task as Task,
    Verdict as Verdict,
    VerifiesTogether as VerifiesTogether,
)
