"""Layers of deep models: what has one place together, and what is left out of a plot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from explorer.device_profile import Profile
from explorer.schedule import keep_all
from explorer.simulation import simulate
from explorer.timeline import Timeline
from tests.widgets.checking import checked
from tests.widgets.deep import deep
from widgets import style
from widgets.plots.figure import short_path
from widgets.plots.layers_plot import layers_figure
from widgets.plots.timeline_plot import timeline_figure
from widgets.scene.blocks import Run, blocks_of
from widgets.scene.layers import group_layers, segments, stretches

_BLOCKS = 80


@pytest.fixture(scope="module")
def profile() -> Profile:
    return deep(_BLOCKS, each=20)


@pytest.fixture(scope="module")
def plain(profile: Profile) -> Timeline:
    return simulate(profile, keep_all(profile.graph))


def test_the_blocks_of_a_deep_model_are_groups(profile: Profile) -> None:
    assert blocks_of(profile.graph).runs == (Run("model.layers.", 0, _BLOCKS),)
    labels = group_layers(profile.graph).labels
    assert {f"model.layers.{i}" for i in range(_BLOCKS)} < set(labels)
    opened = group_layers(profile.graph, within="model.layers.7.part2").labels
    assert "model.layers.7.part2" in opened
    assert "model.layers.7" not in opened
    assert "model.layers.8" in opened


def test_equal_blocks_are_one_bar_unless_each_is_wanted(profile: Profile, plain: Timeline) -> None:
    figure: Any = checked(layers_figure(profile, plain, plain))
    assert "model.layers.0-79" in figure.data[0].x
    single: Any = checked(layers_figure(profile, plain, plain, single=True))
    assert len(single.data[0].x) >= _BLOCKS
    assert len(single.layout.xaxis2.tickvals) < _BLOCKS
    for one, many in zip(figure.data, single.data, strict=True):
        assert sum(one.y) == pytest.approx(sum(many.y))
    selected: Any = checked(layers_figure(profile, plain, plain, selection="model.layers.7"))
    assert {"model.layers.0-6, 8-79", "model.layers.7.part2"} <= set(selected.data[0].x)
    # What a click selects is a layer of the model.
    assert "model.layers.0" in selected.data[0].customdata


def test_stretches_of_deep_models_have_the_names_of_several_blocks(profile: Profile, plain: Timeline) -> None:
    assert {"model.layers.0-15", "model.layers.64-79"} <= {x.label for x in segments(profile.graph, plain)}
    found = stretches(profile.graph, range(profile.graph.forward_count))
    assert {"model.layers.0-7", "model.layers.72-79"} <= {x.label for x in found}


def test_of_more_runs_than_a_screen_shows_the_highest_are_drawn(profile: Profile, plain: Timeline) -> None:
    timeline = plain
    assert len(timeline.operators) > 3000
    figure: Any = checked(timeline_figure(profile, timeline, budget_bytes=None, ceiling_bytes=1))
    traces = {trace.name: trace for trace in figure.data}
    total = np.asarray(traces["total"].y)
    assert len(total) <= len(timeline.operators) / 2
    assert len(total) == len(traces["total"].text) == len(traces["total"].customdata)
    assert total.max() * style.UNITS["KiB"] == pytest.approx(timeline.peak_bytes)
    last = traces["total"].x0 + traces["total"].dx * (len(total) - 1)
    assert len(timeline.operators) - traces["total"].dx <= last < len(timeline.operators)
    stack = sum(np.asarray(trace.y)[:-1] for trace in figure.data if trace.stackgroup == "memory")
    assert np.allclose(stack, total)


@pytest.mark.parametrize(
    ("layer", "told"),
    [
        ("head", "head"),
        ("model.model.layers.12-15", "…layers.12-15"),
        ("model.layers.5.self_attention.query", "…query"),
        ("model.layers.5.mlp.3", "…layers.5.mlp.3"),
        ("a_name_longer_than_there_is_room_for", "a_name_longer_than_there_is_room_for"),
    ],
)
def test_axes_show_the_ends_of_paths(layer: str, told: str) -> None:
    assert short_path(layer, most=15) == told
