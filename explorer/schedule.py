"""What to run, with which implementation, and when to free what: a training step as a list of steps."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from types import MappingProxyType

from explorer.arguments import a_path
from explorer.graph import Identity, Implementation, Operator, TrainingGraph, a_graph
from explorer.iteration import STEP_ALONE
from explorer.placement import Placement
from explorer.storage import storage_format
from explorer.summaries import Fact, Summarised
from explorer.units import format_bytes

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Run:
    """Run an operator; a second run is a recomputation."""

    operator: int
    implementation: str


@dataclass(frozen=True, slots=True)
class Free:
    """Free a storage."""

    storage: int


Step = Run | Free

# A search knows hundreds of schedules of a thousand steps: equal ones are one object.
_run, _free = cache(Run), cache(Free)


@dataclass(frozen=True, repr=False)
class Schedule(Summarised):
    """A complete training step for one graph.

    Steps before the first backward operator are the forward pass. Any operator may run again, forward ones in either
    pass and backward ones in theirs.

    Attributes:
        identity: the graph it is for.
        steps: in order.
        method: what made it (``"monet"``, ``"keep-all"``).
        budget_bytes: what it was made to fit, None if nothing.
        placement: where what it makes lies in one buffer; None where that was not planned.
    """

    identity: Identity
    steps: tuple[Step, ...]
    method: str
    budget_bytes: int | None = None
    placement: Placement | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for a placement of another schedule."""
        if self.placement is not None:
            runs = sum(isinstance(x, Run) for x in self.steps)
            if self.placement.runs != runs:
                raise ValueError(f"the placement is for a schedule of {self.placement.runs} runs; this one has {runs}")
            if self.placement.schedule not in ("", self.fingerprint):
                raise ValueError("the placement is for another schedule, or another graph: place this one")

    def facts(self) -> Iterator[Fact]:
        """For what it is, and how much it runs."""
        runs = Counter(step.operator for step in self.steps if isinstance(step, Run))
        yield "model", self.identity.model
        if self.identity.autocast is not None and self.identity.autocast.dtype is not None:
            yield "autocast", f"{self.identity.autocast}"
        if self.identity.iteration != STEP_ALONE:
            yield "iteration", f"{self.identity.iteration}"
        yield "made by", self.method
        yield "budget", "none" if self.budget_bytes is None else format_bytes(self.budget_bytes)
        yield "operators", f"{len(runs)}, of which {sum(count > 1 for count in runs.values())} run again"
        yield "runs", f"{runs.total()}"
        if self.placement is not None:
            yield "buffer", format_bytes(self.placement.buffer_bytes)

    def with_placement(self, placement: Placement) -> Schedule:
        """The same with addresses, which are saved with it.

        Args:
            placement: from ``place``, for this very schedule.

        Raises:
            ValueError: it is for another one.
        """
        return replace(self, placement=placement)

    @cached_property
    def fingerprint(self) -> str:
        """Equal for equal steps of equal graphs."""
        steps = [(x.operator, x.implementation) if isinstance(x, Run) else x.storage for x in self.steps]
        return hashlib.sha256(repr((self.identity, steps)).encode()).hexdigest()[:16]

    @property
    def order(self) -> tuple[int, ...]:
        """Operators in the order of their first runs; in the captured order these numbers only increase."""
        return tuple(dict.fromkeys(step.operator for step in self.steps if isinstance(step, Run)))

    def moved(self, graph: TrainingGraph) -> tuple[int, ...]:
        """Those that must move to make this order of the captured one, at least; optional ones aside."""
        order = [x for x in self.order if x < len(graph.operators) and not graph.operators[x].optional]
        ends: list[int] = []  # of the rising sequences of each length, the lowest end
        chains: list[tuple[int, int]] = []  # of each operator: itself, and where its predecessor's stands here
        tops: list[int] = []
        for x in order:
            at = bisect_left(ends, x)
            chains.append((x, tops[at - 1] if at else -1))
            if at == len(ends):
                ends.append(x)
                tops.append(len(chains) - 1)
            else:
                ends[at], tops[at] = x, len(chains) - 1
        stay: set[int] = set()
        place = tops[-1] if tops else -1
        while place >= 0:
            x, place = chains[place]
            stay.add(x)
        return tuple(x for x in order if x not in stay)

    def save(self, path: str | Path) -> None:
        """Write the schedule as JSON, with a schema version and a checksum."""
        storage_format.write(a_path(path), self, schema=SCHEMA)

    def recomputed(self, graph: TrainingGraph) -> dict[int, int]:
        """How often each operator of ``graph`` is recomputed; operators run once are absent."""
        runs: dict[int, int] = {}
        for step in self.steps:
            if isinstance(step, Run) and step.operator < len(graph.operators):
                runs[step.operator] = runs.get(step.operator, 0) + 1
        return {operator: count - 1 for operator, count in runs.items() if count > 1}


