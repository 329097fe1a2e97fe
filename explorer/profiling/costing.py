"""Time and workspace of single calls, on random data of the captured shapes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import fx

from explorer.device_profile import Cost
from explorer.execution.device import describe_device
from explorer.execution.memory import watch_cpu_memory
from explorer.execution.out_of_memory import OutOfMemory, named
from explorer.operators import cudnn_plans
from explorer.operators.fusing import fused
from explorer.profiling.comparing import Halves, Subject, halves_like_wholes, in_turns
from explorer.profiling.material import Material

_MIN_REPEATS = 3
_MAX_REPEATS = 20
_MAX_ROUNDS = 10
_TIME_PER_CALL_S = 0.010
_CUDA_TIME_PER_CALL_S = 0.050
_OTHER_MIN_REPEATS = 2
_OTHER_TIME_PER_CALL_S = 0.0025
_TOGETHER_MS = 50.0
_SHORT_MS = 0.2
_SLOWER = 1.5
_MUCH_SLOWER = 4.0
_CHEAP_MS = 1.0
_SPAN = "explorer: "
_ADVICE = "Profile a smaller batch, or free what else is on the device."
_ENDLESS_BYTES = 2**50


def measure_costs(
    subjects: Mapping[str, Subject],
    *,
    sequences: Sequence[Sequence[str]],
    halves: Sequence[Halves],
    device: torch.device,
    given: Mapping[fx.Node, torch.Tensor],
    report: Callable[[str], None],
) -> dict[str, Cost]:
    """Measure each call.

    On the CPU a call is timed among others, as in a step: run again and again by itself it finds its code and data in
    the processor's caches, which makes small calls look twice as quick as they are.

    Args:
        subjects: by key; a rival stands before those that have it.
        sequences: every key, in one of these at least: calls in the order of a step, PyTorch's own in the first.
        halves: operators that may run whole or in two.
        device: ``"cpu"`` or ``"cuda"``.
        given: what graph inputs are, for ``Material``.
        report: called with a name before each call is measured, and once besides.

    Returns:
        The costs, uncalibrated, by the same keys.

    Raises:
        OutOfMemory: PyTorch's own way to run an operator does not fit; names it.
    """
    material = Material(device, given=given)
    report("workspaces")
    with torch.no_grad():
        if device.type == "cpu":
            costs, fitting = _cpu_costs(subjects, sequences, material)
            return in_turns(
                costs,
                subjects=subjects,
                fitting=fitting,
                halves=halves,
                run_ms=lambda x: _once_ms(x, material),
                report=report,
            )
        costs = _cuda_costs(subjects, material, device, report)
        return costs | halves_like_wholes(halves, costs)


def _cuda_costs(
    subjects: Mapping[str, Subject], material: Material, device: torch.device, report: Callable[[str], None]
) -> dict[str, Cost]:
    costs: dict[str, Cost] = {}
    for key, subject in subjects.items():
        report(subject.name)
        rival = None if subject.rival is None else costs[subject.rival]
        try:
            with named(f"operator {subject.name!r}", advice=_ADVICE):
                run = material.runnable(subject.call)
                if rival is not None and _stands_in(run):
                    # A weight's gradient reads the layout of a weight, which may be memory of its own here.
                    costs[key] = Cost(rival.time_ms, _cuda_workspace_bytes(run, subject.written_bytes))
                    continue
                costs[key] = Cost(_cuda_time_ms(run), _cuda_workspace_bytes(run, subject.written_bytes))
        except OutOfMemory:
            if rival is None:
                raise
            costs[key] = _no_way(rival, device)
    return costs


def _no_way(rival: Cost, device: torch.device) -> Cost:
    """An alternative that does not fit is none: no budget on this device has room for such a workspace."""
    return Cost(rival.time_ms, describe_device(device).memory_bytes or _ENDLESS_BYTES)


def _cpu_costs(
    subjects: Mapping[str, Subject],
    sequences: Sequence[Sequence[str]],
    material: Material,
) -> tuple[dict[str, Cost], set[str]]:
    """Costs of all, and the keys of those that fit into memory."""
    first = _cpu_first_runs(subjects, material)
    slow = {key for key, subject in subjects.items() if _is_slow(key, subject, first)}
    samples: dict[str, list[float]] = {key: [] for key in subjects}
    for sequence in sequences:
        for group in _groups([x for x in sequence if x in first and x not in slow], first):
            _time_among_others(group, subjects, material, samples)
    costs: dict[str, Cost] = {}
    for key, subject in subjects.items():
        rival = None if subject.rival is None else costs[subject.rival]
        if key not in first:
            assert rival is not None
            costs[key] = _no_way(rival, torch.device("cpu"))
            continue
        first_ms, workspace = first[key]
        time_ms = _typical(samples[key]) if samples[key] else first_ms
        if key in slow and rival is not None and subject.rival is not None:
            # As much less time when warm as the rival.
            rival_ms = first[subject.rival][0]
            time_ms = _not_by_chance(first_ms, subject, material, rival_ms) * min(1.0, rival.time_ms / rival_ms)
        costs[key] = Cost(time_ms, workspace)
    return costs, set(first)


def _is_slow(key: str, subject: Subject, first: Mapping[str, tuple[float, int]]) -> bool:
    """Is it clearly slower than its rival, cold against cold? Then there are no more runs."""
    if key not in first or subject.rival is None or subject.rival not in first:
        return False
    return first[key][0] > max(_CHEAP_MS, _SLOWER * first[subject.rival][0])


def _not_by_chance(first_ms: float, subject: Subject, material: Material, rival_ms: float) -> float:
    """The shorter of two runs of a slow alternative, unless it is slower than anything else could make it."""
    if first_ms > max(_CHEAP_MS, _MUCH_SLOWER * rival_ms):
        return first_ms
    return min(first_ms, _once_ms(subject, material))


def _once_ms(subject: Subject, material: Material) -> float:
    run = material.runnable(subject.call)
    start = time.perf_counter()
    run()
    return (time.perf_counter() - start) * 1e3


def _groups(sequence: Sequence[str], first: Mapping[str, tuple[float, int]]) -> Iterator[list[str]]:
    """Cut a sequence into groups that last long enough for their calls to find caches as in a step.

    Short calls are there as often as in the sequence: what stands before and after them is most of their time.
    """
    group: list[str] = []
    seen: set[str] = set()
    lasts_ms = 0.0
    for key in sequence:
        if key in seen and first[key][0] > _SHORT_MS:
            continue
        seen.add(key)
        group.append(key)
        lasts_ms += first[key][0]
        if lasts_ms > _TOGETHER_MS:
            yield group
            group, lasts_ms = [], 0.0
    if group:
        yield group


def _time_among_others(
    group: Sequence[str], subjects: Mapping[str, Subject], material: Material, samples: dict[str, list[float]]
) -> None:
    """Run all calls of a group in turn, several times; add the ms that each took to ``samples``."""
    care = any(subjects[key].care for key in group)
    budget_s, least = (_TIME_PER_CALL_S, _MIN_REPEATS) if care else (_OTHER_TIME_PER_CALL_S, _OTHER_MIN_REPEATS)
    began = time.perf_counter()
    rounds = 0
    while rounds < least or (rounds < _MAX_ROUNDS and time.perf_counter() - began < budget_s * len(set(group))):
        rounds += 1
        for key in group:
            samples[key].append(_once_ms(subjects[key], material))


def _typical(times_ms: Sequence[float]) -> float:
    """The lower quartile: what is far longer is somebody else's work, what is far shorter met with a warm cache."""
    return sorted(times_ms)[(len(times_ms) - 1) // 4]


def _stands_in(run: Callable[[], None]) -> bool:
    """Would PyTorch's own call run: of a family of which cuDNN has no plan, or without the package that knows them?"""
    with cudnn_plans.stand_ins_noticed() as noticed:
        run()
    return bool(noticed)


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
            if subject.call.target is fused:
                run()  # the first time, the compiler works
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
    """The median of many runs in a row: the host runs ahead, so that its own time shows in none but the first.

    Fewer of calls that last long, of which a few runs say as much.
    """
    run()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(_MIN_REPEATS - 1):
        run()
    torch.cuda.synchronize()
    lasts_s = (time.perf_counter() - began) / (_MIN_REPEATS - 1)
    repeats = min(_MAX_REPEATS, max(_MIN_REPEATS, int(_CUDA_TIME_PER_CALL_S / lasts_s)))
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeats)]
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
