"""FLOP formulas compared with hand-made numbers, and with torch's FLOP counter on a tiny model."""

from __future__ import annotations

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch.utils.flop_counter import FlopCounterMode
from transformers import LlamaConfig
from transformers.models.llama import LlamaForCausalLM

from contrastive_reasoning.policies.pass_cost import (
    NO_WORK,
    DecoderSize,
    Weights,
    Work,
    decoder_size,
    learning_flops,
    reading_flops,
    work_of,
)

SIZE = DecoderSize(layers=Weights(total=100, trained=100), projection=Weights(total=10, trained=10), attention=7)
ROWS, LENGTH, HEADS, HEAD_WIDTH, LAYERS = 3, 11, 4, 8, 2


def tiny() -> LlamaForCausalLM:
    """Attention as plain matrix products, which torch's counter counts on every device; heads wider than the model."""
    sizes = {"vocab_size": 50, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": LAYERS}
    sizes |= {"num_attention_heads": HEADS, "num_key_value_heads": 2, "head_dim": HEAD_WIDTH}
    return LlamaForCausalLM(LlamaConfig(**sizes, attn_implementation="eager"))


def torch_flops(model: torch.nn.Module, *, learn: bool) -> int:
    """FLOPs by torch's counter."""
    ids = torch.arange(ROWS * LENGTH).view(ROWS, LENGTH) % 50
    with FlopCounterMode(display=False) as counter:
        logits = model(input_ids=ids, use_cache=False).logits
        if learn:
            logits.sum().backward()
    return counter.get_total_flops()


def test_work_of_counts_attended_pairs() -> None:
    prompts, completions, owner = [3, 1], [2, 4, 0, 1], [0, 0, 1, 1]
    pairs = sum(place + 1 for length in prompts for place in range(length))
    pairs += sum(prompts[p] + t + 1 for length, p in zip(completions, owner, strict=True) for t in range(length))
    work = work_of(prompts, completions, owner)
    assert (work.tokens, work.projected, work.attended, work.positions) == (11, 7, pairs, 11)


def test_flops_match_hand_computed_values() -> None:
    work = work_of([2], [1], [0])  # three tokens, one of them predicted, attending to 1, 2 and 3
    assert reading_flops(SIZE, work) == 2 * 100 * 3 + 2 * 10 * 1 + 4 * 7 * 6
    assert learning_flops(SIZE, work) == 6 * 100 * 3 + 6 * 10 * 1 + 12 * 7 * 6


def test_work_is_additive_and_no_work_is_its_zero() -> None:
    first, second = work_of([2], [1], [0], positions=6), work_of([5], [3, 3], [0, 0], positions=30)
    assert learning_flops(SIZE, first + second) == learning_flops(SIZE, first) + learning_flops(SIZE, second)
    assert (first + second).padding_share == pytest.approx(1 - (3 + 11) / 36)
    assert first + NO_WORK == first
    assert NO_WORK.padding_share == 0


@pytest.mark.parametrize("learn", [False, True])
def test_flops_equal_torch_flop_counter(learn: bool) -> None:
    """A plain pass attends to all pairs and projects every token, so the expected work counts these."""
    model = tiny()
    tokens = ROWS * LENGTH
    work = Work(tokens=tokens, projected=tokens, attended=tokens * LENGTH, positions=tokens)
    formula = learning_flops if learn else reading_flops
    assert torch_flops(model, learn=learn) == formula(decoder_size(model), work)


def test_learning_flops_exclude_gradients_of_frozen_weights() -> None:
    """Uses adapters. The formula ignores that no gradient flows from the first layer to its input (``unneeded``)."""
    model = get_peft_model(tiny(), LoraConfig(r=2, target_modules=["q_proj", "down_proj"]))  # pyright: ignore
    size = decoder_size(model)
    adapters = LAYERS * (2 * (16 + HEADS * HEAD_WIDTH) + 2 * (24 + 16))
    assert size.layers.trained == adapters
    assert size.layers.total == decoder_size(tiny()).layers.total + adapters
    assert size.projection.trained == 0
    tokens = ROWS * LENGTH
    work = Work(tokens=tokens, projected=tokens, attended=tokens * LENGTH, positions=tokens)
    rank, queries, both = 2, HEADS * HEAD_WIDTH, 2 * 2 * HEAD_WIDTH  # both: keys and values, of two heads
    unneeded = 2 * tokens * 16 * (queries + both + rank) + 4 * queries * tokens * LENGTH
    assert torch_flops(model, learn=True) == learning_flops(size, work) - unneeded
