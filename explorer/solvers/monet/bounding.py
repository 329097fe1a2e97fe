"""Bounds for every schedule within a budget; what they resemble are plans to search from.

Takes a second to import (cvxpy).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

import numpy as np

from explorer.solvers.formulation.bound import LINEAR_THRESHOLDS, integer_bound, linear_bound
from explorer.solvers.formulation.relaxation import Relaxation
from explorer.solvers.monet.blueprints import blueprint
from explorer.solvers.monet.knowledge import Knowledge


def bound_all(
    knowledge: Knowledge,
    budget_bytes: int,
    *,
    time_limit: float = 0.0,
    threshold: float | None = None,
    at_once: bool = False,
    ends: Collection[int] = frozenset(),
    on_blueprint: Callable[[np.ndarray], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> None:
    """Bound every schedule within the budget, or prove that there is none.

    Args:
        knowledge: learns the bound, or that there is no schedule.
        budget_bytes: peak allowed.
        time_limit: seconds for whole numbers.
        threshold: for intervals of this length (``integer_bound``); None: by linear relaxations.
        at_once: by the first of the linear relaxations alone.
        ends: where intervals end in any case, from ``bound.critical_ends``.
        on_blueprint: called with the genes of plans that what was solved resembles.
        should_stop: polled; true ends it with the best bound so far.
    """
    problem, take = knowledge.problem.for_bounds, partial(knowledge.note_bound, budget_bytes)

    def suggest(relaxation: Relaxation, x: np.ndarray) -> None:
        assert on_blueprint is not None
        on_blueprint(blueprint(relaxation, x, knowledge.search.arrays))

    on_values = None if on_blueprint is None else suggest
    if threshold is None:
        found_ms = linear_bound(
            problem,
            budget_bytes,
            thresholds=LINEAR_THRESHOLDS[:1] if at_once else LINEAR_THRESHOLDS,
            on_bound=take,
            on_values=on_values,
            should_stop=should_stop,
        )
    else:
        found_ms = integer_bound(
            problem,
            budget_bytes,
            threshold=threshold,
            time_limit=time_limit,
            ends=ends,
            on_bound=take,
            on_values=on_values,
            should_stop=should_stop,
        )
    if found_ms is None:
        knowledge.exclude(budget_bytes)
    else:
        take(found_ms)
