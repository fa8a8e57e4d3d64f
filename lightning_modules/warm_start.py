"""Supervised warm start: a policy learns the format and the rules of a task from generated completions.

    L = − Σ_t log π(y_t | x, y_<t) / Σ T        over the completion tokens of the batch, without the prompts

The problem of a play is relabelled by hindsight, so every example is a solved one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from contrastive_reasoning.distributed import ranks, share, total
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.sharding import gathered
from lightning_modules.optim import AdamW, FiniteSteps, check_not_half, nan_unless_finite


class WarmStart(FiniteSteps):
    """Next-token training of ``policy`` on batches of (prompt, completion) pairs; logs by step.

    Every rank has the whole batch and reads its share. All arguments except ``policy`` are those of ``FiniteSteps``.
    """

    def __init__(
        self,
        *,
        policy: CausalLMPolicy,
        optimizer: AdamW,
        seed: int,
        gradient_clip: float | None,
        max_skipped_steps: int,
    ) -> None:
        super().__init__(
            optimizer=optimizer, seed=seed, gradient_clip=gradient_clip, max_skipped_steps=max_skipped_steps
        )
        check_not_half(policy)
        self.policy = policy

    def training_step(self, batch: Sequence[tuple[str, str]], batch_idx: int) -> Tensor:
        with self.dropout("warm start dropout"):
            loss, tokens = self.loss(batch)
        of_all = total(loss.item())
        if isfinite(of_all):
            self.log("train/warm_start/loss", of_all, prog_bar=True, batch_size=len(batch))
        self.log("train/warm_start/tokens", float(tokens), batch_size=len(batch))
        return nan_unless_finite(loss) * ranks()  # strategies average gradients over ranks

    def validation_step(self, batch: Sequence[tuple[str, str]], batch_idx: int) -> None:
        with gathered(self.policy):
            loss, _ = self.loss(batch)
        self.log("val/warm_start/loss", total(loss.item()), prog_bar=True, batch_size=len(batch))

    def loss(self, pairs: Sequence[tuple[str, str]]) -> tuple[Tensor, int]:
        """This rank's part of the mean negative log-likelihood per completion token in nats, and the total token count.

        Raises:
            ValueError: for fewer pairs than ranks, or an example that is longer than the policy's context.
        """
        own = share(pairs)
        if not own:
            raise ValueError(f"a batch of {len(pairs)} examples cannot be divided over {ranks()} ranks")
        prompt_ids, prompt_mask = self.policy.encode_prompts([prompt for prompt, _ in own])
        completion_ids, mask = self.policy.encode_completions([completion for _, completion in own])
        longest = int((prompt_mask.sum(dim=1) + mask.sum(dim=1)).max())
        if longest > self.policy.max_length:
            raise ValueError(
                f"an example of the warm start has {longest} tokens with its prompt, more than the context of "
                f"{self.policy.max_length}: choose shorter examples, or for a fresh policy raise "
                "policy.architecture.max_length"
            )
        log_probs = self.policy.log_probs(prompt_ids, prompt_mask, completion_ids, mask)
        tokens = total(float(mask.sum()))
        return -log_probs.sum() / tokens, int(tokens)

    def plain(self, batch: Sequence[tuple[str, str]]) -> Mapping[str, object]:
        return {"prompts": [prompt for prompt, _ in batch], "completions": [completion for _, completion in batch]}

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        super().optimizer_step(*args, **kwargs)
        if self.gradient_norm.isfinite():
            self.log("train/warm_start/gradient_norm", self.gradient_norm, batch_size=1)

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        return batch  # text: the policy tokenises it on its own device
