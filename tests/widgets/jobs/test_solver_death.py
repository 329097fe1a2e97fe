"""What an explorer says and does when its solver dies."""

from __future__ import annotations

import time
from typing import Any

import psutil
import pytest

import explorer
from explorer.solution import Status
from tests.widgets.checking import SOLVED, middle
from widgets import Explorer


def test_a_solver_that_is_killed_is_told_and_the_solve_goes_on() -> None:
    with explorer.explore("resnet50", time_limit=60) as made:
        made.wait(120)
        slider = made._view.controls.slider
        made.budget_bytes = slider.minimum_bytes + (slider.maximum_bytes - slider.minimum_bytes) // 10
        made._work.answers.solver.wait_for_news(60)
        session = made._work.answers.solver._session
        assert session is not None
        worker = session.worker_id
        psutil.Process(worker).kill()
        deadline = time.monotonic() + 60
        while not any("started again" in x for x in made._work.answers.solver.log) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert any("killed by signal 9" in x for x in made._work.answers.solver.log)
        assert made.status == "solving"
        made.cancel()
        made.wait(60)
        assert made.status in SOLVED
        assert made.schedule is not None
        assert session.worker_id not in (None, worker)


@pytest.mark.thorough
def test_a_killed_solver_is_told_and_replaced_and_one_that_dies_again_is_a_failure(
    opened: Explorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = opened._work.answers.solver._session
    assert session is not None
    start = session._worker_now

    def start_stopped(**how: Any) -> Any:
        made = start(**how)
        psutil.Process(made.process.pid).suspend()
        return made

    def kill(worker: psutil.Process) -> psutil.Process:
        worker.kill()
        while session.worker_id == worker.pid:
            time.sleep(0.01)
        return psutil.Process(session.worker_id)

    worker = psutil.Process(session.worker_id)
    for budget, dies_again in ((middle(opened), False), (middle(opened) + 1024, True)):
        worker.suspend()  # so that it cannot be done before it is killed
        opened.budget_bytes = budget
        with monkeypatch.context() as patch:
            if dies_again:  # nor may its replacement be done
                patch.setattr(session, "_worker_now", start_stopped)
            worker = kill(worker)
        if dies_again:
            worker.kill()
        opened.wait(60)
        assert any("killed by signal 9" in x for x in opened._work.answers.solver.log)
        assert opened.status in ([Status.FAILED] if dies_again else SOLVED)
    assert "died" in opened.message
    assert "Move the slider" in opened.message
    opened.budget_bytes = opened._view.controls.slider.maximum_bytes
    opened.wait(60)
    assert opened.status in SOLVED


def test_a_solver_that_cannot_be_started_again_ends_the_solve(
    opened: Explorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: int, **__: Any) -> None:
        raise OSError("no more processes")

    with monkeypatch.context() as patch:
        patch.setattr(opened._work.answers.solver, "request", refuse)
        opened._view.controls.slider.budget_bytes = middle(opened)
        with pytest.raises(OSError, match="no more processes"):
            opened.wait(60)
    assert opened.message == "Solving failed: OSError: no more processes. Move the slider to try again."
    assert opened.status in SOLVED
    opened.budget_bytes = opened._view.controls.slider.maximum_bytes
    opened.wait(60)
