"""Genes about the same place of each block of a repetition: see ``problem.repetition``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from explorer.solvers.problem.repetition import Repetition

Genes = list[int]
"""Of what one operator makes and of how it runs, in an order that twins share."""


def twin_genes(
    found: Sequence[Repetition],
    made: Sequence[Sequence[int]],
    gene_start: np.ndarray,
    places: Sequence[Sequence[int]],
    form_counts: Sequence[int],
    *,
    marks: int,
) -> tuple[np.ndarray, np.ndarray]:
    """The twins of every gene.

    What a block's results are read by in the backward pass may differ at the ends of a repetition: then such genes have
    no twins, and the others have none there.

    Args:
        found: what repeats itself.
        made: droppable activations of each forward operator.
        gene_start: as in ``PlanArrays``.
        places: indices of the switches of each forward operator.
        form_counts: forms of each switch.
        marks: how many genes follow those of activations and switches; they have no twins.

    Returns:
        ``twins`` and ``role`` as in ``PlanArrays``.
    """
    count = int(gene_start[-1]) + len(form_counts)

    def genes_of(operator: int) -> dict[object, Genes]:
        """By what must be equal in twins."""
        genes: dict[object, Genes] = {}
        for position, x in enumerate(made[operator]):
            own = range(gene_start[x], gene_start[x + 1])
            genes["kept", position, len(own)] = list(own)
        for position, number in enumerate(places[operator]):
            genes["form", position, form_counts[number]] = [int(gene_start[-1]) + number]
        return genes

    rows = [row for repetition in found for row in _rows(repetition, genes_of)]
    blocks = max((x.blocks for x in found), default=0)
    twins = np.full((len(rows), blocks), -1, np.int32)
    role = np.full(count + marks, -1, np.int32)
    for number, row in enumerate(rows):
        twins[number, : len(row)] = row
        role[[x for x in row if x >= 0]] = number
    return twins, role


def _rows(repetition: Repetition, genes_of: Callable[[int], dict[object, Genes]]) -> Iterator[Genes]:
    """Twins of one repetition, one for each block; −1 where a block has none."""
    for first in range(repetition.start, repetition.start + repetition.length):
        found = [genes_of(twin) for twin in repetition.twins(first)]
        for key in dict.fromkeys(key for genes in found for key in genes):
            alike = [genes.get(key) for genes in found]
            length = max(len(x) for x in alike if x is not None)
            if sum(x is not None for x in alike) > 1:
                yield from ([-1 if x is None else x[n] for x in alike] for n in range(length))
