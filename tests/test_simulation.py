"""The simulator against a naive second opinion, and its refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explorer.device_profile import Cost, Device, Profile
from explorer.graph import Implementation, Operator, Phase, Role, Storage, TensorSpec, TrainingGraph, When
from explorer.schedule import Free, Run, Schedule, keep_all, with_frees
from explorer.simulation import simulate
from explorer.timeline import CATEGORIES, Category, Stage
from tests.schedules import random_schedule


def small_profile(*, rounding_bytes: int = 1) -> Profile:
    """x → a → b → loss and back; b is made from random numbers; sizes 10, 100, 40, 4."""
    names = [
        ("weight", 7, Role.PARAMETER),
        ("x", 10, Role.INPUT),
        ("a", 100, Role.ACTIVATION),
        ("b", 40, Role.ACTIVATION),
        ("loss", 4, Role.ACTIVATION),
        ("tangent", 4, Role.GRADIENT),
        ("grad b", 40, Role.GRADIENT),
        ("grad a", 100, Role.GRADIENT),
        ("grad weight", 7, Role.PARAMETER_GRADIENT),
    ]
    held = {"loss", "tangent", "grad weight"}
    storages = tuple(Storage(i, n, size, role, (size,), "uint8", n in held) for i, (n, size, role) in enumerate(names))

    def operator(id_: int, name: str, phase: Phase, reads: tuple[int, ...], writes: tuple[int, ...]) -> Operator:
        when = When.FIRST if name == "draw" else When.ALWAYS
        return Operator(id_, name, f"test.{name}", phase, "layer", (Implementation("aten", reads, writes, name, when),))

    operators = (
        operator(0, "scale", Phase.FORWARD, (1, 0), (2,)),
        operator(1, "draw", Phase.FORWARD, (2,), (3,)),
        operator(2, "loss", Phase.FORWARD, (3,), (4,)),
        operator(3, "tangents", Phase.BACKWARD, (), (5,)),
        operator(4, "loss_backward", Phase.BACKWARD, (5, 3), (6,)),
        operator(5, "draw_backward", Phase.BACKWARD, (6, 2), (7,)),
        operator(6, "scale_backward", Phase.BACKWARD, (7, 1), (8,)),
    )
    graph = TrainingGraph("Small", (TensorSpec("x", (10,), "uint8"),), (), storages, operators)
    costs = {x.name: Cost(1.0 + x.id, 5 if x.name == "draw" else 0) for x in operators}
    return Profile(graph, costs, Device("test", "cpu", "2", rounding_bytes=rounding_bytes))


def naive_totals(profile: Profile, schedule: Schedule) -> list[int]:
    """Bytes at each run, by the definition and nothing else."""
    graph, alive, totals = profile.graph, set(profile.graph.persistent), []
    for step in schedule.steps:
        if isinstance(step, Free):
            alive.remove(step.storage)
            continue
        implementation = graph.operators[step.operator].implementation(step.implementation)
        again = sum(graph.storages[x].bytes for x in implementation.writes if x in alive)
        alive |= set(implementation.writes)
        workspace = profile.costs[implementation.cost].workspace_bytes
        totals.append(sum(graph.storages[x].bytes for x in alive) + again + workspace)
    return totals


def test_keep_all_by_hand() -> None:
    profile = small_profile()
    timeline = simulate(profile, keep_all(profile.graph))
    fixed = 17
    forward = [fixed + 100, fixed + 140 + 5, fixed + 144]
    backward = [fixed + 148, fixed + 188, fixed + 248, fixed + 115]
    assert timeline.total_bytes.tolist() == forward + backward
    assert timeline.peak_bytes == fixed + 248
    assert timeline.peak_run == 5
    assert timeline.time_ms == sum(range(1, 8))
    assert timeline.recompute_time_ms == 0
    assert set(timeline.stages) == {Stage.FORWARD, Stage.BACKWARD}


def test_recomputation_is_a_category_of_its_own() -> None:
    profile = small_profile()
    order = [Run(i, "aten") for i in (0, 1, 2, 3, 4, 0, 5, 6)]
    timeline = simulate(profile, with_frees(profile.graph, order, method="test", budget_bytes=None))
    column = CATEGORIES.index(Category.RECOMPUTED)
    assert timeline.bytes[:, column].tolist() == [0, 0, 0, 0, 0, 100, 100, 0]
    assert timeline.stages[5] is Stage.RECOMPUTE
    assert timeline.recompute_time_ms == 1.0
    assert [x.storage for x in timeline.alive_at(5) if x.category is Category.RECOMPUTED] == [2]


def test_rounding_and_persistent_memory() -> None:
    profile = small_profile(rounding_bytes=512)
    assert profile.fixed_bytes == 1024
    richer = replace(profile, optimizer_state_bytes=1000)
    difference = (
        simulate(richer, keep_all(profile.graph)).total_bytes - simulate(profile, keep_all(profile.graph)).total_bytes
    )
    assert np.all(difference == 1000)


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), keep=st.floats(0, 1))
def test_agrees_with_the_definition(seed: int, keep: float) -> None:
    profile = small_profile()
    schedule = random_schedule(profile.graph, seed, keep=keep)
    timeline = simulate(profile, schedule)
    assert timeline.total_bytes.tolist() == naive_totals(profile, schedule)


def test_dead_recomputation_is_dropped() -> None:
    profile = small_profile()
    order = [Run(i, "aten") for i in (0, 1, 2, 3, 0, 4, 0, 5, 6, 0)]
    schedule = with_frees(profile.graph, order, method="test", budget_bytes=None)
    assert [x.operator for x in schedule.steps if isinstance(x, Run)] == [0, 1, 2, 3, 4, 0, 5, 6]


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([Run(1, "aten")], r"step 0 \(run 'draw'\) reads 'a', which is not in memory"),
        ([Run(99, "aten")], "step 0 runs operator 99, which does not exist"),
        ([Run(0, "fast")], "'scale' has no implementation 'fast'; it has 'aten'"),
        ([Run(0, "aten"), Free(2), Free(2)], "step 2 frees 'a', which is not in memory"),
        ([Run(0, "aten"), Free(77)], "step 1 frees storage 77, which does not exist"),
        ([Run(0, "aten"), Run(1, "aten"), Run(1, "aten")], "'aten' cannot serve another run"),
        ([Run(0, "aten"), Run(1, "aten"), Run(2, "aten"), Free(4)], "frees 'loss', which the caller receives"),
        ([Run(0, "aten"), Run(3, "aten"), Run(1, "aten")], "comes after the forward pass has ended"),
        ([Run(0, "aten")], "never runs 6 operators, 'draw' first"),
    ],
)
def test_refusals_name_the_step(steps: list[Run | Free], message: str) -> None:
    profile = small_profile()
    with pytest.raises(ValueError, match=message):
        simulate(profile, Schedule(profile.graph.identity, tuple(steps), "test"))


def test_another_graph_is_refused() -> None:
    profile = small_profile()
    other = replace(profile.graph, batch=(TensorSpec("x", (20,), "uint8"),))
    with pytest.raises(ValueError, match=r"batch differs: x uint8\[20\] here, x uint8\[10\] there"):
        simulate(profile, keep_all(other))


def test_what_the_caller_receives_has_to_be_made() -> None:
    """By an implementation that leaves a gradient to another operator, which may be optional and not there."""
    profile = small_profile()
    last = profile.graph.operators[-1]
    half = Implementation("half", (7, 1), (), last.default().cost)
    graph = replace(
        profile.graph,
        operators=(*profile.graph.operators[:-1], replace(last, implementations=(last.default(), half))),
    )
    whole = keep_all(graph)
    steps = tuple(Run(x.operator, "half") if isinstance(x, Run) and x.operator == last.id else x for x in whole.steps)
    with pytest.raises(ValueError, match="never makes 'grad weight', which the caller receives"):
        simulate(replace(profile, graph=graph), replace(whole, steps=steps))
