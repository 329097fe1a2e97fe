"""Checkmate's optimal recomputation for given checkpoints (section 5.1.1): R from S, by one traversal a stage."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from explorer.solvers.methods.checkmate.nodes import Nodes

Keeps = Callable[[int, int], bool]
"""(stage, storage): does the storage stay in memory from the stage before into this one? S of section 4.2."""


def recompute(nodes: Nodes, keeps: Keeps) -> list[int]:
    """The fewest evaluations that go with checkpoints: every stage fills in what it needs and does not find.

    Args:
        nodes: of the step.
        keeps: the checkpoints. What cannot be made again stays whatever this says.

    Returns:
        Positions of nodes in order of evaluation.
    """
    order: list[int] = []
    there: set[int] = set()
    for stage, node in enumerate(nodes.nodes):
        there = {x for x in there if x in nodes.lasting or keeps(stage, x)}
        missing = sorted(_missing(nodes, node.first.reads, there))
        for i in missing:
            way = nodes.nodes[i].again
            assert way is not None, "what cannot be made again is there"
            there |= set(way.writes)
        order += [*missing, stage]
        there |= set(node.first.writes)
        there -= {node.first.overwrites}
    return order


def _missing(nodes: Nodes, reads: Collection[int], there: Collection[int]) -> set[int]:
    """Positions of the nodes to evaluate again so that all of ``reads`` is in memory."""
    found: set[int] = set()
    pending = [x for x in reads if x not in there]
    while pending:
        i = nodes.producer[pending.pop()]
        if i not in found:
            found.add(i)
            way = nodes.nodes[i].again
            assert way is not None, "what cannot be made again is there"
            pending += [x for x in way.reads if x not in there]
    return found


def activations_read(nodes: Nodes, stage: int) -> Iterator[int]:
    """Forward storages that the first evaluation of a node reads."""
    for x in nodes.nodes[stage].first.reads:
        if nodes.producer[x] < nodes.boundary:
            yield x
