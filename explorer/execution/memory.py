"""Allocations on the CPU as PyTorch's profiler sees them: every one, library scratch memory included."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch


@dataclass(frozen=True, eq=False)
class MemoryEvents:
    """Allocations and releases in order, and the labelled spans among them.

    Attributes:
        times_ns: int64, shape (events,).
        deltas_bytes: int64, shape (events,), negative for a release.
        spans_ns: label of each ``torch.profiler.record_function`` span to its start and end.
    """

    times_ns: np.ndarray
    deltas_bytes: np.ndarray
    spans_ns: dict[str, tuple[int, int]]

    def peak_bytes(self) -> int:
        """Highest sum of the differences so far, at least 0."""
        return int(self.deltas_bytes.cumsum().max(initial=0))

    def within(self, label: str) -> MemoryEvents:
        """The events inside one span."""
        start, end = self.spans_ns[label]
        inside = (self.times_ns >= start) & (self.times_ns <= end)
        return MemoryEvents(self.times_ns[inside], self.deltas_bytes[inside], {})


@contextmanager
def settled() -> Iterator[None]:
    """Around many short watches: each collects garbage first, and looks only at what was made inside then.

    Looking at all that PyTorch's modules hold takes a tenth of a second, hundreds of times what a small update takes.
    """
    if gc.get_freeze_count():
        yield  # somebody's own, for longer
        return
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def watch_cpu_memory(run: Callable[[], None], *, label_prefix: str | None = None) -> MemoryEvents:
    """Record every allocation of CPU memory during ``run``.

    Args:
        run: what to watch.
        label_prefix: keep the spans whose label begins so.
    """
    # The profiler's library prints two lines per session otherwise.
    os.environ.setdefault("KINETO_LOG_LEVEL", "9")
    # The autograd profiler's own class: torch.profiler's also parses what nobody reads here, which takes seconds.
    # What earlier work left in reference cycles must not be released meanwhile: it would count as this work's.
    gc.collect()
    with torch.autograd.profiler.profile(use_device=None, profile_memory=True) as profiler:
        run()
    assert profiler is not None
    results = profiler.kineto_results
    assert results is not None
    memory: list[tuple[int, int]] = []
    spans: dict[str, tuple[int, int]] = {}
    event: Any  # the stub of its class lacks the bytes
    for event in results.events():
        name = event.name()
        if name == "[memory]":
            memory.append((event.start_ns(), event.nbytes()))
        elif label_prefix is not None and name.startswith(label_prefix):
            spans[name] = (event.start_ns(), event.start_ns() + event.duration_ns())
    memory.sort(key=lambda x: x[0])
    table = np.array(memory, dtype=np.int64).reshape(-1, 2)
    return MemoryEvents(table[:, 0], table[:, 1], spans)
