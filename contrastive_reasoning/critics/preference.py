"""A reward model with a goal-conditioned representation, after Nath et al., arXiv:2407.13887.

Training: r is a linear map of a completion's embedding φ, trained on preferences; f = cosine(φ(prefix), φ(completion))
is trained with it by a contrastive loss. Inference: the goal is the mean embedding of successful trajectories, and the
value of a step is its movement towards the goal:  f(x, y₀…t; goal) − f(x, y₀…t−1; goal).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from contrastive_reasoning.critics.encoder import TextEncoder, Tokens, tokenize
from contrastive_reasoning.losses.similarity import cosine, of_pairs
from contrastive_reasoning.policies.seeded import seeded
from contrastive_reasoning.tasks.base import Problem, Step

BETWEEN = ";, \n"
"""Characters that separate steps."""


@dataclass(kw_only=True)
class PreferenceBatch:
    """B pairs of verified completions of the same prompt as tokens; each text begins with its prompt."""

    chosen: Tokens
    """The correct completion y_w, which is also the prefix's own goal y_g⁺."""
    rejected: Tokens
    """The wrong completion y_l, which is also the other goal y_g⁻."""
    prefix: Tokens
    """A beginning of the correct completion: y₀…t."""


class PreferenceCritic(nn.Module):
    """r(x, y) for whole completions; as a ``Critic``, the movement of a step towards the mean successful embedding.

    ``state_actions`` holds the text before and after each step (``before_…`` and ``after_…`` tokens), ``goals`` is
    (N, H) float: embeddings.

    Args:
        pooling: (N, S, H) states and (N, S) mask → (N, H); the paper's r reads the last token.
        max_length: maximum number of tokens of a text; longer texts lose their beginning.
    """

    goal: Tensor

    def __init__(
        self, *, encoder: TextEncoder, pooling: Callable[[Tensor, Tensor], Tensor], max_length: int, seed: int
    ) -> None:
        super().__init__()
        self.backbone = encoder.backbone
        self.tokenizer = encoder.tokenizer
        self.pooling = pooling
        self.max_length = max_length
        with seeded(seed):
            self.reward_head = nn.Linear(encoder.width, 1)
        self.register_buffer("goal", torch.zeros(encoder.width))

    def tokenize(self, texts: Sequence[str]) -> Tokens:
        """Raises ValueError for a text without tokens."""
        return tokenize(self.tokenizer, texts, max_length=self.max_length)

    def embed(self, tokens: Tokens) -> Float[Tensor, "N H"]:
        """Returns φ(x, y)."""
        states = self.backbone(input_ids=tokens["input_ids"], attention_mask=tokens["attention_mask"])
        pooled = self.pooling(states.last_hidden_state, tokens["attention_mask"].bool())
        return pooled.to(self.reward_head.weight.dtype)

    def reward(self, embeddings: Float[Tensor, "N H"]) -> Float[Tensor, " N"]:
        """Returns r(x, y) of completions embedded by ``embed``."""
        return self.reward_head(embeddings).squeeze(1)

    @torch.no_grad()
    def set_goal(self, successes: Iterable[Tokens]) -> None:
        """Sets the goal to the mean embedding of successful trajectories; it is saved with the weights.

        Raises ValueError: there are no trajectories.
        """
        embeddings = [self.embed(tokens) for tokens in successes]
        if not embeddings:
            raise ValueError("the goal is the mean over successful trajectories, got none")
        self.goal.copy_(torch.cat(embeddings).mean(dim=0))

    def forward(self, state_actions: Tokens, goals: Float[Tensor, "C H"]) -> Float[Tensor, "A C"]:
        """Returns the movement of every step towards every goal, in [−2, 2]."""
        before, after = self._around(state_actions)
        return cosine(after, goals) - cosine(before, goals)

    def pairs(self, state_actions: Tokens, goals: Float[Tensor, "N H"]) -> Float[Tensor, " N"]:
        """Returns the movement of N steps, each towards its own goal."""
        before, after = self._around(state_actions)
        return of_pairs(cosine, after, goals) - of_pairs(cosine, before, goals)

    def encode_steps(
        self, problem: Problem, completion: str, steps: Sequence[Step]
    ) -> tuple[Tokens, Float[Tensor, "N H"]]:
        """Encodes the text before each step and up to its end, with the goal; at least one step.

        The text includes the prompt. The text before a step has no trailing separators, like the prefixes in training.
        In a list of legal moves the movements of the steps add up to that of the whole completion.

        Raises ValueError: no goal was set.
        """
        if not bool(self.goal.any()):
            raise ValueError("the critic has no goal: it is set from successful trajectories after training")
        before = self.tokenize([problem.prompt + completion[: step.start].rstrip(BETWEEN) for step in steps])
        after = self.tokenize([problem.prompt + completion[: step.end] for step in steps])
        sides = {"before": before, "after": after}
        tokens = {f"{side}_{name}": part for side, parts in sides.items() for name, part in parts.items()}
        return tokens, self.goal.expand(len(steps), -1)

    def _around(self, state_actions: Tokens) -> tuple[Float[Tensor, "N H"], Float[Tensor, "N H"]]:
        names = ("input_ids", "attention_mask")
        before, after = ({name: state_actions[f"{side}_{name}"] for name in names} for side in ("before", "after"))
        return self.embed(before), self.embed(after)
