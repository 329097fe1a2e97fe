"""The constraint families of the grouped joint model, one function each; those about ways are in ``choices``.

Notation: s_{g,i} says that activation i is kept after group g (s_0: after the forward pass), r_{g,j} that node j
runs again at the start of group g, δ_{t,f} that backward operator t takes form f, π_{g,i} that activation i is present
before the backward operators of g run: 1 where one of them needs it in every form, p where it may, else s_{g,i}.
Equation numbers are those of the MONeT paper; U and w make its memory equations incremental and its local set L exact,
p replaces the products s·δ of appendix C.4.
"""

from __future__ import annotations

import cvxpy as cp

from explorer.solvers.formulation.decisions import Decision
from explorer.solvers.formulation.layout import Layout
from explorer.solvers.formulation.ways import Way
from explorer.solvers.programs.rows import Rows, Term

Variables = dict[str, cp.Variable]


def step_time_ms(layout: Layout, variables: Variables) -> cp.Expression:
    """Σ τ of all that runs: first runs, Σ τ_j r_{g,j}, Σ τ_f δ_{t,f}, each by the way that it takes (eq. 9)."""
    problem = layout.merged.problem
    constant = problem.base_time_ms
    costs = {name: [0.0] * variable.size for name, variable in variables.items()}
    for decision in layout.decisions:
        terms, _ = decision.amount(_time_ms)
        for block, position, coefficient in terms:
            costs[block][position] += coefficient
    # The base time has every run that is certain in its quickest form and option.
    for i, decision in layout.decisions.first.items():
        if decision.owner[1]:
            constant += decision.amount(_time_ms)[1] - min(form.time_ms for form in problem.forward[i].first)
    for t, forms in enumerate(layout.merged.stages):
        if forms:
            fixed = sum(layout.decisions.backward[t, n].amount(_time_ms)[1] for n in range(len(forms)))
            constant += fixed - min(form.time_ms for form in problem.backward[t].forms)
    parts = [cp.Constant(costs[name]) @ variable for name, variable in variables.items() if any(costs[name])]
    return sum(parts, start=cp.Constant(constant))


def one_form(layout: Layout, variables: Variables) -> list[cp.Constraint]:
    """Σ_f δ_{t,f} = 1 (eq. 5)."""
    rows = Rows(variables)
    for t, forms in enumerate(layout.merged.stages):
        if len(forms) > 1:
            rows.add([("d", layout.delta[t, n], 1.0) for n in range(len(forms))], 1.0)
    return rows.equal()


def needed_activations(layout: Layout, variables: Variables) -> list[cp.Constraint]:
    """s_{g-1,i} + Σ_j r_{g,j} ≥ 1 for i in every form's D, made by nodes j (eq. 8)."""
    rows = Rows(variables)
    for g, group in enumerate(layout.groups):
        for x in sorted(group.needs):
            rows.add(layout.keep(g, x, 1.0) + layout.made(g, x, 1.0), 1.0)
    return rows.at_least()


def no_second_copy(layout: Layout, variables: Variables) -> list[cp.Constraint]:
    """s_{g-1,i} + Σ_j r_{g,j} ≤ 1 for i made by nodes j.

    Not in the paper: what is made again need not have been kept, and one of several forms is enough, so this only
    removes needless solutions.
    """
    rows = Rows(variables)
    for g, x in layout.kept:
        made = layout.made(g, x, 1.0)
        if made:
            rows.add(layout.keep(g, x, 1.0) + made, 1.0)
    return rows.at_most()


def recomputation_inputs(layout: Layout, variables: Variables) -> list[cp.Constraint]:
    """r_{g,j} ≤ s_{g-1,i} + Σ_k r_{g,k} for i read by j, made by nodes k (eq. 7, left).

    In a sweep, one of several alternatives runs at most, so none of them reads what another makes.
    """
    rows = Rows(variables)
    nodes, relaxed = layout.merged.nodes, layout.merged.relaxed
    for g, node in layout.rerun:
        for x in sorted(nodes[node].reads - layout.groups[g].needs):
            makers = [k for k in layout.merged.producers.get(x, ()) if relaxed or nodes[k].place != nodes[node].place]
            rows.add(layout.run(g, (node,), 1.0) + layout.keep(g, x, -1.0) + layout.run(g, makers, -1.0), 0.0)
        for x in sorted(nodes[node].reads & layout.groups[g].needs):
            rivals = [k for k in layout.merged.producers.get(x, ()) if nodes[k].place == nodes[node].place]
            if rivals and not relaxed:
                rows.add(layout.run(g, (node,), 1.0) + layout.keep(g, x, -1.0), 0.0)
    return rows.at_most()


