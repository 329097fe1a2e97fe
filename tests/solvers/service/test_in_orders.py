"""A session in two orders: the better answer, of the profile as it was captured, for the latest request alone."""

from __future__ import annotations

import time

import pytest

from explorer import Profile, keep_all, simulate, trade_off
from explorer.solution import BoundScope, Status
from explorer.solvers import SessionInOrders
from explorer.solvers.options import Options
from explorer.solvers.problem.pins import parse_pins
from tests.solvers.graphs import chain
from tests.solvers.hearing import Heard, between
from tests.solvers.ordering.updated import updated


@pytest.fixture(scope="module")
def vgg() -> Profile:
    return updated("vgg16-a100-80gb", workspace=False)


def test_the_better_of_both_orders_is_told(vgg: Profile) -> None:
    peak = simulate(vgg, keep_all(vgg.graph)).peak_bytes
    heard = Heard()
    with SessionInOrders(vgg, on_event=heard.queue.put, time_limit=5.0, remember=False) as session:
        request = session.request(round(0.6 * peak))
        found = heard.final(request).solution
        assert found.schedule is not None
        assert found.schedule.moved(vgg.graph), "it is quicker in another order"
        timeline = simulate(vgg, found.schedule)
        assert (timeline.time_ms, timeline.peak_bytes) == (found.time_ms, found.peak_bytes)
        assert found.bound_ms(BoundScope.PROBLEM) is None
        times = [x.solution.time_ms for x in heard.events if x.solution.time_ms is not None]
        assert times == sorted(times, reverse=True)
        assert [x.final for x in heard.events].count(True) == 1
        # What fits a smaller budget is the least that is answered for a larger one.
        larger = heard.final(session.request(round(0.61 * peak))).solution
        assert larger.time_ms is not None
        assert larger.time_ms <= found.time_ms


def test_a_point_of_the_curve_is_where_an_answer_begins(vgg: Profile) -> None:
    point = next(x for x in trade_off(vgg, points=6, order=True) if x.schedule.moved(vgg.graph))
    heard = Heard()
    with SessionInOrders(vgg, on_event=heard.queue.put, time_limit=1.0, remember=False) as session:
        request = session.request(point.peak_bytes, known=point)
        first = heard.next()
        assert first.request == request
        assert first.solution.time_ms <= point.time_ms
        heard.final(request)


def test_what_is_superseded_or_asked_otherwise_is_not_heard_of_again(vgg: Profile) -> None:
    heard = Heard()
    peak = simulate(vgg, keep_all(vgg.graph)).peak_bytes
    with SessionInOrders(vgg, on_event=heard.queue.put, time_limit=5.0, remember=False) as session:
        session.request(round(0.6 * peak))
        second = session.request(round(0.9 * peak))
        assert {heard.next().request} == {second}
        session.cancel()
        heard.final(second)
        pinned = next(x.name for x in vgg.graph.storages if x.name == "relu_1")
        session.reconfigure(Options(time_limit=1.0, pins=parse_pins({pinned: "keep"})))
        third = session.request(round(0.9 * peak))
        assert heard.final(third).solution.schedule is not None
    before = len(heard.events)
    time.sleep(0.2)
    assert heard.queue.empty()
    assert len(heard.events) == before


def test_a_chain_has_one_order_alone() -> None:
    profile = chain(24)
    heard = Heard()
    with SessionInOrders(profile, on_event=heard.queue.put, time_limit=2.0) as session:
        found = heard.final(session.request(between(profile, 0.5))).solution
    assert found.status is Status.FEASIBLE, "no other order was looked at by an exhaustive search"
    assert found.schedule is not None


def test_wrong_arguments_are_refused(vgg: Profile) -> None:
    with pytest.raises(ValueError, match="gap"):
        SessionInOrders(vgg, on_event=print, gap=-1.0)
    with SessionInOrders(chain(8), on_event=print) as session, pytest.raises(ValueError, match="budget"):
        session.request("much")
