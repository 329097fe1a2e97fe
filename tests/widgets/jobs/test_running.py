"""Real training steps beside a solve that goes on."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

import explorer
from tests.widgets.trained import Trained
from widgets import Explorer


def test_a_bare_profile_is_refused_while_a_solve_goes_on_which_is_left_alone(
    opened: Explorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = list[str]()
    monkeypatch.setattr(opened._work.answers.solver, "cancel", lambda: ended.append("cancelled"))
    opened._work.activity.begin("solving")  # until told otherwise
    try:
        opened._view.controls.run.click()
        until(lambda: "only a profile is open" in opened.message)
        opened._work.activity.wait_for("running")
        assert "solving" in opened._work.activity
        assert ended == []
    finally:
        opened._work.activity.end("solving")
    with pytest.raises(ValueError, match="no model to run"):
        opened.wait(60)


def test_a_run_says_that_it_waits_for_a_solve_and_is_cancelled_while_it_does(trained: Trained) -> None:
    with explorer.explore(
        trained.model, trained.batch, loss=trained.loss, profile=trained.profile, budget="1 GiB"
    ) as made:
        made.wait(120)
        made._work.activity.begin("solving")  # one that does not hear that it is to end
        made.run()
        until(lambda: made.message.startswith("Waiting for the solve to end"))
        made.cancel()
        until(lambda: made.message == "Cancelled running.")
        made._work.activity.wait_for("running")
        made._work.activity.end("solving")
        assert made.measurement is None


def until(there: Callable[[], bool]) -> None:
    """Wait for it, for as long as a busy machine may take."""
    deadline = time.monotonic() + 120
    while not there():
        assert time.monotonic() < deadline
        time.sleep(0.05)
