"""What PyTorch's caching allocator reserves for a scheduled step, by a simulation of it.

A peak counts what is allocated. The allocator holds more: whole segments, of which parts are free, and which part
depends on the order of sizes. It runs out where those parts are too small, however many bytes they are together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np

from explorer.caching_allocator import (
    EXPANDABLE_ROOM_BYTES,
    SEGMENT_ROUNDING_BYTES,
    CachingAllocator,
    DeviceFullError,
)
from explorer.caching_allocator import Block as Taken
from explorer.device_profile import Profile
from explorer.graph import Role
from explorer.library_workspace import library_workspaces
from explorer.placement import Block
from explorer.schedule import Schedule
from explorer.stays import memory_blocks
from explorer.summaries import Fact, Summarised
from explorer.timeline import ROLE_CATEGORY, Category, Timeline
from explorer.units import format_bytes, shown

_MOST_STEPS = 8  # played until nothing changes any more, which took three at most in every case tried
_PROBES = 8  # limits between one that is enough and what is reserved without a limit: they are enough too


class Allocator(StrEnum):
    """How memory is reserved on a CUDA device."""

    CACHING = "caching"
    """PyTorch's default: segments that stay as large as they were made."""
    EXPANDABLE = "expandable"
    """``PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True``: one segment that grows."""


@dataclass(frozen=True, slots=True)
class Lasting:
    """A tensor that outlives the steps, or a library's workspace.

    Attributes:
        category: what it is for.
        bytes: as the allocator takes it.
        offset_bytes: its address.
    """

    category: Category
    bytes: int
    offset_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Reserved:
    """What lies where in a step after the first ones, and what it takes.

    Attributes:
        reserved_bytes: int64, shape (runs,): of all segments while a run is at its worst.
        allocated_bytes: int64, shape (runs,): of them in use.
        blocks: of the step, at their addresses.
        fixed: what outlives it, at its addresses.
        flushes: how often in the step all that was cached went back to the device.
    """

    reserved_bytes: np.ndarray
    allocated_bytes: np.ndarray
    blocks: tuple[Block, ...]
    fixed: tuple[Lasting, ...]
    flushes: int


@dataclass(frozen=True, eq=False, repr=False)
class Reservation(Summarised):
    """What PyTorch's caching allocator makes of a step, once a few steps have been taken.

    Attributes:
        allocator: which.
        unlimited: on a device that has enough.
        smallest_limit_bytes: a device with so much memory for this process runs the step; every larger one that was
            tried does.
        limited: on that device.
    """

    allocator: Allocator
    unlimited: Reserved
    smallest_limit_bytes: int
    limited: Reserved

    def facts(self) -> Iterator[Fact]:
        """What is reserved, and how little will do."""
        yield "allocator", str(self.allocator)
        yield "reserved", format_bytes(self.peak_bytes)
        yield "smallest device", format_bytes(self.smallest_limit_bytes)
        if self.flushes:
            yield "flushes there", f"{self.flushes} a step"

    @property
    def peak_bytes(self) -> int:
        """The most that is reserved (``torch.cuda.max_memory_reserved``)."""
        return int(self.unlimited.reserved_bytes.max(initial=0))

    @property
    def allocated_peak_bytes(self) -> int:
        """The most in use, counted in whole blocks (``torch.cuda.max_memory_allocated``)."""
        return int(self.unlimited.allocated_bytes.max(initial=0))

    @property
    def fragmentation(self) -> float:
        """Share of the reserved peak that is not in use at the peak (MODeL, section 5)."""
        return 1 - self.allocated_peak_bytes / self.peak_bytes if self.peak_bytes else 0.0

    @property
    def flushes(self) -> int:
        """How often a step on the smallest device has all that is cached given back, which waits for the device."""
        return self.limited.flushes


