"""The shorter a completion, the better: 1 for an empty one, 0 from `longest` characters on."""

from contrastive_reasoning.tasks import Problem


def brevity(problem: Problem, completion: str, *, longest: int = 200) -> float:
    return max(0.0, 1.0 - len(completion) / longest)
