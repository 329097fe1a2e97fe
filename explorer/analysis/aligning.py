"""Where in a schedule each moment of an observed step belongs: a measurement knows times and bytes, not operators."""

from __future__ import annotations

import numpy as np

from explorer.measurement import Measurement
from explorer.timeline import Timeline

_ALIGNED = 3000
"""Moments that are looked at one by one."""
_FEWEST, _CELLS = 500, 10**7
"""Fewer of a long step: so many moments times runs, which are held in memory."""
_BY_TIME = 0.002
"""What it costs to be a whole step away in time, against being off by all memory."""
_ELSEWHERE = 0.05
"""What it costs at most to be off: beyond that the bytes are not of this run, and say nothing of where they are."""
_AGAIN = 0.2
"""Of what memory grows by after a run's peak, or falls by before it: rather the next run's, or the one's before."""


def runs_of(timeline: Timeline, times_ms: np.ndarray) -> np.ndarray:
    """Moments of an observed step as positions among its runs, float64, by time: stretched to the predicted step."""
    if not len(timeline.operators):
        return np.zeros(0)
    ends = np.cumsum(timeline.times_ms)
    observed = np.asarray(times_ms, dtype=np.float64)
    if len(observed) == 0 or observed[-1] <= 0 or ends[-1] <= 0:
        return np.zeros(0)
    return np.interp(observed * (ends[-1] / observed[-1]), np.append(0.0, ends), np.arange(len(ends) + 1))


def aligned_runs(timeline: Timeline, measurement: Measurement) -> np.ndarray:
    """Moments of an observed step as positions among its runs, float64, by what was allocated at each.

    Under load some operators take longer than others against their profile, and times alone would lead astray. Bytes
    agree, so moments are put, in order, at runs that may allocate so much, such that each run that has a peak of its
    own has a moment near that; among those, as near to its time as may be.
    """
    at = runs_of(timeline, measurement.times_ms)
    if not len(at):
        return at
    most = min(_ALIGNED, max(_FEWEST, _CELLS // len(timeline.operators)))
    events = np.linspace(0, len(at) - 1, min(len(at), most)).astype(np.int64)
    found = _cheapest(timeline, measurement.allocated_bytes[events].astype(np.float64), at[events])
    # Those of one run stand in a row within it.
    first = np.searchsorted(found, found, side="left")
    count = np.searchsorted(found, found, side="right") - first
    return np.interp(np.arange(len(at)), events, found + (np.arange(len(found)) - first + 0.5) / count)


def _cheapest(timeline: Timeline, amounts: np.ndarray, near: np.ndarray) -> np.ndarray:
    """The run of each moment, in order, at the least cost: a shortest path, moment by moment.

    At each moment a run is in one of two states: its peak was not seen yet, or it was. A run that is left or passed
    over without costs what its peak stands out; that memory falls before it or grows after it, a part of by how much.
    """
    high, resting = timeline.total_bytes.astype(np.float64), timeline.resting_bytes.astype(np.float64)
    low, scale, runs = np.minimum(resting[:-1], resting[1:]), max(1.0, high.max()), np.arange(len(high))
    missed = np.minimum((high - np.maximum(resting[:-1], resting[1:])) / scale, _ELSEWHERE).clip(min=0.0)
    before = np.append(0.0, np.cumsum(missed))  # of all runs before each
    unseen, seen = before[:-1].copy(), np.full(len(high), np.inf)
    # Which run the moment before is at, doubled, and one more if that one's peak was seen.
    came = np.zeros((2, len(amounts), len(high)), dtype=np.int32)
    change = np.diff(amounts, prepend=amounts[:1]) / scale
    fallen, grown = (_AGAIN * x.clip(0.0, _ELSEWHERE) for x in (-change, change))
    for row, (amount, run) in enumerate(zip(amounts, near, strict=True)):
        begun, origin = (unseen, np.full(len(high), -1)) if row == 0 else _begun(unseen, seen, missed, before)
        off = np.maximum(amount - high, 0.0) + np.maximum(low - amount, 0.0)
        cost = np.minimum(off / scale, _ELSEWHERE) + _BY_TIME * np.abs(runs + 0.5 - run) / len(high)
        hit, stays = begun + np.minimum(np.abs(amount - high) / scale, _ELSEWHERE), seen + grown[row]
        came[0, row] = origin
        came[1, row] = np.where(stays <= hit, 2 * runs + 1, origin)
        unseen, seen = begun + cost + fallen[row], np.minimum(stays, hit) + cost
    left = np.minimum(seen, unseen + missed)
    run = int((left + before[-1] - before[1:]).argmin())
    state = int(seen[run] <= unseen[run] + missed[run])
    found = np.zeros(len(amounts))
    for row in range(len(amounts) - 1, -1, -1):
        found[row] = run
        run, state = divmod(int(came[state, row, run]), 2)
    return found


def _begun(
    unseen: np.ndarray, seen: np.ndarray, missed: np.ndarray, before: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """What it costs to be at each run with its peak not seen yet, and from where."""
    runs = np.arange(len(seen))
    left = np.minimum(seen, unseen + missed)
    code = 2 * runs + (seen <= unseen + missed)
    passed = left - before[1:]
    best = np.minimum.accumulate(passed)
    at = np.maximum.accumulate(np.where(passed <= best, runs, 0))
    arrived = np.append(np.inf, best[:-1]) + before[:-1]
    stays = unseen <= arrived
    return np.where(stays, unseen, arrived), np.where(stays, 2 * runs, np.append(0, code[at[:-1]]))
