"""A model as it stands on one device: its shape, what its numbers are kept in, and which of them are trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from omegaconf import ListConfig, OmegaConf

from contrastive_reasoning.policies.flops import DecoderSize, Weights
from contrastive_reasoning.policies.shape import LINEAR_LAYERS, FoundShape, ModelShape, find_shape

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
ADAPTER_BYTES = 4
"""peft keeps adapters in fp32, whatever the model is kept in."""


@dataclass(frozen=True, kw_only=True)
class Learner:
    """A model and how it computes."""

    shape: ModelShape
    weight_bytes: int
    """Of each weight."""
    compute_bytes: int
    """Of the numbers that matrix products are taken in."""
    rank: int | None
    """Of LoRA adapters; None: all weights are trained, or none where ``frozen``."""
    targets: Sequence[str]
    """The linear layers that adapters stand at."""
    frozen: bool
    checkpointing: bool
    on_cpu: bool
    chunk: int
    """Tokens that are projected to the vocabulary at a time."""

    @property
    def casts(self) -> bool:
        """Whether matrices are cast to the compute dtype before they are multiplied."""
        return self.compute_bytes != self.weight_bytes

    @property
    def full(self) -> bool:
        """Whether all weights are trained."""
        return self.rank is None and not self.frozen

    @property
    def adapters(self) -> int:
        """Parameters of the adapters."""
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
        """Of each trained parameter, its gradient and each of AdamW's two moments."""
        return self.weight_bytes if self.full else ADAPTER_BYTES

    @property
    def learns_at(self) -> frozenset[str]:
        """The linear layers whose input is needed for a gradient."""
        return frozenset(LINEAR_LAYERS if self.full else self.targets)

    @property
    def cast_copies(self) -> int:
        """Bytes of one decoder layer's matrices in the compute dtype, where they are kept in another one."""
        return self.shape.layer_weights * self.compute_bytes if self.casts else 0

    @property
    def decoder_size(self) -> DecoderSize:
        """What the formulas of ``policies.flops`` ask for."""
        layers = self.shape.num_hidden_layers * self.shape.layer_weights
        head = self.shape.vocabulary_matrix
        return DecoderSize(
            layers=Weights(total=layers + self.adapters, trained=layers if self.full else self.adapters),
            projection=Weights(total=head, trained=head if self.full else 0),
            attention=self.shape.num_hidden_layers * self.shape.query_width,
        )

    def as_reference(self) -> Learner:
        """The same model, of which nothing is trained."""
        return replace(self, frozen=True)


def learner_of(policy: Any, *, on_cpu: bool) -> tuple[Learner, str]:
    """The learner that a policy's node describes, and where its shape comes from.

    Raises:
        ValueError: for a model whose shape is not known, an unknown dtype or an adapter on no linear layer.
    """
    found = _shape(policy)
    lora = policy.lora
    named = None if lora is None else lora.target_modules
    targets: Any = OmegaConf.to_container(named) if isinstance(named, ListConfig) else named
    learner = Learner(
        shape=found.shape,
        weight_bytes=size_of("policy.weights_dtype", policy.weights_dtype),
        compute_bytes=size_of("policy.compute_dtype", policy.compute_dtype),
        rank=None if lora is None else lora.rank,
        targets=() if lora is None else found.shape.adapted(targets),
        frozen=False,
        checkpointing=policy.gradient_checkpointing,
        on_cpu=on_cpu,
        chunk=1024,
    )
    return learner, found.source


def size_of(key: str, dtype: str) -> int:
    """Bytes of a number. Raises ValueError for an unknown dtype."""
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
