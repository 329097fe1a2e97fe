"""Panels by name, in one explorer and in several, with one selection for all."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import traitlets

import explorer
from explorer import load_profile
from explorer.device_profile import Profile
from explorer.graph import Optimization
from explorer.schedule import keep_all
from explorer.solution import Solution
from explorer.solvers import trade_off
from tests.widgets.checking import checked
from tests.widgets.conftest import plain_peak
from tests.widgets.trained import Trained
from widgets import Explorer
from widgets.background import StoppedError
from widgets.choices.curves import Curve, known_curves
from widgets.choices.subject import Subject
from widgets.elements.icons import icons
from widgets.panels.addresses import ordered
from widgets.panels.catalogue import PANELS, TABS, parse_panels
from widgets.plots.solver_plot import solver_figure
from widgets.scene.compare import Held
from widgets.scene.layers import NO_MODULE
from widgets.scene.module_graph import FATES, module_graph
from widgets.scene.scene import News


def drawn(made: Explorer, panel: str) -> dict[str, Any]:
    """The traces of a panel's plot, by name; of the curve, ``customdata`` are the budgets."""
    plot: Any = made._view.panels[panel]
    if panel == "trade_off":
        lines = json.loads(plot.plot.known)["series"]
        return {x["name"]: {"customdata": [point[2] for point in x["points"]]} for x in lines}
    if panel == "timeline":
        return json.loads(plot.plot.step)
    return {trace["name"]: trace for trace in json.loads(plot.plot.figure)["data"]}


def open_tab(made: Explorer, panel: str) -> None:
    """As a click on the tab does."""
    made._view._tabs.selected_index = made._view._tabbed.index(panel)


def rows_selected(table: Any) -> list[str]:
    """The first cells of the marked rows, folded ones among them."""
    rows = [x for row in table.rows for x in row.get("folded", (row,))]
    return [row["cells"][0] for row in rows if row["key"] in table.selected]


def test_panels_are_chosen_by_name(trained: Trained) -> None:
    with explorer.explore(trained.profile, budget="1 GiB", panels=["solver", "timeline"]) as made:
        made.wait(120)
        assert list(made._view.panels) == ["timeline", "solver"]
        assert drawn(made, "timeline")
        assert drawn(made, "solver")
    assert parse_panels(None) == PANELS
    assert parse_panels([]) == ()


