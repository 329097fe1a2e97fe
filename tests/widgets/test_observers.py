"""What a script that observes traits finds, and what it may do there."""

from __future__ import annotations

import threading

import pytest

from tests.widgets.checking import SOLVED, middle
from widgets import Explorer, text


def test_observers_run_while_solving(opened: Explorer) -> None:
    """A script may react to a schedule by choosing the next budget."""
    chosen = threading.Event()

    def react(_: object) -> None:
        if not chosen.is_set():
            chosen.set()
            opened.budget = "1 GiB"

    opened.observe(react, "schedule")
    opened.budget_bytes = middle(opened)
    assert chosen.wait(60)
    opened.wait(60)
    opened.unobserve(react, "schedule")
    assert opened.solution is not None
    assert opened.solution.budget_bytes == 2**30


def test_an_observer_finds_all_of_an_answer(opened: Explorer) -> None:
    seen: list[bool] = []

    def see(_: object) -> None:
        answer = opened.solution
        assert answer is not None
        seen.append(
            (opened.schedule, opened.predicted_peak, opened.gap)
            == (answer.schedule, answer.peak_bytes, text.best_gap(answer))
        )

    names = ["solution", "schedule", "predicted_peak", "gap"]
    opened.observe(see, names)
    for budget in (middle(opened), 1000, opened._view.controls.slider.maximum_bytes):
        opened.budget_bytes = budget
        opened.wait(60)
    opened.unobserve(see, names)
    assert len(seen) > len(names)
    assert all(seen)


@pytest.mark.parametrize("name", ["solution", "status", "message"])
def test_an_observer_that_raises_is_told_and_spoils_nothing(opened: Explorer, name: str) -> None:
    def fail(_: object) -> None:
        raise KeyError("mine")

    opened.observe(fail, name)
    opened.budget_bytes = middle(opened)
    with pytest.raises(KeyError, match="mine"):
        opened.wait(60)
    opened.unobserve(fail, name)
    assert opened._view.controls.status.text == f"An observer of {name!r} raised KeyError: 'mine'."
    assert opened.solution is not None
    assert opened.solution.budget_bytes == opened.budget_bytes
    assert opened.schedule == opened.solution.schedule
    assert opened.status in SOLVED
    opened.budget_bytes = opened._view.controls.slider.maximum_bytes
    opened.wait(60)
    assert "olved" in opened.message or "Optimal" in opened.message


def test_an_observer_that_waits_is_told_not_to(opened: Explorer) -> None:
    def wait(_: object) -> None:
        opened.wait(60)

    opened.observe(wait, "schedule")
    opened.budget_bytes = middle(opened)
    with pytest.raises(RuntimeError, match="called by an observer"):
        opened.wait(60)
    opened.unobserve(wait, "schedule")


def test_a_budget_is_solved_for_whatever_its_observer_does(opened: Explorer) -> None:
    def wait(_: object) -> None:
        opened.wait(60)

    opened.observe(wait, "budget_bytes")
    opened._work.activity.begin("charting")
    with pytest.raises(RuntimeError, match="called by an observer"):
        opened.budget = "1 GiB"
    opened._work.activity.end("charting")
    opened.unobserve(wait, "budget_bytes")
    opened.wait(60)
    assert opened.solution is not None
    assert opened.solution.budget_bytes == opened._view.controls.slider.budget_bytes == 2**30
