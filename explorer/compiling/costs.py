"""What kernels of a compiled step take: libraries' are run and measured, loops cost what goes through memory."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import fx

from explorer.compiling.building import Work
from explorer.compiling.kernels import bytes_of, is_view, name_of, val
from explorer.device_profile import Cost
from explorer.execution.memory import watch_cpu_memory

_COPIED = 2**24
_CALL_MS = 0.01
_RUNS = 3
_FOUR_DIMS = 4
_WEIGHT_AT = {"convolution": 1, "convolution_backward": 2}
"""Which argument of a convolution is its weight."""


def costs_of(
    work: Mapping[str, Work], *, device: torch.device, progress: Callable[[int, int, str], None]
) -> dict[str, Cost]:
    """Time and workspace by cost key.

    Args:
        work: what is run.
        device: where.
        progress: called with (done, total, what comes next).
    """
    byte_ms = _byte_ms(device)
    found = {}
    for done, (key, part) in enumerate(work.items()):
        progress(done, len(work), key)
        found[key] = Cost(_CALL_MS + part.traffic_bytes * byte_ms, 0)
        if part.kernel.outside:
            # Some want what random numbers are not: a positive definite matrix, probabilities.
            with suppress(RuntimeError), torch.random.fork_rng(devices=_indices(device)):
                found[key] = _measured(part, device)
    progress(len(work), len(work), "done")
    return found


def _indices(device: torch.device) -> list[int]:
    return [torch.cuda.current_device() if device.index is None else device.index] if device.type == "cuda" else []


def _byte_ms(device: torch.device) -> float:
    """How long a byte takes to be read or written, in a loop over large tensors."""
    source = torch.zeros(_COPIED // 4, device=device)
    into = torch.empty_like(source)
    return _median_ms(lambda: torch.add(source, 1.0, out=into), device) / (2 * _COPIED)


def _measured(part: Work, device: torch.device) -> Cost:
    """One call on random data; its memory beyond arguments and results."""
    node = next(x for x in part.kernel.nodes if not is_view(x))
    last = not part.own_layout and name_of(node) in _WEIGHT_AT and val(node.all_input_nodes[0]).ndim == _FOUR_DIMS
    weight = node.args[_WEIGHT_AT[name_of(node)]] if last and device.type == "cpu" else None
    args, kwargs = fx.map_arg(
        (node.args, dict(node.kwargs)), lambda x: _material(x, device, last=last and x is not weight)
    )
    target: Any = node.target

    def run() -> Any:
        return target(*args, **kwargs)

    with torch.no_grad():
        run()
        made_bytes = 0
        if device.type == "cpu":
            kept: list[Any] = []
            peak_bytes = watch_cpu_memory(lambda: kept.append(run())).peak_bytes()
            results = kept[0] if isinstance(kept[0], tuple | list) else (kept[0],)
            made_bytes = max(0, peak_bytes - sum(x.nbytes for x in results if isinstance(x, torch.Tensor)))
        time_ms = _median_ms(run, device)
        if not isinstance(weight, fx.Node):
            return Cost(time_ms, made_bytes)
        return Cost(time_ms + _copying_ms(node, weight, device), made_bytes + _copied_bytes(weight))


def _copied_bytes(weight: fx.Node) -> int:
    """A convolution's weight is copied first: the compiler's convolutions on the CPU have channels last."""
    return bytes_of(weight) if max(val(weight).shape[2:], default=1) > 1 else 0


def _copying_ms(node: fx.Node, weight: fx.Node, device: torch.device) -> float:
    """Of a weight before a convolution, or of its gradient into the parameter's layout after one."""
    made = _material(weight, device, last=False)
    last = made.contiguous(memory_format=torch.channels_last)
    if last.stride() == made.stride():
        return 0.0
    source, into = (made, last) if name_of(node) == "convolution" else (last, made)
    return _median_ms(lambda: torch.empty_like(into).copy_(source), device)


def _material(node: fx.Node, device: torch.device, *, last: bool) -> Any:
    value = val(node)
    if not isinstance(value, torch.Tensor):
        return value
    made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device)
    made = made.normal_() if made.is_floating_point() else made.zero_()
    if last and made.ndim == _FOUR_DIMS:
        made = made.contiguous(memory_format=torch.channels_last)
    return made


def _median_ms(run: Callable[[], Any], device: torch.device) -> float:
    times = []
    for _ in range(_RUNS):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        began = time.perf_counter()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append((time.perf_counter() - began) * 1e3)
    return statistics.median(times)
