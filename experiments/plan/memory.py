"""Bytes of a model on one device: weights, their states in training, and what a micro-batch adds.

States per parameter, with w bytes of a weight and g of its gradient (ZeRO is arXiv:1910.02054):

    unsharded     weights w        gradients g         moments 2·g
    ZeRO 1        w                g                   (4 + 4 + 4) / devices            fp32 weights and both moments
    ZeRO 2        w                g / devices, more   the same
    ZeRO 3        w / devices      g / devices         the same; fp32 weights need no copy

"More": a parameter that lies in two or more shares has its whole gradient on each. For adapters g / devices is assumed.

Activations, within 30 % of what torch's allocator counts. c are the bytes of a number in the compute dtype, D is
hidden, I intermediate, V vocabulary, Q the width of the queries, n the completion tokens:

    layer       tokens · (D·(8 + 4·w) + (4·I + 3·Q)·c) + keys and values, if packed for torch's kernel one for each head
    fused       tokens · (8·D + (2·I + 3·Q)·c) + the same; no copies of weights
    kept        layer + copy of its weights in the compute dtype, for each; with checkpointing only tokens · D·w
    loss        chunk · V·c, and a block of it in fp32, or n · D·w and the gradient of the projection, summed and new
    forward     with checkpointing: copies, and the gated product, tokens · 4·I·c
    backward    with checkpointing: a layer and its copy, tokens · (2·I·c + 4·D), the gradient of a tied matrix

The largest of the last three exists beside what is kept. No kernel keeps the scores of attention.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, NamedTuple

from omegaconf import ListConfig, OmegaConf

from contrastive_reasoning.policies.log_probs import block_rows
from contrastive_reasoning.policies.pass_cost import DecoderSize, Lengths, Sizes, Weights, packing_pays
from contrastive_reasoning.policies.shape import FoundShape, ModelShape, find_shape
from contrastive_reasoning.policies.short_attention import SCORES_AT_ONCE, SHORT
from experiments.config.contradictions import device_count

FLOAT = 4
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
ADAPTER_BYTES = 4
"""peft keeps adapters in fp32, whatever the dtype of the model."""
BUCKET = 200_000_000
"""Numbers that DeepSpeed exchanges at once: the default of the YAML files and of Lightning."""
LIVE = 1_000_000_000
"""Most weights that stage 3 gathers at a time: DeepSpeed's default."""
LAYERS_AT_ONCE = 3
"""Layers of a sharded frozen model that are whole at a time: one computes while the next arrives and is laid out."""
MILD_TO_STRONG = ("ddp", "zero1", "zero2", "zero3", "zero3_offload")
"""Trainers for several devices. Each saves more memory than the one before and needs more communication."""


@dataclass(frozen=True, kw_only=True)
class Learner:
    """A model and how it computes. ``weight_bytes`` and ``compute_bytes`` are bytes of one number."""

    shape: ModelShape
    weight_bytes: int
    compute_bytes: int
    adapters: int
    """Parameters of LoRA adapters. 0: all weights are trained, or none if ``frozen``."""
    frozen: bool
    checkpointing: bool
    on_cpu: bool
    chunk: int = 1024
    """Tokens projected to the vocabulary at a time."""
    fused: bool = False
    """Whether passes use ``policies.fused_layers`` where they can."""
    gathered: bool = False
    """Whether other devices hold parts of each layer, which hooks gather; such layers are not fused."""

    @property
    def fuses(self) -> bool:
        """Whether passes use ``policies.fused_layers``."""
        cast = (self.weight_bytes, self.compute_bytes) == (FLOAT, 2)
        return self.fused and cast and not (self.adapters or self.checkpointing or self.gathered)

    @property
    def casts(self) -> bool:
        """Whether matrices are cast to the compute dtype before a product."""
        return self.compute_bytes != self.weight_bytes

    @property
    def full(self) -> bool:
        """Whether all weights are trained."""
        return not self.adapters and not self.frozen

    @property
    def weights_in_bytes(self) -> int:
        return self.shape.parameters * self.weight_bytes + self.adapters * ADAPTER_BYTES

    @property
    def trained(self) -> int:
        """Parameters with a gradient."""
        return 0 if self.frozen else self.adapters or self.shape.parameters

    @property
    def trained_bytes(self) -> int:
        """Bytes of each trained parameter, of its gradient and of each of AdamW's two moments."""
        return self.weight_bytes if self.full else ADAPTER_BYTES

    @property
    def decoder_size(self) -> DecoderSize:
        """The size for the formulas of ``policies.pass_cost``."""
        layers, head = self.shape.num_hidden_layers * self.shape.layer_weights, self.shape.vocabulary_matrix
        return DecoderSize(
            layers=Weights(total=layers + self.adapters, trained=layers if self.full else self.adapters),
            projection=Weights(total=head, trained=head if self.full else 0),
            attention=self.shape.num_hidden_layers * self.shape.query_width,
        )


