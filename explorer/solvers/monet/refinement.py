"""Improve and prove an answer: plan search on one core, integer programs and bounds in turn on another."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait

from explorer.solution import Solution
from explorer.solvers.monet.breeding import Breeder
from explorer.solvers.monet.knowledge import Knowledge
from explorer.solvers.monet.proving import Prover
from explorer.solvers.monet.searching import search_plans
from explorer.solvers.monet.solve import Solve
from explorer.solvers.monet.wording import solution_of
from explorer.solvers.options import Options

_NEWS_S = 0.25  # bounds are passed on at most this often
_POLL_S = 0.05
_GRACE_S = 0.1  # for a search to end once it is told to: it nearly always takes less
_SHRINK_S = 0.4  # more than a search for the smallest peak takes


def refine(
    knowledge: Knowledge,
    budget_bytes: int,
    options: Options,
    *,
    on_solution: Callable[[Solution], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> Solution:
    """Improve on what is known for a budget.

    Args:
        knowledge: what is known already; learns every schedule and bound found.
        budget_bytes: peak allowed.
        options: formulation, time limit and gap.
        on_solution: called with each better schedule or bound, in the caller's thread.
        should_stop: polled, also from the thread that bounds; true ends the solve.
    """
    solve = Solve(knowledge, budget_bytes, options, should_stop=should_stop)
    if not solve.over():
        _work(solve, _Teller(solve, on_solution))
    if knowledge.frontier.best(budget_bytes) is None and not solve.stopped and solve.left_s > _SHRINK_S:
        knowledge.seek_minimum(timeout=solve.left_s - _SHRINK_S)
    return solution_of(knowledge, solve.progress, gap=options.gap, stopped=solve.stopped)


def _work(solve: Solve, teller: _Teller) -> None:
    """Search and prove beside each other until the solve is over."""
    breeder = Breeder(solve)
    pool = ThreadPoolExecutor(1, "search")
    searching = pool.submit(search_plans, solve, breeder)
    pool.shutdown(wait=False)
    proving = solve.knowledge.start_proof(Prover(solve, breeder).prove)
    try:
        while not solve.over() and (running := [x for x in (searching, proving) if not x.done()]):
            wait(running, _POLL_S)
            teller.tell()
    finally:
        solve.end()
    wait([searching], _GRACE_S)
    # What stops late, while the kernel is compiled say, does so alone; the next proof waits for it.
    for task in (searching, proving):
        if not task.cancel() and task.done():
            task.result()
    teller.tell()


class _Teller:
    """Passes on a better schedule at once, a better bound now and then."""

    def __init__(self, solve: Solve, on_solution: Callable[[Solution], None] | None) -> None:
        self._solve, self._on_solution = solve, on_solution
        self._told_at, self._told = 0.0, (float("inf"), 0.0, 0.0)

    def tell(self) -> None:
        solve = self._solve
        if self._on_solution is None or solve.best_ms == float("inf"):
            return
        known = (solve.best_ms, solve.knowledge.bound_ms(solve.budget_bytes), solve.progress.grouping_ms or 0.0)
        soon = time.monotonic() - self._told_at < _NEWS_S
        if known == self._told or (soon and known[0] >= self._told[0]):
            return
        self._told_at, self._told = time.monotonic(), known
        self._on_solution(solution_of(solve.knowledge, solve.progress, gap=solve.options.gap))
