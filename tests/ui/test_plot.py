"""The widget of a plot in an empty page: zooming, and dragging what can be dragged."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import plotly.offline
import pytest
from playwright.sync_api import Locator, Page, expect

from explorer.profiles.loading import load_profile
from explorer.schedule import keep_all
from explorer.simulation import simulate
from explorer.solvers import place, solve
from explorer.timeline import Category
from tests.ui.alone import mounted
from tests.widgets.trained import Trained
from widgets.plots.addresses_plot import addresses_figure, order_figure
from widgets.plots.figure import Figure, axis, bar, base_layout, scatter
from widgets.plots.matrix_plot import matrix_figure
from widgets.scene.addresses import AddressMap, Rectangle, address_map

pytestmark = pytest.mark.ui


@pytest.fixture(scope="module")
def plot_page(alone: Page) -> Page:
    """An empty page that has plotly's script."""
    alone.add_script_tag(content=plotly.offline.get_plotlyjs())
    return alone


def figure(runs: int, *, zoom: str = "", handle: Sequence[float] = ()) -> str:
    """Two bars of so many runs; the handle from one address to another."""
    shapes = (
        [{"name": "handle", "type": "rect", "x0": 10, "x1": runs, "y0": handle[0], "y1": handle[1]}] if handle else []
    )
    layout: dict[str, Any] = dict(
        **(base_layout(400, "a map") | {"uirevision": zoom}),
        shapes=shapes,
        xaxis=axis("run", range=[0, runs]),
        yaxis=axis("address", range=[0, 100]),
    )
    bars = [
        bar(name=x, orientation="h", x=[runs], y=[y], width=[30], customdata=[[x]]) for x, y in (("a", 20), ("b", 60))
    ]
    return Figure(bars, layout, {}).to_json()


def drawn(page: Page, text: str, *, width: int = 900, name: str = "map") -> Locator:
    """The plot of a figure, once it is there."""
    plot = mounted(
        page, "points.js", "cells.js", "plot.js", state={"name": name, "figure": text, "follows": ""}, width=width
    )
    page.evaluate("scheduleExplorerPlots.resolve(async () => Plotly)")
    expect(plot.locator("[data-drawn='1']")).to_be_attached()
    return plot.locator(".js-plotly-plot")


def change(page: Page, plot: Locator, text: str) -> None:
    """Another figure, once it is there."""
    before = int(plot.get_attribute("data-drawn") or 0)
    page.evaluate("text => change({ figure: text })", text)
    expect(plot).to_have_attribute("data-drawn", str(before + 1))


def ranges(plot: Locator) -> list[list[float]]:
    """Of both axes, whole numbers."""
    return plot.evaluate("x => [x.layout.xaxis, x.layout.yaxis].map((axis) => axis.range.map(Math.round))")


def area(plot: Locator) -> dict[str, float]:
    """Where the axes are."""
    box = plot.locator(".nsewdrag").bounding_box()
    assert box is not None
    return dict(box)


def drag(page: Page, start: tuple[float, float], end: tuple[float, float]) -> None:
    """By mouse, in steps."""
    page.mouse.move(*start)
    page.mouse.down()
    page.mouse.move(*end, steps=5)
    page.mouse.up()


def zoom_in(page: Page, plot: Locator) -> list[list[float]]:
    """To the middle, by mouse; the ranges then."""
    box, whole = area(plot), ranges(plot)
    corners = [(box["x"] + share * box["width"], box["y"] + share * box["height"]) for share in (0.25, 0.75)]
    drag(page, corners[0], corners[1])
    page.wait_for_function("whole => document.querySelector('.js-plotly-plot').layout.xaxis.range[0] > 0", arg=whole)
    return ranges(plot)


def test_a_zoom_is_kept_for_figures_of_the_same_axes_alone_and_is_reset_to_those_of_the_present(
    plot_page: Page,
) -> None:
    plot = drawn(plot_page, figure(492, zoom="one buffer"))
    zoomed = zoom_in(plot_page, plot)
    change(plot_page, plot, figure(492, zoom="one buffer", handle=(5, 35)))
    assert ranges(plot) == zoomed
    change(plot_page, plot, figure(492, zoom="another view"))
    assert ranges(plot) == [[0, 492], [0, 100]]
    zoomed = zoom_in(plot_page, plot)
    change(plot_page, plot, figure(500, zoom="another view"))
    assert ranges(plot) == [[0, 500], zoomed[1]]
    zoom_in(plot_page, plot)
    change(plot_page, plot, figure(500, zoom="another view", handle=(5, 35)))
    plot.hover()
    plot.locator(".modebar-btn[data-title='Reset axes']").click()
    plot_page.wait_for_function("() => document.querySelector('.js-plotly-plot').layout.xaxis.range[0] === 0")
    assert ranges(plot) == [[0, 500], [0, 100]]


