"""What is said about tensors, operators and the price of memory is what the simulator says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import explorer
from explorer.analysis.explaining import Fate, sentence
from explorer.device_profile import Profile
from explorer.simulation import simulate
from explorer.solution import Solution, Status
from explorer.solvers.problem.pins import parse_pins
from explorer.timeline import Category
from tests.schedules import random_schedule
from tests.solvers.graphs import INPUT, GraphBuilder, chain, profiles


@settings(deadline=None, max_examples=40)
@given(profiles(), st.integers(0, 100), st.floats(0, 1))
def test_fates_add_up_to_the_simulated_memory(profile: Profile, seed: int, keep: float):
    schedule = random_schedule(profile.graph, seed, keep=keep)
    line = simulate(profile, schedule)
    found = explorer.explain_all(profile, schedule)
    kept = {x.storage.id for x in found if x.fate is Fate.KEPT}
    again = {x.storage.id for x in found if x.made_again}
    # In memory when the first backward operator runs: what is kept, and what is kept and made again nevertheless.
    first = next(n for n, x in enumerate(line.operators) if x >= profile.graph.forward_count)
    there = {x.storage for x in line.alive_at(first) if x.start < first and x.category is Category.SAVED}
    assert kept <= there <= kept | again
    size = {x.storage.id: x.allocated_bytes for x in found}
    assert sum(size[x] for x in there) == line.bytes[first, list(Category).index(Category.SAVED)]
    for x in found:
        assert x.at_peak == any(y.start <= line.peak_run <= y.end for y in x.lifetimes)
        assert (x.fate is Fate.RECOMPUTED) == (x.made_again > 0)
        assert sentence(profile, x)


def test_recomputing_costs_what_the_simulator_charges():
    profile = chain(5)
    plain = explorer.keep_all(profile.graph)
    name = profile.graph.storages[profile.graph.operators[2].default().writes[0]].name
    told = explorer.explain(profile, plain, name)
    assert told.fate is Fate.KEPT
    assert told.recomputation is not None
    assert told.recomputation.operators == (2,)
    best = explorer.solve(profile, budget="1 GiB", pins={name: "recompute"}, time_limit=1, remember=False)
    assert best.time_ms == simulate(profile, plain).time_ms + told.recomputation.time_ms
    assert best.schedule is not None
    other = explorer.explain(profile, best.schedule, name)
    assert (other.fate, other.made_again, other.made_again_ms) == (Fate.RECOMPUTED, 1, 1.0)
    assert len(other.lifetimes) == 2


def encoded() -> Profile:
    """An activation function whose backward may read its result or a mask."""
    builder = GraphBuilder()
    (first,) = builder.forward((INPUT,), (100,), time_ms=5.0)
    (out,) = builder.forward((first,), (100,), again="never")
    mask = builder.auxiliary(out, 4)
    (loss,) = builder.forward((out,), (4,), held=True)
    gradient = builder.backward(
        (builder.start_backward(0), out), 0, alternatives=(((builder_gradient(), mask), 2.0, 0),)
    )
    builder.backward((gradient, loss), 0)
    return builder.profile()


def builder_gradient() -> int:
    """The storage that ``start_backward`` makes in ``encoded``."""
    return 6


def test_a_mask_stands_for_what_it_was_made_of():
    profile = encoded()
    free = explorer.explain_all(profile, explorer.keep_all(profile.graph))
    assert [x.fate for x in free] == [Fate.TEMPORARY, Fate.KEPT, Fate.ABSENT, Fate.KEPT]
    pinned = explorer.solve(profile, budget="1 GiB", pins={"op5": "other 0"}, time_limit=1, remember=False)
    assert pinned.schedule is not None
    told = explorer.explain(profile, pinned.schedule, "t3")
    assert (told.fate, told.stand_ins) == (Fate.ENCODED, (4,))
    assert told.recomputation is None
    assert "reads 't4' instead" in sentence(profile, told)


def test_an_operator_tells_its_runs_and_its_choices():
    profile = explorer.load_profile("resnet50-small-cpu")
    pins = {"batch_norm_11": "recompute", "convolution_2": "chunks of 1"}
    found = explorer.solve(profile, budget="300 MiB", pins=pins, steps=1)
    assert found.schedule is not None
    line = simulate(profile, found.schedule)
    told = explorer.explain_operator(profile, found.schedule, "convolution_2")
    assert {run.implementation for run in told.runs} == {"chunks of 1"}
    assert [line.operators[run.run] for run in told.runs] == [told.operator.id] * len(told.runs)
    assert told.alternatives[0][0] == "aten"
    assert explorer.explain(profile, found.schedule, "conv1.weight").fate is Fate.PERSISTENT
    assert parse_pins(pins).broken_by(profile.graph, found.schedule) == ()


def test_wrong_names_are_refused():
    profile = chain(2)
    schedule = explorer.keep_all(profile.graph)
    with pytest.raises(ValueError, match="no tensor 'nothing'"):
        explorer.explain(profile, schedule, "nothing")
    with pytest.raises(ValueError, match="no operator 'nothing'"):
        explorer.explain_operator(profile, schedule, "nothing")


def points(*found: tuple[int, float]) -> list[Solution]:
    return [Solution(Status.FEASIBLE, peak, time_ms=time_ms, peak_bytes=peak) for peak, time_ms in found]


def test_the_price_of_memory_is_the_slope_of_the_hull():
    gib = 2**30
    curve = points((gib, 100.0), (2 * gib, 80.0), (3 * gib, 79.0), (4 * gib, 60.0), (5 * gib, 60.0))
    price = explorer.memory_price(curve, 2 * gib)
    # 3 GiB lies above the line from 2 to 4.
    assert (price.more_ms_per_gib, price.less_ms_per_gib) == (10.0, 20.0)
    assert explorer.memory_price(curve, gib // 2).less_ms_per_gib is None
    assert explorer.memory_price(curve, 3 * gib).more_ms_per_gib == 10.0
    assert explorer.memory_price(curve, 6 * gib).more_ms_per_gib == 0.0
    with pytest.raises(ValueError, match="no schedules"):
        explorer.memory_price([], gib)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), min_size=2, max_size=12, unique_by=lambda x: x[0]))
def test_prices_fall_as_the_budget_grows(found: list[tuple[int, int]]):
    curve = points(*((x * 2**30, float(y)) for x, y in found))
    prices = [explorer.memory_price(curve, x * 2**30).more_ms_per_gib for x in range(1, 52)]
    assert all(np.diff(prices) <= 1e-9)
    assert prices[-1] == 0
