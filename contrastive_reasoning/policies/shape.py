"""The shape of a Llama- or Qwen2-like decoder from its ``config.json``, to count parameters without loading weights.

The fields have the names that ``transformers`` uses, so that a shape can replace a configuration in a formula.
``find_shape`` reads one from a folder, the hub's cache or the table of published shapes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from huggingface_hub import try_to_load_from_cache

KINDS = ("llama", "qwen2")
"""Supported values of ``model_type``: root-mean-square norms, rotated heads, a gated MLP."""
ATTENTION_LAYERS = ("q_proj", "k_proj", "v_proj", "o_proj")
LINEAR_LAYERS = (*ATTENTION_LAYERS, "gate_proj", "up_proj", "down_proj")
"""The matrices of a decoder layer, by their names in the model."""


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """Sizes of a decoder. Raises ValueError for an unknown kind or if key-value heads do not divide the heads."""

    model_type: str
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    max_position_embeddings: int
    tie_word_embeddings: bool
    """Whether the projection to the vocabulary is the embedding's matrix."""

    def __post_init__(self) -> None:
        if self.model_type not in KINDS:
            raise ValueError(f"the shape of a {self.model_type} model is not known here; there are {', '.join(KINDS)}")
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"num_attention_heads={self.num_attention_heads} must be a multiple of "
                f"num_key_value_heads={self.num_key_value_heads}"
            )

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> ModelShape:
        """The shape from the content of a ``config.json``.

        Raises:
            ValueError: for a model of another kind, or one with sliding-window attention.
            KeyError: if a size is missing.
        """
        if config.get("use_sliding_window"):
            raise ValueError("a model with use_sliding_window attends in a way that is not counted here")
        heads = config["num_attention_heads"]
        return cls(
            model_type=config["model_type"],
            hidden_size=config["hidden_size"],
            intermediate_size=config["intermediate_size"],
            num_hidden_layers=config["num_hidden_layers"],
            num_attention_heads=heads,
            num_key_value_heads=config.get("num_key_value_heads") or heads,
            head_dim=config.get("head_dim") or config["hidden_size"] // heads,
            vocab_size=config["vocab_size"],
            max_position_embeddings=config["max_position_embeddings"],
            tie_word_embeddings=config.get("tie_word_embeddings", False),
        )

    @property
    def query_width(self) -> int:
        return self.num_attention_heads * self.head_dim

    @property
    def key_width(self) -> int:
        return self.num_key_value_heads * self.head_dim

    @property
    def vocabulary_matrix(self) -> int:
        """Number of weights of the projection to the vocabulary."""
        return self.vocab_size * self.hidden_size

    def matrices(self) -> Mapping[str, tuple[int, int]]:
        """Name → (in, out) of the linear layers of one decoder layer."""
        hidden, inner = self.hidden_size, self.intermediate_size
        return {
            "q_proj": (hidden, self.query_width),
            "k_proj": (hidden, self.key_width),
            "v_proj": (hidden, self.key_width),
            "o_proj": (self.query_width, hidden),
            "gate_proj": (hidden, inner),
            "up_proj": (hidden, inner),
            "down_proj": (inner, hidden),
        }

    @property
    def layer_weights(self) -> int:
        """Number of weights in the matrices of one decoder layer."""
        return sum(map(prod, self.matrices().values()))

    @property
    def parameters(self) -> int:
        """Number of all parameters; a matrix that is used twice counts once."""
        return sum(self.parameter_sizes())

    def parameter_sizes(self) -> list[int]:
        """Numbers in each parameter, in the model's own order; a matrix that is used twice counts once."""
        biased = ("q_proj", "k_proj", "v_proj") if self.model_type == "qwen2" else ()
        layer: list[int] = []
        for name, (wide, out) in self.matrices().items():
            layer += [wide * out, out] if name in biased else [wide * out]
        layer += 2 * [self.hidden_size]
        ends = [self.hidden_size] + ([] if self.tie_word_embeddings else [self.vocabulary_matrix])
        return [self.vocabulary_matrix, *(self.num_hidden_layers * layer), *ends]

    def adapted(self, targets: Sequence[str] | str) -> tuple[str, ...]:
        """The linear layers that have adapters for ``targets`` (names, or ``all-linear``)."""
        if targets == "all-linear":
            return LINEAR_LAYERS
        names = (targets,) if isinstance(targets, str) else tuple(targets)
        if unknown := [name for name in names if name not in LINEAR_LAYERS]:
            known = ", ".join(LINEAR_LAYERS)
            raise ValueError(f"lora.target_modules: no linear layer {unknown[0]!r}; there are {known}")
        return names

    def adapter_parameters(self, rank: int, targets: Sequence[str] | str) -> int:
        """Number of weights of LoRA's A (rank × in) and B (out × rank) on the layers of these names."""
        sizes = self.matrices()
        return self.num_hidden_layers * sum(rank * sum(sizes[name]) for name in self.adapted(targets))