def an_allocator(value: Any) -> Allocator:
    """One of ``Allocator``.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(value, str) or value not in {x.value for x in Allocator}:
        allowed = ", ".join(repr(x.value) for x in Allocator)
        raise ValueError(f"allocator is {shown(value)}; it must be one of {allowed}")
    return Allocator(value)


@dataclass(frozen=True, eq=False)
class Trace:
    """All that a training loop asks of the allocator.

    Attributes:
        lasting: model and batch, in the order in which they are made.
        libraries: workspaces that libraries keep, made in the first step: each with the run that does.
        state: of the optimizer, made when the first step ends.
        blocks: of one step.
        runs: how many it has.
    """

    lasting: tuple[Lasting, ...]
    libraries: tuple[tuple[int, Lasting], ...]
    state: tuple[Lasting, ...]
    blocks: tuple[Block, ...]
    runs: int

    @classmethod
    def of(cls, profile: Profile, schedule: Schedule, timeline: Timeline, *, first_microbatch: bool = False) -> Trace:
        """What a scheduled step asks for; the timeline is the simulator's, of the first microbatch or not."""
        storages = [profile.graph.storages[x] for x in sorted(profile.graph.persistent)]
        if first_microbatch:
            storages = [x for x in storages if x.role is not Role.GRADIENT_BUFFER]
        roles = [Role.PARAMETER, Role.BUFFER, Role.GRADIENT_BUFFER, Role.INPUT]
        storages.sort(key=lambda x: roles.index(x.role) if x.role in roles else len(roles))
        lasting = [Lasting(ROLE_CATEGORY[x.role], x.bytes) for x in storages]
        libraries = [(run, Lasting(Category.WORKSPACE, x)) for run, x in library_workspaces(profile, timeline)]
        parameters = [x.bytes for x in storages if x.role is Role.PARAMETER]
        blocks = tuple(x for x in memory_blocks(profile, schedule, timeline) if x.bytes)
        state = _state(parameters, profile.optimizer_state_bytes)
        return cls(tuple(x for x in lasting if x.bytes), tuple(libraries), state, blocks, len(timeline.operators))

    @cached_property
    def made(self) -> list[list[int]]:
        """By run, which blocks begin there; a call takes its results first, then its workspace."""
        made: list[list[int]] = [[] for _ in range(self.runs)]
        for number, block in enumerate(self.blocks):
            made[block.first].append(number)
        for numbers in made:
            numbers.sort(key=lambda x: self.blocks[x].is_workspace)
        return made

    @cached_property
    def freed(self) -> list[list[int]]:
        """By run, which blocks end there; what the caller receives goes before the next step."""
        freed: list[list[int]] = [[] for _ in range(self.runs)]
        for number, block in enumerate(self.blocks):
            freed[block.last].append(number)
        return freed


def _state(parameters: Sequence[int], total_bytes: int) -> tuple[Lasting, ...]:
    """An optimizer's state as so many tensors of each parameter's size, which is how nearly all keep it."""
    each = total_bytes // max(1, sum(parameters))
    rest = total_bytes - each * sum(parameters)
    sizes = [*(size for size in parameters for _ in range(each)), rest]
    return tuple(Lasting(Category.OPTIMIZER_STATE, x) for x in sizes if x)


def play(trace: Trace, *, expandable: bool, limit_bytes: int | None = None, flushing: bool = True) -> Reserved | None:
    """Take steps until one is as the one before it; None: the device is too small, or would be without a flush."""
    allocator = CachingAllocator(limit_bytes=limit_bytes, expandable=expandable, flushing=flushing)
    try:
        fixed = _take(allocator, trace.lasting)
        fixed += _step(allocator, trace, trace.libraries).fixed
        fixed += _take(allocator, trace.state)
        steps = [_step(allocator, trace)]
        while len(steps) < _MOST_STEPS:
            steps.append(_step(allocator, trace))
            if steps[-1].like(steps[-2]):
                break
    except DeviceFullError:
        return None
    return steps[-1].reserved(trace, fixed)


