"""Ways to run something: time against memory, in place or not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from explorer.solvers.problem.problem import Form, Problem


@dataclass(frozen=True, slots=True)
class Way:
    """One way to run a forward operator, a node or a backward operator.

    Attributes:
        time_ms: its duration.
        bytes: its worst moment on top of what is in memory before it, what it reads included; what it overwrites is
            taken off.
        overwrites: activations in memory before it whose memory it takes; they must be of no more use.
        forms: index of the form of each operator that runs.
    """

    time_ms: float
    bytes: int
    overwrites: frozenset[int]
    forms: tuple[int, ...]


def form_ways(problem: Problem, form: Form, index: int) -> list[Way]:
    """The ways of a form, in which everything it writes is new (MONeT's c_i and |x_i|)."""
    written = sum(problem.activations[x].bytes for x in form.writes)
    ways = []
    for option in form.options:
        over = frozenset(() if option.overwrites is None else (option.overwrites,))
        ways.append(Way(option.time_ms, written + option.extra_bytes(problem.activations), over, (index,)))
    return ways


def frontier(ways: Iterable[Way], *, negligible_bytes: int = 0, relaxed: bool = False) -> tuple[Way, ...]:
    """Quickest first, without those that another one beats in time and memory and that overwrites no more.

    Args:
        ways: that do the same.
        negligible_bytes: a slower way must save more than this.
        relaxed: a way takes no more memory than what is left out for its sake; so no run gets worse by leaving out.
    """
    kept: list[Way] = []
    for way in sorted(ways, key=lambda x: (x.time_ms, x.bytes, len(x.overwrites))):
        rival = next(
            (
                n
                for n, x in enumerate(kept)
                if x.overwrites <= way.overwrites and x.bytes <= way.bytes + negligible_bytes
            ),
            None,
        )
        if rival is None:
            kept.append(way)
        elif relaxed:
            kept[rival] = replace(kept[rival], bytes=min(kept[rival].bytes, way.bytes))
    return tuple(kept)


def base_of(ways: Sequence[Way]) -> Way | None:
    """The quickest way that overwrites nothing: it may always be taken, as far as memory allows."""
    return next((x for x in ways if not x.overwrites), None)


def unconditional(ways: Iterable[Way], *, negligible_bytes: int = 0) -> tuple[Way, ...]:
    """For bounds: the ways as if overwriting asked for nothing."""
    free = (replace(x, overwrites=frozenset()) for x in ways)
    return frontier(free, negligible_bytes=negligible_bytes, relaxed=True)
