"""Steps in one buffer: eager mode's bits, nothing beside the plan; and whatever is not as planned does no harm."""

from __future__ import annotations

import copy
import shutil
import threading
import warnings
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import explorer
from explorer.execution.measuring import buffer_of, step_time_ms
from explorer.schedule import keep_all

pytestmark = pytest.mark.skipif(
    shutil.which("c++") is None or shutil.which("ninja") is None, reason="the allocator is compiled at its first use"
)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.last = nn.Linear(8 * 8 * 8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm(self.first(x)))
        y = F.max_pool2d(F.relu(self.second(y)), 2)
        return self.last(y.flatten(1))


def made():
    """A module in one buffer, its model, another one with the same numbers, and their batch."""
    torch.manual_seed(0)
    model, other = Net(), Net()
    other.load_state_dict(model.state_dict())
    batch = (torch.randn(4, 3, 16, 16), torch.randint(10, (4,)))
    graph = explorer.profile(model, batch, loss=F.cross_entropy).graph
    module = explorer.apply(model, keep_all(graph), batch, loss=F.cross_entropy, buffer=True)
    return module, other, batch


@pytest.fixture
def pair():
    """Made anew for each test."""
    return made()


def step(module: nn.Module, batch) -> torch.Tensor:
    module.zero_grad()
    loss = module(*batch)
    loss.backward()
    return loss.detach()


def eager(model: nn.Module, batch) -> torch.Tensor:
    model.zero_grad()
    loss = F.cross_entropy(model(batch[0]), batch[1])
    loss.backward()
    return loss.detach()


