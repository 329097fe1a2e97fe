"""What the convolutions panel says is what the profile and the schedule say."""

from __future__ import annotations

import pytest

from explorer.graph import Role
from explorer.schedule import keep_all
from explorer.simulation import simulate
from tests.schedules import random_schedule
from tests.widgets.checking import checked
from tests.widgets.trained import Trained
from widgets.plots.convolutions_plot import convolution_figure
from widgets.scene.convolutions import Part, PartImplementation, chosen, convolutions, plain_name, ways


@pytest.mark.parametrize("keep", [0.2, 1.0])
def test_every_run_of_a_convolution_is_counted_once_for_each_gradient(trained: Trained, keep: float) -> None:
    graph = trained.profile.graph
    timeline = simulate(trained.profile, random_schedule(graph, 3, keep=keep, allowed=lambda _: True))
    counted = sum(way.runs for parts in chosen(trained.profile, timeline).values() for x in parts.values() for way in x)
    expected = 0
    for operator, name in zip(timeline.operators, timeline.implementations, strict=True):
        if "conv" in graph.operators[operator].target:
            written = graph.operators[operator].implementation(name).writes
            roles = {graph.storages[x].role for x in written}
            expected += max(1, len(roles & {Role.GRADIENT, Role.PARAMETER_GRADIENT}))
    assert counted == expected


def test_a_plain_step_recomputes_none(trained: Trained) -> None:
    timeline = simulate(trained.profile, keep_all(trained.profile.graph))
    found = chosen(trained.profile, timeline)
    assert tuple(found) == convolutions(trained.profile.graph) == tuple(found)
    assert all(not parts[Part.RECOMPUTE] for parts in found.values())
    assert all(len(parts[Part.FORWARD]) == 1 for parts in found.values())


def test_the_figure_has_every_implementation_and_marks_the_chosen(trained: Trained) -> None:
    timeline = simulate(trained.profile, keep_all(trained.profile.graph))
    layer = convolutions(trained.profile.graph)[1]
    found = ways(trained.profile, timeline, layer)
    figure = checked(convolution_figure(layer, found))
    drawn = [text for trace in figure.data for text in trace.hovertext]
    assert len(drawn) == len(found)
    # A zoom of one layer's points is none of another's.
    assert {figure.layout[name].uirevision for name in ("xaxis", "yaxis", "xaxis4", "yaxis4")} == {layer}
    # By which the page finds a point again, and its name, when another is chosen.
    assert all(len(set(trace.ids)) == len(trace.x) for trace in figure.data)
    written = [text.replace("<br>", " ") for trace in figure.data for text in trace.text if text]
    labels = {name for text in written for name in text.split(", ")}
    assert labels == {name for way in found for name in plain_name(way).split(", ")}
    marked = [text for trace in figure.data if trace.name == "chosen" for text in trace.hovertext]
    assert len(marked) == sum(way.runs > 0 for way in found)


def test_an_empty_part_still_has_a_range(trained: Trained) -> None:
    figure = checked(convolution_figure("none", ()))
    assert list(figure.layout.xaxis4.range)[1] > 0
    assert trained.profile is not None


@pytest.mark.parametrize(
    ("part", "implementation", "told"),
    [
        (Part.RECOMPUTE, "precomputed GEMM", "precomputed GEMM"),
        (Part.WEIGHT_GRADIENT, "weight gradient", "aten, alone"),
        (Part.WEIGHT_GRADIENT, "weight gradient, FFT", "FFT"),
    ],
)
def test_a_name_loses_only_its_part(part: Part, implementation: str, told: str) -> None:
    assert plain_name(PartImplementation(0, part, implementation, 0, 1.0, 0)) == told
