"""A causal language model as a policy: from prompts and completions to log-probs of the completions."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from peft import PeftModel, get_peft_model
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from contrastive_reasoning.policies.attention import can_plan, no_mask, plan_attention
from contrastive_reasoning.policies.compiled import CompiledLayer, require_compilable
from contrastive_reasoning.policies.fused_layers import FusedLayer, can_fuse, require_fusable
from contrastive_reasoning.policies.log_probs import full_kl, scatter_to_rows, token_log_probs
from contrastive_reasoning.policies.merging import save_merged
from contrastive_reasoning.policies.packed import pack
from contrastive_reasoning.policies.pass_cost import Lengths, Sizes, packing_pays
from contrastive_reasoning.policies.prompting import NO_SYSTEM, check_system, prompt_ids, turn_end
from contrastive_reasoning.policies.varlen import Kernel


@dataclass(frozen=True, kw_only=True)
class CompletionStates:
    """Last hidden states, after the final norm, for the n completion tokens of a pass, row by row."""

    predicting: Float[Tensor, "n D"]
    """The state before each token, from which its log-prob is computed."""
    own: Float[Tensor, "n D"]
    """The state at each token."""


class CausalLMPolicy(nn.Module):
    """π(completion | prompt) of any Hugging Face causal LM.

    ``compute_dtype`` is the dtype of forward passes under autocast; the weights keep their dtype. bf16 is 2–4 times as
    fast as fp32 on a CPU with native bf16, and far slower on others. With ``chat_template`` a prompt is rendered as one
    user message; None does so if the tokenizer has a template. ``system`` is the system message before it: ``none``,
    ``default`` or a text, see ``render``. With ``compiled`` the passes below use compiled layers; generation does not.
    ``score`` is ``token_log_probs`` or a function with its interface. With ``attention``, a kernel for segments, passes
    are packed where it takes their tensors. ``fused`` layers compute passes where they can; auto: on a CPU. With
    ``unpadded`` rows of different lengths never share a pass, and ``transformers`` generates: for models whose states
    depend on padding or that have other caches.
    """

    def __init__(
        self,
        *,
        model: PreTrainedModel | PeftModel,
        tokenizer: PreTrainedTokenizerBase,
        compute_dtype: torch.dtype,
        chat_template: bool | None,
        system: str = NO_SYSTEM,
        chunk: int = 1024,
        compiled: bool = False,
        score: Callable[..., Tensor] = token_log_probs,
        attention: Kernel | None = None,
        fused: bool | Literal["auto"] = "auto",
        unpadded: bool = False,
    ) -> None:
        super().__init__()
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        embedded = int(model.get_input_embeddings().num_embeddings)  # pyright: ignore[reportArgumentType]
        if len(tokenizer) > embedded:
            raise ValueError(
                f"the tokenizer does not fit the policy: it has {len(tokenizer)} tokens, the policy embeds {embedded}"
            )
        check_system(tokenizer, chat_template=chat_template, system=system)
        if compiled and fused is True:
            raise ValueError("policy.compiled=true and policy.fused=true exclude each other: both replace the layers")
        if compiled:
            require_compilable(unwrap(model).base_model)
        if fused is True:
            require_fusable(unwrap(model), compute_dtype)
        plan_attention(unwrap(model))
        self.model = model
        self.tokenizer = tokenizer
        self.compute_dtype = compute_dtype
        self.chat_template = chat_template
        self.system = system
        self.chunk = chunk
        self.compiled = compiled
        self.score = score
        self.attention = attention
        self.fused = fused
        self.unpadded = unpadded
        self.logit_scale, self.softcap = logit_transform(unwrap(model).config)
        self._turn_end = turn_end(tokenizer, chat_template=chat_template)
        if (generation := getattr(unwrap(model), "generation_config", None)) is not None:
            generation.eos_token_id = [*self.eos_token_ids]  # saved with the weights; others generate with it

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def dtype_of_products(self) -> torch.dtype:
        """The compute dtype; in full precision that of the weights."""
        return self.compute_dtype if self.compute_dtype != torch.float32 else next(self.model.parameters()).dtype

    @property
    def backbone(self) -> nn.Module:
        """The decoder without the projection to the vocabulary."""
        model: Any = unwrap(self.model)
        return model.model if model.base_model is model else model.base_model  # Llama 4's text model names no base

    @property
    def max_length(self) -> int:
        """The context in tokens, prompt and completion together."""
        return context_of(self.model.config)

    @property
    def plans_attention(self) -> bool:
        """Whether a pass may use an ``AttentionPlan``: the model attends to all earlier tokens."""
        return can_plan(unwrap(self.model))

    @property
    def pad_token_id(self) -> int:
        return int(self.tokenizer.pad_token_id)  # pyright: ignore[reportArgumentType]

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """Every token that ends a completion: models may have several, and the end of a turn is one too."""
        generation = getattr(self.model, "generation_config", None)
        configured = getattr(generation, "eos_token_id", None) or self.tokenizer.eos_token_id
        ids = configured if isinstance(configured, list | tuple) else [configured]
        own = [*ids, self.tokenizer.eos_token_id, *([] if self._turn_end is None else [self._turn_end])]
        return tuple(dict.fromkeys(int(token) for token in own))  # pyright: ignore[reportArgumentType]

    @property
    def end_token_id(self) -> int:
        """The token that ends a completion: the end of a turn if the chat template writes one, else the end of text."""
        return int(self.tokenizer.eos_token_id if self._turn_end is None else self._turn_end)  # pyright: ignore

    def autocast(self, *, cached: bool = True) -> AbstractContextManager[object]:
        """Casts matrices to the compute dtype. With ``cached``, trained ones are cast once and kept to the end."""
        if self.compute_dtype == torch.float32:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.compute_dtype, cache_enabled=cached)

    def prompt_ids(self, prompt: str) -> list[int]:
        """Token ids of one prompt, with the beginning-of-text token if the tokenizer itself adds it."""
        return prompt_ids(self.tokenizer, prompt, chat_template=self.chat_template, system=self.system)

    def encode_prompts(self, prompts: Sequence[str]) -> tuple[Int[Tensor, "P S"], Bool[Tensor, "P S"]]:
        """Prompts as left-padded ids with their mask, on the policy's device."""
        return self.padded([self.prompt_ids(prompt) for prompt in prompts], side="left")

    def encode_completions(self, completions: Sequence[str]) -> tuple[Int[Tensor, "B T"], Bool[Tensor, "B T"]]:
        """Completions with the end token as right-padded ids with their mask, on the policy's device."""
        encoded: Any = self.tokenizer(list(completions), add_special_tokens=False)
        return self.padded([[*ids, self.end_token_id] for ids in encoded["input_ids"]], side="right")

    def padded(self, rows: Sequence[Sequence[int]], *, side: str) -> tuple[Int[Tensor, "N L"], Bool[Tensor, "N L"]]:
        """Rows of token ids padded on one side, with their mask, on the policy's device."""
        padded: dict[str, Any] = {"batch_first": True, "padding_side": side}
        tensors = [torch.tensor(row, dtype=torch.long) for row in rows]
        ids = pad_sequence(tensors, padding_value=self.pad_token_id, **padded)
        mask = pad_sequence([torch.ones_like(row, dtype=torch.bool) for row in tensors], **padded)
        return ids.to(self.device), mask.to(self.device)

    def hidden_states(self, ids: Int[Tensor, "B L"], mask: Bool[Tensor, "B L"]) -> Float[Tensor, "B L D"]:
        """Last hidden states after the final norm; positions restart at each row's first masked-in token."""
        positions = (mask.long().cumsum(dim=1) - 1).clamp_min(0)
        return self._pass(input_ids=ids, attention_mask=mask.long(), position_ids=positions)

    def completion_states(
        self,
        prompt_ids: Int[Tensor, "p s"],
        prompt_mask: Bool[Tensor, "p s"],
        completion_ids: Int[Tensor, "b t"],
        mask: Bool[Tensor, "b t"],
        owner: Int[Tensor, " b"] | None = None,
    ) -> CompletionStates:
        """Last hidden states at the completions, by the cheaper of two passes: packed, or padded rows.

        Args:
            prompt_ids: each prompt once.
            prompt_mask: True on their tokens.
            completion_ids: padded on the right.
            mask: True on their tokens.
            owner: the index of each completion's prompt; None: one prompt for each completion.
        """
        if owner is None:
            owner = torch.arange(len(mask), device=mask.device)
        lengths = Lengths(
            prompts=prompt_mask.sum(dim=1).tolist(), completions=mask.sum(dim=1).tolist(), owner=owner.tolist()
        )
        if self.unpadded:
            states = self.unpadded_states
        else:
            states = self.packed_states if self.packs(lengths) else self.padded_states
        return states(prompt_ids, prompt_mask, completion_ids, mask, owner, lengths)

    def padded_states(
        self, prompt_ids: Tensor, prompt_mask: Tensor, completion_ids: Tensor, mask: Tensor, owner: Tensor, _: Lengths
    ) -> CompletionStates:
        """``completion_states`` by a pass over padded rows."""
        rows_mask = torch.cat([prompt_mask[owner], mask], dim=1)
        hidden = self.hidden_states(torch.cat([prompt_ids[owner], completion_ids], dim=1), rows_mask)
        start = prompt_ids.shape[1]
        return CompletionStates(predicting=hidden[:, start - 1 : -1][mask], own=hidden[:, start:][mask])

    def unpadded_states(
        self, prompt_ids: Tensor, prompt_mask: Tensor, completion_ids: Tensor, mask: Tensor, owner: Tensor, _: Lengths
    ) -> CompletionStates:
        """``completion_states`` by a pass for each length of a row, prompt and completion together."""
        rows_mask = torch.cat([prompt_mask[owner], mask], dim=1)
        rows, lengths = torch.cat([prompt_ids[owner], completion_ids], dim=1), rows_mask.sum(dim=1)
        hidden: dict[int, Tensor] = {}
        for length in lengths.unique().tolist():
            alike = (lengths == length).nonzero()[:, 0]
            ids = rows[alike][rows_mask[alike]].view(len(alike), length)
            hidden |= zip(alike.tolist(), self._pass(input_ids=ids), strict=True)
        written = [(hidden[row], count) for row, count in enumerate(mask.sum(dim=1).tolist())]
        return CompletionStates(
            predicting=torch.cat([states[len(states) - count - 1 : -1] for states, count in written]),
            own=torch.cat([states[len(states) - count :] for states, count in written]),
        )

    def packed_states(
        self,
        prompt_ids: Tensor,
        prompt_mask: Tensor,
        completion_ids: Tensor,
        mask: Tensor,
        owner: Tensor,
        lengths: Lengths,
    ) -> CompletionStates:
        """``completion_states`` by a pass without padding; the policy must plan attention."""
        rows = pack(
            *(prompt_ids, prompt_mask, completion_ids, mask, owner, lengths),
            dtype=self.dtype_of_products,
            kernel=self.attention,
        )
        hidden = self._pass(
            input_ids=rows.ids,
            attention_mask=no_mask(self.device),
            position_ids=rows.positions,
            attention_plan=rows.plan,
        )[0]
        return CompletionStates(
            predicting=hidden.index_select(0, rows.predicting), own=hidden[len(hidden) - len(rows.predicting) :]
        )

    def _pass(self, **inputs: Any) -> Float[Tensor, "B L D"]:
        backbone, wrap = self.backbone, None
        if self.compiled:
            wrap = CompiledLayer
        elif self.fuses:
            wrap = partial(FusedLayer, dtype=self.compute_dtype)
        with self.autocast(), nullcontext() if wrap is None else _wrapped_layers(backbone, wrap):
            return backbone(**inputs, use_cache=False).last_hidden_state

    @property
    def fuses(self) -> bool:
        """Whether passes use fused layers."""
        wanted = self.device.type == "cpu" if self.fused == "auto" else bool(self.fused)
        return wanted and can_fuse(unwrap(self.model), self.compute_dtype)

    def packs(self, lengths: Lengths) -> bool:
        """Whether a pass over prompts and completions of these lengths is packed."""
        if not self.plans_attention or not all(lengths.prompts):
            return False
        if self.attention is not None and self.attention.takes(self.device, self.dtype_of_products):
            return True
        return packing_pays(lengths, Sizes.of(unwrap(self.model).config))

    def pass_tokens(self, lengths: Lengths) -> int:
        """Tokens that go through the layers in such a pass, including padding if there is any."""
        if self.unpadded:
            return lengths.unpadded
        return lengths.packed if self.packs(lengths) else lengths.padded

    def log_probs(
        self,
        prompt_ids: Int[Tensor, "p s"],
        prompt_mask: Bool[Tensor, "p s"],
        completion_ids: Int[Tensor, "b t"],
        mask: Bool[Tensor, "b t"],
        *,
        owner: Int[Tensor, " b"] | None = None,
        temperature: float = 1.0,
    ) -> Float[Tensor, "b t"]:
        """log π of each completion token under the softmax at ``temperature``, in nats; 0 where masked out.

        The arguments are those of ``completion_states``.
        """
        states = self.completion_states(prompt_ids, prompt_mask, completion_ids, mask, owner)
        return self.score_states(states.predicting, completion_ids, mask, temperature)

    def score_states(
        self, predicting: Float[Tensor, "n D"], completion_ids: Tensor, mask: Tensor, temperature: float
    ) -> Float[Tensor, "b t"]:
        """``log_probs`` from the ``predicting`` states of a pass."""
        weight, bias = self.head
        with self.autocast():
            chosen = self.score(
                predicting,
                weight,
                completion_ids[mask],
                temperature=temperature / self.logit_scale,  # z / τ of the scaled logits z is W h / (τ / scale)
                chunk=self.chunk,
                bias=bias,
                softcap=self.softcap,
            )
        return scatter_to_rows(chosen, mask)

    @property
    def head(self) -> tuple[Tensor, Tensor | None]:
        """Weight and bias of the vocabulary projection; None for a missing bias. See also ``logit_transform``."""
        head: Any = self.model.get_output_embeddings()
        return head.weight, getattr(head, "bias", None)

    def without_weights(self) -> CausalLMPolicy:
        """The same policy, never compiled, with parameters on the meta device, which hold no data."""
        own: Any = unwrap(self.model)
        with torch.device("meta"):
            model = type(own)(copy.deepcopy(own.config))
            model.generation_config = own.generation_config
            if isinstance(self.model, PeftModel):
                model = get_peft_model(model, copy.deepcopy(self.model.active_peft_config))
        return CausalLMPolicy(
            model=model,
            tokenizer=self.tokenizer,
            compute_dtype=self.compute_dtype,
            chat_template=self.chat_template,
            system=self.system,
            chunk=self.chunk,
            score=self.score,
            unpadded=self.unpadded,
        )

    def save(self, folder: Path | str, *, max_shard_size: str = "50GB") -> None:
        """Saves the policy in Hugging Face format (safetensors), adapters merged, readable by ``from_pretrained``.

        Weights on another device are copied to the CPU, as many at a time as one file of ``max_shard_size`` holds.
        """
        if isinstance(self.model, PeftModel):
            save_merged(self.model, Path(folder), max_shard_size=max_shard_size)
        else:
            self.model.save_pretrained(folder, max_shard_size=max_shard_size)
        self.tokenizer.save_pretrained(folder)


