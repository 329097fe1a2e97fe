"""Orders, compiled: list scheduling under a target, its priorities perturbed, and a search over sets of operators."""

# numba has its own generator behind np.random's old names; and flat loops are what compiles to quick code.
# ruff: noqa: C901, NPY002, PLR0912, PLR0915

from __future__ import annotations

import numpy as np

from explorer.solvers.ordering.task import TaskArrays
from explorer.solvers.search.machine_code import compiled

NONE, FOUND, UNDECIDED = 0, 1, -1
"""How ``search_sets`` ended: there is no such order, here it is, or too many sets were looked at."""


@compiled
def gone_after(task: TaskArrays, at: int, left: np.ndarray) -> int:
    """Bytes that are free once operator ``at`` has run, where ``left`` readers of each tensor have not."""
    freed = 0
    for i in range(task.read_start[at], task.read_start[at + 1]):
        x = task.reads[i]
        if left[x] == 1 and not task.held[x]:
            freed += task.tensor_bytes[x]
    for i in range(task.write_start[at], task.write_start[at + 1]):
        x = task.writes[i]
        if left[x] == 0 and not task.held[x]:
            freed += task.tensor_bytes[x]
    return int(freed)


@compiled
def peak_of(task: TaskArrays, order: np.ndarray) -> int:
    """The peak of a valid order, without what is fixed."""
    left = task.reader_count.copy()
    live, peak = 0, 0
    for at in order:
        peak = max(peak, live + task.made_bytes[at] + task.workspace_bytes[at])
        live += task.made_bytes[at] - gone_after(task, at, left)
        for i in range(task.read_start[at], task.read_start[at + 1]):
            left[task.reads[i]] -= 1
    return int(peak)


@compiled
def relief(task: TaskArrays, at: int, waiting: np.ndarray, left: np.ndarray) -> int:
    """Bytes by which memory falls again at once: by followers of ``at`` that free what it makes, and make less."""
    total = 0
    for i in range(task.follower_start[at], task.follower_start[at + 1]):
        follower = task.followers[i]
        if waiting[follower] != 1:
            continue
        freed = 0
        for j in range(task.read_start[follower], task.read_start[follower + 1]):
            x = task.reads[j]
            for k in range(task.write_start[at], task.write_start[at + 1]):
                if task.writes[k] == x and left[x] == 1 and not task.held[x]:
                    freed += task.tensor_bytes[x]
        total += max(0, freed - task.made_bytes[follower])
    return int(total)


@compiled
def list_schedule(task: TaskArrays, target: int, priority: np.ndarray) -> tuple[int, np.ndarray]:
    """An order by one rule, and its peak, as ``peak_of`` has it.

    Next is what fits below ``target`` and leaves no more memory taken than before; else the first by ``priority``
    (float64, low first) that fits; else what exceeds the target least.
    """
    count = task.needed.size
    waiting, left = task.needed.copy(), task.reader_count.copy()
    ready, order = np.empty(count, np.int64), np.empty(count, np.int64)
    there = 0
    for at in range(count):
        if waiting[at] == 0:
            ready[there] = at
            there += 1
    live, peak, done = 0, 0, 0
    while there:
        best, best_class, best_key, best_priority = -1, 3, 0.0, 0.0
        for i in range(there):
            at = ready[i]
            need = live + task.made_bytes[at] + task.workspace_bytes[at]
            net = task.made_bytes[at] - gone_after(task, at, left)
            if net > 0:
                net -= relief(task, at, waiting, left)
            if need > target:
                kind, key = 2, float(need)
            elif net <= 0:
                kind, key = 0, float(net)
            else:
                kind, key = 1, priority[at]
            better = kind < best_class or (kind == best_class and key < best_key)
            if better or (kind == best_class and key == best_key and priority[at] < best_priority):
                best, best_class, best_key, best_priority = i, kind, key, priority[at]
        at = ready[best]
        there -= 1
        ready[best] = ready[there]
        order[done] = at
        done += 1
        peak = max(peak, live + task.made_bytes[at] + task.workspace_bytes[at])
        live += task.made_bytes[at] - gone_after(task, at, left)
        for i in range(task.read_start[at], task.read_start[at + 1]):
            left[task.reads[i]] -= 1
        for i in range(task.follower_start[at], task.follower_start[at + 1]):
            follower = task.followers[i]
            waiting[follower] -= 1
            if waiting[follower] == 0:
                ready[there] = follower
                there += 1
    return int(peak), order


