"""Checkmate's program: its optimum is that of an exhaustive search, and its schedules are valid."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explorer import Profile, simulate
from explorer.schedule import keep_all
from explorer.solvers.methods.checkmate import rounding
from explorer.solvers.methods.checkmate.cells import Freedom
from explorer.solvers.methods.checkmate.nodes import Nodes, without_workspace
from explorer.solvers.methods.checkmate.program import build
from explorer.solvers.methods.checkmate.recomputing import recompute
from explorer.solvers.problem.building import problem_of
from explorer.solvers.problem.schedules import reading_of
from explorer.solvers.programs.milp import MilpStatus
from explorer.solvers.programs.scip import minimise
from tests.solvers.graphs import INPUT, GraphBuilder, chain, profiles
from tests.solvers.rematerialisation import fastest_ms


def optimum_is_exhaustive(profile: Profile, budget_bytes: int, freedom: Freedom, *, workspace: bool) -> None:
    nodes = Nodes.of(profile)
    program = build(nodes, budget_bytes, freedom=freedom, workspace=workspace)
    best = fastest_ms(program.layout.cells, budget_bytes, workspace=workspace)
    result = minimise(program.milp, time_limit=60, gap=0.0)
    if best is None:
        assert result.status is MilpStatus.INFEASIBLE
        return
    assert result.status is MilpStatus.OPTIMAL
    assert result.objective == pytest.approx(best)
    assert result.x is not None
    schedule = nodes.schedule(program.order(result.x), method="test", budget_bytes=budget_bytes)
    judge = profile if workspace else without_workspace(profile)
    timeline = simulate(judge, schedule)
    assert timeline.time_ms == pytest.approx(best)
    assert timeline.peak_bytes <= budget_bytes
    assert program.encode(schedule) is not None


@given(profile=profiles(most_forward=5), share=st.floats(0.5, 1.0), workspace=st.booleans())
@settings(max_examples=40, deadline=None)
def test_full_optimum_is_exhaustive(*, profile: Profile, share: float, workspace: bool) -> None:
    plain = simulate(profile, keep_all(profile.graph)).peak_bytes
    budget_bytes = profile.fixed_bytes + int(share * (plain - profile.fixed_bytes))
    optimum_is_exhaustive(profile, budget_bytes, Freedom.FULL, workspace=workspace)


@given(profile=profiles(most_forward=6), share=st.floats(0.5, 1.0), workspace=st.booleans())
@settings(max_examples=40, deadline=None)
def test_lean_optimum_is_exhaustive(*, profile: Profile, share: float, workspace: bool) -> None:
    plain = simulate(profile, keep_all(profile.graph)).peak_bytes
    budget_bytes = profile.fixed_bytes + int(share * (plain - profile.fixed_bytes))
    optimum_is_exhaustive(profile, budget_bytes, Freedom.LEAN, workspace=workspace)


@given(profiles(most_forward=5), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_any_checkpoints_are_completed(profile: Profile, seed: int) -> None:
    nodes = Nodes.of(profile)
    order = recompute(nodes, lambda stage, storage: hash((seed, stage, storage)) % 2 == 0)
    timeline = simulate(profile, nodes.schedule(order, method="test", budget_bytes=None))
    assert timeline.time_ms >= nodes.step_ms - 1e-9


@given(profile=profiles(most_forward=5), share=st.floats(0.5, 1.0))
@settings(max_examples=8, deadline=None)
def test_checkpoints_of_either_relaxation_are_completed(*, profile: Profile, share: float) -> None:
    nodes = Nodes.of(profile)
    plain = simulate(profile, nodes.schedule(range(len(nodes)), method="test", budget_bytes=None))
    budget_bytes = profile.fixed_bytes + int(share * (plain.peak_bytes - profile.fixed_bytes))
    for checkpoints in (rounding._lean, rounding._grouped):
        for budget in (budget_bytes, plain.peak_bytes):
            keeps = checkpoints(nodes, budget, time_limit=60)
            if keeps is not None:
                order = recompute(nodes, keeps)
                timeline = simulate(profile, nodes.schedule(order, method="test", budget_bytes=None))
                assert timeline.time_ms >= plain.time_ms - 1e-9


def test_what_fits_without_recomputation_is_rounded_to_that() -> None:
    nodes = Nodes.of(chain(12))
    plain = simulate(nodes.profile, nodes.schedule(range(len(nodes)), method="test", budget_bytes=None))
    for checkpoints in (rounding._lean, rounding._grouped):
        keeps = checkpoints(nodes, plain.peak_bytes, time_limit=60)
        assert keeps is not None
        assert recompute(nodes, keeps) == list(range(len(nodes)))


def large_and_late() -> Profile:
    """Something large is read early and late, with something larger between: in the forward and the backward pass."""
    builder = GraphBuilder()
    (a,) = builder.forward((INPUT,), (50,))
    (b,) = builder.forward((a,), (10,))
    (c,) = builder.forward((b,), (100,))
    (d,) = builder.forward((c,), (10,))
    (e,) = builder.forward((a, d), (10,))
    builder.forward((e,), (4,), held=True)
    early = builder.start_backward()
    gradient = large = builder.backward((early,), 50)
    for size in (10, 100, 10):
        gradient = builder.backward((gradient,), size)
    builder.backward((large, gradient), 10)
    return builder.profile()


def test_recomputes_in_the_forward_pass_and_gradients() -> None:
    profile = large_and_late()
    nodes = Nodes.of(profile)
    budget_bytes = profile.fixed_bytes + 130
    lean = minimise(build(nodes, budget_bytes, freedom=Freedom.LEAN, workspace=True).milp, time_limit=60, gap=0.0)
    assert lean.status is MilpStatus.INFEASIBLE
    program = build(nodes, budget_bytes, freedom=Freedom.FULL, workspace=True)
    full = minimise(program.milp, time_limit=60, gap=0.0)
    assert full.x is not None
    schedule = nodes.schedule(program.order(full.x), method="test", budget_bytes=budget_bytes)
    timeline = simulate(profile, schedule)
    assert timeline.peak_bytes <= budget_bytes
    again = {profile.graph.operators[x].phase.value for x in schedule.recomputed(profile.graph)}
    assert again == {"forward", "backward"}
    assert timeline.recompute_time_ms == 3.0
    assert reading_of(problem_of(profile), schedule) is None