def learner_of(policy: Any, *, on_cpu: bool) -> tuple[Learner, str]:
    """Returns the learner of a policy's configuration node, and the source of its shape.

    Raises:
        ValueError: for a model of unknown shape, an unknown dtype or an adapter on no linear layer.
    """
    found, dtype = _shape(policy), policy.compute_dtype
    if dtype == "auto":
        from contrastive_reasoning.policies.load import native_dtype  # imports torch and transformers

        dtype = native_dtype("cpu" if on_cpu else "cuda")
    learner = Learner(
        shape=found.shape,
        weight_bytes=size_of("policy.weights_dtype", policy.weights_dtype),
        compute_bytes=size_of("policy.compute_dtype", dtype),
        adapters=0 if policy.lora is None else _adapters(found.shape, policy.lora.rank, policy.lora.target_modules),
        frozen=False,
        checkpointing=policy.gradient_checkpointing,
        on_cpu=on_cpu,
        fused=not policy.compiled and (on_cpu if policy.fused == "auto" else bool(policy.fused)),
    )
    return learner, found.source


def encoder_learner(encoder: Any, policy: Learner) -> Learner:
    """Returns the learner of a text critic's encoder, on the device of ``policy``. Raises like :func:`learner_of`."""
    shape, size = find_shape(encoder.pretrained).shape, size_of("critic.encoder.dtype", encoder.dtype)
    rank = encoder.training.get("rank")
    return replace(
        policy,
        shape=shape,
        weight_bytes=size,
        compute_bytes=size,
        adapters=0 if rank is None else _adapters(shape, rank, encoder.training.target_modules),
        frozen=str(encoder.training._target_).endswith("Frozen"),
        checkpointing=False,
    )


def size_of(key: str, dtype: str) -> int:
    """Returns the bytes of one number. Raises ValueError for an unknown dtype."""
    if dtype not in BYTES:
        raise ValueError(f"{key} must be one of {', '.join(BYTES)}, got {dtype!r}")
    return BYTES[dtype]


def _adapters(shape: ModelShape, rank: int, targets: Any) -> int:
    names: Any = OmegaConf.to_container(targets) if isinstance(targets, ListConfig) else targets
    return shape.adapter_parameters(rank, names)


def _shape(policy: Any) -> FoundShape:
    if policy.pretrained is not None:
        return find_shape(policy.pretrained)
    size = policy.architecture
    if size is None:
        raise ValueError("policy.pretrained is null, so policy.architecture is needed")
    shape = ModelShape(
        model_type=size.kind,
        hidden_size=size.hidden_size,
        intermediate_size=size.intermediate_size,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.key_value_heads,
        head_dim=size.hidden_size // size.heads,
        vocab_size=size.vocab_size,
        max_position_embeddings=size.max_length,
        tie_word_embeddings=True,
    )
    return FoundShape(shape=shape, source="policy.architecture")


@dataclass(frozen=True, kw_only=True)
class Sharding:
    """How a trainer shards states. Raises ValueError for an unknown stage."""

    trainer: str
    """The choice of the group ``trainer``."""
    devices: int
    stage: int = 0
    """Stage of ZeRO; 0: every device keeps all states."""
    offload_optimizer: bool = False
    offload_parameters: bool = False
    bucket_elements: int = BUCKET
    """Numbers that DeepSpeed exchanges at once."""

    def __post_init__(self) -> None:
        if self.stage not in (0, 1, 2, 3):
            raise ValueError(f"trainer={self.trainer}: a ZeRO stage is 0, 1, 2 or 3, got {self.stage}")


def sharding_of(trainer: str, config: Mapping[str, Any], *, gpus: int | None) -> Sharding:
    """Returns the sharding of a ``trainer`` choice and its node. ``gpus`` replaces their number of devices if given.

    A strategy that is a mapping may set ``stage``, ``offload_optimizer``, ``offload_parameters`` and
    ``bucket_elements``; the name of the choice sets the others.
    """
    named = by_name(trainer, gpus or (device_count(config) or 1) * config.get("num_nodes", 1))
    strategy = config.get("strategy")
    if not isinstance(strategy, Mapping):
        return named
    keys = ("stage", "offload_optimizer", "offload_parameters", "bucket_elements")
    return replace(named, **{key: type(getattr(named, key))(strategy[key]) for key in keys if key in strategy})


