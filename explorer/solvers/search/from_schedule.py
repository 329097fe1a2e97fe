"""From a schedule to the genes of a plan like it (see ``search.kernel``)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from explorer.schedule import Schedule
from explorer.solvers.problem.problem import Problem
from explorer.solvers.problem.schedules import Reading, RunChoice, reading_of
from explorer.solvers.search.arrays import GENE, PlanArrays


def genes_of(problem: Problem, arrays: PlanArrays, schedule: Schedule) -> np.ndarray | None:
    """The plan that keeps what a schedule keeps, in the same forms, and recomputes it as late as can be.

    Later recomputation needs less memory, and room that becomes free may serve quicker implementations: the plan of a
    schedule from an integer program, which recomputes by groups, is often better than that.

    Args:
        problem: of the arrays.
        arrays: the same, flat.
        schedule: valid, for its graph.

    Returns:
        uint16, shape (genes,); None where the schedule runs what the problem does not have.
    """
    reading = reading_of(problem, schedule)
    if reading is None:
        return None
    genes = np.zeros(arrays.gene_count, GENE)
    dropped_after = genes.size - arrays.bytes.size
    for a in np.flatnonzero(arrays.droppable).tolist():
        uses = arrays.uses[arrays.use_start[a] : arrays.use_start[a + 1]].tolist()
        genes[arrays.gene_start[a] : arrays.gene_start[a + 1]] = _keeps(reading, a, uses)
        genes[dropped_after + a] = _mark(reading, a, uses)
    for site, choice in sited(arrays, reading):
        if arrays.form_gene[site] >= 0:
            genes[arrays.form_gene[site]] = choice.form
    return genes


def sited(arrays: PlanArrays, reading: Reading) -> Iterator[tuple[int, RunChoice]]:
    """How everything runs, each with its site."""
    count = arrays.forward_count
    yield from ((x.operator, x) for x in reading.first)
    for interval in reading.intervals:
        yield from ((count + x.operator, x) for x in interval.recomputations)
        if interval.backward is not None:
            yield 2 * count + interval.backward.operator, interval.backward


def _keeps(reading: Reading, activation: int, uses: list[int]) -> list[bool]:
    """After the forward pass; when each backward operator comes that may read it; after the last one."""
    moments = [reading.after_forward]
    moments += [reading.intervals[use - 1].kept if use else reading.after_forward for use in uses]
    return [*(activation in there for there in moments), bool(uses) and activation in reading.intervals[uses[-1]].kept]


def _mark(reading: Reading, activation: int, uses: list[int]) -> int:
    """Of the first interval at whose end it goes though its operator does not read it: it served recomputation."""
    there = activation in reading.after_forward
    for number, interval in enumerate(reading.intervals):
        stays = activation in interval.kept
        if there and not stays and number and number not in uses:
            return number + 1
        there = stays
    return 0


def places_of(arrays: PlanArrays) -> np.ndarray:
    """The forward operator that each gene is about: what becomes of what it makes, and how it runs.

    Returns:
        int64, shape (genes,).
    """
    places = np.empty(arrays.gene_count, np.int64)
    switches = int(arrays.gene_start[-1])
    marks = switches + arrays.switches.size
    places[:switches] = arrays.producer[arrays.gene_owner]
    counts = np.diff(arrays.place_start.astype(np.int64))
    places[switches + arrays.at_place.astype(np.int64)] = np.repeat(np.arange(arrays.forward_count), counts)
    places[marks:] = np.tile(arrays.producer, 2)
    return places
