"""Generated arithmetic word problems: short stories, one equation per step, and words learnt only from outcomes."""

from contrastive_reasoning.tasks.arithmetic.equations import (
    Equation as Equation,
    parse_steps as parse_steps,
    same_plan as same_plan,
    scores as scores,
    verify as verify,
)
from contrastive_reasoning.tasks.arithmetic.generator import (
    StorySpace as StorySpace,
    shown_meanings as shown_meanings,
    split_of as split_of,
)
from contrastive_reasoning.tasks.arithmetic.story import (
    WORDS as WORDS,
    Clause as Clause,
    PlanStep as PlanStep,
    Story as Story,
    plan_of as plan_of,
    true_meanings as true_meanings,
)
from contrastive_reasoning.tasks.arithmetic.task import (
    ArithmeticProblem as ArithmeticProblem,
    ArithmeticTask as ArithmeticTask,
    prompt_of as prompt_of,
    solution_text as solution_text,
)
