"""A check that a policy computes what its model computes: log-probs of a few tokens, by every pass that is used.

    own       the model's own forward pass, a row at a time: no padding, no plan, no cache
    padded    rows of a scoring pass
    packed    the same tokens in one row, under an attention plan
    decoded   prompts, then one token at a time, as an engine reads them
    unpadded  rows of a scoring pass, those of one length together
    written   one prompt, then one token at a time, by the model's own ``generate``

A model family may scale logits, bend attention, have states that depend on padding or need a cache of its own. If a
planned pass differs, the model keeps its own attention, with padded passes. If one of these differs, rows are never
padded. If that differs too, the policy is refused.

The passes are those of the weights' dtype, without autocast. Sequences are shorter than any attention window.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from contrastive_reasoning.policies.attention import NAME
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy, evaluating, unwrap
from contrastive_reasoning.policies.decoder import cache_of, cached_pass, select_rows, step_of, write_rows
from contrastive_reasoning.policies.pass_cost import Lengths
from contrastive_reasoning.policies.shared_cache import SharedCache, read_prompts

TEXT = "Two and 3 make 5, and 12 - 4 = 8."
PROMPTS, OWNER, COMPLETIONS = (5, 2), (0, 0, 1), (3, 1, 4)
"""Tokens of each prompt, the prompt of each completion, and the tokens of each completion."""
TOLERANCE = 2e-3
"""Maximum of a row's mean difference, in nats: well above rounding, far below an error in a formula."""
TOLERANCE_IN_HALF = 0.3
"""The same for weights in bfloat16 and float16."""


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The tokens of the check, padded as for a scoring pass."""

    prompt_ids: Int[Tensor, "p s"]
    prompt_mask: Bool[Tensor, "p s"]
    completion_ids: Int[Tensor, "b t"]
    mask: Bool[Tensor, "b t"]

    @property
    def owner(self) -> Int[Tensor, " b"]:
        return torch.tensor(OWNER, device=self.mask.device)

    @property
    def inputs(self) -> tuple[Any, ...]:
        """The arguments of ``padded_states`` and ``packed_states``."""
        lengths = Lengths(prompts=PROMPTS, completions=COMPLETIONS, owner=OWNER)
        return self.prompt_ids, self.prompt_mask, self.completion_ids, self.mask, self.owner, lengths


LogProbs = Float[Tensor, "b t"]


def check_passes(policy: CausalLMPolicy, named: str) -> None:
    """Compares the passes of a policy with the forward pass of its model. No weight and no random state changes.

    If planned attention differs, the model's attention becomes ``eager``; if padded passes differ, the policy becomes
    ``unpadded``. Both are followed by a warning.

    Raises ValueError if the model's own pass fails or its log-probs are not finite, or if unpadded passes differ or
    fail. The message begins with ``named``. For a pass it also names the model's family and the pass.
    """
    model = unwrap(policy.model)
    plain = copy.copy(policy)  # it has the same model, and settings of its own
    plain.compute_dtype, plain.compiled = torch.float32, False
    with torch.no_grad(), evaluating(policy.model):
        rows = rows_of(policy)
        with _without_plans(model):
            try:
                own = own_log_probs(plain, rows)
            except Exception as error:  # of any class: code of another family fails in its own way
                raise ValueError(f"{named}: {_family(model)}: its own forward pass {_failed(error)}") from error
        if not bool(own.isfinite().all()):
            raise ValueError(f"{named}: its log-probs are not finite; its weights may be damaged")
        passes = {"padded": padded, "decoded": decoded}
        if plain.plans_attention:
            if flaw := _flaw({"packed": packed, "decoded": decoded}, plain, rows, own):
                model.set_attn_implementation("eager")
                _warn(model, f"as with planned attention {flaw}")
            else:
                del passes["decoded"]
        if (flaw := _flaw(passes, plain, rows, own)) is None:
            return
        plain.unpadded = True
        if wrong := _flaw({"unpadded": unpadded, "written": written}, plain, rows, own):
            raise ValueError(
                f"{named}: {_family(model)} cannot be trained or sampled here: {wrong}; "
                "choose a policy of another family"
            )
        policy.unpadded = True
        _warn(model, f"without padding and with transformers' own generate, as {flaw}")


def _family(model: PreTrainedModel) -> str:
    return f"{type(model).__name__} ({model.config.model_type})"


def _failed(error: Exception) -> str:
    return f"fails ({type(error).__name__}: {' '.join(str(error).split())})"


def _warn(model: PreTrainedModel, why: str) -> None:
    warnings.warn(f"{type(model).__name__}: passes are slower, {why}", stacklevel=3)


def _flaw(
    passes: dict[str, Callable[[CausalLMPolicy, Rows], LogProbs]], policy: CausalLMPolicy, rows: Rows, own: LogProbs
) -> str | None:
    """What is wrong with the first pass that differs or fails, as a clause; None if none does."""
    tolerance = TOLERANCE_IN_HALF if next(policy.model.parameters()).dtype.itemsize < 4 else TOLERANCE
    for name, compute in passes.items():
        try:
            found = compute(policy, rows)
        except Exception as error:  # of any class: code of another family fails in its own way
            return f"the {name} pass {_failed(error)}"
        off = ((found - own).abs() * rows.mask).sum(dim=1) / rows.mask.sum(dim=1)
        if not bool((off <= tolerance).all()):
            return f"log-probs of the {name} pass are {float(off.max()):.3g} nats from those of its own forward pass"
    return None


def rows_of(policy: CausalLMPolicy) -> Rows:
    """Prompts and completions of the first tokens of ``TEXT``, repeated where it has too few."""
    found: Any = policy.tokenizer(TEXT, add_special_tokens=False)
    count = sum(PROMPTS) + sum(COMPLETIONS)
    tokens = (found["input_ids"] * count)[:count]
    pieces: list[list[int]] = []
    for size in (*PROMPTS, *COMPLETIONS):
        pieces.append(tokens[:size])
        tokens = tokens[size:]
    prompt_ids, prompt_mask = policy.padded(pieces[: len(PROMPTS)], side="left")
    completion_ids, mask = policy.padded(pieces[len(PROMPTS) :], side="right")
    return Rows(prompt_ids=prompt_ids, prompt_mask=prompt_mask, completion_ids=completion_ids, mask=mask)


def own_log_probs(policy: CausalLMPolicy, rows: Rows) -> LogProbs:
    """By the model's forward pass over each row."""
    found = torch.zeros(rows.mask.shape, dtype=torch.float32, device=rows.mask.device)
    for row, prompt in enumerate(OWNER):
        before, written = rows.prompt_ids[prompt][rows.prompt_mask[prompt]], rows.completion_ids[row][rows.mask[row]]
        logits = policy.model(input_ids=torch.cat([before, written])[None], use_cache=False).logits[0]
        found[row, : len(written)] = _chosen(logits[len(before) - 1 : -1], written)
    return found


