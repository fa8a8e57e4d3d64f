"""Generated arithmetic word problems: short stories, one equation per step, and words learnt only from outcomes."""

from contrastive_reasoning.tasks.arithmetic.equations import Equation, parse_steps, same_plan, scores, verify
from contrastive_reasoning.tasks.arithmetic.generator import StorySpace, shown_meanings, split_of
from contrastive_reasoning.tasks.arithmetic.story import WORDS, Clause, PlanStep, Story, plan_of, true_meanings
from contrastive_reasoning.tasks.arithmetic.task import ArithmeticProblem, ArithmeticTask, prompt_of, solution_text

__all__ = [
    "WORDS",
    "ArithmeticProblem",
    "ArithmeticTask",
    "Clause",
    "Equation",
    "PlanStep",
    "Story",
    "StorySpace",
    "parse_steps",
    "plan_of",
    "prompt_of",
    "same_plan",
    "scores",
    "shown_meanings",
    "solution_text",
    "split_of",
    "true_meanings",
    "verify",
]
