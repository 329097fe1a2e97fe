"""Peak, timeline and duration of real training steps."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from explorer.arguments import a_callback, a_flag, a_whole_number
from explorer.autocast import Autocast
from explorer.capture import Batch, Loss
from explorer.device_profile import round_up
from explorer.execution.buffer import StepBuffer
from explorer.execution.device import CUDA_ROUNDING_BYTES, describe_device, device_of, on_device
from explorer.execution.iterating import Iterating
from explorer.execution.memory import watch_cpu_memory
from explorer.execution.optimizers import OptimizerLike
from explorer.execution.out_of_memory import named
from explorer.execution.scheduled import ScheduledModule
from explorer.execution.steps import persistent_bytes, placed_for, step_of, unchanged
from explorer.measurement import Measurement
from explorer.torch_arguments import a_module
from explorer.torch_private import cuda_memory_trace, forget_cublas_workspaces


def measure(
    module: nn.Module,
    batch: Batch,
    *,
    loss: Loss | None = None,
    autocast: Autocast | torch.dtype | str | None = None,
    steps: int = 3,
    optimizer: OptimizerLike | None = None,
    accumulate: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Measurement:
    """Run real training steps and watch memory and time; the module is as before afterwards.

    On CPU the allocator's events are recorded by PyTorch's profiler (exact; library scratch memory included); on CUDA
    the caching allocator's statistics and history are.

    Args:
        module: from ``apply``, or a plain model to compare with.
        batch: real tensors.
        loss: for a plain model, as for ``profile``; a scheduled module knows its own.
        autocast: likewise.
        steps: how many steps are timed; the median counts.
        optimizer: takes part: its state is there, and each step ends with its step, or has it within the backward pass,
            if that is how the module's schedule was planned. A name, an optimizer, or what makes one; None: none.
        accumulate: each step adds its gradients to those of earlier microbatches.
        progress: called before each step with the number of steps done and of all; what it raises ends the measurement.

    Returns:
        The measurement; bytes include model and batch.

    Raises:
        ValueError: ``steps`` is not positive, ``optimizer`` or ``autocast`` is unknown, or the module cannot be trained
            so: not on the batch, or not in this iteration, which its schedule is not for.
        OutOfMemory: a step does not fit; names the operator of a scheduled one.
    """
    _check(module, steps, progress)
    a_flag(accumulate, "accumulate")
    device = device_of(module)
    tell = _silent if progress is None else progress
    iterating = Iterating(module, loss=loss, optimizer=optimizer, accumulate=accumulate)
    step = partial(step_of, module, batch, loss=loss, autocast=autocast, iterating=iterating)
    step()  # what is wrong is refused before anything is copied
    buffer = buffer_of(module)
    look = partial(_seen, iterating, module, batch, loss=loss, autocast=autocast)
    with (
        on_device(device),
        unchanged(module, batch, loss=loss, updates=iterating.updates),
        named("a training step", advice="Solve for a smaller budget, or take a smaller batch."),
        iterating.ready(look) as held,
        placed_for(buffer, step) as keep_results,
    ):
        run = step(keep_results=keep_results)
        base_bytes = persistent_bytes(module, batch, loss=loss, held=held)
        steps_before = 0
        if buffer is not None:
            base_bytes += 0 if buffer.use is None else buffer.use.buffer_bytes
            steps_before = buffer.steps
        # The watched step warms up for those that are timed.
        watch = _watch_cuda if device.type == "cuda" else _watch_cpu
        tell(0, steps + 1)
        watched = watch(run, base_bytes)
        timed_ms = []
        for done in range(steps):
            tell(1 + done, steps + 1)
            timed_ms.append(_timed(run, device))
    return Measurement(
        device=describe_device(device).name,
        method="allocator history" if device.type == "cuda" else "profiler memory events",
        peak_bytes=watched.peak_bytes,
        reserved_peak_bytes=watched.reserved_bytes,
        step_time_ms=statistics.median(timed_ms),
        times_ms=watched.times_ms,
        allocated_bytes=watched.allocated_bytes,
        buffer=None if buffer is None or buffer.steps == steps_before else buffer.use,
        requested_peak_bytes=watched.requested_bytes,
    )


def step_time_ms(
    module: nn.Module,
    batch: Batch,
    *,
    loss: Loss | None = None,
    autocast: Autocast | torch.dtype | str | None = None,
    steps: int = 3,
    optimizer: OptimizerLike | None = None,
    accumulate: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> float:
    """Duration of a training step, as ``measure`` has it, without watching memory; the module is as before afterwards.

    Args:
        module: as for ``measure``.
        batch: as for ``measure``.
        loss: as for ``measure``.
        autocast: as for ``measure``.
        steps: as for ``measure``.
        optimizer: as for ``measure``.
        accumulate: as for ``measure``.
        progress: as for ``measure``.

    Raises:
        ValueError: as ``measure``.
    """
    _check(module, steps, progress)
    device = device_of(module)
    iterating = Iterating(module, loss=loss, optimizer=optimizer, accumulate=accumulate)
    step = partial(step_of, module, batch, loss=loss, autocast=autocast, iterating=iterating)
    step()  # what is wrong is refused before anything is copied
    buffer = buffer_of(module)
    look = partial(_seen, iterating, module, batch, loss=loss, autocast=autocast)
    tell = _silent if progress is None else progress
    timed_ms = []
    with (
        on_device(device),
        unchanged(module, batch, loss=loss, updates=iterating.updates),
        iterating.ready(look),
        placed_for(buffer, step) as keep_results,
    ):
        run = step(keep_results=keep_results)
        for done in range(steps + 1):
            tell(done, steps + 1)
            timed_ms.append(_timed(run, device))
    return statistics.median(timed_ms[1:])  # the first warms up


def buffer_of(module: nn.Module) -> StepBuffer | None:
    """What the module's steps run in; of one with several schedules, those of the first."""
    return type(module).plans[0].bindings[module].buffer if isinstance(module, ScheduledModule) else None


