"""Quicker implementations that the best plan has no room for: room is made for one of them, at once.

A convolution's quickest algorithm may need gigabytes. Less room than that is of no use, so that nothing leads a search
step by step from a plan without it to one with it. Where its slower rivals are said to need as much, every byte of room
that is made counts.
"""

from __future__ import annotations

import numpy as np

from explorer.schedule import Schedule
from explorer.solvers.problem.problem import Problem
from explorer.solvers.problem.schedules import reading_of
from explorer.solvers.search.arrays import PlanArrays
from explorer.solvers.search.from_schedule import sited

_MORE = 0.4  # how often there is one more demand


def demand(problem: Problem, arrays: PlanArrays, schedule: Schedule, *, seed: int) -> np.ndarray | None:
    """Demand quicker options of one form or of a few; the likelier, the more time they would save.

    Args:
        problem: of the arrays.
        arrays: the same, flat.
        schedule: whose options are looked at.
        seed: of the choice.

    Returns:
        int64, like ``arrays.option_extra``: slower options of the chosen forms need as much as the demanded one. None
        where every run of the schedule has its quickest option, or the schedule is none of the problem's.
    """
    lost_ms: dict[int, float] = {}
    slowest: dict[int, int] = {}
    reading = reading_of(problem, schedule)
    for site, choice in () if reading is None else sited(arrays, reading):
        form, option = int(arrays.form_start[site]) + choice.form, choice.option
        first = arrays.option_start[form]
        if option:
            lost = float(arrays.option_ms[first + option] - arrays.option_ms[first])
            lost_ms[form] = lost_ms.get(form, 0.0) + lost
            slowest[form] = max(option, slowest.get(form, 0))
    if not sum(lost_ms.values()):
        return None
    random = np.random.default_rng(seed)
    forms, weights = np.array(list(lost_ms)), np.array(list(lost_ms.values()))
    wanted = min(int(random.geometric(1 - _MORE)), np.count_nonzero(weights))
    extra = arrays.option_extra.copy()
    for form in random.choice(forms, wanted, replace=False, p=weights / weights.sum()).tolist():
        first, end = arrays.option_start[form], arrays.option_start[form + 1]
        target = first + random.integers(slowest[form])
        extra[target:end] = np.maximum(extra[target:end], extra[target])
    return extra