def present_for_forms(layout: Layout, variables: Variables) -> list[cp.Constraint]:
    """Σ δ_{t,f} ≤ p_{g,i} for i in D_t^f; p only falls, is ≥ s_{g,i}, and at first ≤ s_{g-1,i} + Σ_j r_{g,j}."""
    rows = Rows(variables)
    for (g, x), chain in layout.chain.items():
        for n, (t, position) in enumerate(chain):
            if position is None:
                continue
            here: Term = ("p", position, -1.0)
            rows.add([*layout.reading(t, x, 1.0)[0], here], 0.0)
            after, _ = layout.present(g, x, 1.0, stage=t + 1)
            if after:
                rows.add([*after, here], 0.0)
            if n == 0:
                rows.add([("p", position, 1.0), *layout.keep(g, x, -1.0), *layout.made(g, x, -1.0)], 0.0)
    return rows.at_most()


def keep_what_is_there(layout: Layout, variables: Variables) -> list[cp.Constraint]:
    """s_{g,i} ≤ s_{g-1,i} + Σ_j r_{g,j} for i made by nodes j (eq. 7, right); where a form may need i, p says so."""
    rows = Rows(variables)
    for passed, x in layout.kept:
        if passed > 0 and (layout.merged.relaxed or (passed - 1, x) not in layout.chain):
            terms = layout.keep(passed, x, 1.0) + layout.keep(passed - 1, x, -1.0) + layout.made(passed - 1, x, -1.0)
            rows.add(terms, 0.0)
    return rows.at_most()


def forward_memory(layout: Layout, variables: Variables) -> list[cp.Constraint]:
    """m_i ≤ M for each first run (eq. 1 and 4).

    f is the running sum of what is kept although no later operator of the forward pass reads it. Operators that run in
    one way only differ in constants between two changes of f: the worst has a row. The others have one each, unless
    that one covers their largest way.
    """
    flow, cap = Rows(variables), Rows(variables)
    starts = [operator + 1 for operator, _ in layout.releases]
    for n, (_, released) in enumerate(layout.releases):
        previous: list[Term] = [("f", n - 1, -1.0)] if n else []
        added = [term for x in released for term in layout.keep(0, x, -layout.size(x))]
        flow.add([("f", n, 1.0), *previous, *added], 0.0)
        segment = range(starts[n], [*starts, len(layout.before_bytes)][n + 1])
        runs = {i: layout.decisions.first[i] for i in segment if _has_memory_row(layout, i)}
        simple = [i for i, run in runs.items() if not run.others and not run.owner[0]]
        worst = max((layout.before_bytes[i] + _largest(runs[i]) for i in simple), default=0)
        cap.add([("f", n, 1.0)], layout.room(worst))
        for i, run in runs.items():
            if i not in simple and (run.owner[0] or layout.before_bytes[i] + _largest(run) > worst):
                _first_run_row(layout, cap, i, run, ("f", n, 1.0))
    return flow.equal() + cap.at_most()


def _has_memory_row(layout: Layout, operator: int) -> bool:
    """Does a first run have its place in the forward pass? An optional one has none in a relaxed problem."""
    anywhere = layout.merged.relaxed and layout.merged.problem.forward[operator].optional
    return not anywhere and operator in layout.decisions.first


def _first_run_row(layout: Layout, cap: Rows, operator: int, run: Decision, kept: Term) -> None:
    """An optional run brings what it reads and nothing else keeps alive: |y|(z − s_0)."""
    own, constant = run.amount(layout.way_size)
    terms = [kept, *own]
    forward = layout.merged.problem.forward[operator]
    if forward.optional:
        reads = {x for form in forward.first for x in form.reads if layout.last_read[x] < operator}
        for x in sorted(reads - layout.merged.charged):
            if not layout.merged.problem.activations[x].held:
                terms += layout.keep(0, x, -layout.size(x)) + layout.optional_run(operator, layout.size(x))
    cap.add(terms, layout.room(layout.before_bytes[operator]) - constant)


def sweep_memory(layout: Layout, variables: Variables) -> list[cp.Constraint]:
    """U_{g,k}: activations in memory after the k-th slot of a sweep (the sums of eq. 3 and 12, incrementally).

    U starts at Σ|x_i| s_{g-1,i}; at its turn an activation changes from s_{g-1,i} to π_{g,i}; stays begin after their
    producer or previous reader and end after their last.
    """
    rows = Rows(variables)
    for g, sweep in enumerate(layout.sweeps):
        changes: list[list[Term]] = [[("u", layout.memory[g, k], -1.0)] for k in range(len(sweep.slots))]
        right = [0.0] * len(sweep.slots)
        for k in range(1, len(sweep.slots)):
            changes[k].append(("u", layout.memory[g, k - 1], 1.0))
        for x, k in sweep.turn.items():
            if not sweep.slots:
                break
            terms, constant = layout.present(g, x, layout.size(x))
            changes[k] += terms + layout.keep(g, x, -layout.size(x))
            changes[0] += layout.keep(g, x, layout.size(x))
            right[k] -= constant
        for n, stay in enumerate(sweep.stays):
            position, size = layout.stay[g, n], layout.size(stay.activation)
            changes[stay.after].append(("w", position, size))
            changes[stay.until].append(("w", position, -size))
        for terms, constant in zip(changes, right, strict=True):
            rows.add(terms, constant)
    return rows.equal()


