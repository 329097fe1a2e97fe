"""What the course draws and asks with: the game, the exercises, the pictures."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import cvxpy as cp
import nbformat
import plotly.io
import pytest

import explorer
from explorer import Status
from teaching.chain import Taught, taught_chain
from teaching.drawing import Node, boxes, formulae, rectangles, tree
from teaching.exercises import Exercises, Question
from teaching.game import Game, GameView
from teaching.racing import Moment, branch_and_bound, race
from widgets.plots.shown import NO_SHARING

ROOT = Path(__file__).parents[2]
CHAIN = Taught(times_ms=(1, 3, 1, 2, 4, 1, 2, 1), sizes=(5, 2, 4, 3, 2, 6, 3, 2), gradients=True)
HARD = Taught(times_ms=(2, 1, 3, 1, 2, 1), sizes=(4, 6, 2, 5, 3, 4), gradients=True)


def test_a_move_is_what_the_simulator_says() -> None:
    game = Game(taught_chain(CHAIN), budget_bytes=20)
    assert list(game.tensors) == [f"x_f{n}" for n in range(8)]
    plain = explorer.simulate(game.profile, explorer.keep_all(game.profile.graph))
    kept = game.play(())
    assert (kept.timeline.peak_bytes, kept.extra_ms, kept.fits) == (plain.peak_bytes, 0.0, False)
    move = game.play(["x_f0", "x_f2", "x_f3", "x_f5"])
    assert (move.fits, move.extra_ms) == (True, 1 + 1 + 2 + 1)
    assert game.dropped_by(move.schedule) == move.dropped
    with pytest.raises(ValueError, match="no tensor x_f9 to drop; there are x_f0"):
        game.play(["x_f9"])


def test_nobody_beats_the_solver() -> None:
    game = Game(taught_chain(CHAIN), budget_bytes=20)
    moves = [game.play(x) for count in range(9) for x in combinations(game.tensors, count)]
    # As the notebook says of them.
    assert (moves[0].timeline.peak_bytes, len(moves), sum(x.fits for x in moves)) == (34, 256, 12)
    found = game.solver(seconds=60)
    assert found.schedule is not None
    extra = explorer.simulate(game.profile, found.schedule).recompute_time_ms
    assert extra == min(x.extra_ms for x in moves if x.fits)


def test_the_second_game_is_for_the_solver_alone() -> None:
    game = Game(taught_chain(HARD), budget_bytes=17)
    assert not any(game.play(x).fits for count in range(7) for x in combinations(game.tensors, count))
    assert game.solver(seconds=1).status in (Status.OPTIMAL, Status.FEASIBLE)


def test_the_game_is_played_on_the_page() -> None:
    view = GameView(Game(taught_chain(CHAIN), budget_bytes=20))
    assert "too many" in view.message.value
    for name in ("x_f0", "x_f2", "x_f3", "x_f5"):
        view.buttons[name].value = False
    assert view.move.fits
    assert "Your move: peak" in view.message.value
    assert "your best that fits: 5 ms" in view.message.value
    view.let_the_solver_play()
    assert "You: 5 ms; the solver: <b>5 ms</b> (optimal)" in view.verdict.value
    assert "you found it too" in view.verdict.value
    assert [not x.value for x in view.buttons.values()] == [x in view.move.dropped for x in view.game.tensors]


def test_what_the_solver_plays_is_not_the_player_s() -> None:
    view = GameView(Game(taught_chain(CHAIN), budget_bytes=20))
    for _ in range(2):
        view.let_the_solver_play()
        assert view.best is None
        assert "You have no schedule that fits yet; the solver: <b>5 ms</b>" in view.verdict.value
        assert "the solver wins" in view.verdict.value
        assert "your best" not in view.message.value
    view.drop(["x_f0", "x_f2", "x_f3", "x_f5"])
    assert "You: 5 ms" in view.verdict.value  # what was said of the solver goes on being true
    assert "you found it too" in view.verdict.value


def test_moves_on_the_way_to_another_are_nobody_s() -> None:
    view = GameView(Game(taught_chain(CHAIN), budget_bytes=20))
    for names in (["x_f2", "x_f3", "x_f5"], ["x_f0"], ()):  # from the first to the second by a move that fits
        view.drop(names)
        assert view.best is None
    assert all((x.icon, x.button_style) == ("check", "info") for x in view.buttons.values())


@pytest.mark.parametrize(("chain", "budget"), [(CHAIN, 20), (HARD, 17)])
def test_the_picture_is_the_solver_s_own_schedule(chain: Taught, budget: int) -> None:
    game = Game(taught_chain(chain), budget_bytes=budget)
    view = GameView(game)
    view.let_the_solver_play()
    found = game.solver()
    assert found.schedule is not None
    line = explorer.simulate(game.profile, found.schedule)
    assert max(max(x.y) for x in view.figure.data) == line.peak_bytes <= budget
    assert view.figure.layout.title.text == "The solver's schedule"
    assert f"The solver's schedule: peak <b>{line.peak_bytes}</b> of {budget} units: fits" in view.message.value
    assert f"<b>{line.recompute_time_ms:g} ms</b>" in view.message.value
    assert f"the solver: <b>{line.recompute_time_ms:g} ms</b>" in view.verdict.value
    view.drop(())
    assert view.figure.layout.title.text == "Your move"
    assert "too many" in view.message.value


def test_while_the_solver_plays_nobody_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    view = GameView(Game(taught_chain(CHAIN), budget_bytes=20))
    offered: list[set[bool]] = []
    controls = [*view.buttons.values(), *view.children[3].children]
    solver = view.game.solver
    monkeypatch.setattr(view.game, "solver", lambda: offered.append({x.disabled for x in controls}) or solver())
    view.let_the_solver_play()
    assert offered == [{True}]
    assert not any(x.disabled for x in controls)
    view.drop(["x_f0"])
    assert view.figure.layout.title.text == "Your move"


def test_moves_are_compared_on_one_axis() -> None:
    view = GameView(Game(taught_chain(CHAIN), budget_bytes=20))
    low, high = view.figure.layout.yaxis.range
    tops = []
    for names in ((), ["x_f0", "x_f2", "x_f3", "x_f5"]):
        view.drop(names)
        tops.append(max(max(x.y) for x in view.figure.data))
    assert low == 0 and tops[1] < tops[0] < high < 1.1 * tops[0]
    assert view.figure.layout.yaxis.range == (low, high)


def test_no_figure_offers_to_be_uploaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a cell shows it: nothing leaves the page."""
    profile = taught_chain(CHAIN)
    figures = [
        boxes(profile, explorer.keep_all(profile.graph)),
        tree([Node(0, None, "", 2.0)]),
        rectangles([("A", 0, 3, 2, 5)], height=7),
        race({"search": [Moment(0.1, 2.0, 1.0)]}, plain_ms=1.0),
    ]
    shown: list[dict[str, Any]] = []
    monkeypatch.setattr("plotly.io.renderers._build_mime_bundle", lambda *_, **how: shown.append(how["config"]) or {})
    monkeypatch.setattr("IPython.display.display", lambda *_, **__: None)
    monkeypatch.setattr(plotly.io.renderers, "render_on_display", True)
    for figure in figures:
        figure._ipython_display_()
    assert shown == [NO_SHARING] * len(figures)
    assert GameView(Game(profile, budget_bytes=20)).figure._config == NO_SHARING


