"""What is to be put in order: operators that make and read tensors, without anything of a graph or a device.

A tensor is in memory from the operator that makes it to the last one that reads it; to the end, where it is held. While
an operator runs, what it makes is there too, and its workspace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from explorer.units import shown


@dataclass(frozen=True, eq=False)
class Task:
    """Operators to put in order, by number; ``0 … n − 1`` is an order that is allowed.

    Attributes:
        reads: of each operator, the tensors that it reads.
        writes: of each operator, the tensors that it makes; every tensor is made by one.
        before: of each operator, others that come before it whatever they make.
        tensor_bytes: of each tensor.
        workspace_bytes: of each operator, beside tensors; less than nothing where a result takes the memory of what
            the operator is the last to read.
        held: tensors that stay to the end.
        fixed_bytes: in memory throughout.
        forward: so many operators come before all others: the forward pass.
    """

    reads: tuple[tuple[int, ...], ...]
    writes: tuple[tuple[int, ...], ...]
    tensor_bytes: tuple[int, ...]
    workspace_bytes: tuple[int, ...]
    before: tuple[frozenset[int], ...] = ()
    held: frozenset[int] = frozenset()
    fixed_bytes: int = 0
    forward: int = 0
    maker: dict[int, int] = field(init=False)
    """The operator that makes a tensor."""

    def __post_init__(self) -> None:
        """Raises ValueError for lists of unequal length, and for an operator that comes before what it needs."""
        if not len(self.reads) == len(self.writes) == len(self.workspace_bytes):
            raise ValueError(
                f"reads, writes and workspace_bytes are of {len(self.reads)}, {len(self.writes)} and "
                f"{len(self.workspace_bytes)} operators: they must be of equally many"
            )
        if not self.before:
            object.__setattr__(self, "before", (frozenset(),) * len(self.reads))
        object.__setattr__(self, "maker", {x: at for at, made in enumerate(self.writes) for x in made})
        for at, needs in enumerate(self.needs):
            if any(not 0 <= x < at for x in needs):
                raise ValueError(f"operator {at} needs {sorted(needs)}: those before it must have smaller numbers")

    def __len__(self) -> int:
        """How many operators there are."""
        return len(self.reads)

    @cached_property
    def needs(self) -> tuple[frozenset[int], ...]:
        """Of each operator, those that must have run."""
        missing = {x for read in self.reads for x in read} - self.maker.keys()
        if missing:
            raise ValueError(f"tensor {min(missing)} is read and made by no operator")
        return tuple(
            frozenset(self.maker[x] for x in read) | others
            for read, others in zip(self.reads, self.before, strict=True)
        )

    @cached_property
    def followers(self) -> tuple[tuple[int, ...], ...]:
        """Of each operator, those that need it."""
        found: list[list[int]] = [[] for _ in self.reads]
        for at, needs in enumerate(self.needs):
            for x in needs:
                found[x].append(at)
        return tuple(map(tuple, found))

    @cached_property
    def readers(self) -> tuple[tuple[int, ...], ...]:
        """Of each tensor, the operators that read it."""
        found: list[list[int]] = [[] for _ in self.tensor_bytes]
        for at, read in enumerate(self.reads):
            for x in read:
                found[x].append(at)
        return tuple(map(tuple, found))

    @cached_property
    def arrays(self) -> TaskArrays:
        """The same for compiled code."""
        sizes, held = np.array(self.tensor_bytes, dtype=np.int64), np.zeros(len(self.tensor_bytes), dtype=np.bool_)
        held[list(self.held)] = True
        return TaskArrays(
            *_lists(self.reads),
            *_lists(self.writes),
            *_lists(self.followers),
            np.array([len(x) for x in self.needs], dtype=np.int64),
            sizes,
            np.array([sum(self.tensor_bytes[x] for x in made) for made in self.writes], dtype=np.int64),
            np.array(self.workspace_bytes, dtype=np.int64),
            held,
            np.array([len(x) for x in self.readers], dtype=np.int64),
        )

    def memory_bytes(self, order: Sequence[int]) -> np.ndarray:
        """Memory while each operator runs.

        Args:
            order: every operator once, each after those that it needs.

        Returns:
            int64, shape (operators,), in that order.

        Raises:
            ValueError: that is not so.
        """
        left = [len(x) for x in self.readers]
        done: set[int] = set()
        now, rows = self.fixed_bytes, []
        for at in order:
            if at in done or not self.needs[at] <= done:
                raise ValueError(f"operator {shown(at)} cannot run there: twice, or before what it needs")
            done.add(at)
            now += sum(self.tensor_bytes[x] for x in self.writes[at])
            rows.append(now + self.workspace_bytes[at])
            for x in self.reads[at]:
                left[x] -= 1
            now -= sum(
                self.tensor_bytes[x] for x in (*self.reads[at], *self.writes[at]) if left[x] == 0 and x not in self.held
            )
        if len(done) < len(self):
            raise ValueError(f"the order has {len(done)} of {len(self)} operators: it must have every one")
        return np.array(rows, dtype=np.int64)

    def peak_bytes(self, order: Sequence[int]) -> int:
        """The most of ``memory_bytes``."""
        return int(self.memory_bytes(order).max(initial=self.fixed_bytes))


class TaskArrays(NamedTuple):
    """A task for compiled code, int64 throughout; lists of unequal length as starts and one array.

    Attributes:
        read_start, reads: tensors that operators read.
        write_start, writes: tensors that they make.
        follower_start, followers: operators that need them.
        needed: how many each operator needs.
        tensor_bytes: of each tensor.
        made_bytes: what each operator makes.
        workspace_bytes: of each operator.
        held: bool, of each tensor.
        reader_count: of each tensor.
    """

    read_start: np.ndarray
    reads: np.ndarray
    write_start: np.ndarray
    writes: np.ndarray
    follower_start: np.ndarray
    followers: np.ndarray
    needed: np.ndarray
    tensor_bytes: np.ndarray
    made_bytes: np.ndarray
    workspace_bytes: np.ndarray
    held: np.ndarray
    reader_count: np.ndarray


def _lists(lists: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    start = np.zeros(len(lists) + 1, dtype=np.int64)
    start[1:] = np.cumsum([len(x) for x in lists])
    return start, np.array([y for x in lists for y in x], dtype=np.int64)