def assert_same(module: nn.Module, other: nn.Module) -> None:
    for (name, mine), theirs in zip(module.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(mine.grad, theirs.grad), name


def test_steps_have_eager_modes_bits_and_nothing_beside_the_plan(pair):
    module, other, batch = pair
    for _ in range(5):
        assert torch.equal(step(module, batch), eager(other, batch))
        assert_same(module, other)
    use = buffer_of(module).use
    assert use.misses == 0 and use.served > 20
    assert use.buffer_bytes == use.load_bytes and use.fragmentation == 0


@pytest.mark.parametrize("dropped", ["before", "between", "some", "never"])
def test_microbatches_run_in_it_whether_they_make_gradients_or_add_to_them(dropped: str) -> None:
    """Whenever gradients are dropped: trainers do between the passes, and one may be forgotten."""
    torch.manual_seed(0)
    model, other = Net(), Net()
    other.load_state_dict(model.state_dict())
    batch = (torch.randn(4, 3, 16, 16), torch.randint(10, (4,)))
    profile = explorer.profile(model, batch, loss=F.cross_entropy, accumulate=True)
    schedule = keep_all(profile.graph)
    module = explorer.apply(model, schedule, batch, loss=F.cross_entropy, buffer=True)

    def drop(x: nn.Module) -> None:
        for name, parameter in x.named_parameters():
            if dropped != "never" and not (dropped == "some" and name.startswith("last")):
                parameter.grad = None

    def microbatch(x: nn.Module, run: Callable[[], torch.Tensor], *, first: bool) -> None:
        if first and dropped != "between":
            drop(x)
        loss = run()
        if first and dropped == "between":
            drop(x)
        loss.backward()

    misses = []
    for _ in range(3):
        for number in range(3):
            microbatch(module, lambda: module(*batch), first=number == 0)
            use = buffer_of(module).use
            misses.append(0 if use is None else use.misses)
            microbatch(other, lambda: F.cross_entropy(other(batch[0]), batch[1]), first=number == 0)
            assert_same(module, other)
        module(*batch).item()  # for a log, and dropped
    assert misses == [0] * 9
    assert use.served > 10
    measured = explorer.measure(module, batch, accumulate=True)
    beside_bytes = 2 * sum(x.nbytes for x in model.last.parameters())  # whose gradients come at the peak
    assert measured.peak_bytes <= explorer.simulate(profile, schedule).peak_bytes + beside_bytes
    assert measured.buffer.misses == 0


def test_a_step_that_is_held_or_dropped_takes_no_place_from_later_ones(pair):
    module, other, batch = pair
    for _ in range(4):
        step(module, batch)
    served = buffer_of(module).use.served
    module.zero_grad()
    held = module(*batch)  # as a traceback holds what failed
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        step(module, batch)
    assert buffer_of(module).use.misses > 0
    del held
    for _ in range(2):
        step(module, batch)
        eager(other, batch)
        assert (buffer_of(module).use.served, buffer_of(module).use.misses) == (served, 0)


def test_gradients_outlive_the_steps_after_theirs(pair):
    module, other, batch = pair
    for _ in range(3):
        step(module, batch)
        eager(other, batch)
    kept = [x.grad for x in module.parameters()]
    copies = [x.clone() for x in kept]
    for _ in range(2):
        step(module, (2 * batch[0], batch[1]))
    assert all(map(torch.equal, kept, copies))
    assert not torch.equal(kept[0], module.first.weight.grad)


def test_what_is_not_as_planned_is_counted_and_changes_nothing(pair):
    module, other, batch = pair
    for _ in range(3):
        step(module, batch)
        eager(other, batch)
    module.zero_grad()
    loss = module(*batch)
    kept = torch.full((1000,), 7.0)
    with pytest.warns(UserWarning, match="allocations of a step were not as planned"):
        loss.backward()
    assert_same(module, other)
    assert 0 < buffer_of(module).use.misses <= 2  # itself, and what it may lie in the way of
    for _ in range(2):
        step(module, batch)
        eager(other, batch)
    assert_same(module, other)
    assert (kept == 7).all()
    assert buffer_of(module).use.misses == 0


def test_what_is_alive_longer_than_planned_is_not_overwritten(pair):
    module, _, batch = pair
    for _ in range(3):
        module.zero_grad()
        loss = module(*batch)
        scratch = torch.zeros(3000)  # planned: gone before the backward pass
        del scratch
        loss.backward()
    module.zero_grad()
    loss = module(*batch)
    scratch = torch.full((3000,), 3.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loss.backward()
        for _ in range(2):
            step(module, batch)
    assert (scratch == 3).all()


def test_other_threads_are_not_served_and_not_disturbed(pair):
    module, other, batch = pair
    stop = threading.Event()
    wrong: list[int] = []

    def work() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            mine = [torch.full((256 + 64 * n,), float(number)) for n in range(8)]
            wrong.extend(number for x in mine if not bool((x == number).all()))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(10):
            assert torch.equal(step(module, batch), eager(other, batch))
            assert_same(module, other)
    finally:
        stop.set()
        thread.join()
    assert not wrong
    assert buffer_of(module).use.misses == 0


def test_measure_counts_the_buffer(pair):
    module, _, batch = pair
    measured = explorer.measure(module, batch, steps=1)
    assert measured.buffer is not None and measured.buffer.misses == 0
    assert measured.peak_bytes >= measured.buffer.buffer_bytes
    assert "0 allocations beside it" in repr(measured)
    assert explorer.measure(Net(), batch, loss=F.cross_entropy, steps=1).buffer is None


def test_a_copy_has_a_buffer_of_its_own(pair):
    module, other, batch = pair
    copied = copy.deepcopy(module)
    for _ in range(3):
        step(module, batch)
        step(copied, batch)
        eager(other, batch)
    assert_same(copied, other)
    assert buffer_of(copied) is not buffer_of(module)
    assert buffer_of(copied).use.misses == 0


def test_steps_that_overlap_run_in_plain_memory_and_later_ones_as_planned(pair):
    module, other, batch = pair
    for _ in range(3):
        step(module, batch)
    module.zero_grad()
    first, _unused, second = module(*batch), module(*batch), module(*batch)
    with pytest.warns(UserWarning, match="another step began before"):
        first.backward()
    eager(other, batch)
    assert_same(module, other)
    module.zero_grad()
    second.backward()
    step(module, batch)
    assert_same(module, other)
    assert buffer_of(module).use.misses == 0


def test_a_step_without_its_backward_pass_ends_with_its_result(pair):
    module, _, batch = pair
    for _ in range(3):
        step(module, batch)
    module.zero_grad()
    loss = module(*batch)
    del loss
    served = buffer_of(module)._arena.served
    outside = [torch.zeros(4, 8, 16, 16) for _ in range(8)]
    assert buffer_of(module)._arena.served == served
    del outside


def test_a_batch_of_another_schedule_does_not_wait_for_the_buffer(pair):
    module, _, batch = pair
    half = tuple(x[:2] for x in batch)
    graph = explorer.profile(module.model_class(), half, loss=F.cross_entropy).graph
    explorer.add_schedule(module, keep_all(graph), half)
    assert explorer.measure(module, half, steps=1).buffer is None
    assert explorer.measure(module, batch, steps=1).buffer is not None


def test_the_buffer_may_go_while_something_lies_in_it(pair):
    module, _, batch = pair
    for _ in range(2):
        module.zero_grad()
        loss = module(*batch)
        inside = torch.zeros(64)
        del inside
        loss.backward()
    module.zero_grad()
    loss = module(*batch)
    inside = torch.full((64,), 5.0)
    del module, loss, pair
    assert (inside == 5).all()


def test_without_a_compiler_it_says_so(monkeypatch, pair):
    _, other, batch = pair
    graph = explorer.profile(other, batch, loss=F.cross_entropy).graph
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(ValueError, match="needs a C\\+\\+ compiler, and there is no 'no-such-compiler' here"):
        explorer.apply(other, keep_all(graph), batch, loss=F.cross_entropy, buffer=True)


class WithLogits(nn.Module):
    """As language models return: the loss, and what it is of, which only some loops hold."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(16, 16), nn.Linear(16, 400)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.last(F.relu(self.first(x)))
        return {"loss": F.cross_entropy(logits, target), "logits": logits}


@pytest.mark.parametrize("holding", [True, False])
def test_a_measured_step_holds_results_as_long_as_those_did_that_the_buffer_is_placed_for(holding):
    torch.manual_seed(0)
    batch = {"x": torch.randn(64, 16), "target": torch.randint(400, (64,))}
    profile = explorer.profile(model := WithLogits(), batch)
    module = explorer.apply(model, keep_all(profile.graph), batch, buffer=True)
    for _ in range(5):
        result = module(**batch)
        loss = result["loss"]
        if not holding:
            del result
        loss.backward()
        module.zero_grad()
    use = buffer_of(module).use
    assert use.misses == 0
    with warnings.catch_warnings(action="error"):
        measured = explorer.measure(module, batch, steps=2)
        explorer.measure_runs(module, batch)
        step_time_ms(module, batch)
    assert buffer_of(module).use == measured.buffer
    assert (measured.buffer.buffer_bytes, measured.buffer.misses) == (use.buffer_bytes, 0)
    logits_bytes = 4 * 64 * 400
    fixed_bytes = profile.fixed_bytes + use.buffer_bytes
    assert (measured.peak_bytes - fixed_bytes >= logits_bytes) == holding
