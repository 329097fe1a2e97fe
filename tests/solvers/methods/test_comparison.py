"""Several methods' curves at once: in any executor, with progress, cancelled, as a table."""

from __future__ import annotations

import threading
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

import pytest
from distributed import Client

from explorer import Status, simulate, trade_off
from explorer.schedule import keep_all
from tests.solvers.graphs import chain

PROFILE = chain(4)
PLAIN = simulate(PROFILE, keep_all(PROFILE.graph))
BUDGETS = [PLAIN.peak_bytes, int(0.75 * PLAIN.peak_bytes), 100]
METHODS = ["checkpoint-all", "chen-greedy", "checkmate-d"]


def check(executor: Executor | None) -> None:
    news: list[tuple[int, int, str]] = []
    comparison = trade_off(
        PROFILE,
        methods=METHODS,
        budgets=BUDGETS,
        time_limit=60.0,  # each ends as soon as it is proven
        executor=executor,
        on_progress=lambda *x: news.append(x),
    )
    assert comparison.budgets_bytes == tuple(sorted(BUDGETS))
    everything, greedy, checkmate = comparison.curves
    # A method that answers curves is one task, the other one for each budget.
    assert [x[:2] for x in news] == [(n, 5) for n in range(1, 6)]
    assert everything.solutions[-1].time_ms == PLAIN.time_ms
    assert [x.status for x in everything.solutions] == [Status.INFEASIBLE, Status.INFEASIBLE, Status.FEASIBLE]
    assert checkmate.solutions[0].status is Status.INFEASIBLE
    for solution, other in zip(checkmate.solutions[1:], greedy.solutions[1:], strict=True):
        assert solution.status is Status.OPTIMAL
        assert solution.time_ms is not None
        assert other.time_ms is None or solution.time_ms <= other.time_ms
    assert len(comparison.rows()) == 9
    lines = comparison.table().splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[2].split()[-4:] == ["–", "–", "+0.0", "%"]


def test_in_threads() -> None:
    with ThreadPoolExecutor(2) as executor:
        check(executor)


def test_in_processes() -> None:
    check(None)


def test_by_dask() -> None:
    with Client(n_workers=1, threads_per_worker=1, dashboard_address=None) as client:
        check(client.get_executor())


def test_cancelled() -> None:
    stop = threading.Event()
    with ThreadPoolExecutor(1) as executor:
        comparison = trade_off(
            PROFILE,
            methods=["checkpoint-all", "monet-checkpointing"],
            budgets=[int(share * PLAIN.peak_bytes) for share in (0.6, 0.65, 0.7, 0.75, 0.8)],
            time_limit=1.0,
            executor=executor,
            on_progress=lambda *_: stop.set(),
            should_stop=stop.is_set,
        )
    states = [x.status for x in comparison.curves[1].solutions]
    assert states[-1] is Status.CANCELLED
    assert "?" in comparison.table()


def test_a_failure_is_one_curves_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("out of luck")

    monkeypatch.setattr("explorer.solvers.methods.baselines.heuristics.chen_greedy", fail)
    with ThreadPoolExecutor(1) as executor:
        comparison = trade_off(
            PROFILE, methods=["chen-greedy", "checkpoint-all"], budgets=[PLAIN.peak_bytes], executor=executor
        )
    failed, fine = (x.solutions[0] for x in comparison.curves)
    assert failed.status is Status.FAILED
    assert "out of luck" in failed.message
    assert fine.status is Status.FEASIBLE


def test_arguments() -> None:
    with pytest.raises(ValueError, match="method is 'nothing'"):
        trade_off(PROFILE, methods=["nothing"])
    with pytest.raises(ValueError, match="methods is empty"):
        trade_off(PROFILE, methods=[], budgets=[100])
