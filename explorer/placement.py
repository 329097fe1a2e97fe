"""Where each tensor of a step lies in one buffer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from explorer.summaries import Fact, Summarised
from explorer.units import format_bytes


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
        """Raises ValueError where a block leaves the buffer or the step."""
        for block in self.blocks:
            end = block.offset_bytes + block.bytes
            if not (block.offset_bytes >= 0 and block.bytes >= 0 and end <= self.buffer_bytes):
                raise ValueError(
                    f"a block is at {block.offset_bytes} to {end} bytes of a buffer of {self.buffer_bytes}"
                )
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