@compiled
def perturb(
    task: TaskArrays, priority: np.ndarray, order: np.ndarray, bound: int, rounds: int, seed: int
) -> tuple[int, np.ndarray, np.ndarray]:
    """Change priorities at random and keep what is no worse, until ``bound`` is reached; peak, order, priorities."""
    np.random.seed(seed)
    count = priority.size
    best, best_order, known = peak_of(task, order), order.copy(), priority.copy()
    for _ in range(rounds):
        if best <= bound:
            break
        tried = known.copy()
        scale = 10.0 ** np.random.uniform(0.0, np.log10(count + 1.0))
        for _ in range(np.random.randint(1, 6)):
            tried[np.random.randint(count)] += np.random.normal() * scale
        target = best - 1
        if np.random.random() >= 0.7:
            target = bound + np.int64((best - bound) * np.random.random())
        peak, found = list_schedule(task, target, tried)
        if peak <= best:
            if peak < best:
                best_order = found
            best, known = peak, tried
    return best, best_order, known


@compiled
def search_sets(
    task: TaskArrays, target: int, priority: np.ndarray, keys: np.ndarray, limit: int
) -> tuple[int, np.ndarray, int]:
    """Depth first over sets of operators that have run: is there an order whose peak is at most ``target``?

    What fits and leaves no more memory taken than before runs at once: in whatever order it came later, everything
    between would have no more memory taken with it than without. A set is looked at once.

    Args:
        task: what is to be put in order.
        target: without what is fixed.
        priority: float64, low first.
        keys: uint64, one for each operator, random: a set's is those of its members, combined.
        limit: of sets.

    Returns:
        How it ended, the order if there is one, and how many sets were looked at.
    """
    count = task.needed.size
    waiting, left = task.needed.copy(), task.reader_count.copy()
    done = np.zeros(count, np.bool_)
    order = np.empty(count, np.int64)
    ran, live, key = 0, 0, np.uint64(0)
    seen = set()
    seen.add(np.uint64(0))
    seen.clear()
    choices = np.empty(4 * count + 16, np.int64)  # of all decisions on the way, one after the other
    begin, chosen = np.empty(count + 2, np.int64), np.empty(count + 1, np.int64)
    at_decision = np.empty(count + 1, np.int64)
    begin[0] = 0
    depth, looked, descend, follow = -1, 0, True, -1
    # All that may run is from ``low`` to ``top``: the rest has run, or waits.
    low, top = 0, -1
    for at in range(count):
        if waiting[at] == 0:
            top = at
    while True:
        if descend:
            moved = True
            while moved or follow >= 0:
                moved = False
                while low < count and done[low]:
                    low += 1
                number = low - 1
                while number < top:
                    number += 1
                    at = number
                    if follow >= 0:  # what was chosen, however much it takes
                        at = follow
                    if done[at] or waiting[at] > 0 or live + task.made_bytes[at] + task.workspace_bytes[at] > target:
                        continue
                    net = task.made_bytes[at] - gone_after(task, at, left)
                    if net > 0 and follow < 0:
                        continue
                    follow = -1
                    moved = True
                    done[at] = True
                    order[ran] = at
                    ran += 1
                    live += net
                    key ^= keys[at]
                    for i in range(task.read_start[at], task.read_start[at + 1]):
                        left[task.reads[i]] -= 1
                    for i in range(task.follower_start[at], task.follower_start[at + 1]):
                        follower = task.followers[i]
                        waiting[follower] -= 1
                        if waiting[follower] == 0:
                            top = max(top, follower)
            if ran == count:
                return FOUND, order, looked
            descend = False
            if key not in seen:
                seen.add(key)
                looked += 1
                if looked > limit:
                    return UNDECIDED, order, looked
                depth += 1
                end = begin[depth]
                for at in range(low, top + 1):
                    if done[at] or waiting[at] > 0:
                        continue
                    if live + task.made_bytes[at] + task.workspace_bytes[at] > target:
                        continue
                    if end == choices.size:
                        return UNDECIDED, order, looked
                    choices[end] = at
                    i = end
                    while i > begin[depth] and priority[choices[i - 1]] > priority[at]:
                        choices[i] = choices[i - 1]
                        i -= 1
                    choices[i] = at
                    end += 1
                begin[depth + 1] = end
                chosen[depth] = begin[depth]
                at_decision[depth] = ran
        while depth >= 0 and chosen[depth] == begin[depth + 1]:
            depth -= 1
        if depth < 0:
            return NONE, order, looked
        while ran > at_decision[depth]:
            ran -= 1
            at = order[ran]
            done[at] = False
            low = min(low, at)
            key ^= keys[at]
            for i in range(task.read_start[at], task.read_start[at + 1]):
                left[task.reads[i]] += 1
            for i in range(task.follower_start[at], task.follower_start[at + 1]):
                waiting[task.followers[i]] += 1
            live -= task.made_bytes[at] - gone_after(task, at, left)
        follow = choices[chosen[depth]]
        chosen[depth] += 1
        descend = True
