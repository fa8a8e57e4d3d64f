from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.rollout.vllm_server import weight_sync
from contrastive_reasoning.rollout.vllm_server.weight_sync import (
    WIDTH,
    checksum,
    fingerprint,
    place_weights,
    stored_tensors,
)

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.bool]
"""Dtypes of 8, 4, 2 and 1 bytes; the checksum reads their bits as integers of that size."""


def random_tensor(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return values > 0 if dtype == torch.bool else (values * 40).to(dtype)


def slow_checksum(tensor: Tensor) -> tuple[int, int]:
    """The checksum value by value, with Python's integers."""
    kind = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
    weights = place_weights(WIDTH, torch.device("cpu")).tolist()
    columns = rows = 0
    for place, value in enumerate(tensor.reshape(-1).contiguous().view(kind).tolist()):
        row, column = divmod(place, WIDTH)
        columns += value * weights[column]
        rows += value * weights[row]
    return tuple((total + 2**63) % 2**64 - 2**63 for total in (columns, rows))  # pyright: ignore


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3, 5), (WIDTH,), (3, WIDTH + 7)], ids=str)
def test_checksum_matches_a_loop_over_values(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = random_tensor(*shape, dtype=dtype)
    assert checksum(tensor) == slow_checksum(tensor)


def test_checksum_does_not_depend_on_memory_layout() -> None:
    tensor = random_tensor(6, 10)
    assert checksum(tensor.t().contiguous().t()) == checksum(tensor)
    assert checksum(tensor[:, 2:5]) == checksum(tensor[:, 2:5].clone())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_checksum_changes_with_the_last_bit_or_exchange_of_any_value(dtype: torch.dtype) -> None:
    tensor = torch.arange(1, 9, dtype=torch.float32).to(dtype)
    kind = {4: torch.int32, 2: torch.int16}[tensor.element_size()]
    seen = {checksum(tensor)}
    for place in range(8):
        changed = tensor.clone()
        changed.view(kind)[place] += 1  # its last bit
        seen.add(checksum(changed))
    for i, j in itertools.combinations(range(8), 2):
        exchanged = tensor.clone()
        exchanged[[i, j]] = tensor[[j, i]]
        seen.add(checksum(exchanged))
    assert len(seen) == 1 + 8 + 28


def test_fingerprint_depends_on_names_shapes_dtypes_and_values_not_order() -> None:
    tensors = {"a": random_tensor(4, 6), "b": random_tensor(3)}
    base = fingerprint(tensors.items())
    assert base == fingerprint(reversed(tensors.items()))
    others = [
        {"a": tensors["a"], "c": tensors["b"]},
        {"a": tensors["b"], "b": tensors["a"]},
        {"a": tensors["a"].reshape(6, 4), "b": tensors["b"]},
        {"a": tensors["a"].view(torch.int32), "b": tensors["b"]},
        {"a": tensors["a"]},
        {**tensors, "d": random_tensor(0)},
        {"a": -tensors["a"], "b": tensors["b"]},
    ]
    assert len({base, *(fingerprint(other.items()) for other in others)}) == 1 + len(others)


def test_saved_policy_has_the_fingerprint_of_its_weights(policy: CausalLMPolicy, tmp_path: Path) -> None:
    policy.save(tmp_path)
    parameters = dict(policy.model.named_parameters())  # a tied head is listed and stored once
    assert fingerprint(stored_tensors(tmp_path, "cpu")) == fingerprint(parameters.items())


def test_stored_tensors_reads_all_files_of_a_folder_and_raises_without_any(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="safetensors"):
        list(stored_tensors(tmp_path, "cpu"))
    tensors = {"a": random_tensor(4, 6), "b": random_tensor(3)}
    for name, tensor in tensors.items():
        save_file({name: tensor}, tmp_path / f"model-{name}.safetensors")
    assert fingerprint(stored_tensors(tmp_path, "cpu")) == fingerprint(tensors.items())


def test_weight_sync_can_be_imported_without_this_package() -> None:
    """vLLM's environment imports it with its folder on the path."""
    folder = Path(weight_sync.__file__).parent
    check = "import sys, weight_sync; assert not [m for m in sys.modules if m.startswith(('contrastive', 'jaxtyping'))]"
    subprocess.run([sys.executable, "-c", check], cwd=folder, check=True, timeout=60)
