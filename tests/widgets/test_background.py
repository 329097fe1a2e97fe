"""What goes on is waited for, and ends where it is stopped."""

from __future__ import annotations

import threading

from widgets.background import Activity, Jobs


def test_activity_is_waited_for() -> None:
    activity = Activity()
    assert activity.begin("a")
    assert not activity.begin("a")
    assert not activity.wait(0)
    threading.Timer(0.05, lambda: activity.end("a")).start()
    activity.wait_for("a")
    assert activity.wait(10)
    assert "a" not in activity


def test_what_is_started_after_a_stop_does_not_undo_it() -> None:
    stopped: list[str] = []
    go_on = threading.Event()
    jobs = Jobs(Activity(), on_change=lambda: None, on_stop=stopped.append, on_error=lambda *_: None)

    def long() -> None:
        go_on.wait(10)
        jobs.look()

    jobs.start("long", long)
    jobs.stop()
    jobs.start("other", jobs.look)
    jobs.activity.wait_for("other")
    go_on.set()
    assert jobs.activity.wait(10)
    assert stopped == ["long"]
