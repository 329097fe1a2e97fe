"""Which answers are drawn at once."""

from __future__ import annotations

import threading

from explorer.solution import Solution, Status
from explorer.solvers import SolveEvent
from widgets.jobs.solver import Solver


def test_what_comes_while_a_first_answer_is_drawn_waits_its_turn_unless_it_is_the_last() -> None:
    entered, go_on = threading.Event(), threading.Event()

    def draw(_: SolveEvent) -> None:
        entered.set()
        go_on.wait(10)

    def receive(request: int, *, final: bool = False) -> bool:
        solver._receive(SolveEvent(request, Solution(Status.FEASIBLE, 1024), final))
        return solver._events._urgent

    solver = Solver(draw)
    solver._request = 1
    receive(1)
    assert entered.wait(10)
    assert not receive(1)
    solver._request = 2
    assert receive(2)
    solver._events._urgent = False
    solver._passed = 2
    assert receive(2, final=True)
    go_on.set()
    solver.close()
