"""Time and workspace of single calls, on random data of the captured shapes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from explorer.capture.building import Call
from explorer.device_profile import Cost
from explorer.execution.device import describe_device
from explorer.execution.memory import watch_cpu_memory
from explorer.execution.out_of_memory import OutOfMemory, named
from explorer.operators import cudnn_plans
from explorer.operators.cudnn_algorithms import Algorithms
from explorer.profiling.material import Material

_MIN_REPEATS = 3
_MAX_REPEATS = 20
_TIME_PER_CALL_S = 0.010
_OTHER_MIN_REPEATS = 1
_OTHER_TIME_PER_CALL_S = 0.0025
_SLOWER = 1.5
_CHEAP_MS = 1.0
_SPAN = "explorer: "
_ADVICE = "Profile a smaller batch, or free what else is on the device."
_ENDLESS_BYTES = 2**50


@dataclass(frozen=True)
class Subject:
    """A call to measure.

    Attributes:
        call: of a captured operator.
        name: of the operator, for the progress bar.
        written_bytes: what the storages that the graph knows it writes add to those it reads (nothing, if it works in
            place); what it takes beyond them is workspace.
        rival: key of PyTorch's own call with these results; None for such a call, and for what is always to be had.
        care: PyTorch's own calls are run more often: everything else is compared with them.
    """

    call: Call
    name: str
    written_bytes: int
    rival: str | None = None
    care: bool = True


def measure_costs(
    subjects: Mapping[str, Subject], *, device: torch.device, report: Callable[[str], None]
) -> dict[str, Cost]:
    """Measure each call.

    Args:
        subjects: by key; a rival stands before those that have it.
        device: ``"cpu"`` or ``"cuda"``.
        report: called with a name before each call is measured, and once besides.

    Returns:
        The costs, uncalibrated, by the same keys.

    Raises:
        OutOfMemory: PyTorch's own way to run an operator does not fit; names it.
    """
    material = Material(device)
    report("workspaces")
    with torch.no_grad():
        first = _cpu_first_runs(subjects, material) if device.type == "cpu" else {}
        costs: dict[str, Cost] = {}
        for key, subject in subjects.items():
            report(subject.name)
            rival = None if subject.rival is None else costs[subject.rival]
            if rival is not None and device.type == "cuda" and not _runs_here(subject.call):
                costs[key] = rival
                continue
            try:
                with named(f"operator {subject.name!r}", advice=_ADVICE):
                    run = material.runnable(subject.call)
                    if device.type == "cuda":
                        costs[key] = Cost(_cuda_time_ms(run), _cuda_workspace_bytes(run, subject.written_bytes))
                    else:
                        costs[key] = _cpu_cost(key, subject, run, first=first, rival=rival)
            except OutOfMemory:
                if rival is None:
                    raise
                # An alternative that does not fit is none: no budget on this device has room for such a workspace.
                costs[key] = Cost(rival.time_ms, describe_device(device).memory_bytes or _ENDLESS_BYTES)
    return costs


def _cpu_cost(
    key: str, subject: Subject, run: Callable[[], None], *, first: dict[str, tuple[float, int]], rival: Cost | None
) -> Cost:
    """Of a call, given all first runs; fewer runs of what is clearly slower than PyTorch's own."""
    if key not in first:
        raise OutOfMemory(f"the first run of {subject.name!r} did not fit")
    first_ms, workspace = first[key]
    if subject.rival in first and rival is not None:
        cold_ms, _ = first[subject.rival]
        if first_ms > max(_CHEAP_MS, _SLOWER * cold_ms):
            # Clearly slower, cold against cold: no more runs, as much less time when warm as the rival.
            return Cost(first_ms * min(1.0, rival.time_ms / cold_ms), workspace)
    return Cost(_cpu_time_ms(run, first_ms=first_ms, care=subject.care), workspace)


def _runs_here(call: Call) -> bool:
    """Not so of cuDNN's families without the package that runs them: PyTorch's own call would stand in."""
    algorithms = {x.value for x in Algorithms}
    return cudnn_plans.available() or not (call.args and isinstance(call.args[0], str) and call.args[0] in algorithms)


def _cpu_time_ms(run: Callable[[], None], *, first_ms: float, care: bool) -> float:
    """The shortest of several runs: on a shared machine, everything else is somebody else's work.

    Args:
        run: makes the call.
        first_ms: what a first run took, cold.
        care: others get by on fewer runs.
    """
    budget_s, least = (_TIME_PER_CALL_S, _MIN_REPEATS) if care else (_OTHER_TIME_PER_CALL_S, _OTHER_MIN_REPEATS)
    times_s = [first_ms / 1e3]
    began = time.perf_counter()
    while len(times_s) <= least or (len(times_s) <= _MAX_REPEATS and time.perf_counter() - began < budget_s):
        start = time.perf_counter()
        run()
        times_s.append(time.perf_counter() - start)
    return min(times_s) * 1e3


def _cpu_first_runs(subjects: Mapping[str, Subject], material: Material) -> dict[str, tuple[float, int]]:
    """Duration in ms and workspace in bytes of a first run of each; without the alternatives that do not fit.

    All in one session of the profiler, which is slow to start: each call in a labelled span.
    """
    times_ms: dict[str, float] = {}

    def run_all() -> None:
        for key, subject in subjects.items():
            try:
                times_ms[key] = run_one(key, subject)
            except OutOfMemory:
                if subject.rival is None:
                    raise

    def run_one(key: str, subject: Subject) -> float:
        with named(f"operator {subject.name!r}", advice=_ADVICE):
            run = material.runnable(subject.call)
            start = time.perf_counter()
            with torch.profiler.record_function(_SPAN + key):
                run()
            return (time.perf_counter() - start) * 1e3

    events = watch_cpu_memory(run_all, label_prefix=_SPAN)
    return {
        key: (time_ms, max(0, events.within(_SPAN + key).peak_bytes() - subjects[key].written_bytes))
        for key, time_ms in times_ms.items()
    }


def _cuda_time_ms(run: Callable[[], None]) -> float:
    """The median of many runs in a row: the host runs ahead, so that its own time shows in none but the first."""
    for _ in range(_MIN_REPEATS):
        run()
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(_MAX_REPEATS)]
    for start, end in events:
        start.record()
        run()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(end) for start, end in events)


def _cuda_workspace_bytes(run: Callable[[], None], written_bytes: int) -> int:
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    run()
    torch.cuda.synchronize()
    return max(0, torch.cuda.max_memory_allocated() - before - written_bytes)
