"""Griewank and Walther's revolve (2000): the fewest forward steps for a chain of equal ones and so many snapshots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from explorer.solvers.methods.checkmate.nodes import Nodes
from explorer.solvers.methods.checkmate.recomputing import activations_read, recompute


@lru_cache(maxsize=4)
def extra_steps(length: int, snapshots: int) -> tuple[np.ndarray, np.ndarray]:
    """How many forward steps must be repeated to reverse a chain, and where the first snapshot goes.

    t(l, c) = min over m of m + t(l − m, c − 1) + t(m, c), with t(1, c) = 0 and t(l, 1) = l (l − 1) / 2; the closed form
    is r l − (c + r choose r − 1) for the r with (c + r − 1 choose c) < l ≤ (c + r choose c).

    Args:
        length: steps of the chain.
        snapshots: states that may be stored, the chain's input included.

    Returns:
        t and the first m that attains it, both int64, shape (length + 1, snapshots + 1).
    """
    cost = np.zeros((length + 1, snapshots + 1), np.int64)
    split = np.ones((length + 1, snapshots + 1), np.int64)
    steps = np.arange(length + 1)
    cost[:, 1] = steps * (steps - 1) // 2
    split[2:, 1] = steps[2:] - 1
    for c in range(2, snapshots + 1):
        for n in range(2, length + 1):
            m = np.arange(1, n)
            total = m + cost[n - m, c - 1] + cost[m, c]
            split[n, c] = 1 + int(total.argmin())
            cost[n, c] = total.min()
    return cost, split


def stored(length: int, snapshots: int) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The states in store while each step is reversed, last step first: pairs (step, states).

    Steps are numbered from 1; state s is the output of step s, and state 0, the input, is always there.
    """
    _, split = extra_steps(length, snapshots)
    # An explicit stack: (first state, last state, snapshots left, states in store).
    stack: list[tuple[int, int, int, tuple[int, ...]]] = [(0, length, snapshots, ())]
    while stack:
        start, end, left, states = stack.pop()
        if end - start == 1:
            yield end, states
            continue
        middle = start + int(split[end - start, left])
        stack.append((start, middle, left, states))
        # With no snapshot to spare, one step is left: it starts from a state that is on its way, not in store.
        stack.append((middle, end, left - 1, (*states, middle)) if left > 1 else (middle, end, 1, states))


def revolve(nodes: Nodes, chain: Sequence[int], snapshots: int) -> list[int]:
    """Evaluate the step with so many snapshots of a linear graph.

    Args:
        nodes: of the step.
        chain: positions of the forward nodes of the linear graph.
        snapshots: states that may be stored, the batch included, which is in memory anyway.

    Returns:
        Positions in order of evaluation.
    """
    number = {i: step for step, i in enumerate(chain, 1)}
    step, steps = len(chain), []
    for stage in range(len(nodes)):
        if stage >= nodes.boundary:
            read = [number.get(nodes.producer[x], 0) for x in activations_read(nodes, stage)]
            step = min(step, max(read, default=step)) or 1
        steps.append(step)
    outputs = [set(nodes.nodes[i].first.writes) for i in chain]
    kept = {}
    for reversed_step, states in stored(len(chain), snapshots):
        kept[reversed_step] = {x for state in states for x in outputs[state - 1]}
    needed: dict[int, set[int]] = {step: set() for step in steps}
    for stage in range(nodes.boundary, len(nodes)):
        needed[steps[stage]] |= set(nodes.nodes[stage].first.reads)

    def keeps(stage: int, storage: int) -> bool:
        if stage < nodes.boundary or storage in nodes.gradients:
            return True
        step = steps[stage]
        return storage in kept[step] or (storage in needed[step] and (steps[stage - 1] == step or step == len(chain)))

    return recompute(nodes, keeps)
