"""The constraint families of the grouped checkpointing model, one function each.

Notation: s_{g,i} says that activation i is kept after group g (s_0: after the forward pass), r_{g,j} that node j runs
again at the start of group g, π_{g,i} that activation i is present while the backward operators of g run: 1 where one
of them needs it, else s_{g,i}. Equation numbers are those of the MONeT paper; U and w make its memory equations
incremental and its local set L exact.
"""

from __future__ import annotations

import cvxpy as cp

from explorer.solvers.monet.layout import Layout
from explorer.solvers.monet.program import Rows, Term

Variables = dict[str, cp.Variable]


def step_time_ms(layout: Layout, variables: Variables) -> cp.Expression:
    """Every operator once, and Σ τ_j r_{g,j} (eq. 9)."""
    base = cp.Constant(layout.merged.problem.base_time_ms)
    if "r" not in variables:
        return base
    times = [layout.merged.nodes[node].time_ms for _, node in layout.rerun]
    return base + cp.Constant(times) @ variables["r"]


def needed_activations(layout: Layout, variables: Variables) -> list[cp.Constraint]:
    """s_{g-1,i} + r_{g,j} ≥ 1 for i in D_g, made by j (eq. 8)."""
    rows = Rows(variables)
    for g, group in enumerate(layout.groups):
        for x in sorted(group.needs):
            rows.add(layout.keep(g, x, 1.0) + layout.run(g, layout.merged.producer.get(x), 1.0), 1.0)
    return rows.at_least()


def no_second_copy(layout: Layout, variables: Variables) -> list[cp.Constraint]:
    """s_{g-1,i} + r_{g,j} ≤ 1 for i made by j.

    Not in the paper: what is made again need not have been kept, so this only removes needless solutions.
    """
    rows = Rows(variables)
    for g, node in layout.rerun:
        for x in sorted(layout.merged.nodes[node].writes):
            if (g, x) in layout.kept:
                rows.add(layout.keep(g, x, 1.0) + layout.run(g, node, 1.0), 1.0)
    return rows.at_most()


def recomputation_inputs(layout: Layout, variables: Variables) -> list[cp.Constraint]:
    """r_{g,j} ≤ s_{g-1,i} + r_{g,k} for i read by j, made by k (eq. 7, left)."""
    rows = Rows(variables)
    for g, node in layout.rerun:
        for x in sorted(layout.merged.nodes[node].reads - layout.groups[g].needs):
            made = layout.run(g, layout.merged.producer.get(x), -1.0)
            rows.add(layout.run(g, node, 1.0) + layout.keep(g, x, -1.0) + made, 0.0)
    return rows.at_most()


def keep_what_is_there(layout: Layout, variables: Variables) -> list[cp.Constraint]:
    """s_{g,i} ≤ s_{g-1,i} + r_{g,j} for i made by j (eq. 7, right); what D_g holds is there anyway."""
    rows = Rows(variables)
    for passed, x in layout.kept:
        if passed > 0 and x not in layout.groups[passed - 1].needs:
            made = layout.run(passed - 1, layout.merged.producer.get(x), -1.0)
            rows.add(layout.keep(passed, x, 1.0) + layout.keep(passed - 1, x, -1.0) + made, 0.0)
    return rows.at_most()


def forward_memory(layout: Layout, variables: Variables) -> list[cp.Constraint]:
    """m_i ≤ M for each first run (eq. 1 and 4).

    f is the running sum of what is kept although no later operator of the forward pass reads it; the rest of a forward
    operator's memory is constant, so only the worst operator between two changes of f has a row.
    """
    flow, cap = Rows(variables), Rows(variables)
    fixed = layout.forward_bytes
    starts = [operator + 1 for operator, _ in layout.releases]
    for n, (_, released) in enumerate(layout.releases):
        previous: list[Term] = [("f", n - 1, -1.0)] if n else []
        added = [term for x in released for term in layout.keep(0, x, -layout.size(x))]
        flow.add([("f", n, 1.0), *previous, *added], 0.0)
        worst = max(fixed[starts[n] : [*starts, len(fixed)][n + 1]], default=0)
        cap.add([("f", n, 1.0)], layout.room(worst))
    return flow.equal() + cap.at_most()