def by_name(trainer: str, devices: int) -> Sharding:
    """Returns the sharding of a trainer such as ``zero2`` or ``zero3_offload``; any other name is unsharded."""
    found = re.match(r"zero(\d)(_offload)?", trainer)
    if found is None:
        return Sharding(trainer=trainer, devices=devices)
    off = found[2] is not None
    return Sharding(
        trainer=trainer, devices=devices, stage=int(found[1]), offload_optimizer=off, offload_parameters=off
    )


class States(NamedTuple):
    """Bytes on one device."""

    weights: int
    gathered: int
    """Weights of other devices that a training pass gathers."""
    gradients: int
    optimizer: int
    exchange: int
    """Buffers for the exchange of gradients between devices."""


def states(learner: Learner, sharding: Sharding) -> States:
    """Returns the states of a learner on one device; only the weights if it is not trained."""
    stage, devices, trained, each = sharding.stage, sharding.devices, learner.trained, learner.trained_bytes
    whole = learner.weights_in_bytes
    spread = stage == 3 and trained > 0
    weights = 0 if spread and sharding.offload_parameters else whole // devices if spread else whole
    gradients = trained * each
    optimizer = 2 * gradients  # AdamW's moments
    exchange = gradients if devices > 1 else 0  # DDP copies all gradients into buckets
    if stage:
        # DeepSpeed has two buckets of equal size: one fills while the other is sent
        exchange = 2 * min(sharding.bucket_elements, trained) * each
        copied = not (spread and each == FLOAT)  # stage 3 needs no second copy of fp32 weights
        optimizer = trained * FLOAT * (2 + copied) // devices
    if stage == 2 and learner.full:
        gradients = most_in_a_share([(size, size * each) for size in learner.shape.parameter_sizes()], devices)
    elif stage >= 2:
        gradients //= devices
    if sharding.offload_optimizer:
        optimizer = 0
        gradients = 0 if stage >= 2 else gradients
    return States(weights, min(whole - weights, LIVE * learner.weight_bytes), gradients, optimizer, exchange)


