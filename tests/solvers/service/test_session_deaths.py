"""A worker that dies: while it solves, again, once cancelled, and between two requests."""

from __future__ import annotations

import os
import signal
import time

import pytest

from explorer import simulate
from explorer.device_profile import Profile
from explorer.solution import Status
from explorer.solvers import SolveSession
from tests.solvers.graphs import chain
from tests.solvers.hearing import Heard, between, gone


@pytest.fixture
def hard() -> Profile:
    """Long enough that its proof is not found in passing."""
    return chain(150)


def killed(session: SolveSession) -> int:
    """The process that was the worker."""
    worker = session.worker_id
    assert worker is not None
    os.kill(worker, signal.SIGKILL)
    return worker


def test_a_killed_worker_is_reported_and_another_answers_the_request(hard):
    heard = Heard()
    with SolveSession(hard, on_event=heard.queue.put, time_limit=600.0, gap=0.0) as session:
        budget = between(hard, 0.3)
        request = session.request(budget)
        found = heard.next().solution
        worker = killed(session)
        event = heard.restart()
        assert "signal 9" in event.restart
        assert event.solution.time_ms <= found.time_ms
        assert simulate(hard, event.solution.schedule).peak_bytes <= budget
        following = heard.next()
        assert not following.restart
        assert session.worker_id != worker
        session.cancel()
        after = heard.final(request).solution
    assert after.status in (Status.FEASIBLE, Status.OPTIMAL)
    assert after.time_ms <= event.solution.time_ms
    assert {x.request for x in heard.events} == {request}
    assert sum(bool(x.restart) for x in heard.events) == 1


def test_a_second_death_of_a_request_is_its_end_and_the_next_request_is_answered(hard):
    heard = Heard()
    with SolveSession(hard, on_event=heard.queue.put, time_limit=600.0, gap=0.0) as session:
        budget = between(hard, 0.3)
        request = session.request(budget)
        found = heard.next().solution
        killed(session)
        heard.restart()
        heard.next()
        killed(session)
        event = heard.final(request)
        assert event.solution.status is Status.FAILED
        assert "signal 9" in event.solution.message
        assert event.solution.time_ms <= found.time_ms
        assert simulate(hard, event.solution.schedule).peak_bytes <= budget
        following = session.request(budget)
        assert heard.next().request == following
        session.cancel()
        after = heard.final(following).solution
    assert after.time_ms <= event.solution.time_ms
    assert sum(x.final and x.request == request for x in heard.events) == 1


def test_a_request_that_was_cancelled_is_not_begun_again(hard):
    heard = Heard()
    with SolveSession(hard, on_event=heard.queue.put, time_limit=600.0, gap=0.0) as session:
        request = session.request(between(hard, 0.3))
        heard.next()
        session._worker.send = lambda _: None  # so that death comes before the message
        session.cancel()
        killed(session)
        event = heard.final(request)
    assert event.solution.status is Status.FAILED
    assert not any(x.restart for x in heard.events)


def test_an_idle_worker_that_dies_is_replaced_and_a_warning_says_so(caplog: pytest.LogCaptureFixture):
    heard, profile = Heard(), chain(24)
    with SolveSession(profile, on_event=heard.queue.put) as session:
        worker = session.worker_id
        os.kill(worker, signal.SIGKILL)
        assert gone(worker)
        while session.worker_id == worker:
            time.sleep(0.01)
        event = heard.final(session.request(between(profile, 1.0)))
    assert event.solution.status is Status.OPTIMAL
    assert len({x.request for x in heard.events}) == 1
    assert [x for x in caplog.messages if "killed by signal 9" in x and "the next request starts it again" in x]
