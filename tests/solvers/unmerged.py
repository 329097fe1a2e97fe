"""A problem as the formulations take it, with nothing merged: what they say of it is exact."""

from __future__ import annotations

from dataclasses import replace

from explorer.solvers.formulation.merge import MergedProblem, _nodes
from explorer.solvers.formulation.ways import frontier
from explorer.solvers.problem.problem import Problem


def unmerged(problem: Problem) -> MergedProblem:
    """Every operator a node of its own, nothing pinned."""
    nodes = [node for operator in range(len(problem.forward)) for node in _nodes(problem, operator, frozenset())]
    nodes = [replace(x, ways=frontier(x.ways, negligible_bytes=0)) for x in nodes]
    return MergedProblem(problem, tuple(sorted(nodes, key=lambda x: x.place)), frozenset(), 0, relaxed=False)
