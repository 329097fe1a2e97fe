"""What no order can go below: what must be in memory while an operator runs, whatever came before it.

Two things are known of any order at an operator: those that it needs have run, and those that need it have not. So a
tensor between the two is there. Others may be: whatever else has run, some tensors cross from what has run to what has
not, and the least of them is a minimum cut.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_flow

from explorer.solvers.ordering.task import Task

_CUTS = 12
"""Operators whose bound is raised by a cut: those with the highest."""
_ALWAYS = 2**30
"""A capacity that no cut crosses; capacities are 32-bit."""


def earlier_and_later(task: Task) -> tuple[np.ndarray, np.ndarray]:
    """Which operators have run before each one in any order, and which have not.

    Returns:
        bool, shape (operators, operators), each: in row ``v`` those that ``v`` needs, directly or not; and those that
        need ``v``.
    """
    count = len(task)
    rows = np.zeros((count, -(-count // 8)), dtype=np.uint8)  # bits: unions of sets are what takes the time
    for at, needs in enumerate(task.needs):
        for x in needs:
            rows[at] |= rows[x]
            rows[at, x >> 3] |= np.uint8(0x80 >> (x & 7))
    earlier = np.unpackbits(rows, axis=1, count=count).astype(bool)
    return earlier, earlier.T


def bytes_at(task: Task, earlier: np.ndarray, later: np.ndarray) -> np.ndarray:
    """What must be in memory while each operator runs: int64, shape (operators,).

    Args:
        task: what is to be put in order.
        earlier: as ``earlier_and_later`` has it.
        later: likewise.
    """
    sizes = np.array(task.tensor_bytes, dtype=np.int64)
    if not sizes.size:
        return task.fixed_bytes + np.array(task.workspace_bytes, dtype=np.int64)
    maker = np.array([task.maker[x] for x in range(sizes.size)], dtype=np.int64)
    least = np.full(len(task), task.fixed_bytes, dtype=np.int64)
    least += np.array(task.workspace_bytes, dtype=np.int64)
    least += np.array([sum(task.tensor_bytes[x] for x in made) for made in task.writes], dtype=np.int64)
    for x, readers in enumerate(task.readers):
        between = earlier[:, maker[x]].copy()
        if x not in task.held:
            wanted = np.asarray(later[:, list(readers)].any(axis=1), dtype=bool)
            wanted[list(readers)] = True
            between &= wanted
        least += sizes[x] * between
    return least


def lower_bound_bytes(task: Task, *, enough_bytes: int | None = None) -> int:
    """No order has a smaller peak.

    Args:
        task: what is to be put in order.
        enough_bytes: a peak that is known; once the bound is there, nothing more is to be shown.
    """
    if not len(task):
        return task.fixed_bytes
    earlier, later = earlier_and_later(task)
    least = bytes_at(task, earlier, later)
    bound = int(least.max())
    for at in np.argsort(-least, kind="stable")[:_CUTS].tolist():
        if enough_bytes is not None and bound >= enough_bytes:
            break
        bound = max(bound, _cut_bytes(task, at, earlier[at], later[at]))
    return max(bound, task.fixed_bytes)


def _cut_bytes(task: Task, at: int, earlier: np.ndarray, later: np.ndarray) -> int:
    """What must be in memory while one operator runs, whatever else has run.

    A network whose source side is what has run: what makes a tensor is tied to the tensor by its size, and the tensor
    to those that read it without limit, so that it is cut unless they have all run.
    """
    count, tensors = len(task), len(task.tensor_bytes)
    source, sink = count + tensors, count + tensors + 1
    scale = max(1, -(-sum(task.tensor_bytes) // (_ALWAYS - 1)))  # in whole units that fit, rounded down
    edges: list[tuple[int, int, int]] = []
    for x in range(tensors):
        edges.append((task.maker[x], count + x, task.tensor_bytes[x] // scale))
        edges += [(count + x, reader, _ALWAYS) for reader in task.readers[x]]
        if x in task.held:
            edges.append((count + x, sink, _ALWAYS))
    for v, needs in enumerate(task.needs):
        edges += [(v, x, _ALWAYS) for x in needs]
    edges += [(source, x, _ALWAYS) for x in np.flatnonzero(earlier).tolist()]
    edges += [(x, sink, _ALWAYS) for x in (at, *np.flatnonzero(later).tolist())]
    heads, tails, capacities = (np.array(column, dtype=np.int32) for column in zip(*edges, strict=True))
    some = capacities > 0
    matrix = csr_matrix((capacities[some], (heads[some], tails[some])), shape=(sink + 1, sink + 1), dtype=np.int32)
    matrix.data = np.minimum(matrix.data, _ALWAYS)  # parallel edges were added up
    flow = int(maximum_flow(matrix, source, sink).flow_value)
    made = sum(task.tensor_bytes[x] for x in task.writes[at])
    return task.fixed_bytes + flow * scale + made + task.workspace_bytes[at]
