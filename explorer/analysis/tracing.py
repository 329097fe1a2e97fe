"""A step as Chrome's trace events, which Perfetto (ui.perfetto.dev) and chrome://tracing open."""

from __future__ import annotations

from typing import Any

import numpy as np

from explorer.device_profile import Profile
from explorer.measurement import Measurement
from explorer.timeline import CATEGORIES, Stage, Timeline

_STEP, _MEASURED = 1, 2  # processes, as traces call them
_TRACKS = {Stage.FORWARD: 1, Stage.BACKWARD: 1, Stage.UPDATE: 1, Stage.RECOMPUTE: 2}
_NAMES = {1: "operators", 2: "recomputation"}
_US = 1000.0  # microseconds in a millisecond


def chrome_trace(profile: Profile, timeline: Timeline, measurement: Measurement | None = None) -> dict[str, Any]:
    """Every run as an event with its memory by category, and what was measured beside it.

    Args:
        profile: of the timeline.
        timeline: of a schedule, from ``simulate``.
        measurement: of the same schedule; None for none.

    Returns:
        What ``json.dumps`` makes a file of: ``traceEvents`` in microseconds, memory in bytes.

    Raises:
        ValueError: the timeline is not of this profile's graph.
    """
    ways = zip(timeline.operators, timeline.implementations, strict=True)
    own = {(x.id, way.name) for x in profile.graph.operators for way in x.implementations}
    if any(x not in own for x in ways):
        raise ValueError(
            f"the timeline is of another graph than the profile's, or of another iteration: {profile.graph.iteration}"
        )
    ends = np.cumsum(timeline.times_ms)
    starts = ends - timeline.times_ms
    events = [_named("process_name", _STEP, 0, "predicted step")]
    events += [_named("thread_name", _STEP, track, name) for track, name in _NAMES.items()]
    rows = zip(timeline.operators, timeline.implementations, timeline.stages, strict=True)
    for run, (operator, implementation, stage) in enumerate(rows):
        found = profile.graph.operators[operator]
        start_us = float(starts[run]) * _US
        told = {"layer": found.layer, "implementation": implementation, "memory": int(timeline.total_bytes[run])}
        events.append(
            {
                "name": found.name,
                "cat": stage.value,
                "ph": "X",
                "ts": start_us,
                "dur": float(timeline.times_ms[run]) * _US,
                "pid": _STEP,
                "tid": _TRACKS[stage],
                "args": told,
            }
        )
        amounts = timeline.bytes[run].tolist()
        events.append(
            _counter(_STEP, "memory", start_us, {x.value: y for x, y in zip(CATEGORIES, amounts, strict=True)})
        )
    if measurement is not None and len(measurement.times_ms):
        events.append(_named("process_name", _MEASURED, 0, "measured step"))
        pairs = zip(measurement.times_ms.tolist(), measurement.allocated_bytes.tolist(), strict=True)
        events += [_counter(_MEASURED, "measured memory", ms * _US, {"allocated": amount}) for ms, amount in pairs]
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _named(kind: str, process: int, track: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": process, "tid": track, "args": {"name": name}}


def _counter(process: int, name: str, at_us: float, amounts: dict[str, int]) -> dict[str, Any]:
    return {"name": name, "ph": "C", "pid": process, "ts": at_us, "args": amounts}
