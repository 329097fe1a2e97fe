"""PyTorch's own ways as schedules."""

from __future__ import annotations

import pytest

from explorer import Status, keep_all, simulate, solve
from explorer.recomputing import Recomputing
from explorer.solvers.methods.pytorch import blocks_of
from tests.schedules import keep_all_apart
from tests.solvers.graphs import chain
from tests.solvers.methods.rotor.test_rotor import SAMPLES, profile_of


@pytest.mark.parametrize("sample", SAMPLES)
def test_eager_recomputes_nothing(sample: str) -> None:
    profile = profile_of(sample)
    plain = simulate(profile, keep_all(profile.graph))
    solution = solve(profile, budget=plain.peak_bytes, method="eager")
    assert (solution.peak_bytes, solution.time_ms) == (plain.peak_bytes, plain.time_ms)
    assert solve(profile, budget=plain.peak_bytes - 1, method="eager").status is Status.INFEASIBLE


def test_blocks_are_the_members_of_lists() -> None:
    assert list(blocks_of(profile_of("residual").graph)) == [f"blocks.{x}" for x in range(6)]
    assert list(blocks_of(profile_of("decoder").graph)) == [f"blocks.{x}" for x in range(4)]


def test_every_block_runs_again_once_as_far_as_it_is_needed() -> None:
    profile = profile_of("decoder")
    graph = profile.graph
    solution = solve(profile, budget=10**9, method="checkpoint-blocks")
    assert solution.schedule is not None
    again = solution.schedule.recomputed(graph)
    members = {x for ids in blocks_of(graph).values() for x in ids}
    assert set(again) <= members
    assert set(again.values()) == {1}
    plain = simulate(profile, keep_all(graph))
    assert solution.peak_bytes is not None
    assert solution.peak_bytes < plain.peak_bytes
    # Of every block nothing but its input outlives the forward pass.
    made = {x: op.id for op in graph.forward for x in op.default().writes}
    boundary = next(
        at for at, run in enumerate(simulate(profile, solution.schedule).operators) if run >= graph.forward_count
    )
    kept = [x.storage for x in simulate(profile, solution.schedule).lifetimes if x.start < boundary <= x.end]
    keepsakes = Recomputing(graph).keepsakes
    inside = [x for x in kept if x in made and made[x] in members and x not in keepsakes]
    assert len(inside) == 4


def test_without_modules_there_are_no_blocks() -> None:
    solution = solve(chain(3), budget=10**6, method="checkpoint-blocks")
    assert solution.status is Status.UNSUITED


@pytest.mark.parametrize("sample", SAMPLES)
def test_keeping_everything_or_nothing(sample: str) -> None:
    profile = profile_of(sample)
    recomputing = Recomputing(profile.graph)
    everything = {x for op in profile.graph.forward for x in op.default().writes}
    kept = simulate(profile, recomputing.schedule(everything, method="test"))
    plain = simulate(profile, keep_all_apart(profile.graph))
    assert (kept.peak_bytes, kept.time_ms) == (plain.peak_bytes, plain.time_ms)
    nothing = recomputing.schedule(set(), method="test")
    assert max(nothing.recomputed(profile.graph).values()) == 1
    simulate(profile, nothing)
