"""The constraint families of the grouped joint model about ways to run: algorithms, in place, optional operators."""

from __future__ import annotations

import cvxpy as cp

from explorer.solvers.formulation.constraints import Variables, reading_slot
from explorer.solvers.formulation.decisions import Alternative, Decision
from explorer.solvers.formulation.layout import Layout
from explorer.solvers.formulation.ways import Way
from explorer.solvers.problem.sets import in_all
from explorer.solvers.programs.rows import Rows, Term


def one_way(layout: Layout, variables: Variables) -> list[cp.Constraint]:
    """The ways other than a run's base: Σ ≤ r_{g,j} for a recomputation, δ_{t,f} for a form, else 1 (appendix C.4).

    Where there is no base, Σ is as much.
    """
    rows, equal = Rows(variables), Rows(variables)
    for decision in layout.decisions:
        owner, constant = decision.owner
        terms = [*(_term(x) for x in decision.others), *_negated(owner)]
        if decision.base is None:
            equal.add(terms, constant)
        elif decision.others and (owner or len(decision.others) > 1):
            rows.add(terms, constant)
    return rows.at_most() + equal.equal()


def first_runs_in_place(layout: Layout, variables: Variables) -> list[cp.Constraint]:
    """In place, q + s_{0,i} ≤ 1, and q + z ≤ 1 for optional readers z after it (appendix C.3).

    In a relaxed problem an optional operator may have run before; and what stands for something larger, merged away,
    need not be in memory itself.
    """
    rows = Rows(variables)
    standing = _standing(layout)
    readers = {} if layout.merged.relaxed else _optional_readers(layout)
    for i, decision in layout.decisions.first.items():
        for way in decision.others:
            for x in sorted(way.way.overwrites):
                if x not in standing and (0, x) in layout.kept:
                    rows.add([_term(way), *layout.keep(0, x, 1.0)], 1.0)
                for j in readers.get(x, ()):
                    if j > i and (run := layout.optional_run(j, 1.0)):
                        rows.add([_term(way), *run], 1.0)
    return rows.at_most()


def recomputations_in_place(layout: Layout, variables: Variables) -> list[cp.Constraint]:
    """In place, q + π_{g,i} ≤ 1, and q + Σ r_{g,k} ≤ 1 for each slot of readers k later in the sweep (appendix C.3)."""
    rows = Rows(variables)
    for g, sweep in enumerate(layout.sweeps):
        for k, slot in enumerate(sweep.slots):
            for node in slot:
                for way in layout.decisions.again[g, node].others:
                    for x in sorted(way.way.overwrites):
                        present, _ = layout.present(g, x, 1.0)
                        if present:
                            rows.add([_term(way), *present], 1.0)
                        for later in (n for n in sweep.readers[x] if n > k):
                            rows.add([_term(way), *reading_slot(layout, g, later, x, 1.0)], 1.0)
    return rows.at_most()


def backward_in_place(layout: Layout, variables: Variables) -> list[cp.Constraint]:
    """In place, q ≤ 1 − presence of what is overwritten after the backward operator."""
    rows = Rows(variables)
    for (t, _), decision in layout.decisions.backward.items():
        for way in decision.others:
            for x in sorted(way.way.overwrites):
                present, _ = layout.after_stage(t, x, 1.0)
                if present:
                    rows.add([_term(way), *present], 1.0)
    return rows.at_most()


def first_forms(layout: Layout, variables: Variables) -> list[cp.Constraint]:
    """What only some forms of a first run make is kept, or read by a form of another one, only if one of those runs."""
    rows = Rows(variables)
    runs = layout.decisions.first
    for x, maker in _sometimes_made(layout).items():
        made, constant = _chosen(layout, runs[maker], maker, x, reads=False)
        users = [(layout.keep(0, x, 1.0), 0.0)]
        for j, decision in runs.items():
            if any(x in form.reads for form in layout.merged.problem.forward[j].first):
                users.append(_chosen(layout, decision, j, x, reads=True))
        for terms, fixed in users:
            if terms or fixed:
                rows.add([*terms, *_negated(made)], constant - fixed)
    return rows.at_most()


def optional_results(layout: Layout, variables: Variables) -> list[cp.Constraint]:
    """What an optional first run makes is all kept or none of it; what it reads from another one is kept as well.

    The latter two are restrictions: such results could go before the backward pass.
    """
    rows, equal = Rows(variables), Rows(variables)
    forward = layout.merged.problem.forward
    for j, operator in enumerate(forward):
        run = layout.optional_run(j, 1.0) if operator.optional else []
        if not run:
            continue
        for x in sorted({x for form in operator.first for x in form.writes}):
            if (0, x) in layout.kept and layout.keep(0, x, 1.0) != run:
                equal.add([*layout.keep(0, x, 1.0), *_negated(run)], 0.0)
        for x in sorted({x for form in operator.first for x in form.reads}):
            if forward[layout.merged.problem.activations[x].producer].optional:
                rows.add([*run, *layout.keep(0, x, -1.0)], 0.0)
    return rows.at_most() + equal.equal()


def _standing(layout: Layout) -> frozenset[int]:
    """In a relaxed problem, what stands for something merged away: it need not be in memory itself."""
    return frozenset().union(*layout.merged.representative.values()) if layout.merged.relaxed else frozenset()


def _sometimes_made(layout: Layout) -> dict[int, int]:
    """Activations that not every form of their first run makes, with the operator."""
    found = {}
    for i, operator in enumerate(layout.merged.problem.forward):
        parts = [form.writes for form in operator.first]
        if not operator.optional:
            found |= dict.fromkeys(sorted(set().union(*parts) - in_all(parts)), i)
    standing = _standing(layout)
    return {x: i for x, i in found.items() if x not in standing}


def _chosen(
    layout: Layout, decision: Decision, operator: int, activation: int, *, reads: bool
) -> tuple[list[Term], float]:
    """1 if a first run's form reads (or writes) an activation."""
    forms = layout.merged.problem.forward[operator].first

    def touches(way: Way) -> bool:
        form = forms[way.forms[0]]
        return activation in (form.reads if reads else form.writes)

    return decision.chosen(touches)


def _optional_readers(layout: Layout) -> dict[int, list[int]]:
    """Activation to the optional operators that may read it in the forward pass."""
    readers: dict[int, list[int]] = {}
    for j, operator in enumerate(layout.merged.problem.forward):
        if operator.optional:
            for x in {x for form in operator.first for x in form.reads}:
                readers.setdefault(x, []).append(j)
    return readers


def _term(alternative: Alternative) -> Term:
    return alternative.block, alternative.position, 1.0


def _negated(terms: list[Term]) -> list[Term]:
    return [(block, position, -coefficient) for block, position, coefficient in terms]
