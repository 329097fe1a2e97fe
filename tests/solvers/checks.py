"""What holds for the programs of every problem, with a choice of implementations or without."""

from __future__ import annotations

import numpy as np
import pytest

from explorer.simulation import simulate
from explorer.solvers.formulation import bound, grouped, relaxation
from explorer.solvers.formulation.merge import merge, relax
from explorer.solvers.problem.problem import Problem
from tests.solvers.exhaustive import fastest
from tests.solvers.minimising import minimum, objective_of
from tests.solvers.unmerged import unmerged


def check_optimum(problem: Problem, budget_bytes: int) -> None:
    """Ungrouped and unmerged, the grouped program's optimum is that of an exhaustive search over sweeps."""
    model = grouped.build(unmerged(problem), budget_bytes, threshold=0)
    found, best = minimum(model.milp), fastest(problem, budget_bytes, sweeps=True)
    assert (found is None) == (best is None)
    if found is None or best is None:
        return
    assert found[0] == pytest.approx(best.time_ms)
    line = simulate(problem.profile, best.schedule)
    assert line.peak_bytes <= budget_bytes
    assert line.time_ms == pytest.approx(best.time_ms)
    encoded = model.encode(best.schedule)
    assert encoded is not None
    assert objective_of(model.milp, encoded) == pytest.approx(best.time_ms)


def check_solution(problem: Problem, budget_bytes: int, *, threshold: float, pinned_share: float) -> None:
    """A solution of the grouped program is a schedule no slower and no larger, which is a solution again."""
    model = grouped.build(merge(problem, pinned_share=pinned_share), budget_bytes, threshold=threshold)
    found = minimum(model.milp)
    if found is None:
        return
    schedule = model.decode(found[1])
    line = simulate(problem.profile, schedule)
    assert line.peak_bytes <= budget_bytes
    assert line.time_ms <= found[0] + 1e-9
    encoded = model.encode(schedule)
    assert encoded is not None
    assert np.isin(encoded[model.milp.integer], (0.0, 1.0)).all()
    assert objective_of(model.milp, encoded) <= found[0] + 1e-9


def check_relaxation(problem: Problem, budget_bytes: int, *, threshold: float, pinned_share: float) -> None:
    """No schedule of any kind beats the optimum of a relaxation."""
    best = fastest(problem, budget_bytes, sweeps=False)
    if best is not None:
        merged = relax(problem, pinned_share=pinned_share)
        for ends in ((), range(1, len(problem.backward), 3)):
            found = minimum(relaxation.build(merged, budget_bytes, threshold=threshold, ends=ends).milp)
            assert found is not None
            assert found[0] <= best.time_ms + 1e-6


def lower_bound(problem: Problem, budget_bytes: int, *, time_limit: float) -> float | None:
    """The best of all bounds: linear relaxations, then whole numbers; None where nothing fits."""
    found = [bound.linear_bound(problem, budget_bytes)]
    for threshold in (0.5, 0.3):
        if found[-1] is not None:
            found.append(bound.integer_bound(problem, budget_bytes, threshold=threshold, time_limit=time_limit / 2))
    if found[-1] is None:
        return None
    return max(problem.base_time_ms, *(x for x in found if x is not None))


def check_bound(problem: Problem, budget_bytes: int) -> None:
    """No schedule of any kind beats the bound, which is no less than the time without recomputation."""
    best = fastest(problem, budget_bytes, sweeps=False)
    found = lower_bound(problem, budget_bytes, time_limit=5.0)
    if best is not None:
        assert found is not None
        assert problem.base_time_ms <= found <= best.time_ms + 1e-6
