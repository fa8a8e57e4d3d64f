"""Communication between the ranks of one run. One process communicates nothing.

    problem    0  1  2  3  4  5        of a step, in the data's order
    rank       0  1  2  0  1  2        groups stay whole, and every rank has as many

``gather_groups`` restores the data's order. The results therefore equal those of one process, bit for bit where the
gathered values are equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn

T = TypeVar("T")


def ranks() -> int:
    """The number of processes that train together."""
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def this_rank() -> int:
    return distributed.get_rank() if ranks() > 1 else 0


def share(items: Sequence[T]) -> list[T]:
    """This rank's share of items that every rank has: every R-th item, starting at the rank's own number."""
    return list(items[this_rank() :: ranks()])


def unshare(shares: Sequence[Sequence[T]]) -> list[T]:
    """The items of all ranks' shares in their original order; some shares may be one item shorter than others."""
    longest = max(len(part) for part in shares)
    return [part[place] for place in range(longest) for part in shares if place < len(part)]


def gather(value: T) -> list[T]:
    """Every rank's value, in the order of ranks. Values are pickled, so they should be small."""
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
    """Waits for every rank."""
    gather(None)


def total(value: float) -> float:
    """The sum over ranks."""
    return sum(gather(value)) if ranks() > 1 else value


def most(value: int) -> int:
    """The largest of the ranks' values."""
    return max(gather(value))


def average_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Replaces every gradient by its mean over ranks, for parameters that no strategy manages."""
    if ranks() == 1:
        return
    for parameter in parameters:
        if parameter.grad is not None:  # on every rank or on none: otherwise the ranks wait for each other
            distributed.all_reduce(parameter.grad)
            parameter.grad /= ranks()


def gather_groups(rows: Tensor, group_size: int) -> Tensor:
    """The rows of all ranks, as whole groups in the data's order: (B, …) → (R·B, …), without a gradient.

    Every rank must have the same number of rows.
    """
    if ranks() == 1:
        return rows
    mine = rows.detach().contiguous()
    found = [torch.empty_like(mine) for _ in range(ranks())]
    distributed.all_gather(found, mine)
    groups = torch.stack([part.unflatten(0, (-1, group_size)) for part in found], dim=1)  # (P, R, G, …)
    return groups.flatten(0, 2)


def own_groups(rows: Tensor, group_size: int) -> Tensor:
    """This rank's rows of a result of ``gather_groups``, or of values computed from it row by row."""
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
        # Every rank computes the same loss from the same gathered rows, so each has the full gradient of its own block.
        # Strategies average gradients over ranks, hence the factor.
        return gradients[0].chunk(ranks())[this_rank()] * ranks()


def own_rows(count: int) -> Tensor:
    """Indices of the rows that this rank reads, of ``count`` rows that all ranks have.

    Every rank gets the same number; a rank that is short repeats the last row.
    """
    size = -(-count // ranks())
    return torch.arange(this_rank() * size, (this_rank() + 1) * size).clamp(max=count - 1)


def all_rows(block: Tensor, count: int) -> Tensor:
    """All ``count`` rows from the ranks' ``own_rows``, with this rank's gradient: (A, …) → (count, …).

    For a loss that every rank computes on all rows. After the strategy has averaged the gradients over ranks, they
    equal those of one process with all rows.
    """
    whole: Any = block if ranks() == 1 else _GatheredBlocks.apply(block)
    return whole[:count]


def over_ranks(
    metrics: Mapping[str, float], *, summed: tuple[str, ...] = (), counts: Mapping[str, float] | None = None
) -> dict[str, float]:
    """Metrics of the whole batch from the ranks' metrics: sums of names that begin with one of ``summed``, else means.

    Of a maximum (``…_max``, ``…_gap``) it takes the largest. A rank without a metric does not count in its mean.
    ``counts`` gives, by name, the number of things in this rank's mean (default 1), for ranks whose numbers differ.
    """
    if ranks() == 1:
        return dict(metrics)
    found = gather((dict(metrics), dict(counts or {})))
    joined: dict[str, float] = {}
    for name in dict.fromkeys(name for known, _ in found for name in known):
        values = [(known[name], of.get(name, 1.0)) for known, of in found if name in known]
        if name.endswith(("_max", "_gap")):
            joined[name] = max(value for value, _ in values)
        elif name.startswith(summed):
            joined[name] = sum(value for value, _ in values)
        else:
            joined[name] = sum(value * count for value, count in values) / sum(count for _, count in values)
    return joined


def mean_over_ranks(metrics: Mapping[str, float], count: int) -> tuple[dict[str, float], int]:
    """Means over all ranks from means over this rank's ``count`` things, and the total count.

    The values of a rank with a count of 0 are ignored; it must have the same names.
    """
    if ranks() == 1:
        return dict(metrics), count
    found = gather((dict(metrics), count))
    everything = sum(weight for _, weight in found)
    names = found[0][0]
    means = {name: sum(known[name] * weight for known, weight in found if weight) / everything for name in names}
    return means, everything


def even_shares(costs: Sequence[int], count: int) -> list[list[int]]:
    """Divides the indices of ``costs`` into ``count`` shares of equal size and similar cost, each in ascending order.

    Costs are assigned in descending order, each to the share with the smallest sum that is not full. If the largest
    sum is not smaller than with every R-th index (as in ``share``), that division is returned instead.

    Raises ValueError if the number of costs is not divisible by ``count``.
    """
    if len(costs) % count:
        raise ValueError(f"{len(costs)} costs cannot be divided evenly over {count}")
    size = len(costs) // count
    shares: list[list[int]] = [[] for _ in range(count)]
    sums = [0] * count
    # ties are broken by the index, because every rank computes the shares of all
    for place in sorted(range(len(costs)), key=lambda place: (-costs[place], place)):
        least = min((i for i in range(count) if len(shares[i]) < size), key=lambda i: (sums[i], i))
        shares[least].append(place)
        sums[least] += costs[place]
    every = [list(range(first, len(costs), count)) for first in range(count)]
    if max(sum(costs[place] for place in part) for part in every) <= max(sums):
        return every
    return [sorted(part) for part in shares]
