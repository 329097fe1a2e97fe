"""Other orders of operators, as a control of the explorer."""

from __future__ import annotations

import pytest

import explorer
from tests.solvers.ordering.updated import updated
from tests.widgets.test_explorer import threads, workers
from widgets.panels.solver import SolverPanel


@pytest.mark.timeout(300)
def test_other_orders_are_chosen_shown_and_left_again() -> None:
    profile = updated("vgg16-a100-80gb", workspace=False)
    others, other_workers = threads(), workers()
    with explorer.explore(profile, budget="60 %", time_limit=2, order=True) as explored:
        panel = explored._view.panels["solver"]
        assert isinstance(panel, SolverPanel)
        explored.wait()
        assert panel.order.value
        assert explored.schedule is not None
        assert explored.schedule.moved(profile.graph)
        assert "in its order" in explored.message
        curve = explored._display.present.known.instant
        assert any(x.schedule.moved(profile.graph) for x in curve)
        panel.order.value = False
        explored.wait()
        assert not explored.choice.order
        assert explored.schedule is not None
        assert not explored.schedule.moved(profile.graph)
        assert len(workers() - other_workers) == 1
        explored.configure(order=True)
        explored.wait()
        assert panel.order.value
        assert explored.schedule.moved(profile.graph)
        with pytest.raises(ValueError, match="order is 'best'; it must be True or False"):
            explored.configure(order="best")
    assert threads() <= others
    assert workers() <= other_workers  # of which some may have ended since
