"""Batches as loaders give them: smaller last ones, and several lengths."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

import explorer
from explorer.capture import capture
from explorer.schedule import Schedule


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(x for _ in range(6) for x in (nn.Linear(16, 16), nn.Tanh())), nn.Linear(16, 3)).train()


def batch(rows: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 16, generator=generator), torch.randint(3, (rows,), generator=generator)


def schedule_for(rows: int, *, least: bool = False) -> Schedule:
    graph = capture(network(), batch(rows), loss=functional.cross_entropy).graph
    if not least:
        return explorer.keep_all(graph)
    profile = explorer.profile(network(), batch(rows), loss=functional.cross_entropy)
    found = explorer.smallest_budget(profile, time_limit=2.0)
    assert found.schedule is not None
    return found.schedule


def test_a_smaller_last_batch_runs_as_in_plain_pytorch() -> None:
    eager, model = network(), network()
    module = explorer.apply(model, schedule_for(64), batch(64), loss=functional.cross_entropy, other_batches="plain")
    for number, rows in enumerate((64, 64, 17, 64, 17)):
        x, y = batch(rows, number)
        for loss in (functional.cross_entropy(eager(x), y), module(x, y)):
            loss.backward()
        for step in (eager, module):
            torch.optim.SGD(step.parameters(), lr=0.1).step()
            step.zero_grad()
    assert all(map(torch.equal, eager.parameters(), module.parameters()))


def test_one_that_takes_more_is_refused_and_trains_by_a_schedule_of_its_own() -> None:
    """Nearly as many rows, kept, take more than all rows by a schedule that recomputes."""
    least = schedule_for(256, least=True)
    module = explorer.apply(network(), least, batch(256), loss=functional.cross_entropy, other_batches="plain")
    module(*batch(8)).backward()
    with pytest.raises(
        ValueError, match=r"batch\[0\] float32\[250, 16\].*without scratch memory, more than .*drop_last"
    ):
        module(*batch(250))
    explorer.add_schedule(module, schedule_for(250, least=True), batch(250))
    eager = copy.deepcopy(module)
    for rows in (250, 256):
        for step in (module, eager):
            step.zero_grad()
            step(*batch(rows)).backward()
        assert all(torch.equal(x.grad, y.grad) for x, y in zip(module.parameters(), eager.parameters(), strict=True))


def test_several_lengths_have_a_schedule_each() -> None:
    eager, model = network(), network()
    module = explorer.apply(model, schedule_for(64), batch(64), loss=functional.cross_entropy)
    for rows in (32, 96):
        explorer.add_schedule(module, schedule_for(rows), batch(rows))
    for number, rows in enumerate((64, 32, 96, 32, 64)):
        x, y = batch(rows, number)
        functional.cross_entropy(eager(x), y).backward()
        module(x, y).backward()
        for step in (eager, module):
            torch.optim.SGD(step.parameters(), lr=0.1).step()
            step.zero_grad()
    assert all(map(torch.equal, eager.parameters(), module.parameters()))
    with pytest.raises(ValueError, match=r"none of this module's 3 schedules.*explorer.add_schedule"):
        module(*batch(10))
    with pytest.raises(ValueError, match="has a schedule for batches of this shape already"):
        explorer.add_schedule(module, schedule_for(32), batch(32))


def test_each_is_measured_as_predicted() -> None:
    model = network()
    profiles = {x: explorer.profile(model, batch(x), loss=functional.cross_entropy) for x in (64, 32)}
    schedules = {x: explorer.keep_all(profile.graph) for x, profile in profiles.items()}
    module = explorer.apply(model, schedules[64], batch(64), loss=functional.cross_entropy)
    explorer.add_schedule(module, schedules[32], batch(32))
    for rows, profile in profiles.items():
        predicted = explorer.simulate(profile, schedules[rows])
        assert explorer.measure(module, batch(rows), steps=1).peak_bytes == predicted.peak_bytes
        runs = explorer.measure_runs(module, batch(rows))
        assert [x.peak_bytes for x in runs] == predicted.total_bytes.tolist()


def test_a_schedule_for_another_iteration_or_model_is_refused() -> None:
    module = explorer.apply(network(), schedule_for(64), batch(64), loss=functional.cross_entropy)
    profile = explorer.profile(network(), batch(32), loss=functional.cross_entropy, accumulate=True)
    with pytest.raises(ValueError, match="another iteration than the module: accumulating"):
        explorer.add_schedule(module, explorer.keep_all(profile.graph), batch(32))
    with pytest.raises(ValueError, match="the batch differs"):
        explorer.add_schedule(module, schedule_for(32), batch(31))
