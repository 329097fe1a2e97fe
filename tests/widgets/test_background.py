"""Latest wins, nothing is lost at the end, and waiting ends."""

from __future__ import annotations

import threading

from widgets.background import Activity, Latest


def test_what_waits_is_replaced_and_the_last_is_used() -> None:
    used: list[int] = []
    entered, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def use(item: int) -> None:
        used.append(item)
        entered.set()
        go_on.wait(10)
        if item == 9:
            done.set()

    latest = Latest(use, interval_s=0.0, share=1.0)
    latest.put(0)
    assert entered.wait(10)
    for item in range(1, 10):
        latest.put(item, urgent=True)
    go_on.set()
    assert done.wait(10)
    latest.close()
    assert used == [0, 9]


def test_an_urgent_item_does_not_wait() -> None:
    used, second = [], threading.Event()

    def use(item: str) -> None:
        used.append(item)
        if item == "urgent":
            second.set()

    latest = Latest(use, interval_s=3600.0, share=1.0)
    latest.put("first")
    latest.put("urgent", urgent=True)
    assert second.wait(10)
    latest.close()


def test_close_from_its_own_thread_ends_it() -> None:
    closed = threading.Event()

    def close(_: int) -> None:
        latest.close()
        closed.set()

    latest: Latest[int] = Latest(close, interval_s=0.0, share=1.0)
    latest.put(1)
    assert closed.wait(10)


def test_activity_is_waited_for() -> None:
    activity = Activity()
    assert activity.begin("a")
    assert not activity.begin("a")
    assert not activity.wait(0)
    threading.Timer(0.05, lambda: activity.end("a")).start()
    activity.wait_for("a")
    assert activity.wait(10)
    assert "a" not in activity
