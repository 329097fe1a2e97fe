"""Objective and constraints of the paper's program, one function per family; equation numbers are MONeT's.

Memory is in the units of ``Stages``, rows of it divided by what the budget leaves beyond ``fixed_bytes``. A row that
the paper states once per alternative of a backward operator is stated once for all that need the same activation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import cvxpy as cp
import numpy as np

from explorer.solvers.formulation.paper.stages import Alternative, PaperNode, Stages, base_time_ms, base_workspace_bytes
from explorer.solvers.formulation.paper.variables import (
    Variables,
    always_needed,
    per_owner,
    per_stage_form,
    sometimes_needed,
    unit_rows,
)


def step_time_ms(v: Variables) -> cp.Expression:
    """Σ τ δ of the forward pass, Σ τ̂ δ̂ of the backward pass, Σ τ δ of the recomputations (eq. 9)."""
    stages, count = v.stages, len(v.stages.stages)
    first = np.array([base_time_ms(node.form) for node in stages.first])
    again = np.array([base_time_ms(node.form) for node in stages.nodes])
    forms = np.array([base_time_ms(stages.backward[n].forms[f]) for n, f in stages.backward_forms])
    boundary_ms = base_time_ms(stages.problem.backward[0].forms[0])
    return (
        cp.Constant(boundary_ms)
        + cp.sum(v.first(first[None, :]))
        + cp.sum(v.times(_times(stages.first_alternatives), "delta0"))
        + cp.sum(v.times(np.tile(again[None, :], count), "R"))
        + cp.sum(v.times(np.tile(_times(stages.alternatives), count), "delta"))
        + cp.sum(v.form(forms[None, :]))
        + cp.sum(v.times(_times(stages.backward_alternatives), "delta_backward"))
    )


def first_inputs(v: Variables) -> list[cp.Constraint]:
    """R[0,j] ≤ R[0,k] for what first run j reads and k makes; only where k need not run (eq. 7 in stage 0)."""
    stages = v.stages
    makers: dict[int, list[int]] = {}
    for n, node in enumerate(stages.first):
        for x in node.form.writes:
            makers.setdefault(x, []).append(n)
    pairs = [
        (n, makers[x])
        for n, node in enumerate(stages.first)
        for x in node.form.reads
        if set(makers[x]) <= set(stages.optional_first)
    ]
    made = np.array([[float(k in found) for k in range(len(stages.first))] for _, found in pairs])
    runs = unit_rows([n for n, _ in pairs], len(stages.first))
    return [v.first(runs) <= v.first(made.reshape(runs.shape))]


def one_first_run(v: Variables) -> list[cp.Constraint]:
    """Σ over the forms of an operator of R[0] = 1; ≤ 1 where it is optional."""
    stages = v.stages
    several = [i for i, op in enumerate(stages.problem.forward) if len(op.first) > 1]
    optional = [i for i in several if stages.problem.forward[i].optional]
    required = [i for i in several if i not in optional]
    return [v.first(_of_operator(stages.first, optional)) <= 1, v.first(_of_operator(stages.first, required)) == 1]


def saved_first_was_made(v: Variables) -> list[cp.Constraint]:
    """S[1,i] ≤ R[0,j] for i made by j (eq. 7 in stage 0)."""
    stages = v.stages
    makes = stages.incidence([node.form.writes for node in stages.first])
    return [v.saved_first(v.each) <= v.first(makes.T)]


def recomputation_inputs(v: Variables) -> list[cp.Constraint]:
    """R[t,j] ≤ S[t,i] + R[t,k] for i read by j, made by k (eq. 7, left).

    Without S for optional operators: what is compact is made only where what it stands for is (appendix D).
    """
    readers, read = np.nonzero(v.stages.reads)
    runs = np.eye(len(v.stages.nodes))[readers]
    fresh = [not v.stages.problem.forward[v.stages.nodes[n].operator].optional for n in readers]
    saved = v.each[read].multiply(np.array(fresh, dtype=float)[:, None]).tocsr()
    return [v.in_every_stage(runs - v.stages.makes.T[read], "R") <= v.in_every_stage(saved, "S")]


def one_recomputation(v: Variables) -> list[cp.Constraint]:
    """Σ over the forms of an operator of R[t] ≤ 1."""
    several = [i for i, op in enumerate(v.stages.problem.forward) if len(op.again) > 1]
    return [v.in_every_stage(_of_operator(v.stages.nodes, several), "R") <= 1]


def saved_was_there(v: Variables) -> list[cp.Constraint]:
    """S[t+1,i] ≤ S[t,i] + P[t,i] (eq. 7, right, with p for r as appendix C.3 has it)."""
    return [v.saved_past(v.each) <= v.in_every_stage(v.each, "S") + v.made]


def needed_activations(v: Variables) -> list[cp.Constraint]:
    """Σ of δ̂ over the alternatives that need i ≤ P[t,i] + S[t+1,i] (eq. 8)."""
    some = sorted({*np.flatnonzero(always_needed(v.stages)), *sometimes_needed(v.stages)})
    return [v.needed[some] <= v.made[some] + v.saved_past(v.each)[some]]


def needed_and_saved(v: Variables) -> list[cp.Constraint]:
    """σ ≤ Σ of δ̂ and σ ≤ S[t+1,i]: the product of both (appendix C.4); it is never of use to have σ smaller."""
    some = sometimes_needed(v.stages)
    sigma = v.times(np.eye(len(some)), "sigma")
    return [sigma <= v.needed[some], sigma <= v.saved_past(v.each)[some]]


def one_backward_form(v: Variables) -> list[cp.Constraint]:
    """Σ_l δ̂_{k,l} = 1 over the forms of a backward operator."""
    columns = [n for n, op in enumerate(v.stages.backward) if len(op.forms) > 1]
    several = per_stage_form(v.stages)[columns][:, list(v.stages.chosen_forms)]
    return [v.times(several, "M") == np.ones(len(columns))]


def one_option(v: Variables) -> list[cp.Constraint]:
    """Σ_l δ_{i,l} ≤ r_i, δ̂ and q likewise: the base option has the rest (eq. 16; section 4: Σ_l δ_{i,l} = r_i)."""
    stages = v.stages
    runs = [node.form for node in stages.nodes]
    first = [node.form for node in stages.first]
    forms = [stages.backward[n].forms[f] for n, f in stages.backward_forms]

    def again(owners: list[int]) -> tuple[cp.Expression, cp.Expression]:
        chosen = per_owner(stages.alternatives, len(runs))[owners]
        return v.in_every_stage(chosen, "delta"), v.in_every_stage(unit_rows(owners, len(runs)), "R")

    def once(owners: list[int]) -> tuple[cp.Expression, cp.Expression]:
        chosen = per_owner(stages.first_alternatives, len(first))[owners]
        return v.times(chosen, "delta0"), v.first(unit_rows(owners, len(first)))

    def backward(owners: list[int]) -> tuple[cp.Expression, cp.Expression]:
        chosen = per_owner(stages.backward_alternatives, len(forms))[owners]
        return v.times(chosen, "delta_backward"), v.form(unit_rows(owners, len(forms)))

    rows = []
    for sides, found in ((again, runs), (once, first), (backward, forms)):
        chosen, run = sides([k for k, form in enumerate(found) if len(form.options) > 1 and form.base])
        rows.append(chosen <= run)
        chosen, run = sides([k for k, form in enumerate(found) if form.base is None])
        rows.append(chosen == run)
    return rows


def made_and_left(v: Variables) -> list[cp.Constraint]:
    """P[t,i] ≤ R[t,j] for i made by j, and P[t,i] ≤ 1 − IP for whatever overwrites i (eq. 15 and 16).

    Their other side, p ≥ r − 2q, is left out: a smaller p is never of use.
    """
    stages = v.stages
    makes = stages.makes.T[[stages.position[x] for x in stages.overwritable]]
    made = v.in_every_stage(np.eye(len(stages.overwritable)), "P")
    over = [(k, x.overwrites) for k, x in enumerate(stages.alternatives) if x.overwrites is not None]
    gone = v.in_every_stage(unit_rows([k for k, _ in over], len(stages.alternatives)), "delta")
    places = [stages.overwritable.index(x) for _, x in over]
    left = v.in_every_stage(unit_rows(places, len(stages.overwritable)), "P")
    return [made <= v.in_every_stage(makes, "R"), left + gone <= 1]


def overwritten_not_saved(v: Variables) -> list[cp.Constraint]:
    """S[t+1,i] ≤ 1 − IP for whatever overwrites i: a recomputation, a first run or a backward operator (eq. 15)."""
    stages = v.stages
    every, first = stages.alternatives, stages.first_alternatives
    again = [(k, stages.position[x.overwrites]) for k, x in enumerate(every) if x.overwrites is not None]
    once = [(k, stages.position[x.overwrites]) for k, x in enumerate(first) if x.overwrites in stages.position]
    width = len(stages.activations)
    late = [
        (k, stages.backward_forms[x.owner][0] * width + stages.position[x.overwrites])
        for k, x in enumerate(stages.backward_alternatives)
        if x.overwrites is not None
    ]
    saved = v.saved_past(v.each)[[x for _, x in late]]
    return [
        v.saved_past(v.each[[x for _, x in again]])
        + v.in_every_stage(unit_rows([k for k, _ in again], len(every)), "delta")
        <= 1,
        v.saved_first(v.each[[x for _, x in once]]) + v.times(unit_rows([k for k, _ in once], len(first)), "delta0")
        <= 1,
        saved + v.times(unit_rows([k for k, _ in late], len(stages.backward_alternatives)), "delta_backward") <= 1,
    ]


def overwritten_not_read(v: Variables) -> list[cp.Constraint]:
    """IP + R ≤ 1 for later readers of what is overwritten, in the same stage; the paper's networks have none."""
    stages = v.stages

    def pairs(alternatives: tuple[Alternative, ...], nodes: tuple) -> tuple[list[int], list[int]]:
        found = [
            (k, n)
            for k, x in enumerate(alternatives)
            for n, node in enumerate(nodes)
            if x.overwrites in node.form.reads and node.operator > nodes[x.owner].operator
        ]
        return [k for k, _ in found], [n for _, n in found]

    once, later = pairs(stages.first_alternatives, stages.first)
    again, reader = pairs(stages.alternatives, stages.nodes)
    return [
        v.times(unit_rows(once, len(stages.first_alternatives)), "delta0")
        + v.first(unit_rows(later, len(stages.first)))
        <= 1,
        v.in_every_stage(unit_rows(again, len(stages.alternatives)), "delta")
        + v.in_every_stage(unit_rows(reader, len(stages.nodes)), "R")
        <= 1,
    ]


