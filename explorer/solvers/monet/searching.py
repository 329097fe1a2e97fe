"""The thread that searches plans: longer and longer, also from what integer programs find; others are bred between."""

from __future__ import annotations

from explorer.solvers.monet.breeding import Breeder
from explorer.solvers.monet.solve import Solve


def search_plans(solve: Solve, breeder: Breeder) -> None:
    """Search until the solve is over, or searches find nothing more and integer programs have ended.

    Args:
        solve: learns what is found.
        breeder: of the same solve; breeds in a share of the time.
    """
    strategy, knowledge, budget_bytes = solve.options.strategy, solve.knowledge, solve.budget_bytes
    sizes = strategy.searching
    idle, owed = 0, -sizes.breeding * sizes.first
    for search in strategy.searches(solve.options.seed):
        if solve.over() or (solve.exhausted.is_set() and idle >= sizes.patience):
            return
        known_ms = solve.best_ms
        knowledge.search.improve(
            budget_bytes,
            effort=search.effort,
            starts=search.starts,
            seed=search.seed,
            echoes=search.echoes,
            stop=solve.stop,
        )
        if knowledge.frontier.best(budget_bytes) is None:
            knowledge.seek_minimum(timeout=0.0)  # while there is time: the answer names it
        idle = 0 if solve.best_ms < known_ms else idle + 1
        owed += sizes.breeding * search.effort
        while owed > 0 and not solve.over() and not breeder.idle():
            owed -= breeder.breed()
