"""``torch.cuda`` over the device that is not there: streams, events, the allocator's statistics and its history.

Bytes are those that PyTorch's caching allocator would say of the same allocations (``explorer.caching_allocator``, one
for each stream); times are the host's, and mean nothing.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch

from explorer.caching_allocator import Block, CachingAllocator

MEMORY_BYTES = 80 * 2**30
_MOST_NOTES = 4096
_NUMBERS = 5  # of a note
NAME = "simulated device"


@dataclass(eq=False)
class Memory:
    """Of one device: its allocators, by stream, the highest that they were, and what is noted of them.

    Attributes:
        allocators: by stream.
        blocks: in use, by the allocation's number.
        allocated_bytes: now.
        requested_bytes: of those, what was asked for.
        highest_allocated_bytes: since it was set back.
        highest_reserved_bytes: likewise.
        highest_requested_bytes: likewise.
        history: as ``torch.cuda.memory._snapshot`` has it; None: nothing is recorded.
    """

    allocators: dict[int, CachingAllocator] = field(default_factory=dict)
    blocks: dict[int, tuple[CachingAllocator, Block]] = field(default_factory=dict)
    allocated_bytes: int = 0
    requested_bytes: int = 0
    highest_allocated_bytes: int = 0
    highest_reserved_bytes: int = 0
    highest_requested_bytes: int = 0
    history: list[dict[str, Any]] | None = None

    @property
    def reserved_bytes(self) -> int:
        """Of all streams."""
        return sum(x.reserved_bytes for x in self.allocators.values())

    def note(self, number: int, size_bytes: int, stream: int, time_us: float) -> None:
        """An allocation, or with a negative number its release."""
        if number > 0:
            expandable = "expandable_segments:True" in os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
            allocator = self.allocators.setdefault(stream, CachingAllocator(expandable=expandable))
            self.blocks[number] = allocator, allocator.malloc(size_bytes)
        else:
            allocator, block = self.blocks.pop(-number)
            allocator.free(block)
        self.requested_bytes += size_bytes if number > 0 else -size_bytes
        self.highest_requested_bytes = max(self.highest_requested_bytes, self.requested_bytes)
        self.allocated_bytes = sum(x.allocated_bytes for x in self.allocators.values())
        self.highest_allocated_bytes = max(self.highest_allocated_bytes, self.allocated_bytes)
        self.highest_reserved_bytes = max(self.highest_reserved_bytes, self.reserved_bytes)
        if self.history is not None:
            for action in ("alloc",) if number > 0 else ("free_requested", "free_completed"):
                event = {"action": action, "size": size_bytes, "addr": abs(number), "time_us": time_us}
                self.history.append({**event, "stream": stream})

    def forget_peaks(self) -> None:
        """From now on."""
        self.highest_allocated_bytes = self.allocated_bytes
        self.highest_reserved_bytes = self.reserved_bytes
        self.highest_requested_bytes = self.requested_bytes


class Machine:
    """The library of ``device.cpp`` and what is known from its notes."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        library.fake_hazard.restype = ctypes.c_char_p
        for name in ("allocations", "current_device", "current_stream", "new_stream", "record", "notes"):
            getattr(library, f"fake_{name}").restype = ctypes.c_int64
        self.memories = [Memory(), Memory()]
        self.capturing = False
        self._room = (ctypes.c_double * (_NUMBERS * _MOST_NOTES))()

    def memory(self, device: Any = None) -> Memory:
        """Up to date."""
        while count := self.library.fake_notes(self._room, ctypes.c_int64(_MOST_NOTES)):
            for at in range(0, _NUMBERS * count, _NUMBERS):
                number, size_bytes, index, stream, time_us = self._room[at : at + _NUMBERS]
                self.memories[int(index)].note(int(number), int(size_bytes), int(stream), time_us)
        return self.memories[self.index(device)]

    def index(self, device: Any = None) -> int:
        """Of a device however it is named; None: the current one."""
        if isinstance(device, int):
            return device
        found = None if device is None else torch.device(device).index
        return self.library.fake_current_device() if found is None else found

    def fail_at(self, number: int | None) -> None:
        """Let the allocation of this number from now on fail, counted from 0; None: none."""
        self.library.fake_fail_at(ctypes.c_int64(-1 if number is None else number))

    def allocations(self) -> int:
        """Since ``fail_at`` was called."""
        return self.library.fake_allocations()

    def forget_handles(self) -> None:
        """Give back what libraries keep."""
        self.library.fake_forget_handles()

    def hazards(self) -> list[str]:
        """What streams did to each other without waiting since this was asked last."""
        return [x.decode() for x in iter(self.library.fake_hazard, None)]


