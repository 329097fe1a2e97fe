"""Where each tensor of a step lies: rectangles of runs by addresses, which may be moved by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from explorer.device_profile import Profile
from explorer.placement import Block, Placement
from explorer.reserved import Reservation
from explorer.timeline import Category, Lifetime, Timeline
from widgets.scene.allocations import describe

_SNAP = 100  # an edge attracts from this part of the buffer


@dataclass(frozen=True, slots=True)
class Rectangle:
    """One tensor's stay at one place, or a run's workspace.

    Attributes:
        block: its number; tensors that take over each other's memory in place have one together.
        name: of the tensor; for workspace, whose it is.
        shape: such as ``float32[8, 64, 56, 56]``; empty for workspace.
        layer: that made it; empty for none.
        category: what it is for.
        first: the run that makes it.
        last: the last run during which it is there.
        offset_bytes: its address.
        bytes: as the allocator takes it.
    """

    block: int
    name: str
    shape: str
    layer: str
    category: Category
    first: int
    last: int
    offset_bytes: int
    bytes: int

    @property
    def end_bytes(self) -> int:
        """The first address behind it."""
        return self.offset_bytes + self.bytes

    def meets(self, other: Rectangle) -> bool:
        """Are both there at some run?"""
        return self.first <= other.last and other.first <= self.last

    def collides(self, other: Rectangle) -> bool:
        """Do both want an address at the same run?"""
        return self.meets(other) and self.offset_bytes < other.end_bytes and other.offset_bytes < self.end_bytes


@dataclass(frozen=True)
class AddressMap:
    """All of a step.

    Attributes:
        rectangles: by block, those of one in the order of their runs.
        runs: how many the step has.
        load_bytes: most that is alive at once.
        bound_bytes: no buffer is smaller.
        by_hand: blocks that someone moved.
        reserved_bytes: taken by an allocator, in whose segments all this lies; 0: it lies in a buffer of its own.
        note: what is to be known of it besides, as a sentence; empty for nothing.
    """

    rectangles: tuple[Rectangle, ...]
    runs: int
    load_bytes: int
    bound_bytes: int
    by_hand: frozenset[int] = frozenset()
    reserved_bytes: int = 0
    note: str = ""

    @cached_property
    def buffer_bytes(self) -> int:
        """The highest end."""
        return max((x.end_bytes for x in self.rectangles), default=self.reserved_bytes)

    @cached_property
    def collisions(self) -> tuple[tuple[Rectangle, Rectangle], ...]:
        """Of those that were moved by hand with others, each pair once; the largest others first."""
        moved = [x for x in self.rectangles if x.block in self.by_hand]
        pairs = [
            (x, y)
            for x in moved
            for y in self.rectangles
            if y.block != x.block and x.collides(y) and not (y.block in self.by_hand and y.block < x.block)
        ]
        return tuple(sorted(pairs, key=lambda pair: -pair[1].bytes))

    def of(self, block: int) -> tuple[Rectangle, ...]:
        """The rectangles of a block."""
        return tuple(x for x in self.rectangles if x.block == block)

    def highest_end_beside(self, block: int) -> int:
        """Of all other blocks: above it nothing is in the way."""
        return max((x.end_bytes for x in self.rectangles if x.block != block), default=0)

    def near(self, block: int, *, at_bytes: float) -> float:
        """Where a hand meant that drags a block there: at the edge of a neighbour if one is very near."""
        own = self.of(block)
        size = max(x.bytes for x in own)
        others = [x for x in self.rectangles if x.block != block and any(x.meets(y) for y in own)]
        edges = [0, *(x.end_bytes for x in others), *(x.offset_bytes - size for x in others)]
        edge = min((x for x in edges if x >= 0), key=lambda x: abs(x - at_bytes))
        return edge if abs(edge - at_bytes) <= self.buffer_bytes / _SNAP else at_bytes

    def moved(self, block: int, *, to_bytes: float) -> AddressMap:
        """With a block elsewhere, to the byte; there is nothing below 0."""
        offset = max(0, round(to_bytes))
        rectangles = tuple(replace(x, offset_bytes=offset) if x.block == block else x for x in self.rectangles)
        return replace(self, rectangles=rectangles, by_hand=self.by_hand | {block})


def address_map(profile: Profile, timeline: Timeline, placement: Placement, *, note: str = "") -> AddressMap:
    """A placement, with what is known of what it places.

    Args:
        profile: of the timeline.
        timeline: of the schedule that was placed.
        placement: of that schedule.
        note: to be said of it.
    """
    stays = {(x.storage, x.start): x for x in timeline.lifetimes}
    rectangles = [
        x for number, block in enumerate(placement.blocks) for x in _of_block(profile, timeline, stays, number, block)
    ]
    return AddressMap(tuple(rectangles), placement.runs, placement.load_bytes, placement.bound_bytes, note=note)


def reserved_map(profile: Profile, timeline: Timeline, found: Reservation) -> AddressMap:
    """What lies where in the segments of PyTorch's caching allocator, model and batch included.

    Args:
        profile: of the timeline.
        timeline: of a schedule.
        found: what the caching allocator makes of that schedule.
    """
    reserved = found.unlimited
    stays = {(x.storage, x.start): x for x in timeline.lifetimes}
    rectangles = [
        x for number, block in enumerate(reserved.blocks) for x in _of_block(profile, timeline, stays, number, block)
    ]
    last = len(timeline.operators) - 1
    rectangles += [
        Rectangle(number, x.category.value, "", "", x.category, 0, last, x.offset_bytes, x.bytes)
        for number, x in enumerate(reserved.fixed, len(reserved.blocks))
    ]
    peak = found.peak_bytes
    return AddressMap(tuple(rectangles), last + 1, found.allocated_peak_bytes, peak, reserved_bytes=peak)


def _of_block(
    profile: Profile, timeline: Timeline, stays: Mapping[tuple[int, int], Lifetime], number: int, block: Block
) -> Iterator[Rectangle]:
    """A rectangle for each tensor that is there, one after the other."""
    graph = profile.graph
    place = (block.offset_bytes, block.bytes)
    if block.is_workspace:
        user = graph.operators[timeline.operators[block.first]]
        name = f"workspace of {user.name}"
        yield Rectangle(number, name, "", user.layer, Category.WORKSPACE, block.first, block.last, *place)
        return
    first = block.first
    for name in block.storages:
        stay = stays[name, first]
        storage = graph.storages[name]
        layer = graph.operators[graph.producer[name]].layer
        yield Rectangle(number, storage.name, describe(storage), layer, stay.category, stay.start, stay.end, *place)
        first = stay.end + 1