def padded(policy: CausalLMPolicy, rows: Rows) -> LogProbs:
    """By a scoring pass over padded rows."""
    return policy.score_states(policy.padded_states(*rows.inputs).predicting, rows.completion_ids, rows.mask, 1.0)


def packed(policy: CausalLMPolicy, rows: Rows) -> LogProbs:
    """By a scoring pass without padding."""
    return policy.score_states(policy.packed_states(*rows.inputs).predicting, rows.completion_ids, rows.mask, 1.0)


def unpadded(policy: CausalLMPolicy, rows: Rows) -> LogProbs:
    """By a scoring pass over rows of one length at a time."""
    return policy.score_states(policy.unpadded_states(*rows.inputs).predicting, rows.completion_ids, rows.mask, 1.0)


def written(policy: CausalLMPolicy, rows: Rows) -> LogProbs:
    """By ``generate``, which is made to write the completions, those of one prompt at once, which stand together."""
    parts: list[Tensor] = []
    for prompt in range(len(PROMPTS)):
        tokens, found = rows.completion_ids[rows.owner == prompt], list[Tensor]()

        def choose(logits: Tensor, tokens: Tensor = tokens, found: list[Tensor] = found) -> tuple[Tensor, Tensor]:
            column = tokens[:, len(found)]
            found.append(_chosen(logits, column))
            return column, torch.zeros_like(column, dtype=torch.bool)

        ids = rows.prompt_ids[prompt][rows.prompt_mask[prompt]]
        write_rows(policy, ids, rows=len(tokens), limit=tokens.shape[1], choose=choose)
        parts.append(torch.stack(found, dim=1))
    return torch.cat(parts)


def decoded(policy: CausalLMPolicy, rows: Rows) -> LogProbs:
    """By reading the prompts, then the completions token by token."""
    logits, read = (_planned if policy.plans_attention else _repeated)(policy, rows)
    found = [_chosen(logits, rows.completion_ids[:, 0])]
    for step in range(1, rows.mask.shape[1]):
        found.append(_chosen(read(step - 1), rows.completion_ids[:, step]))
    return torch.stack(found, dim=1)


Read = Callable[[int], Float[Tensor, "b V"]]
"""Reads the n-th token of each completion; returns the logits after it."""


def _planned(policy: CausalLMPolicy, rows: Rows) -> tuple[Float[Tensor, "b V"], Read]:
    prompts = read_prompts(policy, [ids[mask] for ids, mask in zip(rows.prompt_ids, rows.prompt_mask, strict=True)])
    cache = SharedCache(limit=rows.mask.shape[1])
    cache.hold([], dict(enumerate(prompts)))
    cache.join(OWNER)
    cache.lay_out()
    step, starts = step_of(policy, states=False), rows.prompt_mask.sum(dim=1)[rows.owner]

    def read(number: int) -> Tensor:
        cache.advance()
        return step.read(rows.completion_ids[:, number], starts + number, cache)[0]

    return torch.stack([prompts[prompt].logits for prompt in OWNER]), read


def _repeated(policy: CausalLMPolicy, rows: Rows) -> tuple[Float[Tensor, "b V"], Read]:
    cache, mask = cache_of(policy), rows.prompt_mask
    positions = (mask.long().cumsum(dim=1) - 1).clamp_min(0)
    logits, _ = cached_pass(policy, rows.prompt_ids, mask, positions, cache, states=False)
    select_rows(cache, rows.owner)
    starts = mask.sum(dim=1)[rows.owner]

    def read(number: int) -> Tensor:
        seen = torch.cat([mask[rows.owner], mask.new_ones(len(OWNER), number + 1)], dim=1)
        ids = rows.completion_ids[:, number : number + 1]
        return cached_pass(policy, ids, seen, (starts + number)[:, None], cache, states=False)[0]

    return logits[rows.owner], read


def _chosen(logits: Float[Tensor, "n V"], tokens: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
    return logits.float().log_softmax(dim=-1).gather(-1, tokens[:, None])[:, 0]


@contextmanager
def _without_plans(model: PreTrainedModel) -> Iterator[None]:
    """Restores the attention that the model was loaded with, inside."""
    plans = model.config._attn_implementation == NAME
    if plans:
        model.set_attn_implementation("sdpa")
    try:
        yield
    finally:
        if plans:
            model.set_attn_implementation(NAME)
