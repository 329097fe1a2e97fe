"""Schedules that recompute anywhere, forward operators in the forward pass and gradients too, run as predicted."""

from __future__ import annotations

import pytest

import explorer
from explorer.graph import Phase
from explorer.solvers.methods.baselines.forward_graph import articulation_points
from explorer.solvers.methods.baselines.segments import every_root, segmented
from explorer.solvers.methods.checkmate.nodes import Nodes
from explorer.solvers.methods.checkmate.recomputing import recompute
from tests.execution.models import SAMPLES, applied
from tests.execution.test_exactness import assert_trained_alike


@pytest.mark.parametrize("name", SAMPLES)
def test_any_recomputation_is_exact_and_predicted(name: str) -> None:
    model, batch, loss = SAMPLES[name]()
    profile = explorer.profile(model, batch, loss=loss)
    nodes = Nodes.of(profile)
    graph = profile.graph
    orders = [
        recompute(nodes, lambda _stage, _storage: False),
        recompute(nodes, lambda stage, storage: (stage + storage) % 3 > 0),
        segmented(nodes, every_root(articulation_points(nodes))),
    ]
    for number, order in enumerate(orders):
        schedule = nodes.schedule(order, method="test", budget_bytes=None)
        again = {graph.operators[x].phase for x in schedule.recomputed(graph)}
        assert number or again == {Phase.FORWARD, Phase.BACKWARD}
        assert_trained_alike(applied(SAMPLES[name], schedule), SAMPLES[name](), steps=2)
        predicted = explorer.simulate(profile, schedule).peak_bytes
        scheduled = applied(SAMPLES[name], schedule, model)
        measured = explorer.measure(scheduled, batch, steps=1).peak_bytes
        assert abs(predicted - measured) <= 0.01 * measured, (number, predicted, measured)
