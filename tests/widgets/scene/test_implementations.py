"""What the implementations panel says is what the profile and the schedule say."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

import explorer
from explorer.device_profile import Profile
from explorer.graph import Role
from explorer.schedule import keep_all
from explorer.simulation import simulate
from tests.schedules import random_schedule
from tests.widgets.checking import checked
from tests.widgets.trained import Trained
from widgets.plots.figure import Figure
from widgets.plots.implementations_plot import implementations_figure
from widgets.scene.implementations import Calls, Choices, Part, Way, differ_in_workspace_alone, kind_of


@pytest.fixture(scope="module", params=["gpt2", "resnet50"])
def bundled(request: pytest.FixtureRequest) -> Profile:
    return explorer.load_profile(request.param)


def labelled(choices: Choices, label: str) -> Calls:
    return next(x for x in choices.calls if x.label == label)


@pytest.mark.parametrize("keep", [0.2, 1.0])
def test_every_run_with_a_choice_is_counted_once_for_each_gradient(trained: Trained, keep: float) -> None:
    profile, graph = trained.profile, trained.profile.graph
    choices = Choices(profile)
    timeline = simulate(profile, random_schedule(graph, 3, keep=keep, allowed=lambda _: True))
    of_choice = {x for calls in choices.calls for x in calls.operators}
    expected = 0
    for operator, name in zip(timeline.operators, timeline.implementations, strict=True):
        if operator in of_choice:
            roles = {graph.storages[x].role for x in graph.operators[operator].implementation(name).writes}
            both = "conv" in graph.operators[operator].target and {Role.GRADIENT, Role.PARAMETER_GRADIENT} <= roles
            expected += 2 if both else 1
    chosen = choices.chosen(timeline)
    assert sum(way.runs for ways in chosen for way in ways) == expected
    for calls, ways in zip(choices.calls, chosen, strict=True):
        assert {x for x in choices.ways(calls, timeline) if x.runs} == set(ways)


def test_every_operator_with_a_choice_is_there_once(bundled: Profile) -> None:
    choices = Choices(bundled)
    counted = Counter(x for calls in choices.calls for x in calls.operators)
    assert set(counted.values()) == {1}
    several = {
        operator.id
        for operator in bundled.graph.operators
        if sum(x.first for x in operator.implementations) > 1 or sum(x.again for x in operator.implementations) > 1
    }
    assert several <= counted.keys()
    labels = [calls.label for calls in choices.calls]
    assert len(set(labels)) == len(labels)


def test_a_backward_operator_stands_with_the_forward_operator_that_it_belongs_to() -> None:
    choices = Choices(explorer.load_profile("resnet50"))
    names = [choices.profile.graph.operators[x].name for x in labelled(choices, "layer1.0.relu: relu_3").operators]
    assert names == ["relu_3", "threshold_backward_45"]  # of three calls of one module
    loss = next(x for x in Choices(explorer.load_profile("gpt2")).calls if x.kind == "linear cross entropy")
    assert len(loss.operators) == 2


def test_memory_added_counts_results_and_what_is_overwritten() -> None:
    choices = Choices(explorer.load_profile("gpt2"))
    timeline = simulate(choices.profile, keep_all(choices.profile.graph))
    loss = next(x for x in choices.calls if x.kind == "linear cross entropy")
    found = {(x.part, x.implementation): x for x in choices.ways(loss, timeline)}
    whole, alone = found[Part.FORWARD, "aten"], found[Part.FORWARD, "loss alone, in 4 parts"]
    assert whole.added_bytes == whole.made_bytes + whole.workspace_bytes > 2 * alone.added_bytes
    over = found[Part.BACKWARD, "in 4 parts, in place"]
    assert over.added_bytes == over.made_bytes + over.workspace_bytes - over.overwritten_bytes < over.workspace_bytes
    assert not found[Part.BACKWARD, "logits again, in 4 parts"].kept_bytes > whole.made_bytes / 2
    assert found[Part.BACKWARD, "aten"].kept_bytes > whole.made_bytes / 2
    assert not differ_in_workspace_alone(found.values())
    convolutions = Choices(explorer.load_profile("resnet50"))
    plain = simulate(convolutions.profile, keep_all(convolutions.profile.graph))
    of_conv1 = convolutions.ways(labelled(convolutions, "layer1.0.conv2: convolution"), plain)
    assert differ_in_workspace_alone(of_conv1)


def test_a_plain_step_recomputes_none(trained: Trained) -> None:
    chosen = Choices(trained.profile).chosen(simulate(trained.profile, keep_all(trained.profile.graph)))
    assert chosen
    assert not any(way.part is Part.RECOMPUTE for ways in chosen for way in ways)


def test_the_figure_has_every_way_of_a_choice_and_marks_the_chosen(bundled: Profile) -> None:
    choices = Choices(bundled)
    timeline = simulate(bundled, keep_all(bundled.graph))
    for calls in {x.alike: x for x in choices.calls}.values():
        ways = choices.ways(calls, timeline)
        of_part = Counter(way.part for way in ways)
        found = [way for way in ways if of_part[way.part] > 1]
        figure: Any = checked(implementations_figure(calls.label, ways))
        points = [trace for trace in figure.data if trace.mode != "lines"]
        assert sum(len(trace.x) for trace in points) == len(found)
        marked = [text for trace in points if trace.name == "chosen" for text in trace.hovertext]
        assert len(marked) == sum(way.runs > 0 for way in found)
        # A zoom of one layer's points is none of another's.
        assert figure.layout.xaxis.uirevision == figure.layout.yaxis.uirevision == calls.label
        # By which the page finds a point again, and its name, when another is chosen.
        assert all(len(set(trace.ids)) == len(trace.x) for trace in points)
        # What was chosen has its name written.
        assert all(text for trace in points if trace.name == "chosen" for text in trace.text)


def test_ways_that_differ_in_a_number_are_one_line() -> None:
    parts = [Way(Part.FORWARD, f"in {k} parts", 10.0 + k, 4096 // k) for k in (4, 16, 64)]
    figure: Any = checked(implementations_figure("loss", [Way(Part.FORWARD, "aten", 9.0, 8192, runs=1), *parts]))
    (line,) = [trace for trace in figure.data if trace.mode == "lines"]
    assert line.y == (14.0, 26.0, 74.0)
    written = {text for trace in figure.data if trace.mode != "lines" for text in trace.text}
    assert {"aten", "in 4 parts", "16", "64"} <= written


def test_a_narrow_page_has_its_plots_one_below_another() -> None:
    ways = [Way(part, name, 1.0, 0) for part in (Part.FORWARD, Part.RECOMPUTE, Part.BACKWARD) for name in ("a", "b")]
    figure = implementations_figure("three", ways)
    narrow: Any = checked(Figure(figure.data, figure.layout | figure.narrow))
    spans = [narrow.layout[name].domain for name in ("yaxis", "yaxis2", "yaxis3")]
    assert all(low > high for (low, _), (_, high) in pairwise(spans))
    assert (spans[0][1], spans[-1][0]) == (1, pytest.approx(0))
    assert narrow.layout.height > 2 * figure.layout["height"]
    assert json.loads(figure.to_json())["narrow"]["height"] == narrow.layout.height
    assert implementations_figure("one", ways[:2]).narrow == {}


def test_a_plot_without_ways_is_one_without_points() -> None:
    assert checked(implementations_figure("none", ())).data == ()


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        ("aten.convolution_backward.default", "convolution"),
        ("aten._native_batch_norm_legit.default", "batch norm"),
        ("aten._scaled_dot_product_flash_attention_for_cpu_backward.default", "attention"),
        ("aten.threshold_backward.default", "relu"),
        ("aten._log_softmax_backward_data.default", "log softmax"),
        ("aten.max_pool2d_with_indices_backward.default", "max pool2d"),
        ("aten.embedding_dense_backward.default", "embedding"),
        ("explorer.linear_cross_entropy_backward_1", "linear cross entropy"),
        ("conv", "conv"),
    ],
)
def test_passes_of_an_operator_are_of_one_kind(target: str, kind: str) -> None:
    assert kind_of(target) == kind


@pytest.mark.parametrize(
    ("part", "implementation", "told"),
    [
        (Part.RECOMPUTE, "precomputed GEMM", "precomputed GEMM"),
        (Part.WEIGHT_GRADIENT, "weight gradient", "aten, alone"),
        (Part.WEIGHT_GRADIENT, "weight gradient, FFT", "FFT"),
    ],
)
def test_a_name_loses_only_its_part(part: Part, implementation: str, told: str) -> None:
    assert Way(part, implementation, 1.0, 0).plain_name == told
