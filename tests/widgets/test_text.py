"""Every way a solve can end has a sentence that says what to do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from explorer.analysis.residuals import Residual
from explorer.measurement import Measurement
from explorer.schedule import Schedule, keep_all
from explorer.simulation import simulate
from explorer.solution import Bound, BoundScope, Minimum, Solution, Status
from explorer.timeline import CATEGORIES, Timeline
from tests.widgets.trained import Trained
from widgets import text
from widgets.scene.scene import News, Scene
from widgets.scene.trade_off import TradeOff

GIB = 2**30


def solution(status: Status, **more: Any) -> Solution:
    """For 1 GiB, after 2 s."""
    return Solution(status, GIB, elapsed_s=2.0, **more)


def found(trained: Trained, status: Status, **more: Any) -> Solution:
    """With a schedule of 110 ms."""
    schedule = Schedule(trained.profile.graph.identity, (), "monet")
    return solution(status, schedule=schedule, time_ms=110.0, peak_bytes=GIB // 2, **more)


def plain_of(trained: Trained, time_ms: float) -> Timeline:
    """A plain step of 2 GiB."""
    plain = simulate(trained.profile, keep_all(trained.profile.graph))
    rows = np.full((1, len(CATEGORIES)), 0)
    rows[0, 0] = 2 * GIB
    return replace(
        plain,
        operators=plain.operators[:1],
        implementations=plain.implementations[:1],
        stages=plain.stages[:1],
        bytes=rows,
        times_ms=np.array([time_ms]),
        lifetimes=(),
    )


def test_a_proven_schedule(trained: Trained) -> None:
    answer = found(trained, Status.FEASIBLE, bounds=(Bound(104.5, BoundScope.PROBLEM),))
    said = text.outcome(answer, plain_of(trained, 100.0))
    assert "1.000 GiB in 2.0 s" in said
    assert "110 ms a step (+10.0 % extra time), peak 0.500 GiB" in said
    assert "within 5.0 % of the best of all schedules" in said


def test_quicker_than_plain_pytorch(trained: Trained) -> None:
    assert "110 ms a step (12.0 % less time), peak" in text.outcome(
        found(trained, Status.OPTIMAL), plain_of(trained, 125.0)
    )


def test_a_gap_says_for_what_it_is_proven(trained: Trained) -> None:
    answer = found(trained, Status.FEASIBLE, bounds=(Bound(110.0, BoundScope.GROUPING),))
    assert text.proven(answer) == "proven to be the best of the schedules of its grouping"
    assert text.best_gap(answer) == 0.0
    assert text.best_gap(found(trained, Status.FEASIBLE)) is None


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (
            solution(Status.INFEASIBLE, minimum=Minimum(2 * GIB, GIB, "conv", "l.0")),
            ["2.00 GiB", "'conv' in 'l.0'", "larger"],
        ),
        (solution(Status.UNKNOWN), ["was found in time", "larger budget"]),
        (solution(Status.CANCELLED), ["Cancelled", "Move the slider"]),
        (solution(Status.FAILED, message="the solver process was killed"), ["was killed", "Move the slider"]),
    ],
)
def test_endings_without_a_schedule(trained: Trained, answer: Solution, told: list[str]) -> None:
    said = text.outcome(answer, plain_of(trained, 100.0))
    assert all(words in said for words in told), said


def test_a_solver_that_was_started_again_is_told(trained: Trained) -> None:
    why = "the solver died (killed by signal 9); it was started again"
    assert text.progress(found(trained, Status.FEASIBLE), plain_of(trained, 100.0), restart=why).startswith(
        "The solver died (killed"
    )
    news = News(1.0, 110.0, None, None)
    assert why in text.log_line(news, news, None, restart=why)
    assert text.log_line(news, news, None) == ""


def test_exceptions_become_sentences() -> None:
    assert text.failure(ValueError("a < b")) == "a < b"
    assert text.failure(KeyError("x")) == "KeyError: 'x'"
    assert text.failure(RuntimeError()) == "RuntimeError"


def parts(
    unexplained_bytes: int, peak_share: float | None, cache_bytes: int | None, more_ms: float, machine_ms: float | None
) -> Residual:
    return Residual(0, 0, 0, unexplained_bytes, cache_bytes, 0, None, peak_share, more_ms, machine_ms)


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (parts(0, 0.5, None, 1.0, 1.0), ["to the byte", "is the machine"]),
        (parts(2048, 0.25, None, 1.0, None), ["+2.00 KiB, seen 25 % into", "scratch", "not told apart"]),
        (parts(-2048, None, 4096, 1.0, 0.5), ["−2.00 KiB: calls took less", "held 4.00 KiB more"]),
        (
            replace(parts(0, None, 0, 1.0, 1.0), unsplit_bytes=3 * 2**20),
            ["to the byte", "Blocks that were not split have 3.00 MiB more than was asked for"],
        ),
    ],
)
def test_residuals_are_explained(trained: Trained, found: Residual, told: list[str]) -> None:
    timeline = simulate(trained.profile, keep_all(trained.profile.graph))
    said = text.residual(trained.profile, timeline, found)
    assert all(words in said for words in told), said


def test_estimated_figures_say_so(trained: Trained) -> None:
    profile = trained.profile
    schedule = keep_all(profile.graph)
    timeline = simulate(profile, schedule)
    answer = solution(Status.OPTIMAL, schedule=schedule, time_ms=timeline.time_ms, peak_bytes=timeline.peak_bytes)
    scene = Scene(profile, timeline, TradeOff(timeline, ()), answer, timeline)
    assert "estimated" not in text.figures(scene) + text.heading(profile)
    guessed = replace(profile, device=replace(profile.device, estimated=True))
    said = text.figures(replace(scene, profile=guessed))
    assert "no recomputation, estimated" in said
    assert "this schedule, estimated" in said
    assert "estimated, not measured, for" in text.heading(guessed)


def test_the_headline_is_the_answer_in_a_line(trained: Trained) -> None:
    plain = plain_of(trained, 100.0)
    scene = Scene(trained.profile, plain, TradeOff(plain, ()))
    assert text.headline(scene) == ("plain PyTorch", "plain PyTorch: 2.000 GiB, 100 ms a step")
    answer = found(trained, Status.FEASIBLE, bounds=(Bound(109.0, BoundScope.PROBLEM),))
    said, note = text.headline(replace(scene, solution=answer))
    assert said == "−75 % memory for +10.0 % time"
    assert note == "proven within 0.9 % · 0.500 GiB of 2.000 GiB · 110 ms instead of 100 ms"
    none = solution(Status.INFEASIBLE)
    assert text.headline(replace(scene, solution=none))[0] == "no schedule for this budget"


def test_a_step_as_plain_pytorch_says_whether_less_memory_is_to_be_had(trained: Trained) -> None:
    plain = plain_of(trained, 100.0)
    same = replace(found(trained, Status.OPTIMAL), peak_bytes=plain.peak_bytes, time_ms=plain.time_ms)
    less = replace(same, peak_bytes=plain.peak_bytes // 2, time_ms=2 * plain.time_ms)
    scene = Scene(trained.profile, plain, TradeOff(plain, (less, same)), same)
    assert text.headline(scene)[0] == "as plain PyTorch: nothing has to be recomputed"
    said, note = text.headline(replace(scene, known=TradeOff(plain, (same,))))
    assert said == "as plain PyTorch: nothing to recompute is known to save memory here"
    assert note.endswith("2.000 GiB, 100 ms a step")


@pytest.mark.parametrize(("time_ms", "told"), [(110.02, "0.0 % time"), (109.98, "0.0 % time"), (110.2, "+0.2 % time")])
def test_nothing_has_no_sign(trained: Trained, time_ms: float, told: str) -> None:
    plain = plain_of(trained, 110.0)
    answer = replace(found(trained, Status.FEASIBLE), time_ms=time_ms)
    said = text.headline(Scene(trained.profile, plain, TradeOff(plain, ()), answer))[0]
    assert said.endswith(f"for {told}")
    assert "-0.0" not in text.outcome(answer, plain) + said


def test_a_measured_step_stands_beside_a_plain_one_of_the_same_minute(trained: Trained) -> None:
    plain = simulate(trained.profile, keep_all(trained.profile.graph))
    measured = Measurement("cpu", "events", plain.peak_bytes, None, 16 * plain.time_ms, np.zeros(0), np.zeros(0, int))
    answer = solution(
        Status.OPTIMAL,
        schedule=keep_all(trained.profile.graph),
        time_ms=plain.time_ms,
        peak_bytes=plain.peak_bytes,
    )
    scene = Scene(trained.profile, plain, TradeOff(plain, ()), answer, plain, measured)
    assert "+1500.0 % time against the prediction" in text.figures(scene)
    beside = text.figures(replace(scene, plain_now_ms=16 * plain.time_ms))
    assert "plain PyTorch, measured now" in beside
    assert "+0.0 % time against plain PyTorch now" in beside