@pytest.mark.parametrize("width", [317, 700, 1000])
def test_a_map_has_most_of_the_width_that_there_is(plot_page: Page, trained: Trained, width: int) -> None:
    profile = trained.profile
    schedule = keep_all(profile.graph)
    found = address_map(profile, simulate(profile, schedule), place(profile, schedule))
    plot = drawn(plot_page, addresses_figure(found).to_json(), width=width)
    assert area(plot)["width"] > 0.7 * width
    legend, labels = plot.locator(".legend").bounding_box(), plot.locator(".xaxislayer-above").bounding_box()
    assert legend is not None
    assert labels is not None
    beside = legend["x"] > labels["x"] + labels["width"]
    assert beside or legend["y"] > plot.locator(".xtitle").evaluate("x => x.getBoundingClientRect().bottom")


def test_the_handle_is_dragged_where_it_is_seen_and_stays_where_it_was_let_go(plot_page: Page) -> None:
    plot = drawn(plot_page, figure(400, handle=(5, 35)))
    handle = plot.locator(".shapelayer path")
    shape, axes = handle.bounding_box(), area(plot)
    assert shape is not None
    start = (shape["x"] + shape["width"] / 2, shape["y"] + shape["height"] / 2)
    drag(plot_page, start, (start[0], start[1] - 50))
    (sent,) = plot_page.evaluate("sent")
    assert sent["dragged"] == pytest.approx(100 * 50 / axes["height"])
    expect(handle).to_have_css("transform", "matrix(1, 0, 0, 1, 0, -50)")
    plot_page.evaluate("tell({ answered: true })")  # and no figure: it was moved to where it is
    expect(handle).to_have_css("transform", "none")
    change(plot_page, plot, figure(400, handle=(80, 300)))
    shape = handle.bounding_box()
    assert shape is not None
    assert shape["y"] < axes["y"] - 100, "what lies above the axes is not seen"
    plot_page.evaluate("window.sent = []")
    for above in (20, -20):
        start = (axes["x"] + axes["width"] / 2, axes["y"] - above)
        drag(plot_page, start, (start[0], start[1] + 5))
    assert ["dragged" in x for x in plot_page.evaluate("sent")] == [True], "beside the axes there is nothing to hold"


def test_what_is_chosen_or_selected_is_outlined_in_the_colour_of_the_page(plot_page: Page) -> None:
    spots = ((0, "conv", 90), (1, "conv", 1), (2, "other", 60))
    starts = (0, 90, 91)
    rectangles = tuple(
        Rectangle(block, f"tensor {block}", "", layer, Category.SAVED, 0, 99, start * 2**20, size * 2**20)
        for (block, layer, size), start in zip(spots, starts, strict=True)
    )
    found = AddressMap(rectangles, runs=100, load_bytes=2**27, bound_bytes=2**27)
    text = addresses_figure(found, selected_layers=frozenset({"conv"}), chosen=2).to_json()
    plot = drawn(plot_page, text, name="addresses")
    plot_page.evaluate("document.querySelector('#here').style.setProperty('--jp-content-font-color1', '#abcdef')")
    looks = "(found) => found.map(getComputedStyle).map((x) => [x.stroke, parseFloat(x.strokeWidth)])"
    bars = plot.locator(".barlayer .point path").evaluate_all(looks)
    assert sorted(width for _, width in bars) == [0.5, pytest.approx(0.7, abs=0.1), 2.5]
    page_colour = "rgb(171, 205, 239)"
    assert {width > 0.5 for stroke, width in bars if stroke == page_colour} == {True}
    assert sum(stroke == page_colour for stroke, _ in bars) == 2
    assert plot.locator(".shapelayer path").evaluate_all(looks) == [[page_colour, 3]]
    expect(plot.locator(".bartext").first).to_have_css("fill", "rgb(0, 0, 0)")
    expect(plot.locator(".xtick text").first).to_have_css("fill", page_colour)


def test_bars_are_reached_and_picked_by_keyboard(plot_page: Page) -> None:
    names = ("first", "later", "above it")
    rectangles = tuple(
        Rectangle(block, name, "float32[4]", name, Category.SAVED, first, 90, low * 2**20, 20 * 2**20)
        for block, (name, first, low) in enumerate(zip(names, (0, 50, 60), (0, 30, 60), strict=True))
    )
    found = AddressMap(rectangles, runs=100, load_bytes=2**27, bound_bytes=2**27)
    plot = drawn(plot_page, addresses_figure(found).to_json())
    stop = plot.locator(".barlayer [tabindex='0']")
    expect(stop).to_have_count(1)
    stop.focus()
    for key, name in (("ArrowRight", "later"), ("ArrowUp", "above it"), ("ArrowLeft", "later"), ("ArrowDown", "first")):
        plot_page.keyboard.press(key)
        expect(stop).to_be_focused()
        expect(stop).to_have_attribute("aria-label", re.compile(f"^{name}, float32"))
        expect(plot.locator(".hoverlayer .hovertext")).to_contain_text(name)
    plot_page.keyboard.press("ArrowRight")
    plot_page.keyboard.press("Enter")
    assert plot_page.evaluate("sent") == [{"picked": [1, "later"]}]
    change(plot_page, plot, addresses_figure(found, selected_layers=frozenset({"later"}), chosen=1).to_json())
    expect(stop).to_be_focused()
    expect(stop).to_have_attribute("aria-label", re.compile("^later"))