EMBEDDED = "embedded:"
EMBEDDED_FOLDER = Path(__file__).with_name("embedded")
"""The policies that come with the package; ``embedded:NAME`` is one of its folders."""


@dataclass(frozen=True, kw_only=True)
class FoundShape:
    """A shape, and a description of its source."""

    shape: ModelShape
    source: str


def find_shape(pretrained: str) -> FoundShape:
    """The shape of ``policy.pretrained``. The hub itself is not queried, so that the answer does not wait for it.

    Raises ValueError if the shape is neither found locally nor in the table, or if the kind is not supported.
    """
    if (config := _config_at_hand(pretrained)) is not None:
        try:
            return FoundShape(shape=ModelShape.of(json.loads(config.read_text(encoding="utf-8"))), source=str(config))
        except (KeyError, ValueError) as error:
            reason = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
            raise ValueError(f"{config}: {reason}") from error
    for name in (pretrained, Path(pretrained).name):  # the second: a model that make model has yet to fetch
        if name in PUBLISHED:
            return FoundShape(shape=PUBLISHED[name], source="the table of published shapes")
    raise ValueError(
        f"policy.pretrained={pretrained}: its shape is unknown; there is no config.json in that folder or in the "
        f"hub's cache, and the table of published shapes holds {', '.join(PUBLISHED)}"
    )


def _config_at_hand(pretrained: str) -> Path | None:
    folder = Path(pretrained).expanduser()
    if pretrained.startswith(EMBEDDED):
        folder = EMBEDDED_FOLDER / pretrained.removeprefix(EMBEDDED)
    for config in (folder / "config.json", folder / "policy" / "config.json"):
        if config.is_file():
            return config
    if pretrained.count("/") != 1 or pretrained.startswith((".", "/", "~")):
        return None
    cached = try_to_load_from_cache(pretrained, "config.json")
    return Path(cached) if isinstance(cached, str) else None


def _shape(kind: str, *sizes: int, tied: bool) -> ModelShape:
    hidden, inner, layers, heads, shared, head, vocabulary, context = sizes
    return ModelShape(
        model_type=kind,
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=shared,
        head_dim=head,
        vocab_size=vocabulary,
        max_position_embeddings=context,
        tie_word_embeddings=tied,
    )


# hidden, inner, layers, heads, key-value heads, head width, vocabulary, context
LLAMA_1B = _shape("llama", 2048, 8192, 16, 32, 8, 64, 128256, 131072, tied=True)
LLAMA_8B = _shape("llama", 4096, 14336, 32, 32, 8, 128, 128256, 131072, tied=False)
QWEN_HALF_B = _shape("qwen2", 896, 4864, 24, 14, 2, 64, 151936, 32768, tied=True)
QWEN_1B = _shape("qwen2", 1536, 8960, 28, 12, 2, 128, 151936, 32768, tied=True)
QWEN_3B = _shape("qwen2", 2048, 11008, 36, 16, 2, 128, 151936, 32768, tied=True)
QWEN_7B = _shape("qwen2", 3584, 18944, 28, 28, 4, 128, 152064, 32768, tied=False)
SMOLLM2_135M = _shape("llama", 576, 1536, 30, 9, 3, 64, 49152, 8192, tied=True)
RHO_1B = _shape("llama", 2048, 5632, 22, 32, 4, 64, 32000, 2048, tied=False)
PUBLISHED = {
    "meta-llama/Llama-3.2-1B": LLAMA_1B,
    "meta-llama/Llama-3.2-1B-Instruct": LLAMA_1B,
    "meta-llama/Llama-3.1-8B": LLAMA_8B,
    "meta-llama/Llama-3.1-8B-Instruct": LLAMA_8B,
    "Qwen/Qwen2.5-0.5B": QWEN_HALF_B,
    "Qwen/Qwen2.5-0.5B-Instruct": QWEN_HALF_B,
    "Qwen/Qwen2.5-1.5B": QWEN_1B,
    "Qwen/Qwen2.5-1.5B-Instruct": QWEN_1B,
    "Qwen/Qwen2.5-3B": QWEN_3B,
    "Qwen/Qwen2.5-3B-Instruct": QWEN_3B,
    "Qwen/Qwen2.5-7B": QWEN_7B,
    "Qwen/Qwen2.5-7B-Instruct": QWEN_7B,
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B": QWEN_7B,
    "HuggingFaceTB/SmolLM2-135M": SMOLLM2_135M,
    "HuggingFaceTB/SmolLM2-135M-Instruct": SMOLLM2_135M,
    "smollm2-135m-q4": SMOLLM2_135M,
    "microsoft/rho-math-1b-v0.1": RHO_1B,
}
"""Hub name, or that of ``make model`` → shape. The context may differ between models of one shape; it is used only as a
limit.
"""
