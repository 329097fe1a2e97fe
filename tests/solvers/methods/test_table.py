"""The table of methods, and what each of them answers to the same question."""

from __future__ import annotations

import pytest

from explorer import Status, simulate, solve
from explorer.schedule import keep_all
from explorer.solvers.methods.answers import best_of, unsuited
from explorer.solvers.methods.table import METHODS
from tests.solvers.graphs import chain


def test_names() -> None:
    assert all(name == method.name for name, method in METHODS.items())
    assert len({method.title for method in METHODS.values()}) == len(METHODS)


def test_unknown_method() -> None:
    with pytest.raises(ValueError, match="method is 'greedy'; allowed: 'monet'"):
        solve(chain(3), budget=1000, method="greedy")


def test_candidates() -> None:
    profile = chain(3)
    schedule = keep_all(profile.graph)
    timeline = simulate(profile, schedule)
    fits, small = best_of(profile, [schedule], [timeline.peak_bytes, timeline.peak_bytes - 1], method="test")
    assert fits.status is Status.FEASIBLE
    assert fits.time_ms == timeline.time_ms
    assert fits.schedule is not None
    assert (fits.schedule.method, fits.schedule.budget_bytes) == ("test", timeline.peak_bytes)
    assert small.status is Status.INFEASIBLE
    assert small.minimum is not None
    assert small.minimum.budget_bytes == timeline.peak_bytes
    assert small.minimum.proven
    (open_,) = best_of(profile, [schedule], [timeline.peak_bytes - 1], method="test", every=False)
    assert (open_.status, open_.minimum and open_.minimum.lower_bound_bytes) == (Status.UNKNOWN, 0)
    assert open_.message.startswith("no schedule of 'test' found that fits")


def test_unsuited() -> None:
    (solution,) = unsuited([10], "no chain")
    assert (solution.status, solution.message, solution.schedule) == (Status.UNSUITED, "no chain", None)