def most_in_a_share(sizes: Sequence[tuple[int, int]], ranks: int) -> int:
    """Bytes of the parameters that lie at least partly in a rank's share, for the rank with most; 0 without parameters.

    ZeRO's stages 1 and 2 concatenate all parameters and cut them into even shares. ``sizes`` has each parameter's count
    of numbers and bytes.
    """
    share = 2 * -(-sum(count for count, _ in sizes) // (2 * ranks))  # DeepSpeed makes them even numbers
    ends = list(accumulate(count for count, _ in sizes))
    spans = [(end - count, end, held) for end, (count, held) in zip(ends, sizes, strict=True)]
    firsts = range(0, ranks * share, share) if share else [0]
    return max(sum(held for start, end, held in spans if start < first + share and end > first) for first in firsts)


def sharded_layers(learner: Learner, devices: int) -> tuple[int, int]:
    """Returns the bytes of a frozen model with sharded layers that a device keeps, and those it fetches in a pass."""
    shape, matrices = learner.shape, 1 if learner.shape.tie_word_embeddings else 2
    ends = (matrices * shape.vocabulary_matrix + shape.hidden_size) * learner.weight_bytes
    layers, count = learner.weights_in_bytes - ends, shape.num_hidden_layers
    if devices == 1:
        return ends + layers, 0
    return ends + -(-layers // devices), min(LAYERS_AT_ONCE, count) * layers // count


def activations(learner: Learner, lengths: Lengths) -> tuple[int, int]:
    """Returns the bytes that a micro-batch keeps for its backward pass, and the most beside them at any moment."""
    shape, w, c = learner.shape, learner.weight_bytes, learner.compute_bytes
    hidden, inner, layers = shape.hidden_size, shape.intermediate_size, shape.num_hidden_layers
    tokens, keys = _tokens_and_keys(learner, lengths)
    norms, gates = (0, 2) if learner.fuses else (4 * w, 4)
    own = tokens * (hidden * (8 + norms) + (gates * inner + 3 * shape.query_width) * c) + keys
    copies = shape.layer_weights * c if learner.casts and not learner.fuses else 0
    ends = tokens * hidden * (FLOAT + 2 * w) + sum(lengths.completions) * hidden * w
    loss = loss_workspace(learner, sum(lengths.completions))
    if not learner.checkpointing:
        return layers * (own + copies) + ends, loss
    # autocast keeps the copies of trained weights until the end of the forward pass
    forward = copies * (layers if learner.full else 1) + tokens * 4 * inner * c
    tied = shape.vocabulary_matrix * w if learner.full and shape.tie_word_embeddings else 0
    backward = own + copies + tokens * (2 * inner * c + hidden * FLOAT) + tied
    return layers * tokens * hidden * w + ends, max(loss, forward, backward)


def loss_workspace(learner: Learner, tokens: int) -> int:
    """Returns the peak bytes for the log-probs of this many completion tokens, forward and backward."""
    drawn, block = _logits(learner, tokens)
    gradients = (2 if tokens > learner.chunk else 1) * learner.shape.vocabulary_matrix if learner.full else 0
    return drawn + max(block, (tokens * learner.shape.hidden_size + gradients) * learner.weight_bytes)


def scoring(learner: Learner, lengths: Lengths) -> int:
    """Returns the peak bytes of a pass without gradients: in attention, in the gated product or at the logits."""
    shape, w, c = learner.shape, learner.weight_bytes, learner.compute_bytes
    hidden, inner, completions = shape.hidden_size, shape.intermediate_size, sum(lengths.completions)
    tokens, keys = _tokens_and_keys(learner, lengths)
    attention = keys + 4 * tokens * (hidden * w + shape.query_width * c)
    if _is_short(learner, lengths):
        attention = _short_attention(learner, lengths)
    attention += hidden * inner * c if learner.casts else 0
    stream = FLOAT if learner.adapters else w  # adapters are in fp32, and so is what they are added to
    product = tokens * (7 * inner * c // 2 + 4 * hidden * stream)
    return max(attention, product, (tokens + completions) * hidden * w + sum(_logits(learner, completions)))


def _tokens_and_keys(learner: Learner, lengths: Lengths) -> tuple[int, int]:
    """Returns the tokens of a pass, and the bytes of keys and values in one layer."""
    shape, compute = learner.shape, learner.compute_bytes
    if not packing_pays(lengths, Sizes.of(shape)):
        return lengths.padded, lengths.padded * 2 * shape.key_width * compute
    rows = sum(lengths.prompts) + lengths.unpadded
    if _is_short(learner, lengths):  # its output is kept by rows, too
        return lengths.packed, (2 * rows * shape.key_width + lengths.packed * shape.query_width) * compute
    masked = FLOAT if learner.on_cpu else compute  # on a CPU the masked kernel runs in fp32
    return lengths.packed, rows * 2 * shape.query_width * masked


def _is_short(learner: Learner, lengths: Lengths) -> bool:
    """Returns whether completions are attended to by ``short_attention``."""
    short = learner.on_cpu and learner.compute_bytes < FLOAT and max(lengths.completions, default=0) <= SHORT
    return short and packing_pays(lengths, Sizes.of(learner.shape))


def _short_attention(learner: Learner, lengths: Lengths) -> int:
    """Returns the peak bytes in attention: tensors by token, by row with the copies, and in the products."""
    shape, w, c = learner.shape, learner.weight_bytes, learner.compute_bytes
    queries, keys, rows = shape.query_width, shape.key_width, lengths.unpadded
    completions = sum(lengths.completions)
    by_token = lengths.packed * ((shape.hidden_size + queries + keys) * w + (queries + 2 * keys) * c)
    by_row = (3 * completions * queries + 4 * rows * keys) * c
    scores = shape.num_attention_heads * sum(own * (prompt + own) for prompt, own in lengths.rows)
    products = (scores + 2 * completions * queries + rows * keys) * FLOAT
    return by_token + by_row + products * min(scores, SCORES_AT_ONCE) // max(scores, 1)


def _logits(learner: Learner, tokens: int) -> tuple[int, int]:
    """Returns the bytes of a chunk of logits with the cast projection, and those of a block in fp32."""
    chunk, vocabulary, compute = min(learner.chunk, tokens), learner.shape.vocab_size, learner.compute_bytes
    block = min(chunk, block_rows(vocabulary, on_cpu=learner.on_cpu)) * vocabulary
    cast = learner.shape.vocabulary_matrix * compute if learner.casts else 0
    return chunk * vocabulary * compute + cast, block * FLOAT * (1 if compute == FLOAT else 2)  # 2: its exponentials
