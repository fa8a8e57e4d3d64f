"""The text critic: a language model reads the trace, and two projections compare the written text with the goal.

State = the text before a step, action = the step's own text, goal = a later line, or text that names the target.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from jaxtyping import Bool, Float
from torch import Tensor, nn

from contrastive_reasoning.critics.base import TwoTowerCritic
from contrastive_reasoning.critics.encoder import TextEncoder, Tokens, tokenize
from contrastive_reasoning.losses.similarity import Similarity
from contrastive_reasoning.policies.seeded import seeded
from contrastive_reasoning.tasks.base import Problem, Step
from contrastive_reasoning.tasks.countdown.trace import step_texts, wording_of

Pooling = Callable[[Tensor, Tensor], Tensor]
"""Hidden states (N, S, H) and mask (N, S) bool → (N, H)."""


class TextCritic(TwoTowerCritic):
    """f(prefix and step, goal text): one pooled backbone with separate projections for state–actions and goals.

    Args:
        pooling: (N, S, H) states and (N, S) mask → (N, H): the last token's state, or the mean.
        max_length: maximum number of tokens of a text; longer texts lose their beginning.
        style: the style of the training traces, one that writes the search; lists of moves are converted to it.
        goal_text: the goal of a step when the critic scores a completion; ``{target}`` is replaced by the answer.

    Raises ValueError: ``goal_text`` lacks ``{target}``, or ``style`` is unknown.
    """

    def __init__(
        self,
        *,
        encoder: TextEncoder,
        pooling: Pooling,
        dimension: int,
        similarity: Similarity,
        max_length: int,
        style: Literal["longproc", "annotated", "released"],
        goal_text: str,
        seed: int,
    ) -> None:
        super().__init__(similarity=similarity)
        if "{target}" not in goal_text:
            raise ValueError(f"TextCritic: goal_text must contain {{target}}, got {goal_text!r}")
        wording_of(style)
        self.backbone = encoder.backbone
        self.tokenizer = encoder.tokenizer
        self.pooling = pooling
        self.max_length = max_length
        self.style = style
        self.goal_text = goal_text
        with seeded(seed):  # the initial weights depend on the order of these lines
            self.state_action_projection = nn.Linear(encoder.width, dimension)
            self.goal_projection = nn.Linear(encoder.width, dimension)

    def tokenize(self, texts: Sequence[str]) -> Tokens:
        """Runs in a data loader's collate function. Raises ValueError for a text without tokens."""
        return tokenize(self.tokenizer, texts, max_length=self.max_length)

    def encode_state_action(self, state_actions: Tokens) -> Float[Tensor, "N D"]:
        return self.state_action_projection(self._pool(state_actions))

    def encode_goal(self, goals: Tokens) -> Float[Tensor, "N D"]:
        return self.goal_projection(self._pool(goals))

    def encode_steps(self, problem: Problem, completion: str, steps: Sequence[Step]) -> tuple[Tokens, Tokens]:
        """Encodes the trace up to each legal step, as in training, with the problem's goal text; at least one step."""
        texts = step_texts(problem, completion, steps, style=self.style)
        goal = self.goal_text.replace("{target}", problem.answer)
        return self.tokenize(texts), self.tokenize([goal] * len(steps))

    def encode_actions(self, states: Sequence[str], actions: Sequence[str]) -> Tokens:
        """Encodes each line together with the lines before it."""
        return self.tokenize([f"{state}\n{action}" for state, action in zip(states, actions, strict=True)])

    def encode_goals(self, goals: Sequence[str]) -> Tokens:
        return self.tokenize(goals)

    def _pool(self, tokens: Tokens) -> Float[Tensor, "N H"]:
        mask: Bool[Tensor, "N S"] = tokens["attention_mask"].bool()
        states = self.backbone(input_ids=tokens["input_ids"], attention_mask=tokens["attention_mask"])
        return self.pooling(states.last_hidden_state, mask).to(self.goal_projection.weight.dtype)
