"""Tasks: text in, verdict out. Pure Python, testable without any framework."""

from contrastive_reasoning.tasks.base import Problem, Split, Status, Step, Task, Verdict, VerifiesTogether

__all__ = ["Problem", "Split", "Status", "Step", "Task", "Verdict", "VerifiesTogether"]
