"""What the simulated caching allocator makes of scheduled steps."""

from __future__ import annotations

import itertools
import re

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import explorer
from explorer.device_profile import Profile
from explorer.library_workspace import library_workspaces
from explorer.reserved import Allocator, Trace, play
from explorer.schedule import Schedule
from explorer.solution import Bound, BoundScope, Solution, Status
from explorer.solvers.reserving import Fitting, Of, solve_reserved
from explorer.solvers.updates import solve_with_updates
from explorer.timeline import Category, Stage
from tests.solvers.ordering.updated import updated

MIB = 2**20
ALLOCATORS = [x.value for x in Allocator]


@pytest.fixture(scope="module")
def profile() -> Profile:
    return explorer.load_profile("googlenet-a100-80gb")


@pytest.fixture(scope="module")
def kept(profile: Profile) -> Schedule:
    return explorer.keep_all(profile.graph)


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_reserved_is_no_less_than_allocated_and_that_no_less_than_the_peak(
    profile: Profile, kept: Schedule, allocator: str
) -> None:
    line = explorer.simulate(profile, kept, allocator=allocator)
    found = line.reservation
    assert found is not None
    assert line.peak_bytes <= found.allocated_peak_bytes <= found.smallest_limit_bytes <= found.peak_bytes
    assert 0 <= found.fragmentation < 0.5
    assert found.peak_bytes % (2 * MIB) == 0
    assert "reserved" in repr(line)
    assert explorer.simulate(profile, kept).reservation is None


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_the_smallest_device_runs_the_step_and_a_smaller_one_does_not(
    profile: Profile, kept: Schedule, allocator: str
) -> None:
    line = explorer.simulate(profile, kept, allocator=allocator)
    assert line.reservation is not None
    limit, trace = line.reservation.smallest_limit_bytes, Trace.of(profile, kept, line)
    found = play(trace, expandable=allocator == "expandable", limit_bytes=limit)
    assert found is not None
    assert found.reserved_bytes.max() <= limit
    assert play(trace, expandable=allocator == "expandable", limit_bytes=limit - 2 * MIB) is None


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_what_is_there_at_once_does_not_overlap(profile: Profile, kept: Schedule, allocator: str) -> None:
    line = explorer.simulate(profile, kept, allocator=allocator)
    assert line.reservation is not None
    reserved = line.reservation.unlimited
    for run in range(0, len(line.operators), 20):
        spans = [(x.offset_bytes, x.offset_bytes + x.bytes) for x in reserved.fixed]
        spans += [(x.offset_bytes, x.offset_bytes + x.bytes) for x in reserved.blocks if x.first <= run <= x.last]
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(sorted(spans)))
        assert sum(y - x for x, y in spans) == reserved.allocated_bytes[run]


@pytest.fixture(scope="module")
def accumulating() -> Profile:
    layers = [x for _ in range(3) for x in (nn.Linear(512, 512), nn.ReLU())]
    batch = torch.randn(8, 512), torch.randn(8, 512)
    return explorer.estimate(nn.Sequential(*layers), batch, loss=F.mse_loss, device="A100-80GB", accumulate=True)


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_the_first_microbatch_meets_no_gradients(accumulating: Profile, allocator: str) -> None:
    schedule = explorer.keep_all(accumulating.graph)
    first, later = (
        explorer.simulate(accumulating, schedule, first_microbatch=x, allocator=allocator) for x in (True, False)
    )
    assert first.reservation is not None and later.reservation is not None
    # All blocks are multiples of what is rounded to, and expandable segments split them.
    more = {"caching": MIB, "expandable": 0}[allocator]
    for line in (first, later):
        assert line.reservation is not None
        assert 0 <= line.reservation.allocated_peak_bytes - line.peak_bytes <= more
    assert first.reservation.allocated_peak_bytes < later.reservation.allocated_peak_bytes


def test_each_handle_of_a_library_is_a_block_of_its_own(accumulating: Profile) -> None:
    """Made by the first products of forward and backward pass, that for biases with the first."""
    schedule = explorer.keep_all(accumulating.graph)
    line = explorer.simulate(accumulating, schedule, allocator="caching")
    assert line.reservation is not None
    runs = library_workspaces(accumulating, line)
    assert [x for _, x in runs] == [8_519_680, MIB, 8_519_680]
    assert [line.stages[x] for x, _ in runs] == [Stage.FORWARD, Stage.FORWARD, Stage.BACKWARD]
    kept = [x for x in line.reservation.unlimited.fixed if x.category is Category.WORKSPACE]
    assert sorted(x.bytes for x in kept) == [MIB, 8_519_680, 8_519_680]


