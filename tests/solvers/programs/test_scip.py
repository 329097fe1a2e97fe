"""SCIP behind arrays: optima, start solutions, callbacks, stopping."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
from scipy import sparse

from explorer.solvers.programs.milp import Milp, MilpStatus
from explorer.solvers.programs.scip import minimise
from tests.solvers.minimising import objective_of


def knapsack(columns: int, rows: int, seed: int = 0) -> Milp:
    """Pack what is worth most into several sacks at once; the constant part of the objective is 100."""
    rng = np.random.default_rng(seed)
    weights = rng.integers(1, 100, (rows, columns)).astype(float)
    return Milp(
        objective=-rng.integers(50, 100, columns).astype(float),
        objective_offset=100.0,
        matrix=sparse.csr_matrix(weights),
        row_lower=np.full(rows, -np.inf),
        row_upper=weights.sum(axis=1) / 3,
        lower=np.zeros(columns),
        upper=np.ones(columns),
        integer=np.ones(columns, dtype=bool),
    )


def test_it_finds_the_optimum_of_an_enumerated_program():
    milp = knapsack(10, 3)
    candidates = map(np.array, itertools.product((0.0, 1.0), repeat=10))
    best = min(objective_of(milp, x) for x in candidates if milp.violation(x) <= 0)
    incumbents, bounds = [], []
    result = minimise(
        milp,
        time_limit=60,
        gap=0.0,
        on_incumbent=lambda x, objective: incumbents.append((x, objective)),
        on_bound=bounds.append,
    )
    assert result.status is MilpStatus.OPTIMAL
    assert result.objective == pytest.approx(best)
    assert result.bound == pytest.approx(best)
    assert objective_of(milp, result.x) == pytest.approx(best)
    assert milp.violation(result.x) < 1e-6
    assert [x for _, x in incumbents] == sorted((x for _, x in incumbents), reverse=True)
    assert all(objective_of(milp, x) == pytest.approx(objective) for x, objective in incumbents)
    assert bounds == sorted(bounds)
    assert all(bound <= best + 1e-6 for bound in bounds)


def test_continuous_columns_and_equations():
    milp = Milp(
        objective=np.array([1.0, 2.0]),
        objective_offset=0.5,
        matrix=sparse.csr_matrix(np.array([[1.0, 1.0], [0.0, 0.0]])),
        row_lower=np.array([3.5, -np.inf]),
        row_upper=np.array([3.5, 0.0]),
        lower=np.array([-np.inf, 0.0]),
        upper=np.array([2.0, np.inf]),
        integer=np.array([True, False]),
    )
    result = minimise(milp, time_limit=60, gap=0.0)
    assert result.objective == pytest.approx(2 + 2 * 1.5 + 0.5)
    assert result.x == pytest.approx([2.0, 1.5])


@pytest.mark.parametrize("lower", [4.0, 1.0])
def test_infeasible_is_said_even_where_the_row_is_empty(lower):
    row = [1.0, 1.0, 1.0] if lower > 3 else [0.0, 0.0, 0.0]
    milp = Milp(
        np.ones(3), 0.0, sparse.csr_matrix(np.array([row])), np.array([lower]), np.array([np.inf]), np.zeros(3),
        np.ones(3), np.ones(3, dtype=bool),
    )  # fmt: skip
    result = minimise(milp, time_limit=60, gap=0.0)
    assert result.status is MilpStatus.INFEASIBLE
    assert result.x is None


def test_a_start_solution_is_where_it_starts_and_a_wrong_one_is_ignored():
    milp = knapsack(150, 40)
    good = minimise(milp, time_limit=60, gap=0.2).x
    result = minimise(milp, time_limit=60, gap=1e9, starts=[np.ones(150), good])
    assert result.objective <= objective_of(milp, good) + 1e-6


def test_it_stops_when_told_and_keeps_what_it_has():
    milp = knapsack(300, 80)
    found = []
    result = minimise(
        milp,
        time_limit=10_000,
        gap=0.0,
        on_incumbent=lambda x, _: found.append(x),
        should_stop=lambda: len(found) > 1,
    )
    assert result.status is MilpStatus.FEASIBLE
    assert result.x is not None


def test_it_stops_before_it_began():
    result = minimise(knapsack(300, 80), time_limit=10_000, gap=0.0, should_stop=lambda: True)
    assert result.status in (MilpStatus.UNKNOWN, MilpStatus.FEASIBLE)


def test_a_time_limit_ends_it():
    began = time.monotonic()
    result = minimise(knapsack(300, 80), time_limit=0.5, gap=0.0)
    assert result.status in (MilpStatus.UNKNOWN, MilpStatus.FEASIBLE)
    assert time.monotonic() - began < 60


def test_an_exception_of_a_callback_reaches_the_caller_and_the_next_solve_works():
    class Odd(Exception):  # noqa: N818
        pass

    def fail(*_: object) -> None:
        raise Odd

    with pytest.raises(Odd):
        minimise(knapsack(300, 80), time_limit=10_000, gap=0.0, on_incumbent=fail)
    assert minimise(knapsack(10, 3), time_limit=60, gap=0.0).proven
