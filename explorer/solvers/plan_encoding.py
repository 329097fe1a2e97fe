"""From a schedule to the genes of a plan like it (see ``plan_kernel``)."""

from __future__ import annotations

import numpy as np

from explorer.schedule import Schedule
from explorer.solvers.plan_arrays import PlanArrays
from explorer.solvers.problem import Choice, Problem


def genes_of(problem: Problem, arrays: PlanArrays, schedule: Schedule) -> np.ndarray | None:
    """The plan that keeps what a schedule keeps, and recomputes it as late as can be.

    Args:
        problem: of the arrays.
        arrays: the same, flat.
        schedule: valid, for its graph.

    Returns:
        int16, shape (genes,), without marks; None where the schedule runs what the problem does not have.
    """
    reading = problem.read(schedule)
    if reading is None:
        return None
    genes = np.zeros(arrays.gene_count, np.int16)
    for a in np.flatnonzero(arrays.droppable).tolist():
        first = int(arrays.gene_start[a])
        genes[first] = a in reading.after_forward
        uses = arrays.uses[arrays.use_start[a] : arrays.use_start[a + 1]].tolist()
        for passed, use in enumerate(uses):
            # Still there when the next one comes that may read it.
            genes[first + 1 + passed] = use > 0 and a in reading.intervals[use - 1].kept
    count = arrays.forward_count

    def take(choice: Choice, site: int) -> None:
        if arrays.form_gene[site] >= 0:
            genes[arrays.form_gene[site]] = choice.form

    for choice in reading.first:
        take(choice, choice.operator)
    for interval in reading.intervals:
        for choice in interval.recomputations:
            take(choice, count + choice.operator)
        if interval.backward is not None:
            take(interval.backward, 2 * count + interval.backward.operator)
    return genes
