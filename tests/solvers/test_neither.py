"""Two answers without a schedule are one: infeasible only if both are."""

from __future__ import annotations

import pytest

from explorer.solution import Minimum, Solution, Status
from explorer.solvers.neither import neither


def answer(status: Status, least: int, bound: int, *, message: str = "said") -> Solution:
    return Solution(status, 90, minimum=Minimum(least, bound, "op", ""), message=message)


@pytest.mark.parametrize("turned", [False, True])
def test_infeasible_is_what_is_so_either_way(*, turned: bool) -> None:
    excluded, not_found = answer(Status.INFEASIBLE, 100, 100), answer(Status.UNKNOWN, 120, 80)
    found = neither(not_found, excluded) if turned else neither(excluded, not_found)
    assert found.status is Status.UNKNOWN
    assert found.minimum == Minimum(100, 80, "op", "")
    assert found.message == (
        "no schedule for 90 B found; the smallest feasible budget known is 100 B (100 bytes), set by 'op'; "
        "proven is only that none fits below 80 B"
    )
    both = neither(answer(Status.INFEASIBLE, 110, 95), excluded)
    assert (both.status, both.minimum) == (Status.INFEASIBLE, Minimum(100, 95, "op", ""))


def test_what_died_or_says_nothing_of_its_smallest_budget_excludes_nothing() -> None:
    excluded = answer(Status.INFEASIBLE, 100, 100)
    died = neither(excluded, Solution(Status.FAILED, 90, message="the solver died"))
    assert (died.status, died.message, died.minimum) == (Status.FAILED, "the solver died", Minimum(100, 0, "op", ""))
    silent = Solution(Status.UNKNOWN, 90, message="too large then")
    assert neither(silent, Solution(Status.INFEASIBLE, 90)) is silent


def test_a_way_that_a_method_is_not_for_says_nothing_of_the_other() -> None:
    excluded, unsuited = answer(Status.INFEASIBLE, 100, 100), Solution(Status.UNSUITED, 90, message="no chain")
    assert neither(excluded, unsuited) is excluded
    assert neither(unsuited, excluded) is excluded
    assert neither(unsuited, unsuited).status is Status.UNSUITED
