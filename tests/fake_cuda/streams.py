"""``python -m tests.fake_cuda tests.fake_cuda.streams``: scheduled steps on streams, devices and in threads, as JSON.

Each experiment compares gradients with those of the step on its own, to the bit, and lists what streams did to each
other without waiting: kernels on memory that another stream writes, or memory that is free while one still uses it.
"""

from __future__ import annotations

import copy
import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import explorer
from explorer.capture import capture
from explorer.rearranging import UPDATE
from tests.fake_cuda.cuda import machine
from tests.fake_cuda.failing import MODELS
from tests.schedules import random_schedule


class Experiment:
    """A scheduled step with everything at hand to run it in some way."""

    def __init__(self, name: str = "gpt", device: str = "cuda:0") -> None:
        torch.manual_seed(0)
        model, batch, loss = MODELS[name]()
        model, self.batch = model.to(device), tuple(x.to(device) for x in batch)
        graph = capture(model, self.batch, loss=loss).graph
        schedule = random_schedule(graph, 0, keep=0.6)
        self.module = explorer.apply(copy.deepcopy(model), schedule, self.batch, loss=loss, check=False)
        self.device = torch.device(device)
        self.expected = self.gradients()
        torch.cuda.synchronize()
        machine().hazards()

    def gradients(self, batch: Any = None, *, module: nn.Module | None = None) -> list[Any]:
        """Of a step; they are dropped by the module."""
        (self.module if module is None else module)(*(self.batch if batch is None else batch)).backward()
        found = [x.grad for x in self.module.parameters()]
        self.module.zero_grad(set_to_none=True)
        return found

    def wrong(self, found: list[Any]) -> list[str]:
        """What is not as on its own."""
        said = machine().hazards()
        if not all(map(torch.equal, found, self.expected)):
            said.append("other gradients")
        return said


@contextmanager
def beside() -> Iterator[torch.cuda.Stream]:
    """While open, work goes to another stream, which waits for the one before, as that does afterwards."""
    before, stream = torch.cuda.current_stream(), torch.cuda.Stream()
    stream.wait_stream(before)
    with torch.cuda.stream(stream):
        yield stream
    before.wait_stream(stream)


def a_side_stream() -> list[str]:
    """Both passes there."""
    experiment = Experiment()
    with beside():
        found = experiment.gradients()
    return experiment.wrong(found)


def forward_there_and_backward_here() -> list[str]:
    """Autograd runs each part of the backward pass where its forward pass ran."""
    experiment = Experiment("residual")
    with beside():
        loss = experiment.module(*experiment.batch)
    loss.backward()
    found = [x.grad for x in experiment.module.parameters()]
    return experiment.wrong(found)


def nobody_waits() -> list[str]:
    """A side stream that waits for nothing is noticed, so that what is not noticed means something."""
    experiment = Experiment()
    batch = tuple(x.clone() for x in experiment.batch)
    with torch.cuda.stream(torch.cuda.Stream()):
        experiment.gradients(batch)
    return [] if experiment.wrong(experiment.expected) else ["nothing was noticed"]


def batches_from_a_copying_stream() -> list[str]:
    """As loaders do: copied on a stream of its own, waited for, told to the allocator by ``record_stream``."""
    experiment = Experiment("residual")
    copying, main = torch.cuda.Stream(), torch.cuda.current_stream()
    found = []
    for _ in range(3):
        with torch.cuda.stream(copying):
            copying.wait_stream(main)
            batch = tuple(x.cpu().to(experiment.device, non_blocking=True) for x in experiment.batch)
        main.wait_stream(copying)
        for tensor in batch:
            tensor.record_stream(main)
        found = experiment.gradients(batch)
        del batch
    return experiment.wrong(found)


def gradients_leave_on_a_stream() -> list[str]:
    """As ``DistributedDataParallel`` with NCCL does: each gradient, when it is there, on a stream of its own."""
    experiment = Experiment()
    sending = torch.cuda.Stream()

    def send(parameter: torch.Tensor) -> None:
        sending.wait_stream(torch.cuda.current_stream())
        assert parameter.grad is not None
        with torch.cuda.stream(sending):
            parameter.grad.mul_(1.0)
        parameter.grad.record_stream(sending)

    hooks = [x.register_post_accumulate_grad_hook(send) for x in experiment.module.parameters()]
    experiment.module(*experiment.batch).backward()
    torch.cuda.current_stream().wait_stream(sending)
    found = [x.grad for x in experiment.module.parameters()]
    for hook in hooks:
        hook.remove()
    return experiment.wrong(found)