def forward_memory(v: Variables) -> list[cp.Constraint]:
    """m_i ≤ M: c_i + |x_i| + Σ over L_i + Σ_{j<i, not in L_i} |x_j| S[1,j] (eq. 1 and 14)."""
    stages = v.stages
    saved = v.saved_first(stages.saved_beside_first * stages.sizes / _scale(stages))
    sizes = v.first(np.diag(stages.first_size) / _scale(stages))
    more = per_owner(stages.first_alternatives, len(stages.first), [x.workspace for x in stages.first_alternatives])
    return [sizes + v.times(more / _scale(stages), "delta0") + saved <= stages.first_room / _scale(stages)]


def boundary_memory(v: Variables) -> list[cp.Constraint]:
    """Σ |x_i| S[1,i] while the gradient of the outputs is made: eq. 2 for an operator that needs nothing."""
    stages = v.stages
    return [v.saved_first(stages.sizes[None, :] / _scale(stages)) <= stages.boundary_room / _scale(stages)]


def backward_memory(v: Variables) -> list[cp.Constraint]:
    """m̂_k ≤ M: Σ_l ĉ_{k,l} δ̂_{k,l} + |y_k| + L̂_k + Σ over S[k+1] ∪ D of |x_i| (eq. 5, 10 and 14)."""
    stages, unit = v.stages, _scale(v.stages)
    there = v.beside(stages.sizes[None, :] / unit)
    forms = [stages.units(base_workspace_bytes(stages.backward[n].forms[f])) for n, f in stages.backward_forms]
    base = per_stage_form(stages).multiply(np.array(forms) / unit)
    others = stages.backward_alternatives
    more = per_owner(others, len(stages.backward_forms), [x.workspace / unit for x in others])
    workspace = v.form(base) + v.times(per_stage_form(stages) @ more, "delta_backward")
    return [there + workspace <= stages.backward_room / unit]


