"""The grouped program with recomputation only near where it is needed: a tenth of the size, much the same optimum.

With a sweep before every backward operator that reads an activation, the grouped program can recompute nearly
everything nearly everywhere, and hardly any of that is of use: what a sweep recomputes is mostly read by its own
backward operators, or leads up to what they read in a few steps. Everything else is left out here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from explorer.solvers.formulation.grouped import GroupedModel
from explorer.solvers.programs.milp import Milp

_NONE = -1


@dataclass(frozen=True, eq=False)
class NearbyModel:
    """A grouped program in fewer variables.

    Attributes:
        grouped: the whole program.
        milp: what to solve.
        column: int, shape (columns of the whole program,): the column that stands for each, −1 for what is zero.
    """

    grouped: GroupedModel
    milp: Milp
    column: np.ndarray

    def whole(self, x: np.ndarray) -> np.ndarray:
        """A solution in the columns of the whole program."""
        return np.append(x, 0.0)[self.column]


def nearby(model: GroupedModel, *, depth: int) -> NearbyModel:
    """Leave out of a grouped program what is recomputed far from its use.

    A node may run in a sweep if what it makes is read by the group's backward operators, by a node that makes such a
    thing, and so on, ``depth`` nodes in all. An activation that nothing reads or makes in a sweep is kept after it
    exactly if it was kept before: to drop it earlier would be no worse.

    Args:
        model: the whole program, of groups as small as possible.
        depth: how many nodes lie between what is in memory and what is needed, at most.
    """
    allowed = _allowed(model, depth)
    column = np.arange(model.milp.objective.size)
    reruns = model.blocks["r"].start if "r" in model.blocks else 0
    for (g, node), position in model.layout.rerun.items():
        if node not in allowed[g]:
            column[reruns + position] = _NONE
    for before, after in _unchanged(model, allowed):
        column[after] = column[before]
    return NearbyModel(model, *_substituted(model.milp, column))


def _allowed(model: GroupedModel, depth: int) -> list[set[int]]:
    """The nodes that may run at the start of each group."""
    layout, merged = model.layout, model.layout.merged
    allowed: list[set[int]] = []
    for g, group in enumerate(layout.groups):
        found: set[int] = set()
        wanted = group.needs | group.offers
        for _ in range(depth):
            makers = {n for x in wanted for n in merged.producers.get(x, ()) if (g, n) in layout.rerun} - found
            found |= makers
            wanted = frozenset().union(*(merged.nodes[n].reads for n in makers))
        allowed.append(found)
    return allowed


def _unchanged(model: GroupedModel, allowed: Sequence[set[int]]) -> Iterable[tuple[int, int]]:
    """Columns of s before and after a group that neither reads nor makes the activation, group after group."""
    layout, merged = model.layout, model.layout.merged
    keeps = model.blocks["s"].start if "s" in model.blocks else 0
    touched = [
        (group.needs | group.offers).union(*(merged.nodes[n].reads | merged.nodes[n].writes for n in nodes))
        for group, nodes in zip(layout.groups, allowed, strict=True)
    ]
    for (g, x), position in sorted(layout.kept.items()):
        after = layout.kept.get((g + 1, x))
        if after is not None and x not in touched[g]:
            yield keeps + position, keeps + after


def _substituted(milp: Milp, column: np.ndarray) -> tuple[Milp, np.ndarray]:
    """The program with one column for all that are equal, and which that is for each."""
    there = np.flatnonzero(column != _NONE)
    standing, place = np.unique(column[there], return_inverse=True)
    merging = sparse.csr_matrix((np.ones(there.size), (there, place)), shape=(column.size, standing.size))
    matrix = sparse.csr_matrix(milp.matrix @ merging)
    matrix.eliminate_zeros()
    says = (matrix.getnnz(axis=1) > 0) | (milp.row_lower > 0) | (milp.row_upper < 0)
    lower, upper = np.full(standing.size, -np.inf), np.full(standing.size, np.inf)
    np.maximum.at(lower, place, milp.lower[there])
    np.minimum.at(upper, place, milp.upper[there])
    smaller = replace(
        milp,
        objective=merging.T @ milp.objective,
        matrix=matrix[says],
        row_lower=milp.row_lower[says],
        row_upper=milp.row_upper[says],
        lower=lower,
        upper=upper,
        integer=milp.integer[standing],
    )
    columns = np.full(column.size, _NONE)
    columns[there] = place
    return smaller, columns