@pytest.mark.parametrize(("panels", "told"), [(["pie"], "panels has 'pie'; allowed: 'timeline'"), ("solver", "list")])
def test_unknown_panels_are_refused(trained: Trained, panels: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        explorer.explore(trained.profile, panels=panels)


def test_a_layer_selected_anywhere_is_selected_everywhere(opened: Explorer) -> None:
    open_tab(opened, "implementations")
    timeline: Any = opened._view.panels["timeline"]
    timeline.plot._handle_custom_msg({"picked": "blocks.1.0"}, [])
    assert opened.selection == "blocks.1.0"
    assert opened._view.controls.layer.value == "blocks.1.0"
    assert drawn(opened, "timeline")["selection"] == "blocks.1.0"
    open_tab(opened, "layers")
    assert max(drawn(opened, "layers")["kept"]["marker"]["line"]["width"]) > 0
    open_tab(opened, "implementations")
    panel: Any = opened._view.panels["implementations"]
    assert rows_selected(panel.table) == ["blocks.1.0: convolution"]
    assert "blocks.1.0" in panel.heading.value
    open_tab(opened, "matrix")
    assert "selected layer" in drawn(opened, "matrix")
    opened._view.controls.layer.value = "blocks"
    assert opened.selection == "blocks"
    timeline.plot._handle_custom_msg({"picked": "blocks"}, [])
    assert opened.selection == ""
    assert drawn(opened, "timeline")["selection"] == ""
    opened.selection = NO_MODULE
    opened.selection = ""


def test_a_layer_that_is_none_is_refused(opened: Explorer) -> None:
    with pytest.raises(ValueError, match=r"selection is 'blocks\.9'; it must be a layer"):
        opened.selection = "blocks.9"
    assert opened.selection == ""


def test_an_older_scene_does_not_undo_what_is_being_selected(opened: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    control = opened._view.controls.layer
    sent: list[int] = []
    monkeypatch.setattr(control, "send_state", lambda **_: sent.append(control.index))
    index = [label for label, _ in control.options].index("blocks.1")
    page = threading.Thread(target=lambda: control.set_state({"index": index}))  # as a message of the page does
    with opened._display.lock:  # an answer is being drawn
        page.start()
        while opened.selection != "blocks.1":
            time.sleep(0.01)
        assert opened._display.scene is not None
        opened._display.show(opened._display.scene)
    page.join(60)
    assert opened.selection == opened._display.scene.selection == control.value == "blocks.1"
    assert set(sent) <= {index}  # what the page has does not come back as anything else


@pytest.fixture
def opens(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Nothing opens until it is set."""
    event, profiled = threading.Event(), Subject.profiled

    def later(subject: Subject, progress: Callable[[int, int, str], None]) -> Profile:
        assert event.wait(60)
        return profiled(subject, progress)

    monkeypatch.setattr(Subject, "profiled", later)
    return event


def test_a_layer_that_turns_out_to_be_none_is_told_and_forgotten(trained: Trained, opens: threading.Event) -> None:
    with explorer.explore(trained.profile, budget="1 GiB") as made:
        made.selection = "blocks.9"
        opens.set()
        with pytest.raises(ValueError, match=r"selection is 'blocks\.9'; it must be a layer"):
            made.wait(120)
        assert made.selection == ""
        assert made.schedule is not None


def test_a_point_of_the_curve_is_a_budget(opened: Explorer) -> None:
    budget = drawn(opened, "trade_off")["this explorer"]["customdata"][0]
    panel: Any = opened._view.panels["trade_off"]
    panel.plot._handle_custom_msg({"budget": budget}, [])
    opened.wait(60)
    assert opened.budget_bytes == budget
    assert opened.schedule is not None


def test_only_what_is_in_sight_is_drawn(opened: Explorer) -> None:
    open_tab(opened, "solver")
    panel: Any = opened._view.panels["matrix"]
    before = panel.plot.figure
    opened.budget_bytes = plain_peak_half(opened)
    opened.wait(60)
    assert panel.plot.figure == before
    open_tab(opened, "matrix")
    assert panel.plot.figure != before


def plain_peak_half(made: Explorer) -> int:
    """A budget that needs recomputation."""
    slider = made._view.controls.slider
    return (slider.minimum_bytes + slider.maximum_bytes) // 2


def test_a_panel_is_drawn_for_something_new_only(opened: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    scene, shown = opened._display.scene, []
    assert scene is not None
    monkeypatch.setattr(opened._view.panels["timeline"], "show", shown.append)
    opened._view.show(replace(scene, log=("a line",), news=()))
    assert shown == []
    opened._view.show(replace(scene, selection="blocks"))
    assert [x.selection for x in shown] == ["blocks"]
    opened._view.show(scene)


def test_a_click_turns_an_optimization_off(trained: Trained) -> None:
    with explorer.explore(trained.profile, budget=plain_peak(trained)) as made:
        made.wait(120)
        made.budget_bytes = plain_peak_half(made)
        made.wait(60)
        panel: Any = made._view.panels["solver"]
        for widget in panel.chosen.values():
            widget.value = False
        made.wait(120)
        assert made.choice.optimizations == frozenset()
        assert made._display.scene is not None
        assert [x.budget_bytes for x in made._display.scene.known.solved] == [made.budget_bytes]
        assert made.solution is not None
        assert made.solution.schedule is not None
        own = {x.name for op in trained.profile.graph.operators for x in op.implementations if x.optimization is None}
        known = made._display.scene.known
        schedules = [x.schedule for x in (*known.instant, *known.solved) if x.schedule is not None]
        assert made.solution.schedule in schedules
        steps = [step for schedule in schedules for step in schedule.steps]
        assert {getattr(step, "implementation", None) for step in steps} <= own | {None}
        open_tab(made, "solver")
        assert "schedule" in panel.log.text
        made.configure(optimizations=["inplace"], time_limit=1.0)
        made.wait(120)
        assert panel.chosen[Optimization.INPLACE].value
        assert panel.time_limit.value == 1.0
        with pytest.raises(ValueError, match="time_limit is 0"):
            made.configure(time_limit=0)
        assert made.choice.time_limit == 1.0


def test_what_another_choice_allowed_is_not_shown_while_this_one_has_no_answer(
    opened: Explorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened.budget_bytes = plain_peak_half(opened)
    opened.wait(60)
    assert opened._display.scene is not None
    before, points, go_on = opened._display.scene.known, opened._work.charting._points, threading.Event()
    assert len(before.solved) > 1
    monkeypatch.setattr(opened._work.answers.solver, "request", lambda _, **__: None)
    monkeypatch.setattr(opened._work.charting, "_points", lambda choice: points(choice) if go_on.wait(60) else [])
    opened.configure(exact=True)
    opened._work.activity.wait_for("opening")
    known = opened._display.scene.known
    assert (known.instant, known.solved, known.current) == ((), (), None)
    assert drawn(opened, "trade_off")["this explorer"]["customdata"] == []
    monkeypatch.undo()
    opened.configure(exact=False)
    go_on.set()
    opened.wait(60)
    until = time.monotonic() + 60  # beside others that compute, the curve comes later
    while opened._display.scene.known.instant != before.instant and time.monotonic() < until:
        time.sleep(0.1)
    assert opened._display.scene.known.instant == before.instant


def test_a_click_counts_while_another_thread_brings_the_controls_in_line(opened: Explorer) -> None:
    panel: Any = opened._view.panels["solver"]
    panel._following = -1  # no thread's number
    panel.exact.value = True
    assert opened.choice.exact
    panel._following = None
    panel._follow()
    opened.wait(60)
    assert panel.exact.value


def test_a_choice_that_a_pin_forbids_is_refused_and_not_shown(opened: Explorer, trained: Trained) -> None:
    panel: Any = opened._view.panels["solver"]
    operator, implementation = next(
        (x.name, way.name)
        for x in trained.profile.graph.operators
        for way in x.implementations
        if way.optimization is Optimization.INTERMEDIATE
    )
    opened.configure(pins={operator: implementation})
    opened.wait(60)
    before = opened.choice
    panel.chosen[Optimization.INTERMEDIATE].value = False
    assert opened.choice == before
    assert panel.chosen[Optimization.INTERMEDIATE].value
    assert operator in opened.message


def test_curves_of_other_choices_are_added_and_removed(opened: Explorer) -> None:
    panel: Any = opened._view.panels["trade_off"]
    panel.others.value = "checkpointing"
    opened.wait(120)
    assert opened.curves == ["checkpointing"]
    assert len(drawn(opened, "trade_off")["checkpointing alone"]["customdata"]) > 1
    # The page sends places: of a list that it saw before, perhaps.
    places = [name for _, name in panel.others.options]
    panel.others.value = "checkpointing"
    opened.wait(60)
    assert opened.curves == []
    assert [name for _, name in panel.others.options] == places[:-1]
    assert places[-1] == "-"
    panel.others.value = "checkpointing"
    opened.wait(120)
    panel.others.value = "-"
    opened.wait(60)
    assert "checkpointing alone" not in drawn(opened, "trade_off")
    with pytest.raises(ValueError, match="curves has 'gurobi'; allowed: 'checkpointing'"):
        opened.curves = ["gurobi"]


def test_curves_asked_for_at_once_come_when_there_is_something_open(trained: Trained, opens: threading.Event) -> None:
    with explorer.explore(trained.profile, budget="1 GiB") as made:
        made.curves = ["checkpointing"]
        opens.set()
        made.wait(120)
        assert len(drawn(made, "trade_off")["checkpointing alone"]["customdata"]) > 1


@pytest.mark.parametrize("error", [None, ValueError("no luck")])
def test_a_curve_that_does_not_come_can_be_asked_for_again(
    opened: Explorer, monkeypatch: pytest.MonkeyPatch, error: ValueError | None
) -> None:
    panel: Any = opened._view.panels["trade_off"]
    there = threading.Event()

    def make(_: object, __: object, look: Callable[[], None]) -> Iterator[Solution]:
        assert opened.solution is not None
        yield opened.solution
        there.set()
        if error is not None:
            raise error
        while True:
            look()
            time.sleep(0.001)

    with monkeypatch.context() as patch:
        patch.setattr(
            "widgets.jobs.other_curves.known_curves", lambda: {"checkpointing": Curve("checkpointing alone", make)}
        )
        patch.setattr(opened._work.other_curves, "_found", {})
        panel.others.value = "checkpointing"
        assert there.wait(60)
        if error is None:
            opened.cancel()
            opened.wait(60)
            assert opened.message == "Cancelled comparing."
        else:
            with pytest.raises(ValueError, match="no luck"):
                opened.wait(60)
        assert opened.curves == []
        assert opened._work.other_curves._found == {}
        assert panel.others.value == ""
        assert "checkpointing alone" not in drawn(opened, "trade_off")
    panel.others.value = "checkpointing"
    opened.wait(120)
    assert len(drawn(opened, "trade_off")["checkpointing alone"]["customdata"]) > 1


def test_a_curve_of_fewer_optimizations_is_that_of_trade_off_and_can_be_stopped(trained: Trained) -> None:
    curve = known_curves()["checkpointing"]
    made = list(curve.make(trained.profile, (), lambda: None))
    assert [x.time_ms for x in made] == [x.time_ms for x in trade_off(trained.profile, optimizations=[])]

    def look() -> None:
        raise StoppedError

    with pytest.raises(StoppedError):
        list(curve.make(trained.profile, (), look))


def test_typed_budgets(opened: Explorer, trained: Trained) -> None:
    opened.choose_budget("90 %")
    opened.wait(60)
    assert opened.budget_bytes == int(0.9 * plain_peak(trained))
    before = opened.budget_bytes
    opened.choose_budget("plenty")
    assert "budget 'plenty' is not a number" in opened.message
    assert opened.budget_bytes == before


def test_playing_sweeps_until_it_is_cancelled(opened: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("widgets.jobs.playing._SHOWN_S", 0.01)
    seen: list[int] = []

    def see(change: Any) -> None:
        seen.append(change["new"])

    opened.observe(see, "budget_bytes")
    opened.play()
    opened.wait(120)
    slider = opened._view.controls.slider
    assert seen == sorted(seen, reverse=True)
    assert seen[-1] == slider.minimum_bytes
    opened.unobserve(see, "budget_bytes")
    monkeypatch.setattr("widgets.jobs.playing._SHOWN_S", 60.0)
    opened.play()
    assert opened.status == "playing"
    opened.cancel()
    opened.wait(60)


def test_explorers_side_by_side_follow_one_budget(opened: Explorer, trained: Trained) -> None:
    with explorer.explore(trained.profile, budget="1 GiB", panels=[]) as other:
        other.wait(120)
        link = traitlets.link((opened, "budget_bytes"), (other, "budget_bytes"))
        selected = traitlets.link((opened, "selection"), (other, "selection"))
        opened.budget_bytes = plain_peak_half(opened)
        opened.selection = "blocks"
        opened.wait(60)
        other.wait(60)
        assert other.budget_bytes == opened.budget_bytes
        assert other.selection == "blocks"
        assert other.predicted_peak is not None
        link.unlink()
        selected.unlink()
        opened.selection = ""


def test_explorers_leave_nothing(trained: Trained) -> None:
    from ipywidgets.widgets.widget import _instances

    from tests.widgets.test_explorer import threads, workers

    before, other_threads, other_workers = set(_instances), threads(), workers()
    for number in range(3):
        with explorer.explore(trained.profile, budget="1 GiB") as made:
            if number == 0:
                made.wait(120)  # the others close while they open, and the benchmark has twenty
        made._work.activity.wait(60)
    assert set(_instances) == before
    assert workers() <= other_workers  # of which some may have ended since
    assert not [x for x in threads() - other_threads if x.is_alive()]


def test_the_solver_plot_has_what_was_told() -> None:
    news = (News(0.1, 120.0, None, None), News(0.5, 110.0, 99.0, None), News(2.0, 110.0, 104.5, 108.0))
    traces = {trace.name: trace for trace in checked(solver_figure(news)).data}
    assert list(traces["best schedule"].y) == [120.0, 110.0, 110.0]
    assert list(traces["bound for all schedules"].x) == [0.5, 2.0]
    assert list(traces["bound for the grouping"].y) == [108.0]
    assert traces["gap"].y == pytest.approx((10.0, 5.0))
    assert len(checked(solver_figure(())).data) == 4


def _addresses(made: Explorer, said: str) -> Any:
    """The panel, once it says this."""
    panel: Any = made._view.panels["addresses"]
    until = time.monotonic() + 60
    while said not in panel.told.value:
        assert time.monotonic() < until, panel.told.value
        time.sleep(0.01)
    return panel


def test_a_tensor_is_moved_by_hand_and_back(opened: Explorer) -> None:
    open_tab(opened, "addresses")
    panel = _addresses(opened, "holds all that the step makes")
    assert panel.offset.layout.visibility == "hidden"
    assert panel.back.disabled
    bars = [x for x in json.loads(panel.plot.figure)["data"] if x["type"] == "bar"]
    block, layer = max(
        ((x["width"][i], x["customdata"][i]) for x in bars for i in range(len(x["x"])) if x["customdata"][i][1]),
        key=lambda x: x[0],
    )[1]
    panel.plot._handle_custom_msg({"picked": [block, layer]}, [])
    assert opened.selection == layer
    assert panel.offset.layout.visibility is None
    before = panel.offset.value
    panel.plot._handle_custom_msg({"dragged": 7.0 if before < 7 else -before}, [])
    assert panel.offset.value != before
    assert "Moved by hand" in panel.told.value
    panel.offset.value = 10_000.0
    assert "Nothing collides" in panel.told.value
    panel.back.click()
    assert "holds all that the step makes" in panel.told.value
    assert panel.offset.value == pytest.approx(before)
    panel.plot._handle_custom_msg({"dragged": 0.0}, [])
    assert panel.offset.layout.visibility == "hidden"


@pytest.mark.parametrize("view", ["Caching allocator", "Expandable segments"])
def test_what_the_caching_allocator_does_is_drawn_and_not_to_be_dragged(opened: Explorer, view: str) -> None:
    open_tab(opened, "addresses")
    panel = _addresses(opened, "holds")
    panel.of.value = view
    _addresses(opened, "lies idle between")
    figure = json.loads(panel.plot.figure)
    assert {"reserved", "load", "parameters"} <= {x["name"] for x in figure["data"]}
    bar = next(x for x in figure["data"] if x["type"] == "bar" and x["customdata"][0][1])
    panel.plot._handle_custom_msg({"picked": bar["customdata"][0]}, [])
    assert opened.selection == bar["customdata"][0][1]
    assert panel.offset.layout.visibility == "hidden"
    panel.of.value = "One buffer"
    assert "holds" in panel.told.value
    assert panel.offset.layout.visibility == "hidden"


def test_the_order_of_operators_is_told(opened: Explorer) -> None:
    open_tab(opened, "addresses")
    panel = _addresses(opened, "holds")
    panel.of.value = "Order of operators"
    _addresses(opened, "the captured order")
    # What profiling measured as scratch memory decides whether another order takes less.
    assert (panel.plot.layout.display == "none") == ("No order was found" in panel.told.value)
    assert panel.offset.layout.visibility == "hidden"


@pytest.mark.parametrize("name", ["googlenet-a100-80gb", "googlenet-p100-16gb"])
def test_the_best_order_of_a_bundled_network_is_drawn(name: str) -> None:
    profile = load_profile(name)
    found = ordered(profile, keep_all(profile.graph))
    assert "operators in another place, and nothing recomputed" in found.sentence
    least = explorer.solve(profile, budget=1, method="model").minimum
    assert least is not None
    assert explorer.simulate(profile, found.schedule).peak_bytes == least.budget_bytes
    assert ordered(profile, found.schedule).schedule is found.schedule


def test_a_page_asks_for_the_schedules_that_are_known(opened: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that they follow a hand that moves the budget."""
    panel: Any = opened._view.panels["timeline"]
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(panel.plot, "send", sent.append)
    keys = panel.plot.known
    assert len(keys) == len(opened._display.present.known.best) > 1
    panel.plot._handle_custom_msg({"want": keys[0]}, [])
    panel.plot._handle_custom_msg({"want": "nothing"}, [])
    (message,) = sent
    assert message["key"] == keys[0]
    best = opened._display.present.known.best[0]
    assert message["outline"]["peak"][1] == best.peak_bytes
    assert message["outline"]["time_ms"] == pytest.approx(best.time_ms)
    assert json.loads(message["outline"]["layers"])["data"]
    panel.plot._handle_custom_msg({"budget": best.peak_bytes}, [])
    opened.wait(60)
    assert opened.budget_bytes == best.peak_bytes


def test_what_the_page_walks_to_is_known_to_a_script(opened: Explorer) -> None:
    panel: Any = opened._view.panels["timeline"]
    assert opened.selected == []
    panel.plot._handle_custom_msg({"walked": 3, "range": None}, [])
    assert opened.selected_runs == (3, 3)
    assert {row["tensor"] for row in opened.selected}
    panel.plot._handle_custom_msg({"walked": None, "range": [2, 9]}, [])
    assert opened.selected_runs == (2, 9)
    panel.plot._handle_custom_msg({"walked": None, "range": None}, [])
    assert opened.selected_runs is None


def test_a_stretch_of_another_schedules_runs_is_forgotten(opened: Explorer) -> None:
    panel: Any = opened._view.panels["timeline"]
    opened.budget = "100 %"
    opened.wait(60)
    panel.plot._handle_custom_msg({"walked": None, "range": [2, 9]}, [])
    runs = len(opened._display.present.drawn.operators)
    opened.budget_bytes = opened._display.smallest_bytes
    opened.wait(60)
    assert len(opened._display.present.drawn.operators) != runs
    assert opened.selected_runs is None
    assert opened.selected == []


def test_a_graph_of_modules_has_every_tensor_once(opened: Explorer) -> None:
    open_tab(opened, "graph")
    panel: Any = opened._view.panels["graph"]
    scene = opened._display.present
    held = Held.shown(scene.profile, scene.solution, scene.timeline)
    assert held is not None
    drawn_graph = module_graph(scene.profile, held.explained)
    fates = [fate for _, fates, *_ in FATES for fate in fates]
    told = sum(x.allocated_bytes for x in held.explained if x.fate in fates)
    assert sum(amounts.sum() for amounts in drawn_graph["bytes"]) == told
    layers = drawn_graph["model"]["layers"]
    arrows = {(layers[a], layers[b]) for a, b, _ in drawn_graph["edges"]}
    assert ("stem.0", "stem.1") in arrows
    assert json.loads(panel.plot.graph)["model"]["layers"] == layers
    panel.plot._handle_custom_msg({"picked": "stem"}, [])
    assert opened.selection == "stem"
    assert panel.plot.selection == "stem"


def test_every_tab_has_a_picture_and_a_question(opened: Explorer) -> None:
    made = icons(list(TABS))
    assert [f"nth-child({place})" in made for place in range(1, len(TABS) + 1)] == [True] * len(TABS)
    assert all(opened._view.panels[name].question.endswith("?") for name in PANELS)
