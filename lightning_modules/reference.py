"""The policy that a KL term compares with: frozen, and where torch registers nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from contrastive_reasoning.objectives import Objective
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy


class Reference:
    """Holds a frozen policy. Not a module, so no optimizer, checkpoint or strategy of its holder sees it.

    Args:
        policy: what is compared with.
        offload: keep it in the host's memory, and on the device only while it is asked.
    """

    def __init__(self, policy: CausalLMPolicy, *, offload: bool) -> None:
        self.policy = policy.requires_grad_(False).eval()
        self.offload = offload
        self._device = torch.device("cpu")

    def settle(self, device: torch.device) -> None:
        """Know the device on which it will be asked."""
        self._device = device
        self.policy.to("cpu" if self.offload else device)

    @contextmanager
    def at_hand(self) -> Iterator[None]:
        """Within it the policy is on the device."""
        self.policy.to(self._device)
        try:
            yield
        finally:
            if self.offload:
                self.policy.to("cpu")


def wanted_reference(policy: CausalLMPolicy | None, objective: Objective, *, offload: bool) -> Reference | None:
    """The reference that the objective's KL term asks for; None where none was given or no term weighs anything."""
    if policy is None or not has_kl(objective):
        return None
    return Reference(policy, offload=offload)


def has_kl(objective: Objective) -> bool:
    """Whether the objective has a KL term that weighs anything."""
    return getattr(objective, "kl", None) is not None and getattr(objective, "kl_weight", 0.0) > 0
