"""Checkmate's baselines: closed forms on chains, cuts of graphs, and one judge for all."""

from __future__ import annotations

from math import comb

import pytest
from hypothesis import given, settings

from explorer import Profile, Status, simulate
from explorer.schedule import keep_all
from explorer.solvers.methods.baselines.forward_graph import articulation_points, connected, not_a_chain
from explorer.solvers.methods.baselines.revolve import extra_steps, revolve
from explorer.solvers.methods.baselines.segments import every_root, greedy, segmented
from explorer.solvers.methods.checkmate.nodes import Nodes
from explorer.solvers.methods.table import METHODS
from explorer.solvers.options import Options
from tests.solvers.graphs import INPUT, GraphBuilder, chain, profiles

BASELINES = (
    "checkpoint-all",
    "griewank-walther",
    "chen-root",
    "chen-greedy",
    "ap-root",
    "ap-greedy",
    "linearized-root",
    "linearized-greedy",
)


def with_skip() -> Profile:
    """a → b → c → d, d reads b too."""
    builder = GraphBuilder()
    (a,) = builder.forward((INPUT,), (10,))
    (b,) = builder.forward((a,), (10,))
    (c,) = builder.forward((b,), (10,))
    (d,) = builder.forward((b, c), (10,))
    (loss,) = builder.forward((d,), (4,), held=True)
    gradient = builder.start_backward()
    for x in (d, c, b, a):
        gradient = builder.backward((gradient, x), 10)
    assert loss
    return builder.profile()


def closed_form(length: int, snapshots: int) -> int:
    """Griewank and Walther's count of repeated forward steps (2000, equation 5)."""
    repeats = next(r for r in range(length) if length <= comb(snapshots + r, snapshots))
    return repeats * length - (comb(snapshots + repeats, repeats - 1) if repeats else 0)


def test_revolve_is_the_closed_form() -> None:
    extra, _ = extra_steps(40, 12)
    assert all(extra[n, c] == closed_form(n, c) for n in range(1, 41) for c in range(1, 13))


@pytest.mark.parametrize("length", [1, 2, 5, 9, 16])
def test_revolve_repeats_as_often_on_a_uniform_chain(length: int) -> None:
    nodes = Nodes.of(chain(length))
    steps = connected(nodes)
    peaks = []
    for snapshots in range(1, len(steps) + 1):
        order = revolve(nodes, steps, snapshots)
        schedule = nodes.schedule(order, method="test", budget_bytes=None)
        again = sum(schedule.recomputed(nodes.profile.graph).values())
        assert again == closed_form(len(steps), snapshots)
        peaks.append(simulate(nodes.profile, schedule).peak_bytes)
    assert peaks == sorted(peaks)


def test_checkpoint_all_is_one_forward_and_one_backward() -> None:
    profile = chain(6)
    (solution,) = METHODS["checkpoint-all"].solve(profile, [10**9], options=Options("checkpoint-all"))
    assert solution.schedule is not None
    plain = simulate(profile, keep_all(profile.graph))
    assert (solution.time_ms, solution.peak_bytes) == (plain.time_ms, plain.peak_bytes)
    assert not solution.schedule.recomputed(profile.graph)


def test_root_keeps_the_ends_of_segments() -> None:
    nodes = Nodes.of(chain(8))
    checkpoints = every_root(connected(nodes))
    assert checkpoints == [2, 5, 8]
    order = segmented(nodes, checkpoints)
    # Every segment but the last is computed a second time, without its end.
    assert [i for i in set(order) if order.count(i) == 2] == [0, 1, 3, 4]


def test_greedy_fills_segments() -> None:
    nodes = Nodes.of(chain(8, size=100))
    assert greedy(nodes, set(connected(nodes)), segment_bytes=250) == [2, 5]
    assert greedy(nodes, {3, 7}, segment_bytes=250) == [3, 7]
    assert greedy(nodes, set(connected(nodes)), segment_bytes=10**6) == []


def test_articulation_points() -> None:
    nodes = Nodes.of(with_skip())
    assert articulation_points(nodes) == [0, 1, 3]
    assert "is read by" in (not_a_chain(nodes) or "")
    assert not_a_chain(Nodes.of(chain(4))) is None


def test_generalisations_are_the_originals_on_a_chain() -> None:
    profile = chain(12)
    plain = simulate(profile, keep_all(profile.graph)).peak_bytes
    budgets = [int(share * plain) for share in (0.5, 0.7, 0.9, 1.0)]

    def times(name: str) -> list[float | None]:
        return [x.time_ms for x in METHODS[name].solve(profile, budgets, options=Options(name))]

    assert times("linearized-root") == times("chen-root")
    assert times("linearized-greedy") == times("chen-greedy") == times("ap-greedy")


def test_what_is_no_chain_is_refused_with_a_reason() -> None:
    (solution,) = METHODS["chen-root"].solve(with_skip(), [10**6], options=Options("chen-root"))
    assert solution.status is Status.UNSUITED
    assert "no chain: 'op1' is read by 'op2' and 'op3'" in solution.message


@given(profiles())
@settings(max_examples=60, deadline=None)
def test_every_answer_is_valid_and_fits(profile: Profile) -> None:
    plain = simulate(profile, keep_all(profile.graph))
    for name in BASELINES:
        for solution in METHODS[name].solve(profile, [plain.peak_bytes // 2, plain.peak_bytes], options=Options(name)):
            if solution.schedule is not None:
                timeline = simulate(profile, solution.schedule)
                assert timeline.peak_bytes == solution.peak_bytes
                assert timeline.peak_bytes <= solution.budget_bytes
                assert timeline.time_ms == solution.time_ms
            else:
                assert solution.status in (Status.INFEASIBLE, Status.UNSUITED)
                assert solution.message
