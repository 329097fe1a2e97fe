"""Calls beside those whose work they do: measured in turns, so that whatever the machine does meets both alike."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from explorer.capture.building import Call
from explorer.device_profile import Cost
from explorer.graph import TrainingGraph

_NEAR = 1.15
"""Up to this share of its rival's time, an alternative may prove quicker."""
_LEAST_TURNS, _MOST_TURNS = 3, 25
_TURNS_S = 0.04
"""For each: more says more of short calls; of long ones, three turns say enough."""


@dataclass(frozen=True)
class Subject:
    """A call to measure.

    Attributes:
        call: of a captured operator.
        name: of the operator, for the progress bar.
        written_bytes: what the storages that the graph knows it writes add to those it reads (nothing, if it works in
            place); what it takes beyond them is workspace.
        rival: key of the first call with these results, or of PyTorch's own; None for those, and for what is always to
            be had.
        before: key of PyTorch's own call of the operator before; None where that is the first.
        care: PyTorch's own calls are run more often: everything else is compared with them.
    """

    call: Call
    name: str
    written_bytes: int
    rival: str | None = None
    before: str | None = None
    care: bool = True


@dataclass(frozen=True)
class Halves:
    """An operator that runs whole or in two, by PyTorch's own calls: their keys."""

    whole: str
    first: str
    second: str


def halves_of(graph: TrainingGraph) -> list[Halves]:
    """Of all operators of the backward pass; each pair of halves once."""
    found: dict[str, Halves] = {}
    for second in (x for x in graph.backward if x.optional):
        written = set(second.default().writes)
        operator = next(x for x in graph.backward if written & set(x.default().writes))
        first = next(x for x in operator.implementations if not written & set(x.writes))
        keys = (first.cost, second.default().cost)
        if first.optimization is None and not any(x in found for x in keys):
            found |= dict.fromkeys(keys, Halves(operator.default().cost, *keys))
    return list(dict.fromkeys(found.values()))


def halves_like_wholes(halves: Sequence[Halves], costs: Mapping[str, Cost]) -> dict[str, Cost]:
    """Costs of operators' own halves, scaled to take together as long as the whole.

    PyTorch computes the whole by the same two kernels: a difference in what was measured is chance, and would count as
    if a schedule with the whole could be quicker than any with the halves.
    """
    scaled: dict[str, Cost] = {}
    for x in halves:
        scaled |= _scaled(x, costs, 1.0)
    return scaled


def in_turns(
    costs: Mapping[str, Cost],
    *,
    subjects: Mapping[str, Subject],
    fitting: Collection[str],
    halves: Sequence[Halves],
    run_ms: Callable[[Subject], float],
    report: Callable[[str], None],
) -> dict[str, Cost]:
    """Costs in which what may be quicker than PyTorch's own call was measured in turns with it, and halves with wholes.

    The quickest of several alternatives is else often the one that was measured while the machine was quick: only what
    it gains beyond the standard error counts. Halves of small operators take longer than the whole, as two calls do.

    Args:
        costs: of all calls, by key.
        subjects: the calls.
        fitting: keys of those that fit into memory.
        halves: operators that may run whole or in two.
        run_ms: runs a call and tells how long it took.
        report: called with a name before each.
    """
    found = dict(costs)
    for x in halves:
        share, error = _share((x.first, x.second), x.whole, subjects, run_ms)
        found |= _scaled(x, costs, max(1.0, share - error))
    for key, subject in subjects.items():
        report(subject.name)
        rival = subject.rival
        both_fit = key in fitting and rival in fitting
        if rival is not None and both_fit and costs[key].time_ms < _NEAR * costs[rival].time_ms:
            share, error = _share((key,), rival, subjects, run_ms)
            found[key] = replace(costs[key], time_ms=found[rival].time_ms * (share + error))
    return found


def _scaled(halves: Halves, costs: Mapping[str, Cost], share: float) -> dict[str, Cost]:
    keys = (halves.first, halves.second)
    factor = share * costs[halves.whole].time_ms / sum(costs[x].time_ms for x in keys)
    return {x: replace(costs[x], time_ms=costs[x].time_ms * factor) for x in keys}


def _share(
    keys: Sequence[str], of: str, subjects: Mapping[str, Subject], run_ms: Callable[[Subject], float]
) -> tuple[float, float]:
    """The part of a call's time that others take, and its standard error; each after the call before it in the step."""
    before = subjects[of].before
    shares: list[float] = []
    began = time.perf_counter()
    while len(shares) < _LEAST_TURNS or (len(shares) < _MOST_TURNS and time.perf_counter() - began < _TURNS_S):
        times_ms = []
        for turn in (keys, (of,)):
            if before is not None:
                run_ms(subjects[before])
            times_ms.append(sum(run_ms(subjects[x]) for x in turn))
        shares.append(times_ms[0] / times_ms[1])
    return median_with_error(shares)


def median_with_error(ratios: Sequence[float]) -> tuple[float, float]:
    """The median of three ratios or more, and its standard error, from the middle 80 % of them."""
    tail = len(ratios) // 10
    middle = sorted(ratios)[tail : len(ratios) - tail]
    return statistics.median(ratios), 1.25 * statistics.stdev(middle) / math.sqrt(len(ratios))
