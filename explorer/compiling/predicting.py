"""What a compiled step takes with a choice made: its own two graphs say more than the one that the choice is of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from explorer.compiling.building import rebuilt
from explorer.compiling.partitioning import Choice
from explorer.compiling.profiling import Traced
from explorer.device_profile import Cost, Profile
from explorer.graph import Operator

_UNKNOWN = Cost(0.0, 0)


def predicted_peak_bytes(traced: Traced, choice: Choice, profile: Profile) -> int:
    """The peak of a step, model and batch included.

    A schedule's peak is that of the one graph that all schedules are of. What is computed again changes that: results
    with a second reader in the backward pass are put into memory, loops join others, and all of it runs where the
    partitioner puts it, often at the beginning. So PyTorch divides the joint graph by the choice here, and kernels
    are made of what it divides.

    Args:
        traced: the step.
        choice: for that.
        profile: of it in the choice's layout, for workspaces.
    """
    built = traced.in_layout(own=choice.channels_last is False)
    graph = rebuilt(traced.joint, built, saved=choice.saved, again=choice.again).graph
    keys = {way.cost for x in graph.operators for way in x.implementations}
    return _peak_bytes(Profile(graph, {x: profile.costs.get(x, _UNKNOWN) for x in keys}, profile.device))


def _peak_bytes(profile: Profile) -> int:
    """Of all operators in order, each written over as many dying arguments as it has results that fit there."""
    graph = profile.graph
    size = [profile.allocated_bytes(x) for x in graph.storages]
    stays = graph.persistent.union(x.id for x in graph.storages if x.held)
    last: dict[int, int] = {}
    for operator in graph.operators:
        way = operator.default()
        last |= dict.fromkeys((*way.reads, *way.writes), operator.id)
    live = peak = profile.fixed_bytes
    for operator in graph.operators:
        way = operator.default()
        dying = {x for x in (*way.reads, *way.writes) if last[x] == operator.id} - stays
        made = sum(size[x] for x in way.writes)
        written_over = sum(size[x] for x in _written_over(operator, dying, size))
        peak = max(peak, live + made - written_over + profile.workspace_bytes(way))
        live += made - sum(size[x] for x in dying)
    return peak


def _written_over(operator: Operator, dying: set[int], size: list[int]) -> Iterator[int]:
    room = Counter(size[x] for x in operator.default().writes)
    for storage in dict.fromkeys(way.overwrites for way in operator.implementations):
        if storage in dying and room[size[storage]]:
            room[size[storage]] -= 1
            yield storage