def distributed_data_parallel() -> list[str]:
    """PyTorch's own, with buckets that leave on a stream of their own, as with NCCL; the other process is not there."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    experiment = Experiment()
    sending = torch.cuda.Stream()
    buckets = []

    def send(_state, bucket):  # annotations would have to be types themselves
        sending.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(sending):
            bucket.buffer().mul_(1.0)
        buckets.append(bucket.index())
        torch.cuda.current_stream().wait_stream(sending)  # as the bucket's future does where there is one
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)
    try:
        wrapped = DistributedDataParallel(experiment.module, device_ids=[0], bucket_cap_mb=0.02)
        wrapped.register_comm_hook(None, send)
        # Its log wants times of the device, by a class that a build without CUDA has not.
        logger: Any = SimpleNamespace(set_runtime_stats_and_log=lambda: None, set_error_and_log=print)
        wrapped.logger = logger
        experiment.gradients(module=wrapped)  # the buckets are made anew after the first step
        found = experiment.gradients(module=wrapped)
    finally:
        dist.destroy_process_group()
    said = [] if len(set(buckets)) > 1 else ["there is one bucket"]
    return said + experiment.wrong(found)


def another_device_is_current() -> list[str]:
    """A module on ``cuda:1`` where ``cuda:0`` is the current one: all of it is there, and so is what is measured."""
    said = []
    experiment = Experiment("residual", "cuda:1")
    before = [torch.cuda.memory_allocated(x) for x in range(2)]
    torch.cuda.reset_peak_memory_stats(0)
    torch.cuda.reset_peak_memory_stats(1)
    found = experiment.gradients()
    if torch.cuda.max_memory_allocated(0) != before[0]:
        said.append(f"{torch.cuda.max_memory_allocated(0) - before[0]} bytes on the other device")
    if torch.cuda.max_memory_allocated(1) == before[1]:
        said.append("nothing on its own device")
    if torch.cuda.current_device() != 0:
        said.append("another device is the current one afterwards")
    measured = explorer.measure(experiment.module, experiment.batch)
    with torch.cuda.device(1):
        within = explorer.measure(experiment.module, experiment.batch)
    if measured.peak_bytes != within.peak_bytes:
        said.append(f"{measured.peak_bytes} bytes measured, and {within.peak_bytes} where it is the current one")
    return said + experiment.wrong(found)


def an_optimizer_on_another_device() -> list[str]:
    """Updates are measured where the model is: on ``cuda:1`` the same bytes, whichever is the current one."""

    def costs(device: str, current: int) -> dict[str, int]:
        torch.manual_seed(0)
        model, batch, loss = MODELS["gpt"]()
        with torch.cuda.device(current):
            batch = tuple(x.to(device) for x in batch)
            profile = explorer.profile(model.to(device), batch, loss=loss, optimizer="adamw-plain")
        return {key: x.workspace_bytes for key, x in profile.costs.items() if key.startswith(UPDATE)}

    here, there = costs("cuda:0", 0), costs("cuda:1", 0)
    said = [] if any(here.values()) else ["an update takes nothing"]
    return said + [f"{key}: {there.get(key)} bytes instead of {x}" for key, x in here.items() if x != there.get(key)]


def two_devices_in_two_threads() -> list[str]:
    """As where one process trains on two: threads of Python, and autograd's, one for each device."""
    experiments = [Experiment("residual", f"cuda:{x}") for x in range(2)]
    found: dict[int, list[list[Any]]] = {}

    def train(number: int) -> None:
        torch.cuda.set_device(number)
        found[number] = [experiments[number].gradients() for _ in range(5)]

    threads = [threading.Thread(target=train, args=(x,)) for x in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    said = [] if len(found) == 2 else ["a thread failed"]
    return said + [x for number, steps in found.items() for step in steps for x in experiments[number].wrong(step)]


EXPERIMENTS: tuple[Callable[[], list[str]], ...] = (
    a_side_stream,
    forward_there_and_backward_here,
    nobody_waits,
    batches_from_a_copying_stream,
    gradients_leave_on_a_stream,
    distributed_data_parallel,
    another_device_is_current,
    an_optimizer_on_another_device,
    two_devices_in_two_threads,
)


if __name__ == "__main__":
    asked = sys.argv[1:] or [x.__name__ for x in EXPERIMENTS]
    sys.stdout.write(json.dumps({x.__name__: x() for x in EXPERIMENTS if x.__name__ in asked}))