class Event:
    """As ``torch.cuda.Event``."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        self._number: int | None = None
        self._s = 0.0

    def record(self, stream: Stream | None = None) -> None:
        stream = stream or current_stream()
        self._number = machine().library.fake_record(stream.device_index, stream.stream_id)
        self._s = time.perf_counter()

    def wait(self, stream: Stream | None = None) -> None:
        (stream or current_stream()).wait_event(self)

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        if self._number is not None:
            machine().library.fake_host_waits(ctypes.c_int64(self._number))

    def elapsed_time(self, end: Event) -> float:
        """In milliseconds, of the host."""
        return max(1e-6, (end._s - self._s) * 1e3)


class Stream:
    """As ``torch.cuda.Stream``."""

    def __init__(self, device: Any = None, priority: int = 0, *, stream_id: int | None = None) -> None:
        self.priority = priority
        self.device_index = machine().index(device)
        self.stream_id = machine().library.fake_new_stream() if stream_id is None else stream_id

    @property
    def device(self) -> torch.device:
        return torch.device("cuda", self.device_index)

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, Stream)
        return same and (other.device_index, other.stream_id) == (self.device_index, self.stream_id)

    def __hash__(self) -> int:
        return hash((self.device_index, self.stream_id))

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        if event._number is not None:
            numbers = (ctypes.c_int64(x) for x in (self.device_index, self.stream_id, event._number))
            machine().library.fake_wait(*numbers)

    def wait_stream(self, stream: Stream) -> None:
        self.wait_event(stream.record_event())

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        self.record_event().synchronize()

    @property
    def as_torch(self) -> torch.Stream:
        """For ``Tensor.record_stream``."""
        kind = torch._C._autograd.DeviceType.CUDA.value  # type: ignore[attr-defined]
        return torch.Stream(stream_id=self.stream_id, device_index=self.device_index, device_type=kind)


class CUDAGraph:
    """As ``torch.cuda.CUDAGraph``, and never replayed."""


def current_stream(device: Any = None) -> Stream:
    """As ``torch.cuda.current_stream``."""
    index = machine().index(device)
    return Stream(index, stream_id=machine().library.fake_current_stream(ctypes.c_int64(index)))


@contextmanager
def on_stream(stream: Stream | None) -> Iterator[None]:
    """As ``torch.cuda.stream``: the stream's device is the current one too."""
    if stream is None:
        yield
        return
    library = machine().library
    before = library.fake_current_device()
    here, there = ctypes.c_int64(stream.device_index), current_stream(stream.device_index).stream_id
    library.fake_set_device(here)
    library.fake_set_stream(here, ctypes.c_int64(stream.stream_id))
    try:
        yield
    finally:
        library.fake_set_stream(here, ctypes.c_int64(there))
        library.fake_set_device(ctypes.c_int64(before))


@contextmanager
def graph(_graph: CUDAGraph, *_args: Any, **_kwargs: Any) -> Iterator[None]:
    """As ``torch.cuda.graph``: on a stream of its own, which is being captured."""
    machine().capturing = True
    machine().library.fake_capturing(ctypes.c_int64(1))
    try:
        with on_stream(Stream()):
            yield
    finally:
        machine().library.fake_capturing(ctypes.c_int64(0))
        machine().capturing = False


_known: list[Machine] = []


def machine() -> Machine:
    """The one that is installed."""
    assert _known, "install comes first"
    return _known[0]


def install(library: ctypes.CDLL, *, capability: tuple[int, int] = (8, 0)) -> Machine:
    """Put all of it in the place of what this build of PyTorch has not; for the rest of the process."""
    made = Machine(library)
    _known[:] = [made]
    properties = SimpleNamespace(name=NAME, total_memory=MEMORY_BYTES, multi_processor_count=108)
    properties.major, properties.minor = capability
    instead: dict[str, Any] = {
        "Stream": Stream,
        "Event": Event,
        "CUDAGraph": CUDAGraph,
        "stream": on_stream,
        "graph": graph,
        "is_current_stream_capturing": lambda: made.capturing,
        "current_stream": current_stream,
        "default_stream": lambda device=None: Stream(device, stream_id=0),
        "get_device_properties": lambda *_args: properties,
        "get_device_capability": lambda *_args: capability,
        "get_device_name": lambda *_args: NAME,
        **_presence(made),
        **_statistics(made),
        **_random(),
    }
    for name, value in instead.items():
        setattr(torch.cuda, name, value)
        if hasattr(torch.cuda.memory, name):
            setattr(torch.cuda.memory, name, value)
    torch._C._cuda_clearCublasWorkspaces = made.forget_handles  # type: ignore[attr-defined]
    torch.backends.cudnn.version = lambda: "none"
    _of_tensors()
    return made


