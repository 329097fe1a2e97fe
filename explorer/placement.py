"""Where each tensor of a step lies in one buffer."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from explorer.arguments import a_whole_number
from explorer.summaries import Fact, Summarised
from explorer.units import format_bytes, shown


class Fit(StrEnum):
    """How good a placement is."""

    PROVEN = "proven"
    """No smaller buffer is possible."""
    GAP = "gap"
    """A smaller one may be."""


@dataclass(frozen=True, slots=True)
class Block:
    """One stretch of the buffer for a while.

    Attributes:
        storages: what lies there: one storage, several one after the other where a run works in place; none: the
            workspace of a run.
        first: the run that makes it.
        last: the last run during which it is there.
        offset_bytes: from the beginning of the buffer.
        bytes: its size, as the device's allocator rounds it.
    """

    storages: tuple[int, ...]
    first: int
    last: int
    offset_bytes: int
    bytes: int

    @property
    def is_workspace(self) -> bool:
        """Is it a run's own, no tensor?"""
        return not self.storages


@dataclass(frozen=True, repr=False)
class Placement(Summarised):
    """Addresses for all that a scheduled step makes, so that nothing is reserved that is not needed.

    Model, batch and optimizer state lie elsewhere, for they outlive the step.

    Attributes:
        blocks: in the order of their first runs.
        runs: how many runs the schedule has.
        buffer_bytes: the highest end of a block.
        load_bytes: most bytes alive at once: the peak of the step less what is there before it.
        bound_bytes: no buffer is smaller: the load, or more where that was proven too small.
        schedule: ``Schedule.fingerprint`` of what it is for; empty where that was not noted.
    """

    blocks: tuple[Block, ...]
    runs: int
    buffer_bytes: int
    load_bytes: int
    bound_bytes: int
    schedule: str = ""

    def __post_init__(self) -> None:
        """Raises ValueError where a block leaves the buffer or the step, two overlap, or a figure cannot be."""
        for name in ("runs", "buffer_bytes", "load_bytes", "bound_bytes"):
            a_whole_number(getattr(self, name), f"a placement's {name}", least=0)
        if not isinstance(self.blocks, tuple) or not all(isinstance(x, Block) for x in self.blocks):
            raise ValueError(f"a placement's blocks are {shown(self.blocks)}; they must be a tuple of Block")
        for block in self.blocks:
            self._check_block(block)
        if pair := _overlapping(self.blocks):
            told = " and ".join(_told(x) for x in pair)
            raise ValueError(f"two blocks of a placement overlap, so that one would overwrite the other: {told}")
        load_bytes = _load_bytes(self.blocks)
        if self.load_bytes != load_bytes:
            raise ValueError(f"load_bytes is {self.load_bytes}; most bytes of these blocks at once are {load_bytes}")
        highest_bytes = max((x.offset_bytes + x.bytes for x in self.blocks if x.bytes), default=0)
        if self.buffer_bytes != highest_bytes:
            raise ValueError(f"buffer_bytes is {self.buffer_bytes}; the highest end of a block is {highest_bytes}")
        if not self.load_bytes <= self.bound_bytes <= self.buffer_bytes:
            raise ValueError(
                f"bound_bytes is {self.bound_bytes}; it must be from load_bytes, {self.load_bytes}, to buffer_bytes, "
                f"{self.buffer_bytes}"
            )

    def _check_block(self, block: Block) -> None:
        """By itself."""
        if not isinstance(block.storages, tuple) or not all(type(x) is int for x in block.storages):
            raise ValueError(f"a block's storages are {block.storages!r:.80}; they must be a tuple of whole numbers")
        for name in ("first", "last", "offset_bytes", "bytes"):
            if type(found := getattr(block, name)) is not int:
                raise ValueError(f"a block's {name} is {shown(found)}; it must be a whole number")
        end = block.offset_bytes + block.bytes
        if not (block.offset_bytes >= 0 and block.bytes >= 0 and end <= self.buffer_bytes):
            raise ValueError(f"a block is at {block.offset_bytes} to {end} bytes of a buffer of {self.buffer_bytes}")
        if not 0 <= block.first <= block.last < self.runs:
            raise ValueError(f"a block is there from run {block.first} to {block.last} of {self.runs}")

    @property
    def fit(self) -> Fit:
        """Is there no smaller buffer?"""
        return Fit.PROVEN if self.buffer_bytes == self.bound_bytes else Fit.GAP

    def facts(self) -> Iterator[Fact]:
        """How large, and how near to what is possible."""
        yield "buffer", format_bytes(self.buffer_bytes)
        yield "load", format_bytes(self.load_bytes)
        if self.fit is Fit.PROVEN:
            yield "", "no smaller buffer is possible"
        else:
            yield "gap", f"{self.buffer_bytes / self.bound_bytes - 1:.2%}"
        yield "blocks", f"{len(self.blocks)}"


def _overlapping(blocks: tuple[Block, ...]) -> tuple[Block, Block] | None:
    """Two that share a byte at some run; None: there are none.

    Those that are there lie apart, or it would have been found, so only the neighbours of a new one can be in its way.
    """
    sized = [x for x in blocks if x.bytes]
    # At equal runs what ends goes before what begins.
    events = sorted([(x.first, 1, i) for i, x in enumerate(sized)] + [(x.last + 1, 0, i) for i, x in enumerate(sized)])
    there: list[tuple[int, int]] = []  # offsets of what is there, and whose
    for _, begins, i in events:
        block = sized[i]
        key = (block.offset_bytes, i)
        at = bisect_left(there, key)
        if not begins:
            del there[at]
            continue
        for _, j in there[max(0, at - 1) : at + 1]:
            other = sized[j]
            low, high = sorted((block, other), key=lambda x: x.offset_bytes)
            if high.offset_bytes < low.offset_bytes + low.bytes:
                return other, block
        insort(there, key)
    return None


def _load_bytes(blocks: tuple[Block, ...]) -> int:
    """Most of them at once."""
    changes = sorted([(x.first, x.bytes) for x in blocks] + [(x.last + 1, -x.bytes) for x in blocks])
    now = most = 0
    for _, change in changes:  # at equal runs what ends comes first: it is negative
        now += change
        most = max(most, now)
    return most


def _told(block: Block) -> str:
    what = f"storages {', '.join(map(str, block.storages))}" if block.storages else "a workspace"
    end = block.offset_bytes + block.bytes
    return f"{what} at {block.offset_bytes} to {end} bytes from run {block.first} to {block.last}"
