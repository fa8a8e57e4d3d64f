"""Saving of a model with its adapters merged, one layer at a time, so that no second model is in memory.

1.  the files of the merged model are written with the weights below the adapters, as they are
2.  in these files  W + (alpha / rank)·B A  of one layer after another replaces its W
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from peft import PeftModel
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor, nn

WEIGHTS, UNMERGED = ".safetensors", ".unmerged"


class Place(NamedTuple):
    """The bytes of a tensor in a safetensors file."""

    file: Path
    start: int
    size: int


def save_merged(model: PeftModel, folder: Path, *, max_shard_size: str) -> None:
    """Saves in Hugging Face format what ``merge_and_unload`` of a copy of the model would save, bit for bit.

    If transformers stores an adapted weight in another form than the model has it, such as fused with others, it saves
    a merged copy of the whole model.
    """
    own: Any = model.get_base_model()
    merged: Any = _without_data(model).merge_and_unload()  # pyright: ignore[reportCallIssue]
    adapters, below = f".{model.base_model.prefix}", own.state_dict().items()
    below = {name.replace(".base_layer.", "."): weight for name, weight in below if adapters not in name}
    merged.save_pretrained(folder, state_dict=below, max_shard_size=max_shard_size)
    # until all layers are merged, nothing can load them
    files = [file.rename(file.with_suffix(UNMERGED)) for file in sorted(folder.glob(f"*{WEIGHTS}"))]
    places = dict(place for file in files for place in _places_in(file))
    layers = ((name, layer) for name, layer in own.named_modules() if isinstance(layer, BaseTunerLayer))
    if all(_merge_stored(layer, name, places) for name, layer in layers):
        for file in files:
            file.rename(file.with_suffix(WEIGHTS))
    else:
        for file in files:
            file.unlink()
        whole: Any = copy.deepcopy(model)
        whole.merge_and_unload().save_pretrained(folder, max_shard_size=max_shard_size)


def _without_data(model: nn.Module) -> Any:
    """A copy with parameters and buffers on the meta device, which hold no data."""
    copied: dict[int, Any] = {
        id(weight): nn.Parameter(torch.empty_like(weight, device="meta"), requires_grad=False)
        for weight in model.parameters()
    }
    copied |= {id(buffer): torch.empty_like(buffer, device="meta") for buffer in model.buffers()}
    return copy.deepcopy(model, copied)


@torch.no_grad()
def _merge_stored(layer: BaseTunerLayer, name: str, places: Mapping[str, Place]) -> bool:
    """Replaces the stored weights of a layer by merged ones. False if they are stored in another form."""
    own: Any = copy.deepcopy(layer)
    own.merge()
    before, after = (dict(one.get_base_layer().named_parameters()) for one in (layer, own))
    return all(_replace(places.get(f"{name}.{key}"), weight, after[key]) for key, weight in before.items())


def _places_in(file: Path) -> Iterator[tuple[str, Place]]:
    """Yields (name, place) of all tensors of a file. Its header: 8 bytes of the length, then JSON."""
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        header: dict[str, Any] = json.loads(opened.read(length))
    header.pop("__metadata__", None)
    for name, entry in header.items():
        start, end = entry["data_offsets"]
        yield name, Place(file, 8 + length + start, end - start)


def _replace(place: Place | None, before: Tensor, after: Tensor) -> bool:
    """Writes ``after`` in place of ``before``. False if these bytes of the file are not those of ``before``."""
    if place is None or place.size != before.nbytes:
        return False
    stored = np.memmap(place.file, dtype=np.uint8, mode="r+", offset=place.start, shape=(place.size,))
    if not np.array_equal(stored, _bytes(before)):
        return False
    stored[:] = _bytes(after)
    return True


def _bytes(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
