"""One decode step through the model's own forward pass, for models whose layers we do not know."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

from contrastive_reasoning.policies.attention import AttentionPlan, no_mask
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy


@runtime_checkable
class Step(Protocol):
    """What reads one token of each row."""

    def read(
        self, ids: Int[Tensor, " b"], positions: Int[Tensor, " b"], plan: AttentionPlan
    ) -> tuple[Float[Tensor, "b V"], Float[Tensor, "b D"] | None]:
        """Logits of the token after each of ``ids``, and the last hidden state there where it is asked for."""
        ...


class ModelStep:
    def __init__(self, policy: CausalLMPolicy, *, states: bool) -> None:
        self.policy = policy
        self.states = states

    def read(
        self, ids: Int[Tensor, " b"], positions: Int[Tensor, " b"], plan: AttentionPlan
    ) -> tuple[Float[Tensor, "b V"], Float[Tensor, "b D"] | None]:
        output = self.policy.model(
            input_ids=ids[:, None],
            position_ids=positions[:, None],
            attention_mask=no_mask(ids.device),
            attention_plan=plan,
            use_cache=False,
            logits_to_keep=1,
            output_hidden_states=self.states,
        )
        return output.logits[:, -1], output.hidden_states[-1][:, -1] if self.states else None
