"""Selection of the completions that are compared: an anchor's candidates and positives at each level.

        group   the other completions of its prompt      positives: those with its verdict
        cross   all other completions of the batch       positives: those of its prompt with its verdict
        batch   all other completions of the batch       positives: all with its verdict

CLIPO (arXiv:2603.10101) uses the group level; cross and batch are settings of its released code. At the group level the
columns are the G completions of the anchor's own prompt, so no B × B tensor is allocated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from contrastive_reasoning.losses.similarity import Similarity


class Compared(NamedTuple):
    """B anchors with C candidate columns."""

    scores: Float[Tensor, "B C"]
    itself: Bool[Tensor, "B C"]
    """The anchor's own column."""
    positive: Bool[Tensor, "B C"]
    """Never the anchor itself."""
    candidate: Bool[Tensor, "B C"]
    """The columns that count: all except those of completions without a valid verdict."""

    @property
    def contrasted(self) -> Bool[Tensor, " B"]:
        """Anchors with a positive and a negative; only these are useful. At the group level: 1 < |P| < G."""
        return self.positive.any(dim=1) & (self.candidate & ~self.positive & ~self.itself).any(dim=1)

    def without(self, unjudged: Bool[Tensor, " B"]) -> Compared:
        """Returns a copy without these completions as candidates; as anchors they have no positive."""
        groups = unjudged.view(-1, self.scores.shape[1])  # one row per group, or one row of all completions
        columns = groups.repeat_interleave(len(unjudged) // len(groups), dim=0)
        positive = self.positive & ~columns & ~unjudged[:, None]
        return self._replace(positive=positive, candidate=self.candidate & ~columns)


Level = Callable[[Tensor, Tensor, int, Similarity], Compared]
"""(prompt-major embeddings (B,D), verdicts (B,), group size, similarity) → ``Compared``."""


def group_level(
    embeddings: Float[Tensor, "B D"], correct: Bool[Tensor, " B"], group_size: int, similarity: Similarity
) -> Compared:
    groups, verdicts = embeddings.unflatten(0, (-1, group_size)), correct.view(-1, group_size)
    scores = similarity(groups, groups).flatten(0, 1)
    itself = torch.eye(group_size, dtype=torch.bool, device=correct.device).repeat(len(groups), 1)
    alike = (verdicts[:, :, None] == verdicts[:, None, :]).flatten(0, 1)
    return Compared(scores, itself, alike & ~itself, torch.ones_like(itself))


def cross_level(
    embeddings: Float[Tensor, "B D"], correct: Bool[Tensor, " B"], group_size: int, similarity: Similarity
) -> Compared:
    whole = batch_level(embeddings, correct, group_size, similarity)
    prompt = torch.arange(len(correct), device=correct.device) // group_size
    return whole._replace(positive=whole.positive & (prompt[:, None] == prompt[None]))


def batch_level(
    embeddings: Float[Tensor, "B D"], correct: Bool[Tensor, " B"], group_size: int, similarity: Similarity
) -> Compared:
    itself = torch.eye(len(correct), dtype=torch.bool, device=correct.device)
    alike = correct[:, None] == correct[None]
    return Compared(similarity(embeddings, embeddings), itself, alike & ~itself, torch.ones_like(itself))


LEVELS: Mapping[str, Level] = {"group": group_level, "cross": cross_level, "batch": batch_level}


def draw_positive(positive: Bool[Tensor, "A C"], *, generator: torch.Generator) -> Bool[Tensor, "A C"]:
    """Draws one of each anchor's positives uniformly, with a CPU generator: the same draw on every device."""
    keys = torch.rand(positive.shape, generator=generator).to(positive.device).masked_fill(~positive, -1.0)
    drawn = torch.zeros_like(positive).scatter(1, keys.argmax(dim=1, keepdim=True), True)
    return drawn & positive  # argmax selects the first column of an anchor without positives


def epsilon_floor(logits: Float[Tensor, "A C"], epsilon: float) -> Float[Tensor, " A"]:
    """Returns ε of log(Σ exp(sᵢⱼ − maxⱼ sᵢⱼ) + ε) as an additional logit: maxⱼ sᵢⱼ + log ε, without gradient.

    The maximum is over all columns, including the anchor's own with its similarity of 1. So ε counts as ε·exp(1/τ):
    negligible at τ = 0.1, many nats at τ = 0.02. CLIPO's released code has this ε; a sum in log space does not need it.
    """
    return logits.detach().max(dim=1).values + torch.tensor(epsilon, dtype=logits.dtype).log().to(logits.device)
