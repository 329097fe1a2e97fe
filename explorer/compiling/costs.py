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
from explorer.compiling.kernels import OF_PICTURES, base, bytes_of, is_copied, is_of_pictures, name_of, val
from explorer.device_profile import Cost
from explorer.execution.memory import watch_cpu_memory

_COPIED = 2**24
_CALL_MS = 0.01
_RUNS = 3
_WANTED_AT = 10
"""Which argument of a convolution's backward pass says which gradients are wanted."""


def costs_of(
    work: Mapping[str, Work], *, device: torch.device, progress: Callable[[int, int, str], None] = lambda *_: None
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
    node = part.kernel.called
    convolves = name_of(node).startswith("convolution")
    last = convolves and not (part.own_layout and is_of_pictures(node))
    args, kwargs = fx.map_arg((node.args, dict(node.kwargs)), lambda x: _material(x, device, last=last))
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
        if last and device.type != "cpu":
            made_bytes += _laid_out_bytes(node)
        return Cost(_median_ms(run, device) + (_copying_ms(node, device) if last else 0.0), made_bytes)


def _laid_out_bytes(node: fx.Node) -> int:
    """A convolution's weight is copied first: elsewhere than on a CPU that is not known better."""
    weight = node.args[2 if name_of(node) == "convolution_backward" else 1]
    assert isinstance(weight, fx.Node)
    return bytes_of(weight) if max(val(weight).shape[2:], default=1) > 1 else 0


def _copying_ms(node: fx.Node, device: torch.device) -> float:
    """Of the gradient into the parameter's layout, after the backward pass of a convolution with channels last."""
    if not is_of_pictures(node) or name_of(node) == "convolution" or not node.args[_WANTED_AT][1]:  # type: ignore[index]
        return 0.0
    weight = node.args[2]
    assert isinstance(weight, fx.Node)
    if not base(weight).name.startswith("primals_") or not is_copied(val(weight)):
        return 0.0  # computed, under autocast say, in the layout that is wanted; or the same either way
    into = _material(weight, device, last=False)
    source = into.contiguous(memory_format=torch.channels_last)
    return _median_ms(lambda: torch.empty_like(into).copy_(source), device)


def _material(node: fx.Node, device: torch.device, *, last: bool) -> Any:
    value = val(node)
    if not isinstance(value, torch.Tensor):
        return value
    strides = torch.empty(value.shape, device="meta").stride() if 0 in value.stride() else value.stride()
    made = torch.empty_strided(value.shape, strides, dtype=value.dtype, device=device)
    made = made.normal_() if made.is_floating_point() else made.zero_()
    if last and made.ndim == OF_PICTURES:
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
