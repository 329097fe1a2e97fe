"""Latest wins, and nothing is lost at the end."""

from __future__ import annotations

import threading
import time

import pytest

from widgets.jobs.latest import Computing, Latest


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


@pytest.mark.parametrize("urgent", [False, True])
def test_while_others_compute_only_an_urgent_item_does_not_wait(*, urgent: bool) -> None:
    used, second = [], threading.Event()

    def use(item: str) -> None:
        used.append(item)
        if item == "second":
            second.set()

    latest = Latest(use, interval_s=0.0, share=1.0, busy=lambda: True, patient_s=3600.0)
    latest.put("first")
    while not used:
        time.sleep(0.001)
    latest.put("second", urgent=urgent)
    assert second.wait(10 if urgent else 0.2) is urgent
    latest.close()
    assert used == (["first", "second"] if urgent else ["first"])


@pytest.mark.skipif(not hasattr(time, "pthread_getcpuclockid"), reason="a thread's time cannot be read here")
def test_a_main_thread_that_waits_does_not_compute() -> None:
    computing = Computing()
    time.sleep(0.05)
    assert not computing()
    # As it would be after computing: a loaded machine may give this thread no processor for as long as it likes.
    busy = Computing()
    busy._before = (time.monotonic() - 0.05, time.thread_time() - 0.05)
    assert busy()


def test_close_from_its_own_thread_ends_it() -> None:
    closed = threading.Event()

    def close(_: int) -> None:
        latest.close()
        closed.set()

    latest: Latest[int] = Latest(close, interval_s=0.0, share=1.0)
    latest.put(1)
    assert closed.wait(10)
