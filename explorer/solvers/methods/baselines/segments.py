"""Chen et al. (2016): keep the ends of segments, recompute each segment once, just before its backward pass."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np

from explorer.solvers.methods.checkmate.nodes import Nodes
from explorer.solvers.methods.checkmate.recomputing import activations_read, recompute

_SIZES = 32
"""How many segment sizes the greedy heuristic tries."""


def every_root(candidates: Sequence[int]) -> list[int]:
    """The √n heuristic: of n candidates, the end of every segment of √n (Chen et al. section 4)."""
    length = max(1, round(math.sqrt(len(candidates))))
    return list(candidates[length - 1 :: length])


def greedy(nodes: Nodes, candidates: Collection[int], *, segment_bytes: float) -> list[int]:
    """The greedy heuristic: a checkpoint at the first candidate after that much memory (Chen et al. Algorithm 3)."""
    chosen, filled = [], 0.0
    for i in range(nodes.boundary):
        filled += sum(nodes.bytes[x] for x in nodes.nodes[i].first.writes)
        if i in candidates and filled > segment_bytes:
            chosen.append(i)
            filled = 0.0
    return chosen


def greedy_choices(nodes: Nodes, candidates: Collection[int]) -> list[list[int]]:
    """What the greedy heuristic chooses with segments from the smallest activation to all of them, without repeats."""
    sizes = [sum(nodes.bytes[x] for x in node.first.writes) for node in nodes.nodes[: nodes.boundary]]
    low, high = max(1, min((x for x in sizes if x), default=1)), max(1, sum(sizes))
    found = [greedy(nodes, candidates, segment_bytes=b) for b in np.geomspace(low / 2, high, _SIZES).tolist()]
    return [list(x) for x in dict.fromkeys(map(tuple, found))]


def segmented(nodes: Nodes, checkpoints: Collection[int]) -> list[int]:
    """Evaluate the step with some nodes' values kept: each segment between them is recomputed once it is needed.

    What was recomputed of a segment stays until the last backward node that works on it; the last segment is still
    there from the forward pass.

    Args:
        nodes: of the step.
        checkpoints: positions of forward nodes.

    Returns:
        Positions in order of evaluation.
    """
    kept = {x for i in checkpoints for x in nodes.nodes[i].first.writes} | nodes.gradients
    segment = _segments(nodes, checkpoints)
    turns = _turns(nodes, segment, kept)

    def keeps(stage: int, storage: int) -> bool:
        if stage <= nodes.boundary or storage in kept:
            return True
        begin, end = turns[segment[nodes.producer[storage]]]
        return begin < stage <= end

    return recompute(nodes, keeps)


def _segments(nodes: Nodes, checkpoints: Collection[int]) -> list[int]:
    """The number of the segment that each forward node is in; a checkpoint ends its own."""
    ends = set(checkpoints)
    numbers, number = [], 0
    for i in range(nodes.boundary):
        numbers.append(number)
        number += i in ends
    return numbers


def _turns(nodes: Nodes, segment: Sequence[int], kept: Collection[int]) -> list[tuple[int, int]]:
    """First and last stage that work on each segment: where the latest activation needed is, that is no checkpoint."""
    turns = [(len(nodes), -1)] * (1 + segment[-1])
    turns[-1] = (nodes.boundary, nodes.boundary)
    for stage in range(nodes.boundary, len(nodes)):
        at = max((segment[nodes.producer[x]] for x in activations_read(nodes, stage) if x not in kept), default=None)
        if at is not None:
            begin, end = turns[at]
            turns[at] = min(begin, stage), max(end, stage)
    return turns