def stays(layout: Layout, variables: Variables) -> list[cp.Constraint]:
    """Stay w ≥ Σ r_{g,j} − π_{g,i} for each slot of readers j for whose sake i stays, and w ≥ the next stay's w.

    Stays hold the local set L of eq. 3 exactly, where the paper bounds it from above by a constant (appendix B).
    """
    rows = Rows(variables)
    for g, sweep in enumerate(layout.sweeps):
        for n, stay in enumerate(sweep.stays):
            own: Term = ("w", layout.stay[g, n], -1.0)
            kept, constant = layout.present(g, stay.activation, -1.0)
            for reader in stay.readers:
                rows.add([own, *reading_slot(layout, g, reader, stay.activation, 1.0), *kept], -constant)
            if stay.following is not None:
                rows.add([own, ("w", layout.stay[g, stay.following], 1.0)], 0.0)
    return rows.at_most()


def recomputation_memory(layout: Layout, variables: Variables) -> list[cp.Constraint]:
    """U_{g,k-1} + r_{g,j}·peak_j + Σ|x_i|(r_{g,j} − π_{g,i}) ≤ B − G_first(g) for node j in slot k (eq. 12 and 14).

    The sum is over what j reads that U does not count: an activation that was made or read right before it. The peak is
    that of the way which j takes.
    """
    rows = Rows(variables)
    for g, sweep in enumerate(layout.sweeps):
        room = layout.idle_room(layout.groups[g].start)
        for k, slot in enumerate(sweep.slots):
            for node in slot:
                terms = before(layout, g, k) + layout.decisions.again[g, node].amount(layout.way_size)[0]
                for x in sorted(layout.merged.nodes[node].reads & set(sweep.reads[k])):
                    # Never in D_g, so π is a variable or absent.
                    terms += layout.present(g, x, -layout.size(x))[0] + layout.run(g, (node,), layout.size(x))
                rows.add(terms, room)
    return rows.at_most()


def backward_memory(layout: Layout, variables: Variables) -> list[cp.Constraint]:
    """U_{g,last} less what is of no more use ≤ B − G_t − y_t − ĉ_t for each backward operator t (eq. 2 and 4).

    Operators that run in one way only differ in constants until what is in memory changes: the worst has a row. The
    others have one each, unless that one covers their largest way.
    """
    rows = Rows(variables)
    before_groups = range(layout.groups[0].start if layout.groups else len(layout.merged.problem.backward))
    _stage_rows(layout, rows, before_groups, [("f", len(layout.releases) - 1, 1.0)], 0.0)
    for g, group in enumerate(layout.groups):
        terms, released = before(layout, g, len(layout.sweeps[g].slots)), 0.0
        begin = group.start
        read = {x for t in group.stages for x in layout.merged.offers[t]}
        for t in group.stages:
            if t + 1 < group.stop and not layout.merged.offers[t]:
                continue
            _stage_rows(layout, rows, range(begin, t + 1), terms, released)
            begin = t + 1
            for x in sorted(read & layout.merged.offers[t]):
                old, constant = layout.present(g, x, -layout.size(x), stage=t)
                new, left = layout.present(g, x, layout.size(x), stage=t + 1)
                terms, released = [*terms, *old, *new], released + constant + left
    return rows.at_most()


def _stage_rows(layout: Layout, rows: Rows, stages: range, terms: list[Term], constant: float) -> None:
    runs = {t: [layout.decisions.backward[t, n] for n in range(len(layout.merged.stages[t]))] for t in stages}
    simple = {t: forms[0] for t, forms in runs.items() if len(forms) == 1 and not forms[0].others}
    room = min(
        (layout.stage_room(t) - layout.units(_largest(run)) for t, run in simple.items()), default=layout.room(0)
    )
    if simple:
        rows.add(terms, room - constant)
    for t, forms in runs.items():
        if t in simple or not forms:
            continue
        if simple and layout.stage_room(t) - layout.units(max(_largest(run) for run in forms)) >= room:
            continue
        own = [run.amount(layout.way_size) for run in forms]
        right = layout.stage_room(t) - constant - sum(fixed for _, fixed in own)
        rows.add([*terms, *(term for chosen, _ in own for term in chosen)], right)


def before(layout: Layout, group: int, slot: int) -> list[Term]:
    """Activations in memory before a slot of a sweep; after the sweep for its length."""
    if slot > 0:
        return [("u", layout.memory[group, slot - 1], 1.0)]
    kept = layout.sweeps[group].turn
    return [term for x in kept for term in layout.keep(group, x, layout.size(x))]


def reading_slot(layout: Layout, group: int, slot: int, activation: int, coefficient: float) -> list[Term]:
    """Σ r_{g,j} times ``coefficient`` over the nodes of a slot that read an activation."""
    nodes = layout.sweeps[group].slots[slot]
    return layout.run(group, [j for j in nodes if activation in layout.merged.nodes[j].reads], coefficient)


def _largest(run: Decision) -> int:
    return max(way.bytes for way in run.ways)


def _time_ms(way: Way) -> float:
    return way.time_ms
