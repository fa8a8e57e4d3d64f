"""The work that all arms do: prompts, groups, lengths. Prompts are Countdown's own, numbers drawn from a fixed seed.

short   8 prompts of ~30 tokens × 8 completions × 128 tokens
long    4 prompts of ~1,800 tokens (two worked searches in each) × 8 completions × 128 tokens
uneven  8 prompts of ~30 tokens × 8 completions of 32 to 512 tokens
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from benchmarks.models import SMALL, architecture
from contrastive_reasoning.policies.tiny import TinyArchitecture
from contrastive_reasoning.rollout.sampling import Seed, row_uniforms
from contrastive_reasoning.tasks.base import Problem
from contrastive_reasoning.tasks.countdown import CountdownProblem

SEED: Seed = (0, "rollout", 0, 0)
"""What our rollouts are drawn by in every repeat: seed, purpose, rollout batch, rank."""
END_SHARE = 1 / 200
"""The probability of the end token at every token, where completions end by themselves."""
SHORTEST = 32


@dataclass(frozen=True, kw_only=True)
class Workload:
    key: str
    title: str
    prompts: int
    group_size: int
    prompt_numbers: int | None
    """Numbers stated in the prompt, which set its length; None: LongProc's form, with two worked searches."""
    max_tokens: int
    """Of a completion."""
    uneven: bool
    """Whether completions end by themselves; else each has ``max_tokens``."""
    microbatch_rows: int
    """Rows that go through the policy at once where a peer counts rows; we get the same budget in tokens."""
    hidden_size: int = 192
    """Width of the policy, where ``model`` leaves it open."""
    model: str = SMALL
    """One of ``MODELS``."""
    device: str = "cpu"
    """Where all arms compute: cpu or cuda."""

    @property
    def shape(self) -> TinyArchitecture:
        """Of the policy."""
        return architecture(self.model, hidden_size=self.hidden_size)

    def problems(self) -> list[Problem]:
        """The same in every process."""
        random = Random(0)
        made = [self._problem(random, index) for index in range(self.prompts)]
        return [_late_ending(problem, self.group_size) for problem in made] if self.uneven else made

    def _problem(self, random: Random, index: int) -> Problem:
        numbers = [random.randint(10, 49) for _ in range(self.prompt_numbers or 4)]
        target = random.randint(100, 999)
        prompt = stated(numbers, target) if self.prompt_numbers else CountdownProblem(numbers, target).prompt
        return Problem(id=f"{self.key}{index}", prompt=prompt, answer=str(target))


def on(workload: Workload, *, model: str, device: str) -> Workload:
    """The same work for another model or on another device; titles tell them apart."""
    if (model, device) == (workload.model, workload.device):
        return workload
    title = f"{workload.title}, {model} on {device}"
    return replace(workload, key=f"{workload.key}-{model}-{device}", title=title, model=model, device=device)


def stated(numbers: Sequence[int], target: int) -> str:
    """A prompt of 3 tokens a number: two digits and a comma."""
    return f"Numbers: {list(numbers)}\nTarget: {target}\n"


def _late_ending(problem: Problem, group_size: int) -> Problem:
    """The problem under an id whose dice end none of its completions before ``SHORTEST`` tokens.

    A row's dice are a function of the seed and its problem's id. The end token is the first with any probability in
    the vocabulary, so it is drawn where a number falls below its share, which varies little; twice the share is safe.
    """
    for attempt in range(100_000):
        renamed = replace(problem, id=f"{problem.id}-{attempt}")
        dice = row_uniforms([renamed], group_size=group_size, length=SHORTEST - 1, seed=SEED)
        if float(dice.min()) > 2 * END_SHARE:
            return renamed
    raise RuntimeError(f"no id of problem {problem.id} keeps its completions from ending early")


WORKLOADS = (
    Workload(
        key="short",
        title="short prompts",
        prompts=8,
        group_size=8,
        prompt_numbers=8,
        max_tokens=128,
        uneven=False,
        microbatch_rows=64,
    ),
    Workload(
        key="long",
        title="LongProc prompts",
        prompts=4,
        group_size=8,
        prompt_numbers=None,
        max_tokens=128,
        uneven=False,
        microbatch_rows=8,
    ),
    Workload(
        key="uneven",
        title="uneven lengths",
        prompts=8,
        group_size=8,
        prompt_numbers=8,
        max_tokens=512,
        uneven=True,
        microbatch_rows=32,
    ),
)

BASE = Workload(
    key="base",
    title="4 prompts of ~260 tokens × 8 × 64 tokens",
    prompts=4,
    group_size=8,
    prompt_numbers=84,
    max_tokens=64,
    uneven=False,
    microbatch_rows=32,
)
DOUBLED = {
    "group_size": replace(BASE, key="group", group_size=16),
    "prompt_length": replace(BASE, key="prompt", prompt_numbers=170),
    "completion_length": replace(BASE, key="completion", max_tokens=128),
    "width": replace(BASE, key="width", hidden_size=384),
}
"""What is doubled → the base with that doubled."""
