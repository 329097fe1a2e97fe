"""The worked example of docs/implementations.md does what the page says."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import explorer
from explorer.operators import registry
from explorer.schedule import Run, with_frees

PAGE = Path(__file__).parents[2] / "docs" / "implementations.md"


@pytest.fixture
def example(tmp_path: Path) -> Iterator[None]:
    found = re.search(
        r"<!-- example: begin -->\n```python\n(.*?)```\n<!-- example: end -->", PAGE.read_text(), re.DOTALL
    )
    assert found is not None
    path = tmp_path / "softplus_example.py"
    path.write_text(found[1])
    before = {target: list(rules) for target, rules in registry._RULES.items()}
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    yield
    registry._RULES.clear()
    registry._RULES.update(before)


@pytest.mark.usefixtures("example")
def test_the_example_is_captured_measured_and_run() -> None:
    torch.manual_seed(0)
    model, batch = nn.Sequential(nn.Linear(6, 8), nn.Softplus(), nn.Linear(8, 1)).train(), torch.randn(16, 6)
    profile = explorer.profile(model, batch)
    graph = profile.graph
    backward = next(x for x in graph.backward if x.name == "softplus_backward")
    assert [x.name for x in backward.implementations] == ["aten", "from slope"]
    maker = next(x for x in graph.forward if x.optional)
    assert graph.storages[maker.default().writes[0]].bytes == 16 * 8
    names = {backward.id: "from slope"}
    kept = (x for x in graph.operators if not x.optional or x is maker)
    runs = [Run(x.id, names.get(x.id, x.default().name)) for x in kept]
    schedule = with_frees(graph, runs, method="test", budget_bytes=None)
    scheduled = explorer.apply(model, schedule, batch)
    scheduled(batch).sum().backward()
    found = [x.grad.clone() for x in model.parameters()]
    model.zero_grad()
    model(batch).sum().backward()
    for gradient, parameter in zip(found, model.parameters(), strict=True):
        torch.testing.assert_close(gradient, parameter.grad, rtol=0.01, atol=0.02)
    assert explorer.simulate(profile, schedule).peak_bytes == explorer.measure(scheduled, batch, steps=1).peak_bytes
