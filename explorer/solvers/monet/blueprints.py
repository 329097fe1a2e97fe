"""From a solution of a bound's program to the genes of a plan like it (see ``search.kernel``).

Such a solution is no schedule: within an interval it forgets most of what memory must hold at a moment. But where the
bound is close to the best schedule, both keep nearly the same, and a short search leads from the one to the other.
"""

from __future__ import annotations

import numpy as np

from explorer.solvers.formulation.relaxation import Relaxation
from explorer.solvers.formulation.values import Values
from explorer.solvers.search.arrays import GENE, PlanArrays


def blueprint(relaxation: Relaxation, x: np.ndarray, arrays: PlanArrays) -> np.ndarray:
    """The plan that keeps what a solution keeps from interval to interval, and runs everything in the same forms.

    Args:
        relaxation: the program.
        x: shape (columns,), its solution.
        arrays: of the same problem.

    Returns:
        uint16, shape (genes,).
    """
    values = Values(relaxation.blocks, x)
    genes = np.zeros(arrays.gene_count, GENE)
    interval_of = {t: g for g, interval in enumerate(relaxation.layout.groups) for t in interval.stages}
    for a in np.flatnonzero(arrays.droppable).tolist():
        uses = arrays.uses[arrays.use_start[a] : arrays.use_start[a + 1]].tolist()
        keeps = _keeps(relaxation, values, a, [interval_of.get(t) for t in uses])
        genes[arrays.gene_start[a] : arrays.gene_start[a + 1]] = keeps
    _choose_forms(genes, arrays, relaxation, values)
    return genes


def _keeps(relaxation: Relaxation, values: Values, activation: int, uses: list[int | None]) -> list[bool]:
    """After the forward pass; when each operator comes that may read it, by their intervals; after the last one."""
    layout = relaxation.layout

    def kept(passed: int) -> bool:
        return activation in layout.merged.pinned or values.holds("s", layout.kept.get((passed, activation)))

    keeps, interval = [kept(0)], None
    for use in uses:
        # Between two uses in an interval it stays.
        keeps.append(keeps[-1] if use is None else use == interval or kept(use))
        interval = interval if use is None else use
    return [*keeps, interval is not None and kept(interval + 1)]


def _choose_forms(genes: np.ndarray, arrays: PlanArrays, relaxation: Relaxation, values: Values) -> None:
    layout, count = relaxation.layout, arrays.forward_count
    merged, decisions = layout.merged, layout.decisions

    def take(site: int, form: int) -> None:
        # What a bound knows besides, in other ways to divide a backward operator's work, is no form of a plan.
        if arrays.form_gene[site] >= 0 and form < arrays.form_start[site + 1] - arrays.form_start[site]:
            genes[arrays.form_gene[site]] = form

    for operator, decision in decisions.first.items():
        take(operator, values.way(decision).forms[0])
    for (interval, node), position in layout.rerun.items():
        if values.holds("r", position):
            way = values.way(decisions.again[interval, node])
            for operator, form in zip(merged.nodes[node].members, way.forms, strict=True):
                take(count + operator, form)
    for t, forms in enumerate(merged.stages):
        if forms:
            n = values.form([layout.delta.get((t, n)) for n in range(len(forms))])
            take(2 * count + t, values.way(decisions.backward[t, n]).forms[0])
