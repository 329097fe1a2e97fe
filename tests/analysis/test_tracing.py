"""A step as trace events: what is drawn by Perfetto is what was simulated and measured."""

from __future__ import annotations

import json

import numpy as np
import pytest

from explorer.analysis.tracing import chrome_trace
from explorer.measurement import Measurement
from explorer.simulation import simulate
from tests.schedules import random_schedule
from tests.solvers.graphs import chain


def test_every_run_is_an_event_and_what_was_measured_a_counter() -> None:
    profile = chain(6)
    line = simulate(profile, random_schedule(profile.graph, 1, keep=0.3))
    ends = np.cumsum(line.times_ms)
    measured = Measurement("cpu", "events", line.peak_bytes, None, line.time_ms, ends, line.total_bytes)
    events = json.loads(json.dumps(chrome_trace(profile, line, measured)))["traceEvents"]
    runs = [x for x in events if x["ph"] == "X"]
    assert [x["name"] for x in runs] == [profile.graph.operators[x].name for x in line.operators]
    assert [x["ts"] for x in runs] == pytest.approx((1000 * (ends - line.times_ms)).tolist())
    counted = [x["args"]["allocated"] for x in events if x["name"] == "measured memory"]
    assert counted == line.total_bytes.tolist()
    assert not [x for x in chrome_trace(profile, line)["traceEvents"] if x["name"] == "measured memory"]
