"""Orders are the best there are where that can be looked up, and bounds are never above them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from explorer.solvers.ordering.bounds import lower_bound_bytes
from explorer.solvers.ordering.order import best_order
from explorer.solvers.ordering.task import Task
from tests.solvers.ordering.tasks import least_peak_bytes, random_task


@pytest.mark.parametrize("seed", range(4))
def test_no_order_of_a_random_task_is_better(seed: int) -> None:
    random = np.random.default_rng(seed)
    for _ in range(20):
        task = random_task(random, most=10)
        order, least = best_order(task), least_peak_bytes(task)
        assert order.peak_bytes == task.peak_bytes(order.operators) == least
        assert order.lower_bound_bytes == least
        assert order.peak_bytes == order.lower_bound_bytes
        assert order.gap == 0
        assert lower_bound_bytes(task) <= least


def test_a_large_result_that_nobody_needs_soon_comes_last() -> None:
    # 0 makes what 1 makes a large gradient of, and 2, 3 work on with memory of their own.
    task = Task(
        reads=((), (0,), (0,), (2,)),
        writes=((0,), (1,), (2,), (3,)),
        tensor_bytes=(1, 100, 1, 1),
        workspace_bytes=(0, 0, 50, 50),
        held=frozenset({1}),
    )
    order = best_order(task)
    assert order.operators == (0, 2, 3, 1)
    assert order.peak_bytes == 101
    assert task.memory_bytes(order.operators).tolist() == [1, 52, 53, 101]


def test_the_order_it_is_in_stays_where_none_is_better() -> None:
    task = Task(reads=((), (0,), (1,)), writes=((0,), (1,), ()), tensor_bytes=(5, 5), workspace_bytes=(0, 0, 3))
    assert best_order(task).operators == (0, 1, 2)
    assert best_order(task).gap == 0


def test_equal_seeds_give_equal_orders() -> None:
    task = random_task(np.random.default_rng(7))
    assert best_order(task, seed=3) == best_order(task, seed=3)


def test_a_task_without_operators_has_what_is_fixed() -> None:
    assert best_order(Task((), (), (), (), fixed_bytes=7)).peak_bytes == 7


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reads": ((1,), ())}, "operator 0 needs"),
        ({"reads": ((3,), ())}, "tensor 3 is read and made by no operator"),
        ({"workspace_bytes": (0,)}, "equally many"),
    ],
)
def test_tasks_that_cannot_be_are_refused(change: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"reads": ((), (0,)), "writes": ((0,), (1,))}
    given |= {"tensor_bytes": (1, 1), "workspace_bytes": (0, 0)}
    with pytest.raises(ValueError, match=message):
        _ = Task(**(given | change))


def test_orders_that_are_not_allowed_are_refused() -> None:
    task = Task(reads=((), (0,)), writes=((0,), ()), tensor_bytes=(1,), workspace_bytes=(0, 0))
    with pytest.raises(ValueError, match="operator 1 cannot run there"):
        task.memory_bytes([1, 0])
    with pytest.raises(ValueError, match="1 of 2 operators"):
        task.memory_bytes([0])