def sweep_memory(layout: Layout, variables: Variables) -> list[cp.Constraint]:
    """U_{g,k}: activations in memory after the k-th node of a sweep (the sums of eq. 3 and 12, incrementally).

    U starts at Σ|x_i| s_{g-1,i}; at its turn an activation changes from s_{g-1,i} to π_{g,i}; stays begin after their
    producer or previous reader and end after their last.
    """
    rows = Rows(variables)
    for g, sweep in enumerate(layout.sweeps):
        changes: list[list[Term]] = [[("u", layout.memory[g, k], -1.0)] for k in range(len(sweep.nodes))]
        right = [0.0] * len(sweep.nodes)
        for k in range(1, len(sweep.nodes)):
            changes[k].append(("u", layout.memory[g, k - 1], 1.0))
        for x, k in sweep.turn.items():
            if not sweep.nodes:
                break
            before = layout.keep(g, x, layout.size(x))
            terms, constant = layout.present(g, x, layout.size(x))
            changes[k] += terms + _negated(before)
            changes[0] += before
            right[k] -= constant
        for n, stay in enumerate(sweep.stays):
            held: Term = ("w", layout.stay[g, n], layout.size(stay.activation))
            changes[stay.after].append(held)
            changes[stay.until] += _negated([held])
        for terms, constant in zip(changes, right, strict=True):
            rows.add(terms, constant)
    return rows.equal()


def stays(layout: Layout, variables: Variables) -> list[cp.Constraint]:
    """Stay w ≥ r_{g,j} − π_{g,i} for each reader j for whose sake i stays, and w ≥ the next stay's w.

    Stays hold the local set L of eq. 3 exactly, where the paper bounds it from above by a constant (appendix B).
    """
    rows = Rows(variables)
    for g, sweep in enumerate(layout.sweeps):
        for n, stay in enumerate(sweep.stays):
            own: Term = ("w", layout.stay[g, n], -1.0)
            kept, constant = layout.present(g, stay.activation, -1.0)
            for reader in stay.readers:
                rows.add([own, *layout.run(g, sweep.nodes[reader], 1.0), *kept], -constant)
            if stay.following is not None:
                rows.add([own, ("w", layout.stay[g, stay.following], 1.0)], 0.0)
    return rows.at_most()


def recomputation_memory(layout: Layout, variables: Variables) -> list[cp.Constraint]:
    """U_{g,k-1} + r_{g,j}·peak_j + Σ|x_i|(r_{g,j} − π_{g,i}) ≤ B − G_first(g) for the k-th node j (eq. 12 and 14).

    The sum is over what j reads that U does not count: an activation that was made or read right before it.
    """
    rows = Rows(variables)
    for g, sweep in enumerate(layout.sweeps):
        room = layout.idle_room(layout.groups[g].start)
        for k, node in enumerate(sweep.nodes):
            peak = layout.merged.nodes[node].peak_bytes / layout.unit_bytes
            terms = _before(layout, g, k)
            for x in sweep.reads[k]:
                # Never in D_g, so π is a variable or absent.
                terms += layout.present(g, x, -layout.size(x))[0]
                peak += layout.size(x)
            rows.add(terms + layout.run(g, node, peak), room)
    return rows.at_most()


def backward_memory(layout: Layout, variables: Variables) -> list[cp.Constraint]:
    """U_{g,last} − Σ|x_i|(1 − s_{g,i}) ≤ B − G_t − y_t − ĉ_t, the sum over D_g's last used before t (eq. 2 and 4).

    Backward operators between two such last uses differ in constants only: the worst has a row.
    """
    rows = Rows(variables)
    before = range(layout.groups[0].start if layout.groups else len(layout.merged.problem.backward))
    room = min((layout.stage_room(t) for t in before), default=layout.room(0))
    rows.add([("f", len(layout.releases) - 1, 1.0)], room)
    for g, group in enumerate(layout.groups):
        last_use = {x: t for t in group.stages for x in layout.merged.needs[t]}
        terms = _before(layout, g, len(layout.sweeps[g].nodes))
        begin, released_sizes = group.start, 0.0
        for end in sorted({*last_use.values(), group.stop - 1}):
            room = min(layout.stage_room(t) for t in range(begin, end + 1))
            rows.add(list(terms), room + released_sizes)
            begin = end + 1
            for x in sorted(x for x, t in last_use.items() if t == end):
                terms += layout.keep(g + 1, x, layout.size(x))
                released_sizes += layout.size(x)
    return rows.at_most()


def _before(layout: Layout, group: int, position: int) -> list[Term]:
    """Activations in memory before the node at ``position`` of a sweep; after the sweep for its length."""
    if position > 0:
        return [("u", layout.memory[group, position - 1], 1.0)]
    kept = layout.sweeps[group].turn
    return [term for x in kept for term in layout.keep(group, x, layout.size(x))]


def _negated(terms: list[Term]) -> list[Term]:
    return [(block, position, -coefficient) for block, position, coefficient in terms]
