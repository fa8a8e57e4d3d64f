"""Loads the trainer's weights inside a vLLM worker, and computes the fingerprint by which both sides compare them.

vLLM fuses and shards what it loads, so its own tensors cannot be compared with the trainer's. Its input can: each
tensor is checked on its way from the file into the model. The fingerprint is a checksum of integers, not a
cryptographic hash. It detects lost, stale, truncated and exchanged weights, at the speed of a sum on their device.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

WIDTH = 4096
"""Columns of the table over which a tensor's values are summed; the shorter last row counts too."""
INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""By bytes of a value: the integer dtype as which its bits are read."""
ARCHITECTURE = (
    *("model_type", "vocab_size", "hidden_size", "intermediate_size"),
    *("num_hidden_layers", "num_attention_heads", "num_key_value_heads"),
)
"""Config fields that server and policy must share: vLLM keeps layers that receive no weights, without an error."""


class WeightSync:
    """Methods that vLLM adds to its workers:  ``vllm serve … --worker-extension-cls weight_sync.WeightSync``."""

    def load_policy(self: Any, folder: str) -> dict[str, Any]:
        """Loads every ``*.safetensors`` of a folder into the model; returns the new state as ``policy_report``."""
        lines: list[str] = []
        self.policy_fingerprint = None  # if loading fails half-way, no report may name the weights of before
        self.reload_weights(weights_iterator=_noting(stored_tensors(Path(folder), str(self.device)), lines))
        pack_tied_head(self.get_model())
        self.policy_fingerprint = _digest(lines)
        return self.policy_report()

    def can_read(self: Any, folder: str) -> dict[str, Any]:
        """Whether this worker can read a folder of the trainer."""
        return {"readable": os.access(folder, os.R_OK | os.X_OK)}

    def policy_report(self: Any) -> dict[str, Any]:
        """The fingerprint of the weights loaded last (None: none were), the mode of this server's log-probs, and its
        model's architecture.
        """
        model = self.vllm_config.model_config
        return {
            "fingerprint": getattr(self, "policy_fingerprint", None),
            "logprobs_mode": str(getattr(model.logprobs_mode, "value", model.logprobs_mode)),
            "architecture": architecture(model.hf_text_config),
        }


def pack_tied_head(model: Any) -> None:
    """Packs the weights of a head that is tied to the embeddings again.

    On a CPU vLLM (0.32) multiplies by packed copies. It packs a layer when tensors arrive for it, and none arrive for a
    tied head: without this, new layers would be used with the old head.
    """
    head = getattr(model, "lm_head", None)
    if head is not None and hasattr(head, "cpu_linear"):
        head.quant_method.process_weights_after_loading(head)


def architecture(config: Any) -> dict[str, Any]:
    """The fields of a Hugging Face config named by ``ARCHITECTURE``, None for a missing one."""
    return {name: getattr(config, name, None) for name in ARCHITECTURE}


def fingerprint(tensors: Iterable[tuple[str, Tensor]]) -> str:
    """32 hexadecimal digits that depend on every name, dtype, shape and value, not on the order of the tensors."""
    return _digest([_line(name, tensor) for name, tensor in tensors])


def stored_tensors(folder: Path, device: str) -> Iterator[tuple[str, Tensor]]:
    """Name and tensor for all tensors in the safetensors files of a folder, one tensor in memory at a time.

    Raises FileNotFoundError if there is no such file.
    """
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise FileNotFoundError(f"{folder} holds no *.safetensors: is it the same folder for trainer and server?")
    for file in files:
        with safe_open(str(file), framework="pt", device=device) as opened:
            for name in opened.keys():  # noqa: SIM118  (safe_open is no mapping)
                yield name, opened.get_tensor(name)


def checksum(tensor: Tensor) -> tuple[int, int]:
    """Sums of the values' bits by column and by row, each times the weight of its place, modulo 2⁶⁴.

    A changed value changes both sums, as all weights are odd; two exchanged values change at least one.
    """
    bits = tensor.detach().contiguous().reshape(-1).view(INTEGERS[tensor.element_size()])
    whole = len(bits) // WIDTH * WIDTH
    table, rest = bits[:whole].view(-1, WIDTH), bits[whole:].long()
    columns = table.sum(dim=0, dtype=torch.int64)
    columns[: len(rest)] += rest
    rows = torch.cat([table.sum(dim=1, dtype=torch.int64), rest.sum()[None]])
    return _weighted_sum(columns), _weighted_sum(rows)


def _weighted_sum(sums: Tensor) -> int:
    return int((sums * place_weights(len(sums), sums.device)).sum())


def place_weights(count: int, device: torch.device) -> Tensor:
    """Odd numbers without a pattern: with evenly spaced ones, many exchanges would give the same sum."""
    mixed = torch.arange(1, count + 1, device=device) * 0x1E3779B97F4A7C15
    mixed = (mixed ^ (mixed >> 31)) * 0x3F58476D1CE4E5B9
    return (mixed ^ (mixed >> 29)) | 1


def _line(name: str, tensor: Tensor) -> str:
    return f"{name} {tensor.dtype} {tuple(tensor.shape)} {checksum(tensor)}"


def _digest(lines: Iterable[str]) -> str:
    return hashlib.blake2b("\n".join(sorted(lines)).encode(), digest_size=16).hexdigest()


def _noting(tensors: Iterable[tuple[str, Tensor]], lines: list[str]) -> Iterator[tuple[str, Tensor]]:
    """Yields the tensors unchanged; appends a line to ``lines`` for each."""
    for name, tensor in tensors:
        lines.append(_line(name, tensor))
        yield name, tensor