def _seen(iterating: Iterating, module: nn.Module, batch: Batch, **options: Any) -> None:
    """Let it see which parameters a step by itself has gradients for."""
    step_of(module, batch, after_backward=iterating.see, **options)()


def _silent(done: int, total: int) -> None:
    """Tell nobody."""


def _check(module: object, steps: int, progress: object) -> None:
    a_module(module)
    a_whole_number(steps, "steps", least=1)
    a_callback(progress, "progress")


def _timed(run: Callable[[], None], device: torch.device) -> float:
    if device.type == "cuda":
        start_event, end_event = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize(device)
        start_event.record()
        run()
        end_event.record()
        end_event.synchronize()
        return start_event.elapsed_time(end_event)
    start = time.perf_counter()
    run()
    return (time.perf_counter() - start) * 1e3


class _Watched(NamedTuple):
    """As ``Measurement`` has it."""

    peak_bytes: int
    reserved_bytes: int | None
    times_ms: np.ndarray
    allocated_bytes: np.ndarray
    requested_bytes: int | None = None


def _watch_cpu(run: Callable[[], None], base_bytes: int) -> _Watched:
    events = watch_cpu_memory(run)
    times_ms = (events.times_ns - events.times_ns[:1].sum()) / 1e6
    return _Watched(base_bytes + events.peak_bytes(), None, times_ms, base_bytes + events.deltas_bytes.cumsum())


def _watch_cuda(run: Callable[[], None], base_bytes: int) -> _Watched:
    """The base is the model and the batch; what the process holds besides is left out, what libraries keep is not."""
    forget_cublas_workspaces()
    torch.cuda.synchronize()
    others_bytes = torch.cuda.memory_allocated() - base_bytes
    run()  # libraries allocate their workspaces with their first calls
    torch.cuda.synchronize()
    # What is left in the allocator's cache from before is not this step's.
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    base_bytes = torch.cuda.memory_allocated() - others_bytes
    requested_before = torch.cuda.memory_stats().get("requested_bytes.all.current")
    trace = cuda_memory_trace(run)
    peak = torch.cuda.max_memory_allocated() - others_bytes
    requested = torch.cuda.memory_stats().get("requested_bytes.all.peak")
    if requested is not None and requested_before is not None:
        requested += base_bytes - requested_before
    signs = {"alloc": 1, "free_completed": -1}
    # The history has sizes as they were asked for.
    events = [
        (x["time_us"], signs[x["action"]] * round_up(x["size"], CUDA_ROUNDING_BYTES))
        for x in trace
        if x["action"] in signs
    ]
    times_us = np.array([x[0] for x in events], dtype=np.float64)
    allocated = base_bytes + np.cumsum(np.array([x[1] for x in events], dtype=np.int64))
    times_ms = (times_us - times_us[0]) / 1e3 if events else times_us
    return _Watched(peak, torch.cuda.max_memory_reserved() - others_bytes, times_ms, allocated, requested)
