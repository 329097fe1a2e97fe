"""Memory of every single run of an operator in a scheduled step, measured."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import torch

from explorer.capture import Batch
from explorer.capture.batch import call_arguments
from explorer.execution.code import generate
from explorer.execution.device import device_of, on_device
from explorer.execution.iterating import Iterating
from explorer.execution.measuring import buffer_of
from explorer.execution.memory import watch_cpu_memory
from explorer.execution.optimizers import OptimizerLike
from explorer.execution.other_batches import plan_for
from explorer.execution.scheduled import ScheduledModule, following
from explorer.execution.steps import persistent_bytes, placed_for, step_of, unchanged
from explorer.measurement import RunMeasurement
from explorer.torch_arguments import a_batch, a_module
from explorer.torch_private import forget_cublas_workspaces
from explorer.units import shown

_MARK = "explorer run "


def measure_runs(
    module: ScheduledModule, batch: Batch, *, optimizer: OptimizerLike | None = None
) -> tuple[RunMeasurement, ...]:
    """The highest allocated memory during each run of an operator, in the schedule's order; the module stays as it is.

    The step that is watched waits for the device before each run, so its time means nothing.

    Args:
        module: from ``apply``.
        batch: real tensors.
        optimizer: as for ``measure``.

    Returns:
        One entry for each run, the arrival of the gradients between the passes included; bytes include model and batch.
        The update after the backward pass is one too, where the schedule has one.
    """
    if not isinstance(a_module(module), ScheduledModule):
        raise ValueError(f"module is {shown(module)}; it must be what explorer.apply(model, schedule, batch) returns")
    a_batch(batch, module)
    device = device_of(module)
    watch = _watch_cuda if device.type == "cuda" else _watch_cpu
    loss = type(module).plans[0].capture.loss
    args, kwargs = call_arguments(batch, loss=loss)
    plan = plan_for(module, args, kwargs)
    if plan is None:
        raise ValueError(
            "this batch runs as in plain PyTorch, which has no schedule's runs: give one that a schedule is for"
        )
    iteration = plan.capture.graph.iteration
    if iteration.optimizer is not None and optimizer is None:
        raise ValueError(f"this schedule has an update, by {iteration.optimizer}: give optimizer=…, it or its name")
    iterating = Iterating(module, optimizer=optimizer, accumulate=iteration.accumulate)
    step = partial(step_of, module, batch, iterating=iterating)
    ends_with_update = iteration.optimizer is not None and not iteration.within

    def run_with(probe: Callable[[], None]) -> None:
        with following(module, generate(plan.capture, plan.schedule, probe=probe), plan):
            step(after_backward=probe, keep_results=keep)()
        if ends_with_update:
            probe()

    step()  # what is wrong is refused before anything is copied
    buffer = buffer_of(module)
    with (
        on_device(device),
        unchanged(module, batch, updates=iterating.updates),
        iterating.ready(lambda: None) as held,
        placed_for(buffer, step) as keep,
    ):
        base_bytes = persistent_bytes(module, batch, held=held)
        if buffer is None:
            step()()
        peaks = watch(run_with, base_bytes)
    return tuple(RunMeasurement(x) for x in peaks)


def _watch_cpu(run_with: Callable[[Callable[[], None]], None], base_bytes: int) -> list[int]:
    """Between the marks that probes leave among the profiler's memory events."""
    count = 0

    def probe() -> None:
        nonlocal count
        with torch.profiler.record_function(f"{_MARK}{count}"):
            count += 1

    events = watch_cpu_memory(lambda: run_with(probe), label_prefix=_MARK)
    marks = [events.spans_ns[f"{_MARK}{x}"][0] for x in range(count)]
    allocated = events.deltas_bytes.cumsum()
    peaks = []
    for start, end in pairwise(marks):
        first, last = (int((events.times_ns < x).sum()) for x in (start, end))
        before = int(allocated[first - 1]) if first else 0
        peaks.append(base_bytes + max(before, int(allocated[first:last].max(initial=before))))
    return peaks


def _watch_cuda(run_with: Callable[[Callable[[], None]], None], base_bytes: int) -> list[int]:
    """From the allocator's own peaks; what libraries keep is there from the first run on, as it is predicted."""
    forget_cublas_workspaces()
    others_bytes = torch.cuda.memory_allocated() - base_bytes
    run_with(lambda: None)
    peaks: list[int] = []

    def probe() -> None:
        torch.cuda.synchronize()
        peaks.append(torch.cuda.max_memory_allocated() - others_bytes)
        torch.cuda.reset_peak_memory_stats()

    run_with(probe)
    # The first probe sees what was before the first run.
    return peaks[1:]
