"""What the processes of one training run, its ranks, know of each other; in a run of one process all is as it was.

    problem    0  1  2  3  4  5        of a step, in the data's order
    rank       0  1  2  0  1  2        groups stay whole, and every rank has as many

Whatever is known of every rank is put in the data's order again (``gather_groups``), so that what is made of it is what
one process would have made, bit for bit where the pieces are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn

T = TypeVar("T")


def ranks() -> int:
    """How many processes train together."""
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def this_rank() -> int:
    return distributed.get_rank() if ranks() > 1 else 0


def share(items: Sequence[T]) -> list[T]:
    """What this rank has of a row of items that every rank knows: every R-th, from its own number on."""
    return list(items[this_rank() :: ranks()])


def unshare(shares: Sequence[Sequence[T]]) -> list[T]:
    """The row of items again, from the ranks' shares; some may be one item shorter than others."""
    longest = max(len(part) for part in shares)
    return [part[place] for place in range(longest) for part in shares if place < len(part)]


def gather(value: T) -> list[T]:
    """Every rank's value, in the order of ranks. Values travel pickled, so they should be small."""
    if ranks() == 1:
        return [value]
    found: list[Any] = [None] * ranks()
    distributed.all_gather_object(found, value)
    return found


def from_first(value: T) -> T:
    """Rank 0's value, on every rank."""
    if ranks() == 1:
        return value
    box: list[Any] = [value]
    distributed.broadcast_object_list(box, src=0)
    return box[0]


def barrier() -> None:
    """Wait for every rank."""
    gather(None)


def total(value: float) -> float:
    """The sum over ranks."""
    return sum(gather(value)) if ranks() > 1 else value


def most(value: int) -> int:
    """The largest of the ranks' values."""
    return max(gather(value))


def average_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Replace every gradient by its mean over ranks, for what no strategy looks after."""
    if ranks() == 1:
        return
    for parameter in parameters:
        if parameter.grad is not None:
            distributed.all_reduce(parameter.grad)
            parameter.grad /= ranks()


def gather_groups(rows: Tensor, group_size: int) -> Tensor:
    """The rows of all ranks, whole groups in the data's order: (B, …) → (R·B, …), without a gradient.

    The ranks have as many rows each.
    """
    if ranks() == 1:
        return rows
    mine = rows.detach().contiguous()
    found = [torch.empty_like(mine) for _ in range(ranks())]
    distributed.all_gather(found, mine)
    groups = torch.stack([part.unflatten(0, (-1, group_size)) for part in found], dim=1)  # (P, R, G, …)
    return groups.flatten(0, 2)


def own_groups(rows: Tensor, group_size: int) -> Tensor:
    """This rank's rows of what ``gather_groups`` gave, or of what was made of it row by row."""
    if ranks() == 1:
        return rows
    return rows.unflatten(0, (-1, ranks(), group_size))[:, this_rank()].flatten(0, 1)


class _GatheredBlocks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, block: Tensor) -> Tensor:
        found = [torch.empty_like(block) for _ in range(ranks())]
        distributed.all_gather(found, block.contiguous())
        return torch.cat(found)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        # every rank takes the same loss of the same whole, so each has all of its own block's gradient, and strategies
        # average what are parts of a sum
        return gradients[0].chunk(ranks())[this_rank()] * ranks()


def gather_blocks(block: Tensor) -> Tensor:
    """The ranks' blocks, one after the other, with this rank's gradient: (A, …) → (R·A, …).

    For a loss that every rank takes of the whole: after the strategy has averaged the ranks' gradients they are those
    of one process with all rows. The blocks have one shape.
    """
    return block if ranks() == 1 else _GatheredBlocks.apply(block)  # pyright: ignore[reportReturnType]


def own_rows(count: int) -> Tensor:
    """Which of ``count`` rows that all ranks know this rank reads: as many on each, the last one again where short."""
    size = -(-count // ranks())
    return torch.arange(this_rank() * size, (this_rank() + 1) * size).clamp(max=count - 1)


def all_rows(block: Tensor, count: int) -> Tensor:
    """What was made of the ranks' ``own_rows``, as of all ``count`` rows, with a gradient: see ``gather_blocks``."""
    return gather_blocks(block)[:count]


def over_ranks(
    metrics: Mapping[str, float], *, summed: tuple[str, ...] = (), counts: Mapping[str, float] | None = None
) -> dict[str, float]:
    """Metrics of the whole batch from those of the ranks: sums of what begins with one of ``summed``, else means.

    Of a maximum (``…_max``, ``…_gap``) the largest. A rank that does not know a metric does not count in its mean;
    ``counts`` says over how many things a mean of this rank is, where ranks have other numbers of them.
    """
    if ranks() == 1:
        return dict(metrics)
    found = gather((dict(metrics), dict(counts or {})))
    names = dict.fromkeys(name for known, _ in found for name in known)
    told = {name: [(known[name], of.get(name, 1.0)) for known, of in found if name in known] for name in names}
    return {name: _joined(name, values, summed) for name, values in told.items()}


def mean_over_ranks(metrics: Mapping[str, float], count: int) -> tuple[dict[str, float], int]:
    """Means over ``count`` things of this rank, as means over those of all ranks, and how many those are.

    Of a rank with none the values are ignored; it must have the same names.
    """
    if ranks() == 1:
        return dict(metrics), count
    found = gather((dict(metrics), count))
    everything = sum(weight for _, weight in found)
    names = found[0][0]
    means = {name: sum(known[name] * weight for known, weight in found if weight) / everything for name in names}
    return means, everything


def _joined(name: str, values: Sequence[tuple[float, float]], summed: tuple[str, ...]) -> float:
    """Of each rank's value and count."""
    if name.endswith(("_max", "_gap")):
        return max(value for value, _ in values)
    if name.startswith(summed):
        return sum(value for value, _ in values)
    return sum(value * count for value, count in values) / sum(count for _, count in values)


def even_shares(costs: Sequence[int], count: int) -> list[list[int]]:
    """The places of ``costs`` in ``count`` shares, as many in each, in ascending order.

    The largest first, each to the share that has least and still has room. Every R-th place, as ``share`` has it, is
    kept where the largest sum would not become smaller by that.

    Raises:
        ValueError: where they cannot be shared out evenly.
    """
    if len(costs) % count:
        raise ValueError(f"{len(costs)} costs cannot be shared out evenly over {count}")
    room = len(costs) // count
    shares: list[list[int]] = [[] for _ in range(count)]
    sums = [0] * count
    for place in sorted(range(len(costs)), key=lambda place: (-costs[place], place)):
        least = min((i for i in range(count) if len(shares[i]) < room), key=lambda i: (sums[i], i))
        shares[least].append(place)
        sums[least] += costs[place]
    every = [list(range(first, len(costs), count)) for first in range(count)]
    if max(sum(costs[place] for place in part) for part in every) <= max(sums):
        return every
    return [sorted(part) for part in shares]
