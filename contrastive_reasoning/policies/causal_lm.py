"""A causal language model as a policy: prompts in, log-probs of completions out."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from peft import PeftModel
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from contrastive_reasoning.policies.adapters import merged
from contrastive_reasoning.policies.attention import can_plan, plan_attention
from contrastive_reasoning.policies.log_probs import token_log_probs
from contrastive_reasoning.policies.pooling import mean_pool
from contrastive_reasoning.policies.prompting import prompt_ids


class CausalLMPolicy(nn.Module):
    """π(completion | prompt) of any Hugging Face causal LM.

    ``compute_dtype`` is the dtype of forward passes under autocast (bf16 on CPU is 2–4 times as fast as fp32); the
    weights stay as they are. With ``chat_template`` a prompt is rendered as one user message without a system message;
    None does so where the tokenizer has a template.
    """

    def __init__(
        self,
        *,
        model: PreTrainedModel | PeftModel,
        tokenizer: PreTrainedTokenizerBase,
        compute_dtype: torch.dtype,
        chat_template: bool | None,
        chunk: int = 4096,
    ) -> None:
        super().__init__()
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        embedded = int(model.get_input_embeddings().num_embeddings)  # pyright: ignore[reportArgumentType]
        if len(tokenizer) > embedded:
            raise ValueError(
                f"the tokenizer does not fit the policy: it has {len(tokenizer)} tokens, the policy embeds {embedded}"
            )
        plan_attention(_base(model))
        self.model = model
        self.tokenizer = tokenizer
        self.compute_dtype = compute_dtype
        self.chat_template = chat_template
        self.chunk = chunk

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def max_length(self) -> int:
        """The context in tokens, prompt and completion together."""
        return int(self.model.config.max_position_embeddings)

    @property
    def plans_attention(self) -> bool:
        """Whether a pass may bring an ``AttentionPlan``: the model attends to all that came before."""
        return can_plan(_base(self.model))

    @property
    def pad_token_id(self) -> int:
        return int(self.tokenizer.pad_token_id)  # pyright: ignore[reportArgumentType]

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """Every token that ends a completion (instruction-tuned models have several)."""
        generation = getattr(self.model, "generation_config", None)
        configured = getattr(generation, "eos_token_id", None) or self.tokenizer.eos_token_id
        ids = configured if isinstance(configured, list | tuple) else [configured]
        return tuple(dict.fromkeys([*(int(i) for i in ids), int(self.tokenizer.eos_token_id)]))  # pyright: ignore

    def autocast(self) -> AbstractContextManager[object]:
        if self.compute_dtype == torch.float32:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.compute_dtype)

    def prompt_ids(self, prompt: str) -> list[int]:
        """Token ids of one prompt, with the beginning-of-text token where the tokenizer has one."""
        return prompt_ids(self.tokenizer, prompt, chat_template=self.chat_template)

    def encode_prompts(self, prompts: Sequence[str]) -> tuple[Int[Tensor, "P S"], Bool[Tensor, "P S"]]:
        """Prompts as left-padded ids with their mask, on the policy's device."""
        rows = [self.prompt_ids(prompt) for prompt in prompts]
        width = max(len(row) for row in rows)
        ids = torch.full((len(rows), width), self.pad_token_id, dtype=torch.long)
        mask = torch.zeros((len(rows), width), dtype=torch.bool)
        for i, row in enumerate(rows):
            ids[i, width - len(row) :] = torch.tensor(row)
            mask[i, width - len(row) :] = True
        return ids.to(self.device), mask.to(self.device)

    def encode_completions(self, completions: Sequence[str]) -> tuple[Int[Tensor, "B T"], Bool[Tensor, "B T"]]:
        """Completions with the end token, right-padded, with their mask, on the policy's device."""
        encoded = self.tokenizer(list(completions), add_special_tokens=False)["input_ids"]
        rows = [[*ids, int(self.tokenizer.eos_token_id)] for ids in encoded]  # pyright: ignore
        mask = torch.zeros((len(rows), max(len(row) for row in rows)), dtype=torch.bool)
        ids = torch.full(mask.shape, self.pad_token_id, dtype=torch.long)
        for i, row in enumerate(rows):
            ids[i, : len(row)] = torch.tensor(row)
            mask[i, : len(row)] = True
        return ids.to(self.device), mask.to(self.device)

    def hidden_states(self, ids: Int[Tensor, "B L"], mask: Bool[Tensor, "B L"]) -> Float[Tensor, "B L D"]:
        """Last hidden states after the final norm; positions restart at each row's first masked-in token."""
        positions = (mask.long().cumsum(dim=1) - 1).clamp_min(0)
        with self.autocast():
            output = _backbone(self.model)(
                input_ids=ids, attention_mask=mask.long(), position_ids=positions, use_cache=False
            )
        return output.last_hidden_state

    def log_probs(
        self,
        prompt_ids: Int[Tensor, "B S"],
        prompt_mask: Bool[Tensor, "B S"],
        completion_ids: Int[Tensor, "B T"],
        mask: Bool[Tensor, "B T"],
        *,
        temperature: float = 1.0,
    ) -> Float[Tensor, "B T"]:
        """log π of each completion token under the softmax at ``temperature``, in nats; 0 where masked out."""
        return self.log_probs_and_pooled(prompt_ids, prompt_mask, completion_ids, mask, temperature=temperature)[0]

    def log_probs_and_pooled(
        self,
        prompt_ids: Int[Tensor, "B S"],
        prompt_mask: Bool[Tensor, "B S"],
        completion_ids: Int[Tensor, "B T"],
        mask: Bool[Tensor, "B T"],
        *,
        temperature: float = 1.0,
    ) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B D"]]:
        """``log_probs`` and, of the same pass, the mean hidden state over all completion tokens."""
        ids = torch.cat([prompt_ids, completion_ids], dim=1)
        hidden = self.hidden_states(ids, torch.cat([prompt_mask, mask], dim=1))
        start = prompt_ids.shape[1]
        predicting = hidden[:, start - 1 : -1][mask]
        head: Any = self.model.get_output_embeddings()
        with self.autocast():
            chosen = token_log_probs(
                predicting,
                head.weight,
                completion_ids[mask],
                temperature=temperature,
                chunk=self.chunk,
                bias=getattr(head, "bias", None),
            )
        log_probs = torch.zeros(mask.shape, dtype=chosen.dtype, device=chosen.device)
        log_probs = log_probs.masked_scatter(mask, chosen)
        return log_probs, mean_pool(hidden[:, start:].float(), mask)

    def save(self, folder: Path | str) -> None:
        """Write the policy in Hugging Face format (safetensors), adapters merged, readable by ``from_pretrained``."""
        merged(self.model).save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)


def _base(model: PreTrainedModel | PeftModel) -> PreTrainedModel:
    return model.get_base_model() if isinstance(model, PeftModel) else model  # pyright: ignore[reportReturnType]


def _backbone(model: PreTrainedModel | PeftModel) -> nn.Module:
    return _base(model).base_model
