"""Rectangles of lifetime × bytes, and what follows from them alone: the load, sections of time, neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from explorer.graph import MOST_BYTES
from explorer.solvers.placing.kernel import Instance


@dataclass(frozen=True, eq=False)
class Rectangles:
    """What is to be placed: each alive from its start to its end, which is no longer part of it.

    Attributes:
        start: int64, shape (n,).
        end: int64, shape (n,), above ``start``.
        bytes: int64, shape (n,), above 0.
    """

    start: np.ndarray
    end: np.ndarray
    bytes: np.ndarray

    def __post_init__(self) -> None:
        """Check the shapes and ranges.

        Raises:
            ValueError: names the first rectangle that cannot be.
        """
        for name in ("start", "end", "bytes"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), np.int64).reshape(-1))
        if not self.start.size == self.end.size == self.bytes.size:
            raise ValueError(f"there are {self.start.size} starts, {self.end.size} ends and {self.bytes.size} sizes")
        for wrong, said in (
            (self.end <= self.start, "ends at {end} and starts at {start}; it must end later"),
            ((self.bytes <= 0) | (self.bytes > MOST_BYTES), f"has {{bytes}} bytes; allowed: 1 to {MOST_BYTES}"),
        ):
            if wrong.any():
                i = int(wrong.argmax())
                told = said.format(start=self.start[i], end=self.end[i], bytes=self.bytes[i])
                raise ValueError(f"rectangle {i} {told}")

    def __len__(self) -> int:
        """How many there are."""
        return self.start.size

    @cached_property
    def load_bytes(self) -> int:
        """Most bytes alive at once: no buffer can be smaller."""
        return int(self._section_bytes.max(initial=0))

    @cached_property
    def _sections(self) -> tuple[np.ndarray, np.ndarray, int]:
        """First section of each rectangle, the one after its last, and how many there are.

        Of the stretches between two events only those count that begin a start and end at an end: whatever is alive in
        another one is alive in a neighbour too, with more.
        """
        times = np.unique(np.concatenate([self.start, self.end]))
        first, after = np.searchsorted(times, self.start), np.searchsorted(times, self.end)
        starts, ends = np.zeros(times.size, bool), np.zeros(times.size, bool)
        starts[first], ends[after] = True, True
        kept, open_ = [], False
        for stretch in range(times.size - 1):
            open_ |= bool(starts[stretch])
            if open_ and ends[stretch + 1]:
                kept.append(stretch)
                open_ = False
        return np.searchsorted(kept, first), np.searchsorted(kept, after), len(kept)

    @cached_property
    def _section_bytes(self) -> np.ndarray:
        """Bytes alive in each section."""
        first, after, count = self._sections
        change = np.zeros(count + 1, np.int64)
        np.add.at(change, first, self.bytes)
        np.add.at(change, after, -self.bytes)
        return change.cumsum()[:count]

    @cached_property
    def instance(self) -> Instance:
        """The same for the search."""
        first, after, count = self._sections
        overlaps = (first[:, None] < after) & (first < after[:, None])
        np.fill_diagonal(overlaps, val=False)
        sections = np.arange(count)[:, None]
        alive = (first <= sections) & (sections < after)
        neighbour_start = np.concatenate([[0], overlaps.sum(1).cumsum()]).astype(np.int64)
        section_start = np.concatenate([[0], alive.sum(1).cumsum()]).astype(np.int64)
        return Instance(
            first.astype(np.int64),
            after.astype(np.int64),
            self.bytes,
            neighbour_start,
            np.nonzero(overlaps)[1].astype(np.int64),
            section_start,
            np.nonzero(alive)[1].astype(np.int64),
        )

    def orders(self) -> dict[str, np.ndarray]:
        """Ways to go through them, the most awkward first, by the initials of ``measures`` in the order they count."""
        names = ("WAT", "TAW", "TWA", "AWT", "WTA", "ATW", "ZW", "AW", "CZ", "ZC")
        keys = self.measures
        return {x: np.lexsort([-keys[key] for key in reversed(x)]).astype(np.int64) for x in names}

    @cached_property
    def measures(self) -> dict[str, np.ndarray]:
        """How awkward each one is.

        A: area, C: life in runs, T: most bytes alive beside it, W: life in sections, Z: bytes.
        """
        first, after, _ = self._sections
        beside = np.array([self._section_bytes[x:y].max() for x, y in zip(first, after, strict=True)], np.int64)
        life = self.end - self.start
        return {"A": life.astype(float) * self.bytes, "C": life, "T": beside, "W": after - first, "Z": self.bytes}