def test_bounds_are_shown_where_there_is_something_to_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    path = ROOT / "notebooks" / "course" / "3-grouping-merging-bounds.ipynb"
    monkeypatch.chdir(path.parent)
    known: dict[str, Any] = {}
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.id in ("setup", "grouping-3", "grouping-5", "grouping-9"):
            exec(cell.source, known)  # noqa: S102 - our own text
    assert known["sizes"]["paper"][0] > 10 * known["sizes"]["grouped"][0]
    for bound, best in known["extra"].values():
        assert best > 0.5  # there is something to say
        assert best / 3 < bound <= best + 1e-6  # and it says most of it, also on a busy machine


def test_exercises_check_answers(capsys: pytest.CaptureFixture[str]) -> None:
    ask = Exercises(
        (
            Question("How many?", lambda: 3.0, hint="Count.", why="One, two, three."),
            Question("Which?", lambda answer: set(answer) <= {1, 2}, judges=True, example=lambda: [1]),
            Question("All of them?", lambda: frozenset("ab")),
        )
    )
    ask(1, ...)
    assert "in place of the dots" in capsys.readouterr().out
    ask(1, 4)
    assert "Not yet. Count." in capsys.readouterr().out
    ask(1, 3)
    assert "Right. One, two, three." in capsys.readouterr().out
    ask(2, [2, 1])
    ask(3, ["b", "a"])
    assert capsys.readouterr().out.count("Right.") == 2
    ask.reveal()
    assert "All 3 answers hold." in capsys.readouterr().out
    with pytest.raises(ValueError, match="exercise 4; there are 1 to 3"):
        ask(4, 1)


def test_a_step_as_boxes_moves_without_a_kernel() -> None:
    profile = taught_chain(CHAIN)
    plain = explorer.keep_all(profile.graph)
    runs = len(explorer.simulate(profile, plain).operators)
    figure = boxes(profile, plain, budget=20, title="Everything kept")
    assert len(figure.frames) == len(figure.layout.sliders[0].steps) == runs
    named = {x.text for x in figure.data if x.type == "bar" and x.text}
    assert {"x_f0: 5", "x_f5: 6"} <= named


def test_a_tree_has_a_place_for_every_node() -> None:
    nodes = [
        Node(0, None, "", 2.0),
        Node(1, 0, "r[0,0] = 1", 3.0, "incumbent"),
        Node(2, 0, "r[0,0] = 0", None, "infeasible"),
    ]
    figure = tree(nodes)
    assert sum(len(x.x) for x in figure.data if x.mode == "markers+text") == 3
    assert {x.name for x in figure.data if x.name} == {"branched", "whole numbers: a schedule", "no solution"}


def test_rows_as_formulae() -> None:
    s, r = cp.Variable((2, 2)), cp.Variable(2)
    names = [("s", s), ("r", r)]
    shown = formulae([r[1] <= s[0, 1] + 2 * r[0], s[0, 0] + s[1, 1] >= 1, s[0, 0] == 3], names).data
    assert r"r_{1} &\le s_{0,1} + 2\,r_{0}" in shown
    assert r"1 &\le s_{0,0} + s_{1,1}" in shown
    assert "s_{0,0} &= 3" in shown
    assert r.value is None


def test_rectangles_lie_where_they_are_said_to() -> None:
    figure = rectangles([("A", 0, 3, 2, 5)], height=7)
    (bar,) = figure.data
    assert (bar.base[0], bar.y[0], bar.x[0], bar.width[0]) == (2, 5, 1.5, 4)


def test_branch_and_bound_tells_what_it_finds_and_proves() -> None:
    profile = taught_chain(CHAIN)
    moments = branch_and_bound(profile, 27, seconds=60)
    assert moments[-1].time_ms == pytest.approx(30 + 2)
    assert moments[-1].bound_ms == pytest.approx(moments[-1].time_ms)
    assert {x.name for x in race({"alone": moments}, plain_ms=30.0).data} == {"alone, schedule", "alone, bound"}
