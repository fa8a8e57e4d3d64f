"""Model FLOPs utilisation: the arithmetic that a step asks for, over what the device could have done meanwhile.

    utilisation = (reading_flops(drawn) + learning_flops(update)) / (seconds of the step · peak)

The formulas are those of ``policies.flops``: true tokens once, so padding and repetition lower it. What rewards,
critics and a reference compute is not counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import lightning as L

from callbacks.peak import measured_peak
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.flops import NO_WORK, Work, decoder_size, learning_flops, reading_flops


class Utilisation:
    """From a module, its batch and the seconds of its phases to numbers worth logging.

    Of the update it knows what the module says: ``module.work``, a ``Work`` that is all that passed forward and
    backward in its last step; of rollouts what the batch says. Where there is neither, it says nothing.

    Args:
        peak_flops: operations per second of one device; None: measured once, in the policy's dtype.

    Raises:
        ValueError: for a peak that is not positive.
    """

    def __init__(self, peak_flops: float | None) -> None:
        if peak_flops is not None and peak_flops <= 0:
            raise ValueError(f"callbacks.throughput.peak_flops must be positive (or null), got {peak_flops}")
        self.peak_flops = peak_flops
        self._policy: CausalLMPolicy | None = None

    def look_at(self, pl_module: L.LightningModule) -> None:
        """Find the policy and the peak; once, before the first step."""
        policy = getattr(pl_module, "policy", None)
        if not isinstance(policy, CausalLMPolicy):
            return
        self._size = decoder_size(policy.model)
        if not self._size.layers.total:  # its layers are of a kind that the formulas do not know
            return
        self._policy = policy
        self._peak = self.peak_flops or measured_peak(policy.device, policy.compute_dtype)

    def __call__(self, pl_module: L.LightningModule, batch: Any, seconds: Mapping[str, float]) -> dict[str, float]:
        """Tokens and operations per second of the phases that there were.

        Args:
            pl_module: may have ``work``.
            batch: may have ``generated``, the work of all that was drawn for this step.
            seconds: of ``step`` and of its phases by name.
        """
        if self._policy is None:
            return {}
        values: dict[str, float] = {}
        flops: dict[str, float] = {}
        drawn, update = getattr(batch, "generated", NO_WORK), getattr(pl_module, "work", None)
        if drawn != NO_WORK:
            flops["rollout"] = reading_flops(self._size, drawn)
        if isinstance(update, Work):
            flops["update"] = learning_flops(self._size, update)
            flops["step"] = sum(flops.values())
            values["padding_share"] = update.padding_share
            if "update" in seconds:
                values["update_tokens_per_second"] = update.projected / seconds["update"]
        if not flops:
            return {}
        used = {phase: count / (seconds[phase] * self._peak) for phase, count in flops.items() if phase in seconds}
        values |= {f"{phase}_utilisation": share for phase, share in used.items()}
        return {**values, "peak_teraflops": self._peak / 1e12}
