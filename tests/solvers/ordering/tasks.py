"""Random tasks, and the best order of one by looking at all of them."""

from __future__ import annotations

import numpy as np

from explorer.solvers.ordering.task import Task


def random_task(random: np.random.Generator, *, most: int = 12) -> Task:
    """Up to ``most`` operators with workspaces, tensors that are held or that nobody reads, and other precedences.

    Some results take the memory of what is read there last.
    """
    count = int(random.integers(3, most + 1))
    reads: list[set[int]] = [set() for _ in range(count)]
    writes: list[list[int]] = [[] for _ in range(count)]
    sizes: list[int] = []
    for at in range(count):
        for _ in range(int(random.integers(0, 3))):
            writes[at].append(len(sizes))
            if at < count - 1:
                for reader in random.integers(at + 1, count, random.integers(0, 4)).tolist():
                    reads[reader].add(len(sizes))
            sizes.append(int(random.integers(0, 30)))
    held = frozenset(x for x in range(len(sizes)) if random.random() < 0.15)
    before = [{x for x in range(at) if random.random() < 0.05} for at in range(count)]
    workspace = random.integers(0, 15, count).tolist()
    for at in range(count):
        last = [x for x in sorted(reads[at] - held) if not any(x in later for later in reads[at + 1 :])]
        if last and writes[at] and random.random() < 0.4:
            sizes[writes[at][0]] = sizes[last[0]]
            workspace[at] -= sizes[last[0]]
            before[at] |= {x for x in range(at) if last[0] in reads[x]}
    return Task(
        reads=tuple(tuple(sorted(x)) for x in reads),
        writes=tuple(map(tuple, writes)),
        tensor_bytes=tuple(sizes),
        workspace_bytes=tuple(workspace),
        before=tuple(map(frozenset, before)),
        held=held,
        fixed_bytes=int(random.integers(0, 50)),
    )


def least_peak_bytes(task: Task) -> int:
    """Of all orders, by every set of operators that may have run."""
    needs = [sum(1 << x for x in needed) for needed in task.needs]
    readers = [sum(1 << x for x in found) for found in task.readers]
    peaks = {0: task.fixed_bytes}
    for _ in range(len(task)):
        further: dict[int, int] = {}
        for done, peak in peaks.items():
            live = task.fixed_bytes + sum(
                size
                for x, size in enumerate(task.tensor_bytes)
                if done >> task.maker[x] & 1 and (readers[x] & ~done or x in task.held)
            )
            for at in range(len(task)):
                if not done >> at & 1 and not needs[at] & ~done:
                    made = sum(task.tensor_bytes[x] for x in task.writes[at])
                    found = max(peak, live + made + task.workspace_bytes[at])
                    further[done | 1 << at] = min(found, further.get(done | 1 << at, found))
        peaks = further
    return peaks[(1 << len(task)) - 1]
