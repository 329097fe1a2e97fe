"""The order within a sweep of recomputation, and when each activation counts there."""

from __future__ import annotations

from dataclasses import dataclass

from explorer.solvers.formulation.groups import Group
from explorer.solvers.formulation.merge import MergedProblem


@dataclass(frozen=True, slots=True)
class Stay:
    """An activation that is not needed by a group's backward operators, between two of its readers in the sweep.

    Attributes:
        activation: what stays.
        after: slot of the sweep after which this stay begins (its producer's, or the previous reader's).
        until: slot of the reader that ends it; at least one other slot lies in between.
        readers: slots for whose sake it stays: the one at ``until`` and, up to the next stay, those right behind.
        following: index in ``Sweep.stays`` of the next stay of the same activation, None if there is none.
    """

    activation: int
    after: int
    until: int
    readers: tuple[int, ...]
    following: int | None


@dataclass(frozen=True, eq=False)
class Sweep:
    """Recomputation at the start of a group: its candidate nodes in order, and how activations are counted.

    Before its turn an activation counts with what the previous group kept (s_{g-1,i}); after its turn with what the
    group's backward operators find (π_{g,i}), plus its stays for later readers of the same sweep.

    Attributes:
        slots: nodes that may run, one after the other; those in one slot are alternatives.
        turn: activation to the slot of its turn.
        stays: every stay that may be needed.
        reads: by slot, the activations that count only for the node there: read by it, and not covered by a stay.
        readers: activation to the slots that may read it, after its turn or at it.
    """

    slots: tuple[tuple[int, ...], ...]
    turn: dict[int, int]
    stays: tuple[Stay, ...]
    reads: tuple[tuple[int, ...], ...]
    readers: dict[int, tuple[int, ...]]

    @classmethod
    def of(cls, merged: MergedProblem, group: Group, nodes: list[int]) -> Sweep:
        """Lay out the sweep of ``nodes`` before ``group``."""
        useful = set(nodes)
        slots = [slot for found in merged.alternatives if (slot := [node for node in found if node in useful])]
        position = {node: k for k, slot in enumerate(slots) for node in slot}
        readers: dict[int, list[int]] = {}
        for k, slot in enumerate(slots):
            for x in frozenset().union(*(merged.nodes[node].reads for node in slot)):
                readers.setdefault(x, []).append(k)
        activations = {x for x, t in merged.last_useful[0].items() if t >= group.start and merged.has_choice(x)}
        turn: dict[int, int] = {}
        stays: list[Stay] = []
        reads: list[list[int]] = [[] for _ in slots]
        for x in sorted(activations):
            users = readers.get(x, [])
            made = [position[node] for node in merged.producers.get(x, ()) if node in position]
            # What nobody makes again is counted as kept until its first reader.
            turn[x] = made[0] if made else (users[0] if users else 0)
            if x not in group.needs:
                _add_stays(x, turn[x], [k for k in users if k > turn[x]], stays, reads)
        return cls(
            tuple(tuple(x) for x in slots),
            turn,
            tuple(stays),
            tuple(tuple(x) for x in reads),
            {x: tuple(users) for x, users in readers.items()},
        )


def _add_stays(activation: int, turn: int, users: list[int], stays: list[Stay], reads: list[list[int]]) -> None:
    """Split the time from ``turn`` to the last reader into stays; a reader right behind needs none."""
    begins = [turn, *users][:-1]
    long = [n for n, (after, until) in enumerate(zip(begins, users, strict=True)) if until > after + 1]
    for n, (after, until) in enumerate(zip(begins, users, strict=True)):
        if until == after + 1:
            reads[until].append(activation)
            continue
        ends = next((m for m in long if m > n), len(users))
        following = len(stays) + 1 if ends < len(users) else None
        stays.append(Stay(activation, after, until, tuple(users[n:ends]), following))