def test_operators_that_moved_are_reached_and_picked_by_keyboard(plot_page: Page) -> None:
    profile = load_profile("resnet50-small-cpu")
    graph = profile.graph
    schedule = solve(profile, budget=10**12, method="model").schedule
    assert schedule is not None
    text = order_figure(graph, schedule).to_json()
    plot = drawn(plot_page, text)
    stop = plot.locator(".scatterlayer [tabindex='0']")
    expect(stop).to_have_count(1)
    stop.focus()
    said = [stop.get_attribute("aria-label")]
    for _ in schedule.moved(graph)[1:]:
        plot_page.keyboard.press("ArrowRight")
        expect(stop).to_be_focused()
        said.append(stop.get_attribute("aria-label"))
        expect(plot.locator(".hoverlayer .hovertext").first).to_contain_text((said[-1] or "").split(",")[0])
    assert sorted((x or "").split(",")[0] for x in said) == sorted(
        graph.operators[x].name for x in schedule.moved(graph)
    )
    plot_page.keyboard.press("Enter")
    ((_, layer),) = [x["picked"] for x in plot_page.evaluate("sent")]
    assert layer in {graph.operators[x].layer for x in schedule.moved(graph)}
    change(plot_page, plot, text)
    expect(stop).to_be_focused()
    expect(stop).to_have_attribute("aria-label", said[-1] or "")


def test_points_of_two_plots_in_one_are_reached_by_keyboard(plot_page: Page) -> None:
    looks = {"mode": "lines+markers", "marker": {"size": 6}}
    layout = base_layout(300, "two plots") | {"xaxis": {"domain": [0, 0.4]}, "xaxis2": {"domain": [0.6, 1]}}
    layout |= {"yaxis": {"anchor": "x"}, "yaxis2": {"anchor": "x2"}}
    traces = [
        scatter(name="left", x=[1, 2], y=[10, 20], **looks),
        scatter(name="unsaid", x=[1, 2], y=[15, 15], hoverinfo="skip", **looks),
        scatter(name="right", x=[1], y=[0.123456], hovertext=["the <b>gap</b>"], xaxis="x2", yaxis="y2", **looks),
    ]
    plot = drawn(plot_page, Figure(traces, layout, {}).to_json())
    stop = plot.locator(".scatterlayer [tabindex='0']")
    stop.focus()
    found = [stop.get_attribute("aria-label")]
    for _ in range(3):
        plot_page.keyboard.press("ArrowRight")
        found.append(stop.get_attribute("aria-label"))
    assert found == ["left, 1, 10", "left, 2, 20", "the gap", "the gap"]
    plot_page.keyboard.press("Enter")
    assert plot_page.evaluate("sent") == [], "nothing is to be picked there"


def test_cells_of_a_matrix_are_reached_and_picked_by_keyboard(plot_page: Page, trained: Trained) -> None:
    graph = trained.profile.graph
    figure = matrix_figure(graph, simulate(trained.profile, keep_all(graph)))
    plot = drawn(plot_page, figure.to_json())
    names = figure.data[0]["meta"]
    cell, tip = plot_page.locator(".schedule-explorer-cell"), plot_page.locator(".schedule-explorer-tip")
    cell.focus()
    expect(tip).to_have_text(re.compile(f"^{re.escape(names['columns'][0])}: .* at {re.escape(names['rows'][0])}$"))
    for key in ("ArrowUp", "ArrowLeft", "ArrowRight", "Shift+ArrowDown", "ArrowDown"):
        plot_page.keyboard.press(key)
    column, row = (re.escape(x) for x in (names["columns"][1], names["rows"][11]))
    expect(cell).to_have_attribute("aria-label", re.compile(f"^{column}: .* at {row}$"))
    expect(tip).to_be_visible()
    plot_page.keyboard.press("Enter")
    assert plot_page.evaluate("sent") == [{"picked": names["picks"][1]}]
    inside, outside = cell.bounding_box(), plot.locator(".nsewdrag").bounding_box()
    assert inside is not None
    assert outside is not None
    middle = inside["x"] + inside["width"] / 2 - outside["x"], inside["y"] + inside["height"] / 2 - outside["y"]
    shape = len(names["columns"]), len(names["rows"])
    expected = 1.5 / shape[0] * outside["width"], 11.5 / shape[1] * outside["height"]
    assert middle == pytest.approx(expected, abs=1.5)
    cell.blur()
    expect(tip).to_be_hidden()
    drawn(plot_page, order_figure(graph, keep_all(graph)).to_json())
    expect(cell).to_be_hidden()