def _presence(made: Machine) -> dict[str, Any]:
    library = made.library

    def exchange(device: int) -> int:
        before = library.fake_current_device()
        if device >= 0:
            library.fake_set_device(ctypes.c_int64(device))
        return before

    def maybe_exchange(device: int) -> int:  # a function of its own: torch.compile tells them apart
        return exchange(device)

    return {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "init": lambda: None,
        "_lazy_init": lambda: None,
        "device_count": lambda: len(made.memories),
        "is_bf16_supported": lambda *_args, **_kwargs: True,
        "current_device": made.index,
        "_exchange_device": exchange,
        "_maybe_exchange_device": maybe_exchange,
        "set_device": lambda device: exchange(made.index(device)) and None,
        "synchronize": lambda *_args: library.fake_host_waits_for_all(),
    }


def _statistics(made: Machine) -> dict[str, Any]:
    def empty_cache() -> None:
        made.memory()
        for memory in made.memories:
            for allocator in memory.allocators.values():
                allocator.empty_cache()

    def record(enabled: str | None = "all", *_args: Any, **_kwargs: Any) -> None:
        made.memory()
        for memory in made.memories:
            memory.history = None if enabled is None else []

    def snapshot(*_args: Any, **_kwargs: Any) -> dict[str, Any]:
        made.memory()
        return {"device_traces": [list(x.history or ()) for x in made.memories], "segments": []}

    def stats(device: Any = None) -> dict[str, int]:
        memory = made.memory(device)
        return {
            "allocated_bytes.all.current": memory.allocated_bytes,
            "allocated_bytes.all.peak": memory.highest_allocated_bytes,
            "requested_bytes.all.current": memory.requested_bytes,
            "requested_bytes.all.peak": memory.highest_requested_bytes,
            "reserved_bytes.all.current": memory.reserved_bytes,
            "reserved_bytes.all.peak": memory.highest_reserved_bytes,
            "num_alloc_retries": sum(x.flushes for x in memory.allocators.values()),
        }

    return {
        "memory_allocated": lambda device=None: made.memory(device).allocated_bytes,
        "max_memory_allocated": lambda device=None: made.memory(device).highest_allocated_bytes,
        "memory_reserved": lambda device=None: made.memory(device).reserved_bytes,
        "max_memory_reserved": lambda device=None: made.memory(device).highest_reserved_bytes,
        "reset_peak_memory_stats": lambda device=None: made.memory(device).forget_peaks(),
        "mem_get_info": lambda device=None: (MEMORY_BYTES - made.memory(device).reserved_bytes, MEMORY_BYTES),
        "memory_stats": stats,
        "empty_cache": empty_cache,
        "_record_memory_history": record,
        "_snapshot": snapshot,
    }


def _random() -> dict[str, Any]:
    """Numbers are drawn by the CPU's kernels, with the CPU's generator."""
    return {
        "get_rng_state": lambda *_args: torch.get_rng_state(),
        "set_rng_state": lambda state, *_args: torch.set_rng_state(state),
        "manual_seed": lambda _: None,
        "manual_seed_all": lambda _: None,
    }


def _of_tensors() -> None:
    """What a build without CUDA refuses of tensors and storages there."""
    record, clone = torch.Tensor.record_stream, torch.UntypedStorage.clone

    def record_stream(self: torch.Tensor, stream: Any) -> None:
        record(self, stream.as_torch if isinstance(stream, Stream) else stream)

    def cloned(self: torch.UntypedStorage) -> torch.UntypedStorage:
        if self.device.type != "cuda":
            return clone(self)
        return torch.empty(0, dtype=torch.uint8, device=self.device).set_(self).clone().untyped_storage()

    torch.Tensor.record_stream = record_stream  # type: ignore[method-assign]
    torch.UntypedStorage.clone = cloned  # type: ignore[method-assign]
