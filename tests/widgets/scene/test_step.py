"""A step as numbers for the page: what is drawn is what was simulated, of any size of model."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from explorer.schedule import keep_all
from explorer.simulation import simulate
from explorer.solution import Solution, Status
from explorer.timeline import CATEGORIES, Stage
from tests.widgets.deep import deep
from tests.widgets.trained import Trained
from widgets.panels.timeline import step_of, table_of
from widgets.scene.curve import OURS, curve_table, headline_table
from widgets.scene.packed import packed_json
from widgets.scene.scene import Scene
from widgets.scene.selected import selected_rows
from widgets.scene.step import OUTLINE, columns, model_table, step_table
from widgets.scene.trade_off import TradeOff


def test_the_columns_are_the_simulated_runs(trained: Trained) -> None:
    line = simulate(trained.profile, keep_all(trained.profile.graph))
    table = step_table(trained.profile, line)
    assert table["runs"] == len(line.operators)
    total = sum(table["bytes"].values())
    assert np.array_equal(total, line.total_bytes)
    assert table["ends_ms"][-1] == pytest.approx(line.time_ms)
    assert [tuple(Stage)[x] for x in table["stages"]] == list(line.stages)
    storages, starts, ends, _ = table["stays"]
    assert sorted(zip(storages, starts, ends, strict=True)) == sorted(
        (x.storage, x.start, x.end) for x in line.lifetimes
    )


def test_few_columns_have_the_peak_and_every_moment(trained: Trained) -> None:
    line = simulate(trained.profile, keep_all(trained.profile.graph))
    few = columns(line, most=7)
    assert len(few["rows"]) == 7
    assert sum(few["bytes"].values()).max() == line.peak_bytes
    assert few["ends"][-1] == len(line.operators)
    assert few["ends_ms"][-1] == pytest.approx(line.time_ms)
    assert columns(line, most=OUTLINE)["runs"] == len(columns(line, most=OUTLINE)["rows"])


def test_repeated_blocks_are_one_band_that_opens(trained: Trained) -> None:
    profile = deep(12)
    table = model_table(profile)
    names = [[table["labels"][x] for x in chain] for chain in table["chains"]]
    repeated = [chain for chain in names if chain and "-" in chain[0]]
    assert len({chain[0] for chain in repeated}) == 1
    assert len({chain[1] for chain in repeated}) == 12
    # Whatever has all layers in it says nothing.
    assert len({chain[0] for chain in names if chain}) > 1
    small = model_table(trained.profile)
    assert all(len(chain) == len(set(chain)) for chain in small["chains"])


def scene_with(trained: Trained, *peaks: float, current: int = 0) -> Scene:
    """Solutions at shares of the plain peak, each a tenth slower than the one before."""
    profile = trained.profile
    plain = simulate(profile, keep_all(profile.graph))
    schedule = keep_all(profile.graph)
    made = [
        Solution(
            Status.FEASIBLE,
            int(share * plain.peak_bytes),
            schedule,
            (1 + 0.1 * i) * plain.time_ms,
            int(share * plain.peak_bytes),
        )
        for i, share in enumerate(peaks)
    ]
    known = TradeOff(plain, tuple(made), current=made[current] if made else None)
    return Scene(profile, plain, known, made[current] if made else None, plain)


def test_the_curve_is_all_that_is_known(trained: Trained) -> None:
    scene = scene_with(trained, 1.0, 0.9, 0.8, 0.7)
    better = replace(scene.known.instant[2], time_ms=1.05 * scene.keep_all.time_ms)
    scene = replace(scene, known=replace(scene.known, solved=(better,)))
    ours = next(x for x in curve_table(scene)["series"] if x["name"] == OURS)
    peaks = [point[0] / scene.keep_all.peak_bytes for point in ours["points"]]
    # What was solved beats a point of the search at the same peak, and the one above that took longer.
    assert peaks == pytest.approx([0.7, 0.8, 1.0], rel=1e-4)
    assert scene.known.fitting(int(0.85 * scene.keep_all.peak_bytes)) is better
    assert scene.known.fitting(1000) is None
    assert [x[0] for x in headline_table(scene)["points"]] == [point[0] for point in ours["points"]]


def test_a_steep_end_does_not_hide_the_rest(trained: Trained) -> None:
    scene = scene_with(trained, 1.0, 0.8, 0.6, 0.4)
    cliff = replace(
        scene.known.instant[-1], time_ms=9 * scene.keep_all.time_ms, peak_bytes=int(0.395 * scene.keep_all.peak_bytes)
    )
    table = curve_table(replace(scene, known=replace(scene.known, instant=(*scene.known.instant[:-1], cliff))))
    assert 20 < table["high"] < 100
    assert table["low"] < 0


def test_the_page_gets_plain_json(trained: Trained) -> None:
    scene = scene_with(trained, 1.0, 0.8)
    for made in (table_of(scene), step_of(scene), curve_table(scene), headline_table(scene)):
        assert json.loads(packed_json(made))
    assert len(table_of(scene)["palette"]) == len(CATEGORIES)
    assert step_of(scene)["top"] > scene.keep_all.peak_bytes
    assert curve_table(scene)["top"] == step_of(scene)["top"], "one axis for both"


def test_what_cannot_be_sent_is_said() -> None:
    with pytest.raises(TypeError, match="which is not for the page"):
        packed_json({"x": object()})


def test_a_budget_without_a_schedule_draws_plain_pytorch(trained: Trained) -> None:
    scene = scene_with(trained)
    assert step_of(scene)["plain"]
    assert curve_table(scene)["current"] is None
    assert curve_table(scene)["smallest"] is None


def test_what_is_selected_is_told_as_rows(trained: Trained) -> None:
    scene = scene_with(trained, 1.0)
    assert selected_rows(scene, None) == []
    of_layer = selected_rows(replace(scene, selection="blocks.1.0"), None)
    assert {row["layer"] for row in of_layer} == {"blocks.1.0"}
    peak = scene.drawn.peak_run
    at_peak = selected_rows(scene, (peak, peak))
    assert len(at_peak) == len(scene.drawn.alive_at(peak))
    assert [row["bytes"] for row in at_peak] == sorted((row["bytes"] for row in at_peak), reverse=True)
    both = selected_rows(replace(scene, selection="blocks"), (peak, peak))
    assert 0 < len(both) < len(at_peak)
