"""The figures say what the simulator says."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import plotly.graph_objects as go
import pytest

from explorer.measurement import Measurement
from explorer.schedule import keep_all
from explorer.simulation import simulate
from explorer.solution import Bound, BoundScope, Solution, Status
from explorer.solvers import solve
from explorer.solvers.placing.placing import place
from explorer.timeline import CATEGORIES, Category, Stage
from tests.schedules import random_schedule
from tests.widgets.checking import checked
from tests.widgets.trained import Trained
from widgets import style
from widgets.plots.addresses_plot import addresses_figure, order_figure, unit_of
from widgets.plots.figure import Figure
from widgets.plots.layers_plot import layers_figure
from widgets.plots.timeline_plot import timeline_figure
from widgets.plots.trade_off_plot import trade_off_figure
from widgets.plots.training_plot import training_figure
from widgets.scene.addresses import address_map
from widgets.scene.layers import NO_MODULE, group_layers, segments
from widgets.scene.trade_off import TradeOff


def by_name(figure: Figure) -> dict[str, go.Scatter]:
    """Traces by their names."""
    return {trace.name: trace for trace in checked(figure).data}


@pytest.mark.parametrize("keep", [0.0, 0.5, 1.0])
def test_stack_is_the_simulated_bytes(trained: Trained, keep: float) -> None:
    timeline = simulate(trained.profile, random_schedule(trained.profile.graph, 1, keep=keep))
    traces = by_name(timeline_figure(trained.profile, timeline, budget_bytes=10**6, ceiling_bytes=10**6))
    size = style.UNITS[style.unit_of(max(10**6, timeline.peak_bytes))]
    for column, category in enumerate(CATEGORIES):
        assert np.array_equal(traces[category.value].y[:-1], timeline.bytes[:, column] / size)
    assert traces["peak"].y[0] == timeline.peak_bytes / size
    assert list(traces["budget"].y) == [10**6 / size] * 2


@pytest.mark.parametrize(("peak_bytes", "unit"), [(3 * 2**30, "GiB"), (5 * 2**20, "MiB"), (7000, "KiB")])
def test_each_picture_has_the_unit_of_its_step(trained: Trained, peak_bytes: int, unit: str) -> None:
    plain = simulate(trained.profile, keep_all(trained.profile.graph))
    step = timeline_figure(trained.profile, plain, budget_bytes=None, ceiling_bytes=max(peak_bytes, plain.peak_bytes))
    assert f"({style.unit_of(max(peak_bytes, plain.peak_bytes))})" in step.layout["yaxis"]["title"]["text"]
    training = training_figure([1.0], {0: peak_bytes}, levels={}, iterations=1)
    assert f"({unit})" in training.layout["yaxis2"]["title"]["text"]
    assert training.data[-1]["y"][0] == peak_bytes / style.UNITS[unit]


def test_every_run_answers_with_layer_operator_and_bytes(trained: Trained) -> None:
    graph = trained.profile.graph
    timeline = simulate(trained.profile, random_schedule(graph, 2, keep=0.3))
    texts = by_name(timeline_figure(trained.profile, timeline, budget_bytes=None, ceiling_bytes=1))["total"].text
    assert len(texts) == len(timeline.operators)
    for operator, stage, text in zip(timeline.operators, timeline.stages, texts, strict=True):
        assert graph.operators[operator].layer in text
        assert graph.operators[operator].name in text
        assert stage.value in text


def test_shading_marks_each_run_once(trained: Trained) -> None:
    timeline = simulate(trained.profile, random_schedule(trained.profile.graph, 3, keep=0.3))
    traces = by_name(timeline_figure(trained.profile, timeline, budget_bytes=None, ceiling_bytes=1))
    shaded = np.stack([traces[stage.value].y[:-1] > 0 for stage in Stage])
    assert (shaded.sum(axis=0) == 1).all()
    assert [stage is Stage.RECOMPUTE for stage in timeline.stages] == shaded[
        list(Stage).index(Stage.RECOMPUTE)
    ].tolist()


def test_measured_line_spans_the_step_and_keeps_its_extremes(trained: Trained) -> None:
    timeline = simulate(trained.profile, keep_all(trained.profile.graph))
    rng = np.random.default_rng(0)
    allocated = rng.integers(10**6, 10**7, 50_000)
    measurement = Measurement("cpu", "events", int(allocated.max()), None, 1.0, np.linspace(0, 80, 50_000), allocated)
    figure = timeline_figure(trained.profile, timeline, budget_bytes=None, ceiling_bytes=1, measurement=measurement)
    line = by_name(figure)["measured"]
    assert len(line.x) < 5_000
    assert (line.x[0], line.x[-1]) == pytest.approx((0, len(timeline.operators)), abs=0.5)
    assert (np.diff(line.x) >= 0).all()
    size = style.UNITS[style.unit_of(timeline.peak_bytes)]
    assert line.y.max() == allocated.max() / size
    assert line.y.min() == allocated.min() / size
    assert checked(figure).layout.yaxis.range[1] > line.y.max()


def test_a_measurement_without_events_draws_nothing(trained: Trained) -> None:
    timeline = simulate(trained.profile, keep_all(trained.profile.graph))
    empty = Measurement("cuda", "statistics", 10, 12, 1.0, np.array([]), np.array([], dtype=np.int64))
    figure = timeline_figure(trained.profile, timeline, budget_bytes=None, ceiling_bytes=1, measurement=empty)
    assert "measured" not in by_name(figure)


def test_trade_off_and_layers_put_the_schedule_where_it_belongs(trained: Trained) -> None:
    profile = trained.profile
    plain = simulate(profile, keep_all(profile.graph))
    schedule = random_schedule(profile.graph, 4, keep=0.2)
    timeline = simulate(profile, schedule)
    solution = Solution(
        Status.FEASIBLE,
        2 * timeline.peak_bytes,
        schedule,
        timeline.time_ms,
        timeline.peak_bytes,
        (Bound(plain.time_ms * 0.9, BoundScope.PROBLEM),),
    )
    known = TradeOff(plain, (replace(solution, budget_bytes=timeline.peak_bytes),)).with_answer(solution)
    traces = by_name(trade_off_figure(known)) | by_name(layers_figure(profile, plain, timeline))
    assert traces["this schedule"].y == (timeline.peak_bytes / style.UNITS[style.unit_of(plain.peak_bytes)],)
    assert traces["this schedule"].x == pytest.approx((100 * (timeline.time_ms / plain.time_ms - 1),))
    assert traces["proven bound"].x == pytest.approx((-10.0,))
    assert traces["plain PyTorch"].x == (0.0,)
    assert sum(traces["recomputation"].y) == pytest.approx(timeline.recompute_time_ms)
    boundary = plain.operators.index(profile.graph.forward_count)
    kept = [x for x in plain.alive_at(boundary) if x.category is Category.SAVED]
    total = sum(profile.allocated_bytes(profile.graph.storages[x.storage]) for x in kept)
    shown = layers_figure(profile, plain, timeline)
    unit = next(x for x in style.UNITS if f"({x};" in shown.layout["annotations"][1]["text"])
    assert sum(traces["kept by a plain step"].y) == pytest.approx(total / style.UNITS[unit])
    # More than one number on each axis, and no more than fit.
    assert all(3 <= len(shown.layout[axis]["tickvals"]) <= 8 for axis in ("yaxis", "yaxis2"))
    assert sum(traces["kept"].y) < sum(traces["kept by a plain step"].y)


def test_a_budget_that_none_fits_draws_no_point_and_no_bound(trained: Trained) -> None:
    plain = simulate(trained.profile, keep_all(trained.profile.graph))
    none = Solution(Status.INFEASIBLE, 1024, bounds=(Bound(plain.time_ms, BoundScope.PROBLEM),))
    traces = by_name(trade_off_figure(TradeOff(plain, ()).with_answer(none)))
    assert not {"this schedule", "proven bound"} & set(traces)
    assert list(traces["this explorer"].y) == []


def test_what_is_solved_is_part_of_the_curve_and_what_others_beat_is_not_drawn(trained: Trained) -> None:
    plain = simulate(trained.profile, keep_all(trained.profile.graph))
    small = Solution(Status.FEASIBLE, 1000, keep_all(trained.profile.graph), 0.9 * plain.time_ms, 1000)
    early = replace(small, budget_bytes=2000, peak_bytes=2000, time_ms=1.1 * plain.time_ms)
    large = replace(small, budget_bytes=3000, peak_bytes=3000, time_ms=0.8 * plain.time_ms)
    known = TradeOff(plain, (small,)).with_answer(early).with_answer(large)
    size = style.UNITS[style.unit_of(plain.peak_bytes)]
    assert by_name(trade_off_figure(known))["this explorer"].y == (1000 / size, 3000 / size)
    again = known.with_answer(replace(early, peak_bytes=1500, time_ms=0.85 * plain.time_ms))
    assert by_name(trade_off_figure(again))["this explorer"].y == (1000 / size, 1500 / size, 3000 / size)


def test_layers_named_by_numbers_stay_names(trained: Trained) -> None:
    plain = simulate(trained.profile, keep_all(trained.profile.graph))
    figure = checked(layers_figure(trained.profile, plain, plain))
    assert figure.layout.xaxis.type == figure.layout.xaxis2.type == "category"


def test_figures_travel_as_json_with_their_arrays(trained: Trained) -> None:
    timeline = simulate(trained.profile, keep_all(trained.profile.graph))
    text = timeline_figure(trained.profile, timeline, budget_bytes=None, ceiling_bytes=1).to_json()
    (total,) = [x for x in json.loads(text)["data"] if x["name"] == "total"]
    sent = np.frombuffer(base64.b64decode(total["y"]["bdata"]), dtype=total["y"]["dtype"])
    assert np.array_equal(sent, np.float32(timeline.total_bytes / style.UNITS[style.unit_of(timeline.peak_bytes)]))


def test_layers_are_gathered_until_few_enough(trained: Trained) -> None:
    graph = trained.profile.graph
    fine, coarse = group_layers(graph), group_layers(graph, most=5)
    assert "blocks.0.0" in fine.labels
    assert set(coarse.labels) - {NO_MODULE} == {
        *("stem.0", "stem.1", "stem.2", "head"),
        *("blocks.0", "blocks.1", "blocks.2"),  # equal, so that they may be put together
    }
    assert len(fine.of_operator) == len(graph.operators)


def test_segments_are_ordered_and_readable(trained: Trained) -> None:
    timeline = simulate(trained.profile, random_schedule(trained.profile.graph, 5, keep=0.4))
    found = segments(trained.profile.graph, timeline, most=12)
    assert 2 <= len(found) <= 12
    assert all(a.end <= b.start for a, b in pairwise(found))
    assert found[-1].end <= len(timeline.operators)


def test_training_shows_losses_and_the_peaks_that_were_measured() -> None:
    levels = {"budget": 3 * style.GIB, "plain PyTorch": 4 * style.GIB}
    figure = training_figure([2.0, 1.5, 1.0], {0: style.GIB, 2: 2 * style.GIB}, levels=levels, iterations=10)
    traces = by_name(figure)
    assert list(traces["loss"].x) == [1, 2, 3]
    assert list(traces["loss"].y) == [2.0, 1.5, 1.0]
    assert list(traces["measured peak"].x) == [1, 3]
    assert list(traces["measured peak"].y) == [1.0, 2.0]
    assert list(traces["budget"].y) == [3.0, 3.0]
    assert list(traces["plain PyTorch"].x) == [0, 10]
    assert len({x.line.dash for x in (traces["budget"], traces["plain PyTorch"])}) == 2
    assert traces["loss"].yaxis != traces["measured peak"].yaxis
    assert by_name(training_figure([], {}, levels={}, iterations=10))["measured peak"].x == ()


def test_the_map_of_addresses_draws_bars_where_tensors_lie(trained: Trained) -> None:
    schedule = random_schedule(trained.profile.graph, 4, keep=0.5)
    found = address_map(trained.profile, simulate(trained.profile, schedule), place(trained.profile, schedule))
    unit, _ = unit_of(found.buffer_bytes)
    own = found.rectangles[-1]
    figure = addresses_figure(found, selected_layers=frozenset({own.layer}), chosen=own.block)
    bars = [x for x in checked(figure).data if x.type == "bar"]
    drawn = {
        (block, first): (y - width / 2, width)
        for x in bars
        for (block, _), first, y, width in zip(x.customdata, x.base, x.y, x.width, strict=True)
    }
    assert drawn.keys() == {(x.block, x.first) for x in found.rectangles}
    for x in found.rectangles:
        assert drawn[x.block, x.first] == pytest.approx((x.offset_bytes / unit, x.bytes / unit))
    assert checked(figure).layout.shapes[0].name == "handle"
    moved = found.moved(own.block, to_bytes=found.rectangles[0].offset_bytes)
    assert ("collision" in by_name(addresses_figure(moved))) is bool(moved.collisions)


def test_a_zoom_is_of_one_view_of_one_length_in_one_unit(trained: Trained) -> None:
    profile = trained.profile
    schedules = [random_schedule(profile.graph, 4, keep=x) for x in (0.0, 1.0)]
    maps = [address_map(profile, simulate(profile, x), place(profile, x)) for x in schedules]
    assert maps[0].runs != maps[1].runs
    larger = replace(maps[0], rectangles=(replace(maps[0].rectangles[0], offset_bytes=2**30),))
    figures = [addresses_figure(x, view="One buffer") for x in (*maps, larger)]
    figures += [addresses_figure(maps[0], view="Caching allocator"), order_figure(profile.graph, schedules[0])]
    assert len({x.layout["uirevision"] for x in figures}) == len(figures)
    again = addresses_figure(maps[0], view="One buffer", chosen=maps[0].rectangles[0].block)
    assert again.layout["uirevision"] == figures[0].layout["uirevision"]
    plain = simulate(profile, keep_all(profile.graph))
    bars = [layers_figure(profile, plain, simulate(profile, x)) for x in schedules]
    assert len({tuple(x.data[0]["x"]) for x in bars}) == len({x.layout["uirevision"] for x in bars})


def test_the_order_names_what_moved(trained: Trained) -> None:
    graph = trained.profile.graph
    solution = solve(trained.profile, budget=10**12, method="model")
    assert solution.schedule is not None
    moved = solution.schedule.moved(graph)
    figure = order_figure(graph, solution.schedule, selected=frozenset(moved[:1]))
    points = [x for x in checked(figure).data if x.mode == "markers"]
    assert sum(len(x.x) for x in points) == len(moved)
    told = " ".join(text for x in points for text in x.hovertext)
    assert all(graph.operators[x].name in told for x in moved)
