"""A model on one device: its shape, dtypes and trained weights, and how a trainer shards its states over devices.

Bytes per parameter, with w bytes of a weight and g of its gradient:

unsharded     weights w        gradients g         moments 2·g
ZeRO 1        w                g                   (4 + 4 + 4) / devices            fp32 weights and both moments
ZeRO 2        w                g / devices, more   the same
ZeRO 3        w / devices      g / devices         the same; fp32 weights need no copy

"More": a parameter that lies in two or more shares has its whole gradient on each. For adapters, which are small,
g / devices is assumed. ZeRO is arXiv:1910.02054. DeepSpeed keeps an fp32 copy of the trained weights beside both
moments, in stages 1 and 2 even if the weights are fp32 already.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, NamedTuple

from omegaconf import ListConfig, OmegaConf

from contrastive_reasoning.policies.pass_cost import DecoderSize, Weights
from contrastive_reasoning.policies.shape import FoundShape, ModelShape, find_shape
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
    rank: int | None
    """Rank of the LoRA adapters. None: all weights are trained, or none if ``frozen``."""
    targets: Sequence[str]
    """Linear layers with adapters."""
    frozen: bool
    checkpointing: bool
    on_cpu: bool
    chunk: int
    """Tokens projected to the vocabulary at a time."""

    @property
    def casts(self) -> bool:
        """Whether matrices are cast to the compute dtype before a product."""
        return self.compute_bytes != self.weight_bytes

    @property
    def full(self) -> bool:
        """Whether all weights are trained."""
        return self.rank is None and not self.frozen

    @property
    def adapters(self) -> int:
        return 0 if self.rank is None else self.shape.adapter_parameters(self.rank, list(self.targets))

    @property
    def weights_in_bytes(self) -> int:
        return self.shape.parameters * self.weight_bytes + self.adapters * ADAPTER_BYTES

    @property
    def trained(self) -> int:
        """Parameters with a gradient."""
        return 0 if self.frozen else self.adapters if self.rank is not None else self.shape.parameters

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
    found, lora = _shape(policy), policy.lora
    named = None if lora is None else lora.target_modules
    targets: Any = OmegaConf.to_container(named) if isinstance(named, ListConfig) else named
    learner = Learner(
        shape=found.shape,
        weight_bytes=size_of("policy.weights_dtype", policy.weights_dtype),
        compute_bytes=size_of("policy.compute_dtype", _computed_in(policy.compute_dtype, on_cpu=on_cpu)),
        rank=None if lora is None else lora.rank,
        targets=() if lora is None else found.shape.adapted(targets),
        frozen=False,
        checkpointing=policy.gradient_checkpointing,
        on_cpu=on_cpu,
        chunk=1024,
    )
    return learner, found.source


def _computed_in(dtype: str, *, on_cpu: bool) -> str:
    if dtype != "auto":
        return dtype
    from contrastive_reasoning.policies.load import native_dtype  # imports torch and transformers

    return native_dtype("cpu" if on_cpu else "cuda")


def encoder_learner(encoder: Any, policy: Learner) -> Learner:
    """Returns the learner of a text critic's encoder, on the device of ``policy``. Raises like :func:`learner_of`."""
    shape, size = find_shape(encoder.pretrained).shape, size_of("critic.encoder.dtype", encoder.dtype)
    rank = encoder.training.get("rank")
    return replace(
        policy,
        shape=shape,
        weight_bytes=size,
        compute_bytes=size,
        rank=rank,
        targets=() if rank is None else shape.adapted(encoder.training.target_modules),
        frozen=str(encoder.training._target_).endswith("Frozen"),
        checkpointing=False,
    )


def size_of(key: str, dtype: str) -> int:
    """Returns the bytes of one number. Raises ValueError for an unknown dtype."""
    if dtype not in BYTES:
        raise ValueError(f"{key} must be one of {', '.join(BYTES)}, got {dtype!r}")
    return BYTES[dtype]


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
    stage: int
    """Stage of ZeRO; 0: every device keeps all states."""
    offload_optimizer: bool
    offload_parameters: bool
    bucket_elements: int
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
    offload = found is not None and found[2] is not None
    return Sharding(
        trainer=trainer,
        devices=devices,
        stage=int(found[1]) if found else 0,
        offload_optimizer=offload,
        offload_parameters=offload,
        bucket_elements=BUCKET,
    )


class States(NamedTuple):
    """Bytes on one device."""

    weights: int
    gathered: int
    """Weights of other devices that a training pass gathers."""
    all_gathered: int
    """Weights of other devices during sampling, for which stage 3 gathers the whole policy once."""
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
    missing = whole - weights if spread else 0
    gradients = trained * each
    optimizer = 2 * gradients  # AdamW's moments
    exchange = gradients if devices > 1 else 0  # DDP copies all gradients into buckets
    if stage:
        # DeepSpeed has two buckets of equal size: one fills while the other is sent
        exchange = 2 * min(sharding.bucket_elements, trained) * each
        copied = not (spread and each == FLOAT)
        optimizer = trained * FLOAT * (2 + copied) // devices
    if stage == 2 and learner.full:
        gradients = most_in_a_share([(size, size * each) for size in learner.shape.parameter_sizes()], devices)
    elif stage >= 2:
        gradients //= devices
    if sharding.offload_optimizer:
        optimizer = 0
        gradients = 0 if stage >= 2 else gradients
    return States(
        weights=weights,
        gathered=min(missing, LIVE * learner.weight_bytes),
        all_gathered=missing,
        gradients=gradients,
        optimizer=optimizer,
        exchange=exchange,
    )


def most_in_a_share(sizes: Sequence[tuple[int, int]], ranks: int) -> int:
    """Bytes of the parameters that lie at least partly in a rank's share, for the rank with most; 0 without parameters.

    ZeRO's stages 1 and 2 concatenate all parameters and cut them into even shares; the cuts may go through parameters.
    At stage 2 a rank keeps the whole gradient of each parameter of which it has a part:

        rank 0  ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓┊░░░░░
        rank 1                 ▒▒▒▒▒▒▒┊▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒
                └ embedding ──┘└ a matrix ─┘└ others ─────┘

    That adds little if a share has many matrices, and much if an embedding is larger than a share.

    Args:
        sizes: for each parameter its count of numbers and their total bytes.
        ranks: the number of ranks that share them.
    """
    share = 2 * -(-sum(count for count, _ in sizes) // (2 * ranks))  # DeepSpeed makes them even numbers
    ends = list(accumulate(count for count, _ in sizes))
    spans = [(end - count, end, held) for end, (count, held) in zip(ends, sizes, strict=True)]
    firsts = [rank * share for rank in range(ranks)]
    return max(sum(held for start, end, held in spans if start < first + share and end > first) for first in firsts)


def sharded_layers(learner: Learner, devices: int) -> tuple[int, int]:
    """Returns the bytes of a frozen model with sharded layers that a device keeps, and those it fetches in a pass."""
    shape, matrices = learner.shape, 1 if learner.shape.tie_word_embeddings else 2
    ends = (matrices * shape.vocabulary_matrix + shape.hidden_size) * learner.weight_bytes
    layers, count = learner.weights_in_bytes - ends, shape.num_hidden_layers
    if devices == 1:
        return ends + layers, 0
    return ends + -(-layers // devices), min(LAYERS_AT_ONCE, count) * layers // count