def saved_memory(v: Variables) -> list[cp.Constraint]:
    """m̃_S ≤ M at every node j, run again or not: S[t] from j on, S[t+1] ∪ D before it (eq. 13 and 14)."""
    stages = v.stages
    sizes = stages.sizes / _scale(stages)
    there = v.beside(stages.earlier * sizes)
    return [v.in_every_stage((1.0 - stages.earlier) * sizes, "S") + there <= _room(stages)]


def recomputation_memory(v: Variables) -> list[cp.Constraint]:
    """m̄_R ≤ M: Σ_l δ_{j,l} c_{j,l} + R[t,j] (|x_j| + Σ over L̄_j), S[t] beyond j, S[t+1] ∪ D before it outside L̄_j.

    Eq. 6, 11, 12 and 14, with Lᵏ bounded by L̄ (appendix B).
    """
    stages = v.stages
    sizes = stages.sizes / _scale(stages)
    runs = np.diag(stages.run_size / _scale(stages) + stages.local @ sizes)
    more = per_owner(stages.alternatives, len(stages.nodes), [x.workspace for x in stages.alternatives])
    there = v.beside((stages.earlier - stages.local) * sizes)
    return [
        v.in_every_stage(runs, "R")
        + v.in_every_stage(more / _scale(stages), "delta")
        + v.in_every_stage((1.0 - stages.earlier) * (1.0 - stages.makes) * sizes, "S")
        + there
        <= _room(stages)
    ]


FAMILIES: tuple[Callable[[Variables], list[cp.Constraint]], ...] = (
    first_inputs,
    one_first_run,
    saved_first_was_made,
    recomputation_inputs,
    one_recomputation,
    saved_was_there,
    needed_activations,
    needed_and_saved,
    one_backward_form,
    one_option,
    made_and_left,
    overwritten_not_saved,
    overwritten_not_read,
    forward_memory,
    boundary_memory,
    backward_memory,
    saved_memory,
    recomputation_memory,
)


def _times(alternatives: Sequence[Alternative]) -> np.ndarray:
    return np.array([[x.time_ms for x in alternatives]])


def _of_operator(nodes: Sequence[PaperNode], operators: Sequence[int]) -> np.ndarray:
    """One row per operator, with ones for its nodes."""
    rows = [[float(node.operator == i) for node in nodes] for i in operators]
    return np.array(rows).reshape(len(operators), len(nodes))


def _scale(stages: Stages) -> int:
    """What memory is divided by: what the budget leaves beyond ``fixed_bytes``."""
    return max(1, stages.first_room)


def _room(stages: Stages) -> np.ndarray:
    """Room of every stage, once per node."""
    return np.repeat(stages.room / _scale(stages), len(stages.nodes))