def read_schedule(path: str | Path) -> Schedule:
    """Read a schedule that was saved.

    Raises:
        ValueError: the file is missing, truncated, changed, or of another version.
    """
    return storage_format.read(a_path(path), Schedule, schema=SCHEMA)


def with_frees(
    graph: TrainingGraph,
    runs: Iterable[Run],
    *,
    method: str,
    budget_bytes: int | None,
    also_reads: Mapping[int, frozenset[int]] = MappingProxyType({}),
    as_eager: bool = False,
) -> Schedule:
    """Complete an order of runs: drop what may be left out and nobody reads, free each storage after its last use.

    Args:
        graph: the graph to run.
        runs: every operator once in order (optional ones if wanted), recomputations wherever they are wanted.
        method: what made the order.
        budget_bytes: what it was made to fit.
        also_reads: operator id to storages that must be in memory then though it does not read them.
        as_eager: write to part of a tensor in place wherever nothing reads later what was there.

    Returns:
        The schedule with the least memory for that order (MONeT Algorithms 1 and 2: greedy freeing).

    Raises:
        ValueError: a run in place overwrites what a later run reads.
    """
    held = {storage.id for storage in graph.storages if storage.held}
    alive = set(held)
    runs = list(runs)
    seen: set[int] = set()
    first = [run.operator not in seen and not seen.add(run.operator) for run in runs]
    steps: list[Step] = []
    for run, is_first in zip(reversed(runs), reversed(first), strict=True):
        operator = graph.operators[run.operator]
        implementation = operator.implementation(run.implementation)
        if as_eager:
            implementation = _as_eager(operator, implementation, alive, again=not is_first)
        # A held storage never died, so a second run does not make it again.
        writes = set(implementation.writes) - (set() if is_first else held)
        if (operator.optional or not is_first) and not writes & alive:
            continue
        if implementation.overwrites in alive:
            name = graph.storages[implementation.overwrites].name
            raise ValueError(f"{implementation.name!r} of {operator.name!r} overwrites {name!r}, which is read later")
        reads = {*implementation.reads, *also_reads.get(operator.id, ())} - graph.persistent
        dying = (writes | reads) - alive - {implementation.overwrites}
        steps.extend(_free(storage) for storage in sorted(dying, reverse=True))
        steps.append(_run(run.operator, implementation.name))
        alive -= writes  # in place: a copy for each run would take most of the time
        alive |= reads
    steps.reverse()
    return Schedule(graph.identity, tuple(steps), method, budget_bytes)


def _as_eager(operator: Operator, implementation: Implementation, later: set[int], *, again: bool) -> Implementation:
    """The same in place, if that is how eager mode does it and nothing later needs what would be overwritten."""
    if implementation is operator.implementations[0]:
        for other in operator.implementations:
            serves = other.again if again else other.first
            if serves and other.optimization is None and other.overwrites is not None and other.overwrites not in later:
                return other
    return implementation


def keep_all(graph: TrainingGraph) -> Schedule:
    """Recompute nothing: what plain PyTorch does, with every storage freed after its last use.

    Raises:
        ValueError: not a training graph.
    """
    graph = a_graph(graph)
    runs = [Run(operator.id, operator.default().name) for operator in graph.operators if not operator.optional]
    return with_frees(graph, runs, method="keep-all", budget_bytes=None, as_eager=True)
