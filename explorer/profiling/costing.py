"""Time and workspace of single calls, on random data of the captured shapes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from explorer.capture.building import Call
from explorer.device_profile import Cost
from explorer.execution.memory import watch_cpu_memory
from explorer.torch_private import storage_key

_MIN_REPEATS = 4
_MAX_REPEATS = 20
_TIME_PER_CALL_S = 0.03
_SPAN = "explorer: "


@dataclass(frozen=True)
class Subject:
    """A call to measure.

    Attributes:
        call: of a captured operator.
        name: of the operator, for the progress bar.
        written_bytes: size of the storages that the graph knows it writes; what it takes beyond them is workspace.
    """

    call: Call
    name: str
    written_bytes: int


def measure_costs(
    subjects: Mapping[str, Subject], *, device: torch.device, report: Callable[[str], None]
) -> dict[str, Cost]:
    """Measure each call.

    Args:
        subjects: by key.
        device: ``"cpu"`` or ``"cuda"``.
        report: called with a name before each call is measured.

    Returns:
        The costs, uncalibrated, by the same keys.
    """
    times_ms: dict[str, float] = {}
    workspaces: dict[str, int] = {}
    for key, subject in subjects.items():
        report(subject.name)
        run = _runnable(subject.call, device)
        with torch.no_grad():
            if device.type == "cuda":
                times_ms[key] = _cuda_time_ms(run)
                workspaces[key] = _cuda_workspace_bytes(run, subject.written_bytes)
            else:
                times_ms[key] = _cpu_time_ms(run)
    if device.type == "cpu":
        report("workspaces")
        workspaces = _cpu_workspaces(subjects, device)
    return {key: Cost(times_ms[key], workspaces[key]) for key in subjects}


def _runnable(call: Call, device: torch.device) -> Callable[[], None]:
    """The call with real tensors for its arguments."""
    tensors: dict[fx.Node, Any] = {}
    storages: dict[tuple[int, torch.dtype], torch.Tensor] = {}

    def real(node: fx.Node) -> Any:
        if node not in tensors:
            tensors[node] = _realised(node.meta["val"], storages, device)
        return tensors[node]

    args: Any = fx.map_arg(call.args, real)
    kwargs: Any = fx.map_arg(call.kwargs, real)
    target = call.target

    def run() -> None:
        target(*args, **kwargs)

    return run


def _realised(value: Any, storages: dict[tuple[int, torch.dtype], torch.Tensor], device: torch.device) -> Any:
    """A real tensor (or tuple) like the fake one; views of one storage stay views of one storage."""
    if isinstance(value, tuple | list):
        return tuple(_realised(x, storages, device) for x in value)
    if not isinstance(value, torch.Tensor):
        return value
    key = (storage_key(value), value.dtype)
    if key not in storages:
        flat = torch.zeros(value.untyped_storage().nbytes() // value.element_size(), dtype=value.dtype, device=device)
        storages[key] = flat.uniform_(0.1, 1.0) if value.dtype.is_floating_point else flat
    return storages[key].as_strided(value.shape, value.stride(), value.storage_offset())


def _cpu_time_ms(run: Callable[[], None]) -> float:
    """The shortest of several runs: on a shared machine, everything else is somebody else's work."""
    run()
    times_s: list[float] = []
    began = time.perf_counter()
    while len(times_s) < _MIN_REPEATS or (
        len(times_s) < _MAX_REPEATS and time.perf_counter() - began < _TIME_PER_CALL_S
    ):
        start = time.perf_counter()
        run()
        times_s.append(time.perf_counter() - start)
    return min(times_s) * 1e3


def _cpu_workspaces(subjects: Mapping[str, Subject], device: torch.device) -> dict[str, int]:
    """All in one session of the profiler, which is slow to start: each call in a labelled span."""

    def run_all() -> None:
        for key, subject in subjects.items():
            run = _runnable(subject.call, device)
            with torch.no_grad(), torch.profiler.record_function(_SPAN + key):
                run()

    events = watch_cpu_memory(run_all, label_prefix=_SPAN)
    return {
        key: max(0, events.within(_SPAN + key).peak_bytes() - subject.written_bytes)
        for key, subject in subjects.items()
    }


def _cuda_time_ms(run: Callable[[], None]) -> float:
    for _ in range(_MIN_REPEATS):
        run()
    times_ms = []
    for _ in range(_MAX_REPEATS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        times_ms.append(start.elapsed_time(end))
    return statistics.median(times_ms)


def _cuda_workspace_bytes(run: Callable[[], None], written_bytes: int) -> int:
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    run()
    torch.cuda.synchronize()
    return max(0, torch.cuda.max_memory_allocated() - before - written_bytes)