def test_no_other_allocator_is_known(profile: Profile, kept: Schedule) -> None:
    with pytest.raises(ValueError, match="allocator is 'jemalloc'; it must be one of 'caching', 'expandable'"):
        explorer.simulate(profile, kept, allocator="jemalloc")


@pytest.mark.parametrize(("of", "allocator"), [("device", "caching"), ("reserved", "expandable")])
def test_a_budget_of_a_device_is_kept_by_what_it_reserves(profile: Profile, of: str, allocator: str) -> None:
    budget = int(0.7 * explorer.simulate(profile, explorer.keep_all(profile.graph)).peak_bytes)
    # Long enough for a machine that is busy with something else; a first schedule will do.
    asked = {"time_limit": 60, "gap": 0.5, "remember": False}
    solution = explorer.solve(profile, budget=budget, of=of, allocator=allocator, **asked)
    assert solution.schedule is not None
    assert solution.budget_bytes == budget
    assert f"the {allocator} allocator reserves" in solution.message
    assert solution.message.endswith("is enough, by a model of it")
    line = explorer.simulate(profile, solution.schedule, allocator=allocator)
    assert line.reservation is not None
    if of == "reserved":
        assert line.reservation.peak_bytes <= budget
    else:
        trace = Trace.of(profile, solution.schedule, line)
        assert play(trace, expandable=False, limit_bytes=budget) is not None
    bound = solution.bound_ms()
    assert bound is None or bound <= line.time_ms
    gap = solution.gap()
    assert gap is not None
    # That for the whole budget may fit, and is then as good as was asked for.
    assert re.search(rf"proven (to be )?within {gap:.1%} of the fastest schedule", solution.message)


def test_sizes_that_read_the_same_are_told_to_the_byte(profile: Profile, kept: Schedule) -> None:
    line = explorer.simulate(profile, kept, allocator="caching")
    assert line.reservation is not None
    needed = line.reservation.peak_bytes
    fitting = Fitting(profile, needed - 1, Of.RESERVED, Allocator.CACHING)

    def solve_peak(peak_bytes: int, seconds: float) -> Solution:  # noqa: ARG001 - one schedule for whatever peak
        return Solution(Status.FEASIBLE, peak_bytes, kept, line.time_ms, line.peak_bytes)

    told = solve_reserved(fitting, solve_peak, time_limit=1.0).message
    assert f"({needed - 1} bytes) of reserved memory" in told
    assert told.endswith(f"needs {explorer.format_bytes(needed)} ({needed} bytes)")


@pytest.mark.parametrize("mixing", [False, True])
def test_a_first_answer_that_fits_stays_where_a_longer_solve_finds_nothing(
    profile: Profile, kept: Schedule, *, mixing: bool
) -> None:
    line = explorer.simulate(profile, kept, allocator="caching")
    assert line.reservation is not None
    fitting = Fitting(profile, line.reservation.peak_bytes, Of.RESERVED, Allocator.CACHING)
    first = Solution(Status.FEASIBLE, fitting.budget_bytes, kept, line.time_ms, line.peak_bytes)
    answers = iter([first])

    def solve_peak(peak_bytes: int, seconds: float) -> Solution:  # noqa: ARG001 - it has one answer alone
        return next(answers, Solution(Status.UNKNOWN, peak_bytes))

    mix = (lambda best, until: best) if mixing else None  # noqa: ARG005 - nothing is mixed
    found = solve_reserved(fitting, solve_peak, time_limit=1.0, mix=mix)
    assert found.schedule is kept
    assert found.time_ms == line.time_ms


def test_what_is_reserved_is_told_whenever_updates_are() -> None:
    """Also where what is proven is of both moments of updates."""
    profile = updated("resnet50-small-cpu")
    kept = explorer.keep_all(profile.graph)
    bounds = {False: (Bound(1.0, BoundScope.PROBLEM),), True: (Bound(2.0, BoundScope.PROBLEM),)}
    words = "the caching allocator reserves 2.00 MiB, and a device of 2.00 MiB is enough, by a model of it"

    def solve_one(planned: Profile, share: float) -> Solution:  # noqa: ARG001 - an answer at once
        within = planned.graph.iteration.within
        message = f"proven within 1.0% of the fastest schedule; {words}"
        return Solution(Status.OPTIMAL, MIB, kept, 2.0 - within / 2, MIB, bounds[within], message=message)

    told = solve_with_updates(profile, "best", solve_one).message
    assert told == f"fits the budget; proven within 33.3% of the fastest schedule; {words}"


def test_a_budget_that_is_too_small_for_tensors_is_for_a_device_too(profile: Profile) -> None:
    assert explorer.solve(profile, budget="1 MiB", of="device", time_limit=2).status is explorer.Status.INFEASIBLE