@contextmanager
def _wrapped_layers(backbone: Any, wrap: Callable[[nn.Module], nn.Module]) -> Iterator[None]:
    """Replaces each layer within. The model has its own layers again whenever it is copied, saved or generates."""
    layers = backbone.layers
    backbone.layers = nn.ModuleList(wrap(layer) for layer in layers)
    try:
        yield
    finally:
        backbone.layers = layers


def unwrap(model: PreTrainedModel | PeftModel) -> PreTrainedModel:
    """The base model, with any adapters in place."""
    return model.get_base_model() if isinstance(model, PeftModel) else model  # pyright: ignore[reportReturnType]


NO_LIMIT = 2**30
"""Context of a model without a limit, such as a recurrent one."""


def context_of(config: PretrainedConfig) -> int:
    """The context of a model in tokens; ``NO_LIMIT`` if its configuration names none."""
    text: Any = config.get_text_config()
    found = [getattr(text, name, None) for name in ("max_position_embeddings", "max_seq_len", "seq_length")]
    return int(next(filter(None, found), NO_LIMIT))


def logit_transform(config: PretrainedConfig) -> tuple[float, float | None]:
    """What a model does to its logits after the projection, (s, c):  z ↦ s z, or z ↦ c tanh(s z / c) with a cap c.

    Cohere and Falcon-H1 multiply, Granite and MiniCPM3 divide, HyperCLOVA multiplies by a key of that name; Gemma caps.
    """
    text: Any = config.get_text_config()
    found = [getattr(text, name, None) for name in ("logit_scale", "lm_head_multiplier")]
    scale = prod(float(value) for value in found if isinstance(value, int | float) and value)
    scaling = float(getattr(text, "logits_scaling", None) or 1.0)
    scale *= scaling if text.model_type.startswith("hyperclovax") else 1 / scaling
    cap = getattr(text, "final_logit_softcapping", None)
    return scale, None if cap is None else float(cap)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Sets every module to evaluation mode; restores each mode afterwards."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def log_probs_and_full_kl(
    policy: CausalLMPolicy,
    reference: CausalLMPolicy,
    prompt_ids: Int[Tensor, "p s"],
    prompt_mask: Bool[Tensor, "p s"],
    completion_ids: Int[Tensor, "b t"],
    mask: Bool[Tensor, "b t"],
    *,
    owner: Int[Tensor, " b"] | None = None,
    temperature: float,
) -> tuple[Float[Tensor, "b t"], Float[Tensor, "b t"]]:
    """``policy.log_probs`` and the KL to the reference, by one pass of each; 0 where masked out.

    The reference gets no gradient. Of its pass, only the states of these rows are held, never the logits.
    """
    rows = prompt_ids, prompt_mask, completion_ids, mask, owner
    hidden = policy.completion_states(*rows).predicting
    with torch.no_grad():
        ref_hidden = reference.completion_states(*rows).predicting
    log_probs = policy.score_states(hidden, completion_ids, mask, temperature)
    weight, bias = policy.head
    ref_weight, ref_bias = reference.head
    with policy.autocast():
        divergence = full_kl(
            hidden,
            weight,
            ref_hidden,
            ref_weight.detach(),
            temperature=temperature / policy.logit_scale,
            chunk=policy.chunk,
            bias=bias,
            softcap=policy.softcap,
            ref_bias=None if ref_bias is None else ref_bias.detach(),
            ref_softcap=reference.softcap,
            ref_temperature=temperature / reference.logit_scale,
        )
    return log_probs, scatter_to_rows(divergence, mask)
