"""Solvers: from a profile and a budget to a schedule, with what is proven about it.

Names load on first use: a notebook that solves through ``SolveSession`` imports no solver itself.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from explorer.extras import needing

if TYPE_CHECKING:
    from explorer.solvers.curves import trade_off_in_steps
    from explorer.solvers.methods.batch_size import largest_batch
    from explorer.solvers.placing.placing import place
    from explorer.solvers.sequences import largest_sequence
    from explorer.solvers.service.in_orders import SessionInOrders
    from explorer.solvers.service.memory import shipped_solutions
    from explorer.solvers.service.messages import SolveEvent
    from explorer.solvers.service.session import SolveSession
    from explorer.solvers.solving import smallest_budget, solve, trade_off

_HOMES = {
    "SessionInOrders": "service.in_orders",
    "SolveEvent": "service.messages",
    "SolveSession": "service.session",
    "largest_batch": "methods.batch_size",
    "largest_sequence": "sequences",
    "place": "placing.placing",
    "shipped_solutions": "service.memory",
    "smallest_budget": "solving",
    "solve": "solving",
    "trade_off": "solving",
    "trade_off_in_steps": "curves",
}
__all__ = [
    "SessionInOrders",
    "SolveEvent",
    "SolveSession",
    "largest_batch",
    "largest_sequence",
    "place",
    "shipped_solutions",
    "smallest_budget",
    "solve",
    "trade_off",
    "trade_off_in_steps",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its home."""
    if name not in _HOMES:
        raise AttributeError(f"module 'explorer.solvers' has no attribute {name!r}")
    with needing(name):
        return getattr(import_module(f"explorer.solvers.{_HOMES[name]}"), name)
