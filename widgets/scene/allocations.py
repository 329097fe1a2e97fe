"""What is in memory at one run, the largest first."""

from __future__ import annotations

from dataclasses import dataclass

from explorer.device_profile import Profile
from explorer.graph import Storage
from explorer.timeline import CATEGORIES, Category, Timeline

_OF_THE_GRAPH = (Category.PARAMETERS, Category.BUFFERS, Category.INPUTS, Category.OPTIMIZER_STATE, Category.WORKSPACE)


@dataclass(frozen=True, slots=True)
class Allocation:
    """Something in memory.

    Attributes:
        name: of the tensor, or of the category where it is not told apart by tensors.
        shape: such as ``float32[8, 64, 56, 56]``; empty for a category.
        layer: that made it; empty for none.
        category: what it is for.
        bytes: as the allocator takes it.
    """

    name: str
    shape: str
    layer: str
    category: Category
    bytes: int


def allocations(profile: Profile, timeline: Timeline, run: int) -> tuple[Allocation, ...]:
    """Every tensor alive at a run; parameters and the like as one each, workspace as another."""
    graph = profile.graph
    found = [
        Allocation(
            graph.storages[x.storage].name,
            describe(graph.storages[x.storage]),
            graph.operators[graph.producer[x.storage]].layer,
            x.category,
            profile.allocated_bytes(graph.storages[x.storage]),
        )
        for x in timeline.alive_at(run)
    ]
    amounts = dict(zip(CATEGORIES, timeline.bytes[run].tolist(), strict=True))
    found += [Allocation(f"all {x.value}", "", "", x, amounts[x]) for x in _OF_THE_GRAPH if amounts[x]]
    return tuple(sorted(found, key=lambda x: -x.bytes))


def describe(storage: Storage) -> str:
    """Its type and shape."""
    return f"{storage.dtype}{list(storage.shape)}"