def _close_up(found: Reserved) -> Reserved:
    """The segment of large blocks right behind that of small ones, not where addresses would let that grow to."""
    room, unit = EXPANDABLE_ROOM_BYTES, SEGMENT_ROUNDING_BYTES
    small = max((x.offset_bytes + x.bytes for x in (*found.blocks, *found.fixed) if x.offset_bytes < room), default=0)
    less = room - -(-small // unit) * unit

    def closer(x: Any) -> Any:
        return replace(x, offset_bytes=x.offset_bytes - less) if x.offset_bytes >= room else x

    return replace(found, blocks=tuple(map(closer, found.blocks)), fixed=tuple(map(closer, found.fixed)))


def _take(allocator: CachingAllocator, wanted: Sequence[Lasting]) -> tuple[Lasting, ...]:
    """Where each of them comes to lie."""
    taken = [allocator.malloc(x.bytes) for x in wanted]
    return tuple(replace(x, offset_bytes=y.address, bytes=y.bytes) for x, y in zip(wanted, taken, strict=True))


@dataclass(frozen=True, slots=True)
class _Step:
    """One step, as the allocator saw it: what lies where, by number of block, and what a step takes by then."""

    reserved_bytes: np.ndarray
    allocated_bytes: np.ndarray
    places: list[tuple[int, int]]
    fixed: tuple[Lasting, ...]
    flushes: int

    def like(self, other: _Step) -> bool:
        return self.flushes == other.flushes and np.array_equal(self.reserved_bytes, other.reserved_bytes)

    def reserved(self, trace: Trace, fixed: tuple[Lasting, ...]) -> Reserved:
        blocks = zip(trace.blocks, self.places, strict=True)
        placed = tuple(replace(x, offset_bytes=address, bytes=taken) for x, (address, taken) in blocks)
        return Reserved(self.reserved_bytes, self.allocated_bytes, placed, fixed, self.flushes)


def _step(allocator: CachingAllocator, trace: Trace, libraries: Sequence[tuple[int, Lasting]] = ()) -> _Step:
    """One step; in the first one, libraries take what they keep, behind the results of the call that begins to."""
    there: dict[int, Taken] = {}
    fixed: tuple[Lasting, ...] = ()
    flushes = allocator.flushes
    reserved, allocated = np.zeros(trace.runs, np.int64), np.zeros(trace.runs, np.int64)
    places = [(0, 0)] * len(trace.blocks)
    for run in range(trace.runs):
        wanted = [x for at, x in libraries if at == run]
        for number in trace.made[run]:
            if wanted and trace.blocks[number].is_workspace:
                fixed, wanted = fixed + _take(allocator, wanted), []
            found = there[number] = allocator.malloc(trace.blocks[number].bytes)
            places[number] = found.address, found.bytes
        fixed += _take(allocator, wanted)
        reserved[run], allocated[run] = allocator.reserved_bytes, allocator.allocated_bytes
        for number in trace.freed[run]:
            allocator.free(there.pop(number))
    return _Step(reserved, allocated, places, fixed, allocator.flushes - flushes)


def reservation(trace: Trace, allocator: Allocator) -> Reservation:
    """What a trace takes, and the smallest device that runs it."""
    expandable = allocator is Allocator.EXPANDABLE
    unlimited = play(trace, expandable=expandable)
    assert unlimited is not None
    # Segments are multiples of this, and so are the limits that differ.
    unit = SEGMENT_ROUNDING_BYTES
    low = int(unlimited.allocated_bytes.max(initial=0)) // unit - 1
    high, limited = -(-int(unlimited.reserved_bytes.max(initial=0)) // unit), unlimited
    top = high
    while True:
        while high - low > 1:
            middle = (low + high) // 2
            found = play(trace, expandable=expandable, limit_bytes=middle * unit)
            low, high, limited = (low, middle, found) if found is not None else (middle, high, limited)
        # More memory may be worse: other blocks are split then.
        probes = sorted({high + (top - high) * x // _PROBES for x in range(1, _PROBES)} - {high, top}, reverse=True)
        worse = next((x for x in probes if play(trace, expandable=expandable, limit_bytes=x * unit) is None), None)
        if worse is None:
            break
        low, high, limited = worse, top, unlimited
    if expandable:
        unlimited, limited = _close_up(unlimited), _close_up(limited)
    return Reservation(allocator, unlimited, high * unit, limited)
