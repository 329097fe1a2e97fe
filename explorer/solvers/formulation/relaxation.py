"""The program of a bound: what every schedule within a budget satisfies, grouping or no grouping."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import zip_longest

import cvxpy as cp
import numpy as np

from explorer.solvers.formulation import choices, constraints
from explorer.solvers.formulation.constraints import Variables
from explorer.solvers.formulation.groups import Group, least_reads
from explorer.solvers.formulation.layout import Layout
from explorer.solvers.formulation.merge import MergedProblem
from explorer.solvers.programs.milp import Milp
from explorer.solvers.programs.rows import Amount, Rows, Term, compile_milp, scaled


@dataclass(frozen=True, eq=False)
class _Reader:
    """A backward operator that may read an activation of an interval, and what is known of the latter's presence.

    Attributes:
        stage: the backward operator.
        before: position in block ``e`` of "present between the reader before and this one"; None where a later
            operator, or this one, reads it in every form.
        during: position in block ``h`` of "present while this one runs"; None where it reads it in every form.
    """

    stage: int
    before: int | None
    during: int | None


@dataclass(frozen=True, eq=False)
class _Relaxed:
    """A layout without sweeps, and what it counts besides.

    Attributes:
        layout: of a relaxed problem.
        readers: (interval, activation) to the operators of the interval that may read it, in order.
        levels: for each interval its operators at which memory may change, each with its position in block ``b``.
    """

    layout: Layout
    readers: dict[tuple[int, int], tuple[_Reader, ...]]
    levels: tuple[dict[int, int], ...]

    @classmethod
    def of(cls, layout: Layout) -> _Relaxed:
        """Number the variables for what forms may read."""
        merged = layout.merged
        counts = {"e": 0, "h": 0}

        def number(block: str, *, constant: bool) -> int | None:
            counts[block] += not constant
            return None if constant else counts[block] - 1

        readers = {}
        for g, group in enumerate(layout.groups):
            reading: dict[int, list[int]] = {x: [] for x in sorted(group.offers)}
            for t in group.stages:
                for x in merged.offers[t]:
                    reading[x].append(t)
            for x, stages in reading.items():
                certain = max((t for t in stages if x in merged.needs[t]), default=-1)
                readers[g, x] = tuple(
                    _Reader(t, number("e", constant=t <= certain), number("h", constant=x in merged.needs[t]))
                    for t in stages
                )
        return cls(layout, readers, _levels(layout))

    def variables(self) -> Variables:
        """Those of the layout; ``k``, ``m`` (their sums per interval), ``e``, ``h`` and ``b`` (memory at operators)."""
        variables = self.layout.variables()
        found = [reader for chain in self.readers.values() for reader in chain]
        counts = {
            "k": len(self.layout.kept),
            "e": sum(x.before is not None for x in found),
            "h": sum(x.during is not None for x in found),
        }
        for name, count in counts.items():
            if count:
                # Whole in every schedule's values, and SCIP cuts off more where it knows.
                variables[name] = cp.Variable(count, name=name, boolean=True)
        for name, count in (("m", len(self.layout.groups)), ("b", sum(map(len, self.levels)))):
            if count:
                variables[name] = cp.Variable(count, name=name, bounds=[np.zeros(count), np.full(count, np.inf)])
        return variables

    def throughout(self, group: int, activation: int, coefficient: float) -> list[Term]:
        """k_{g,i} times ``coefficient``."""
        return [("k", position, coefficient) for _, position, _ in self.layout.keep(group, activation, coefficient)]

    def waiting(self, group: int, activation: int, reader: _Reader, coefficient: float) -> Amount:
        """Presence between two readers: 1 − Σ r where it is certainly read later, for it was there unless made."""
        if reader.before is None:
            return self.layout.made(group, activation, -coefficient), coefficient
        return [("e", reader.before, coefficient)], 0.0


@dataclass(frozen=True, eq=False)
class Relaxation:
    """The program whose optimum is a bound.

    Attributes:
        milp: what to solve.
        layout: its variables.
        blocks: where each block of variables lies in the columns.
    """

    milp: Milp
    layout: Layout
    blocks: dict[str, slice]


def build(
    merged: MergedProblem, budget_bytes: int, *, threshold: float, ends: Collection[int] = frozenset()
) -> Relaxation:
    """State the program: no schedule within the budget takes less than its optimum.

    It holds for every schedule that the simulator accepts, that has the first runs of all but optional operators in the
    captured order, and that recomputes forward operators after the forward pass only: at any place between backward
    operators, in any order, any number of times, in any form and by any option; optional operators run anywhere. Take
    such a schedule and cut its backward pass into intervals, each ending with a backward operator a form of which reads
    an activation. Let, for interval g,

    - s_{g,i} be 1 if activation i is in memory when the interval begins,
    - r_{g,j} be 1 if node j (an operator in one of its forms) runs at least once in it,
    - k_{g,i} be 1 if i is in memory throughout the interval,
    - δ_{t,f} be 1 if backward operator t runs in form f,

    and let every first run, every backward operator, and the first run of j in each interval choose the variable of the
    option that it takes. The time of the schedule is at least that of the first runs and backward operators so chosen,
    Σ τ_j r_{g,j}, and τ_i s_{0,m} for what optional operators made in the forward pass: that cannot be there otherwise.
    An option that is left out as no choice lends its smaller workspace to a quicker one; overwriting is counted as a
    smaller workspace and asks for nothing, but in the forward pass: what is in memory after it, and is made nowhere
    else, was not overwritten. These values keep every row below, each of which says no more than that what is in memory
    at one moment fits; so the least time over all values that keep them, whole or fractional, bounds the schedule's.
    What is present for part of an interval only is not charged, but at its end, which weakens long intervals; in linear
    relaxations short ones are weaker still, for there a recomputation is split over many intervals. So the linear
    relaxation of one interval comes first, and whole numbers for shorter and shorter ones later; and one end in the
    right place is worth more than many elsewhere.

    Args:
        merged: from ``relax``.
        budget_bytes: of the whole step.
        threshold: what the backward operators of an interval read is at most this share of the room there.
        ends: backward operators with which an interval ends in any case, of those a form of which reads an activation.
    """
    layout = Layout.of(merged, _intervals(merged, budget_bytes, threshold, ends), budget_bytes, sweeps=False)
    relaxed = _Relaxed.of(layout)
    variables = relaxed.variables()
    shared = (
        constraints.one_form,
        constraints.needed_activations,
        constraints.recomputation_inputs,
        constraints.keep_what_is_there,
        constraints.forward_memory,
        choices.one_way,
        choices.first_runs_in_place,
        choices.first_forms,
    )
    own = (
        chosen_forms,
        present_throughout,
        throughout_bytes,
        present_for_readers,
        recomputation_fits,
        backward_memory,
        backward_fits,
        ends_fit,
    )
    rows = [row for family in shared for row in family(layout, variables)]
    rows += [row for family in own for row in family(relaxed, variables)]
    milp, blocks = compile_milp(constraints.step_time_ms(layout, variables), rows, variables)
    return Relaxation(milp, layout, blocks)


def _levels(layout: Layout) -> tuple[dict[int, int], ...]:
    """For each interval its first operator, those that may read something and those after them, numbered throughout."""
    levels: list[dict[int, int]] = []
    count = 0
    for group in layout.groups:
        reading = [t for t in group.stages if layout.merged.offers[t]]
        changes = sorted({group.start, *reading, *(t + 1 for t in reading if t + 1 < group.stop)})
        levels.append({t: count + n for n, t in enumerate(changes)})
        count += len(changes)
    return tuple(levels)


def _intervals(merged: MergedProblem, budget_bytes: int, threshold: float, ends: Collection[int]) -> tuple[Group, ...]:
    """Intervals of the backward pass, each ending with an operator that may read an activation (``group_stages``)."""
    free = budget_bytes - merged.problem.fixed_bytes
    stops: list[int] = []
    together: set[int] = set()
    together_bytes = 0
    for t, offers in enumerate(merged.offers):
        if not offers:
            continue
        wanted = least_reads(merged, t)
        limit = threshold * (free - merged.problem.backward[t].idle_bytes)
        open_ended = bool(stops) and stops[-1] - 1 not in ends
        added_bytes = merged.bytes(wanted - together)
        if open_ended and threshold > 0 and together_bytes + added_bytes <= limit:
            stops[-1] = t + 1
            together_bytes += added_bytes
        else:
            stops.append(t + 1)
            together, together_bytes = set(), merged.bytes(wanted)
        together |= wanted
    return tuple(Group.over(merged, start, stop) for start, stop in zip([0, *stops], stops, strict=False))


def chosen_forms(relaxed: _Relaxed, variables: Variables) -> list[cp.Constraint]:
    """Σ δ_{t,f} ≤ s_{g,i} + Σ_j r_{g,j} over the forms f that read i: it was there, or was made in the interval."""
    rows, layout = Rows(variables), relaxed.layout
    for (g, x), readers in relaxed.readers.items():
        for reader in readers:
            if reader.during is not None:
                reading, _ = layout.reading(reader.stage, x, 1.0)
                rows.add([*reading, *layout.keep(g, x, -1.0), *layout.made(g, x, -1.0)], 0.0)
    return rows.at_most()


def present_throughout(relaxed: _Relaxed, variables: Variables) -> list[cp.Constraint]:
    """k_{g,i} ≥ s_{g+1,i} − Σ_j r_{g,j}; and ≥ 1 − Σ_j r_{g,j} where the interval's last operator reads i, made by j.

    What is there at the end and was not made in the interval has been there all the time.
    """
    rows, layout = Rows(variables), relaxed.layout
    for (g, x), position in layout.kept.items():
        own: Term = ("k", position, 1.0)
        made = layout.made(g, x, 1.0)
        last = layout.groups[g].stop - 1
        reading, constant = layout.reading(last, x, -1.0) if x in layout.merged.offers[last] else ([], 0.0)
        if reading or constant:
            rows.add([own, *made, *reading], -constant)
        if not constant:
            rows.add([own, *made, *layout.keep(g + 1, x, -1.0)], 0.0)
    return rows.at_least()


def throughout_bytes(relaxed: _Relaxed, variables: Variables) -> list[cp.Constraint]:
    """m_g = Σ |x_i| k_{g,i}."""
    rows, layout = Rows(variables), relaxed.layout
    sums: list[list[Term]] = [[("m", g, -1.0)] for g in range(len(layout.groups))]
    for (g, x), position in layout.kept.items():
        sums[g].append(("k", position, layout.size(x)))
    for terms in sums:
        rows.add(terms, 0.0)
    return rows.equal()


def present_for_readers(relaxed: _Relaxed, variables: Variables) -> list[cp.Constraint]:
    """Presence before (e) and while (h) operators run that may read an activation.

    e ≥ what the operator reads − Σ_j r_{g,j} (there all the time before, unless made); e ≥ the next e, and the last ≥
    k_{g,i}. h ≥ e, and h ≥ what the operator reads.
    """
    rows = Rows(variables)
    for (g, x), readers in relaxed.readers.items():
        for reader, following in zip_longest(readers, readers[1:]):
            reading, _ = relaxed.layout.reading(reader.stage, x, -1.0)
            if reader.before is not None:
                own: Term = ("e", reader.before, 1.0)
                rows.add([own, *reading, *relaxed.layout.made(g, x, 1.0)], 0.0)
                later = relaxed.throughout(g, x, -1.0)
                if following is not None:
                    later, _ = relaxed.waiting(g, x, following, -1.0)
                rows.add([own, *later], 0.0)
            if reader.during is not None:
                here: Term = ("h", reader.during, 1.0)
                waiting, constant = relaxed.waiting(g, x, reader, -1.0)
                rows.add([here, *waiting], -constant)
                rows.add([here, *reading], 0.0)
    return rows.at_least()


def recomputation_fits(relaxed: _Relaxed, variables: Variables) -> list[cp.Constraint]:
    """m_g − Σ|x_i| k_{g,i} + r_{g,j}(peak_j + Σ|x_i|) ≤ B − the least gradients of the interval, i read by j (eq. 3).

    Valid whenever j runs in the interval: its inputs are there, and so is all that stays throughout. The peak is that
    of the option by which it runs first.
    """
    rows, layout = Rows(variables), relaxed.layout
    idle_bytes = [min(layout.merged.problem.backward[t].idle_bytes for t in group.stages) for group in layout.groups]
    for g, node in layout.rerun:
        reads = layout.merged.nodes[node].reads
        counted = [term for x in sorted(reads) for term in relaxed.throughout(g, x, -layout.size(x))]
        own, _ = layout.decisions.again[g, node].amount(layout.way_size)
        inputs = layout.run(g, (node,), sum(layout.size(x) for x in reads))
        rows.add(
            [("m", g, 1.0), *counted, *own, *inputs], layout.room(layout.merged.problem.held_bytes + idle_bytes[g])
        )
    return rows.at_most()


def backward_memory(relaxed: _Relaxed, variables: Variables) -> list[cp.Constraint]:
    """b_t = m_g with e, h or 1 in place of k_{g,i} for what t or a later operator of its interval may read (eq. 2).

    Stated by what changes from one operator to the next: long intervals would have rows of thousands of terms.
    """
    rows, offers = Rows(variables), relaxed.layout.merged.offers
    for g, levels in enumerate(relaxed.levels):
        before: Term = ("m", g, 1.0)
        known: dict[int, Amount] = {}
        changing = relaxed.layout.groups[g].offers
        for t, position in levels.items():
            terms, constant = [before, ("b", position, -1.0)], 0.0
            for x in sorted(changing | offers[t]):
                parts = scaled(known.get(x, ([], 0.0)), -1.0), _beyond_throughout(relaxed, g, x, at=t)
                for own, own_constant in parts:
                    terms += own
                    constant += own_constant
                known[x] = parts[1]
            rows.add(terms, -constant)
            before, changing = ("b", position, 1.0), offers[t]
    return rows.equal()


def backward_fits(relaxed: _Relaxed, variables: Variables) -> list[cp.Constraint]:
    """b_t ≤ B − G_t − y_t − ĉ_t (eq. 2)."""
    rows = Rows(variables)
    for group, levels in zip(relaxed.layout.groups, relaxed.levels, strict=True):
        level = -1
        for t in group.stages:
            level = levels.get(t, level)
            own, room = _besides(relaxed, t)
            rows.add([("b", level, 1.0), *own], room)
    return rows.at_most()


def ends_fit(relaxed: _Relaxed, variables: Variables) -> list[cp.Constraint]:
    """Σ|x_i| max(s_{g+1,i}, read by t) ≤ B − G_t − y_t − ĉ_t for the last operator t of an interval (eq. 2).

    What is there when the next interval begins was there, or made, before t ran: nothing of the interval comes after.
    """
    rows, more, layout = Rows(variables), Rows(variables), relaxed.layout
    for g, group in enumerate(layout.groups):
        last = group.stop - 1
        own, room = _besides(relaxed, last)
        terms = list(own)
        for x in sorted(layout.merged.offers[last]):
            reader = relaxed.readers[g, x][-1]
            if reader.during is None:
                room -= layout.size(x)
                continue
            terms.append(("h", reader.during, layout.size(x)))
            kept = layout.keep(g + 1, x, 1.0)
            if kept:
                more.add([*kept, ("h", reader.during, -1.0)], 0.0)
        for passed, x in layout.kept:
            if passed == g + 1 and x not in layout.merged.offers[last]:
                terms += layout.keep(passed, x, layout.size(x))
        rows.add(terms, room)
    return rows.at_most() + more.at_most()


def _besides(relaxed: _Relaxed, stage: int) -> Amount:
    """The workspace of a backward operator that is not certain, and the room beside what is."""
    layout = relaxed.layout
    terms: list[Term] = []
    room = layout.stage_room(stage)
    for n in range(len(layout.merged.stages[stage])):
        own, constant = layout.decisions.backward[stage, n].amount(layout.way_size)
        terms, room = terms + own, room - constant
    return terms, room


def _beyond_throughout(relaxed: _Relaxed, group: int, activation: int, *, at: int) -> Amount:
    """|x_i| as far as it is certainly in memory at an operator, less |x_i| k_{g,i}, which counts in m_g already."""
    reader = next((y for y in relaxed.readers[group, activation] if y.stage >= at), None)
    if reader is None:
        return [], 0.0
    there, constant = _presence(relaxed, group, activation, reader, at=at)
    return [*relaxed.throughout(group, activation, -relaxed.layout.size(activation)), *there], constant


def _presence(relaxed: _Relaxed, group: int, activation: int, reader: _Reader, *, at: int) -> Amount:
    """|x_i| as far as it is certainly in memory at a stage, the next that may read it being ``reader``."""
    size = relaxed.layout.size(activation)
    if reader.stage > at:
        return relaxed.waiting(group, activation, reader, size)
    return ([], size) if reader.during is None else ([("h", reader.during, size)], 0.0)
