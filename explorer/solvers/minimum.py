"""How little memory a step can take: what no schedule avoids, operator by operator."""

from __future__ import annotations

from dataclasses import dataclass

from explorer.device_profile import Profile
from explorer.graph import Implementation, Operator


@dataclass(frozen=True, slots=True)
class PeakBound:
    """No schedule has a smaller peak.

    Attributes:
        peak_bytes: the bound.
        operator: id of the operator that no schedule runs with less.
    """

    peak_bytes: int
    operator: int


def peak_lower_bound(profile: Profile) -> PeakBound:
    """Bound the peak of every schedule from below, whatever it keeps or recomputes.

    While an operator runs for the first time, these are in memory: what is persistent or held, what it reads and
    writes, its workspace, and whatever was made before and is read by a first run from then on but cannot be made again
    by then: gradients, outputs of operators without recomputation, and during the forward pass every activation that
    the rest of the forward pass reads (MONeT equation 1 with nothing stored; recomputations come in the backward pass).
    """
    graph = profile.graph
    size = [profile.allocated_bytes(storage) for storage in graph.storages]
    remade = {x for op in graph.forward for impl in op.implementations if impl.again for x in impl.writes}
    # Backwards: which storages are certainly read by a first run later on, separately for the rest of the forward pass.
    later: set[int] = set()
    later_forward: set[int] = set()
    unavoidable: list[set[int]] = []
    for operator in reversed(graph.operators):
        forward = operator.id < graph.forward_count
        unavoidable.append(later_forward | (later - remade) if forward else later - remade)
        if operator.optional:
            continue
        reads = set.intersection(*(set(impl.reads) for impl in _firsts(operator))) - graph.persistent
        later |= reads
        if forward:
            later_forward |= reads
    unavoidable.reverse()

    best = PeakBound(profile.fixed_bytes, 0)
    made: set[int] = set()
    for operator in graph.operators:
        if operator.optional:
            continue
        kept = made & (unavoidable[operator.id] | {x for x in made if graph.storages[x].held})
        least = min(_while_running(profile, impl, kept, size) for impl in _firsts(operator))
        if least + profile.fixed_bytes > best.peak_bytes:
            best = PeakBound(least + profile.fixed_bytes, operator.id)
        made |= set(operator.default().writes)
    return best


def _firsts(operator: Operator) -> list[Implementation]:
    return [implementation for implementation in operator.implementations if implementation.first]


def _while_running(profile: Profile, implementation: Implementation, kept: set[int], size: list[int]) -> int:
    there = (kept | {*implementation.reads, *implementation.writes}) - profile.graph.persistent
    # In place, the memory of what is read becomes that of what is written.
    there -= {implementation.overwrites}
    return sum(size[x] for x in there) + profile.workspace_bytes(implementation)
