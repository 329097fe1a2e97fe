"""The program of a bound: what every schedule within a budget satisfies, grouping or no grouping."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import cvxpy as cp
import numpy as np

from explorer.solvers.milp import Milp
from explorer.solvers.monet import choices, constraints
from explorer.solvers.monet.constraints import Variables
from explorer.solvers.monet.decisions import Amount
from explorer.solvers.monet.groups import Group, least_reads
from explorer.solvers.monet.layout import Layout
from explorer.solvers.monet.merge import MergedProblem
from explorer.solvers.monet.program import Rows, Term, compile_milp


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
    """

    layout: Layout
    readers: dict[tuple[int, int], tuple[_Reader, ...]]

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
            for x in sorted(group.offers):
                stages = [t for t in group.stages if x in merged.offers[t]]
                certain = max((t for t in stages if x in merged.needs[t]), default=-1)
                readers[g, x] = tuple(
                    _Reader(t, number("e", constant=t <= certain), number("h", constant=x in merged.needs[t]))
                    for t in stages
                )
        return cls(layout, readers)

    def variables(self) -> Variables:
        """Those of the layout; ``k``, ``m`` (their sums per interval), ``e`` and ``h``."""
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
        groups = len(self.layout.groups)
        if groups:
            variables["m"] = cp.Variable(groups, name="m", bounds=[np.zeros(groups), np.full(groups, np.inf)])
        return variables

    def throughout(self, group: int, activation: int, coefficient: float) -> list[Term]:
        """k_{g,i} times ``coefficient``."""
        position = self.layout.kept.get((group, activation))
        return [] if position is None else [("k", position, coefficient)]

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


def build(merged: MergedProblem, budget_bytes: int, *, threshold: float) -> Relaxation:
    """State the program: no schedule within the budget takes less than its optimum, less ``problem.slack_ms``.

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
    What is present for part of an interval only is not charged, which weakens long intervals; in linear relaxations
    short ones are weaker still, for there a recomputation is split over many intervals. So linear relaxations for
    two lengths come first, and whole numbers for shorter and shorter ones later.

    Args:
        merged: from ``relax``.
        budget_bytes: of the whole step.
        threshold: what the backward operators of an interval read is at most this share of the room there.
    """
    layout = Layout.of(merged, _intervals(merged, budget_bytes, threshold), budget_bytes, sweeps=False)
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
    own = (chosen_forms, present_throughout, throughout_bytes, present_for_readers, recomputation_fits, backward_fits)
    rows = [row for family in shared for row in family(layout, variables)]
    rows += [row for family in own for row in family(relaxed, variables)]
    milp, blocks = compile_milp(constraints.step_time_ms(layout, variables), rows, variables)
    return Relaxation(milp, layout, blocks)


def _intervals(merged: MergedProblem, budget_bytes: int, threshold: float) -> tuple[Group, ...]:
    """Intervals of the backward pass, each ending with an operator that may read an activation (``group_stages``)."""
    free = budget_bytes - merged.problem.fixed_bytes
    stops: list[int] = []
    together: frozenset[int] = frozenset()
    for t, offers in enumerate(merged.offers):
        if not offers:
            continue
        wanted = least_reads(merged, t)
        limit = threshold * (free - merged.problem.backward[t].idle_bytes)
        if stops and threshold > 0 and merged.bytes(together | wanted) <= limit:
            stops[-1] = t + 1
            together |= wanted
        else:
            stops.append(t + 1)
            together = wanted
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
        for reader, following in _with_next(readers):
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


def _with_next(readers: tuple[_Reader, ...]) -> Iterator[tuple[_Reader, _Reader | None]]:
    return zip(readers, [*readers[1:], None], strict=True)


def recomputation_fits(relaxed: _Relaxed, variables: Variables) -> list[cp.Constraint]:
    """m_g − Σ|x_i| k_{g,i} + r_{g,j}(peak_j + Σ|x_i|) ≤ B − the least gradients of the interval, i read by j (eq. 3).

    Valid whenever j runs in the interval: its inputs are there, and so is all that stays throughout. The peak is that
    of the option by which it runs first.
    """
    rows, layout = Rows(variables), relaxed.layout
    for g, node in layout.rerun:
        reads = layout.merged.nodes[node].reads
        idle = min(layout.merged.problem.backward[t].idle_bytes for t in layout.groups[g].stages)
        counted = [term for x in sorted(reads) for term in relaxed.throughout(g, x, -layout.size(x))]
        own, _ = layout.decisions.again[g, node].amount(layout.way_size)
        inputs = layout.run(g, (node,), sum(layout.size(x) for x in reads))
        rows.add([("m", g, 1.0), *counted, *own, *inputs], layout.room(layout.merged.problem.held_bytes + idle))
    return rows.at_most()


def backward_fits(relaxed: _Relaxed, variables: Variables) -> list[cp.Constraint]:
    """m_g ≤ B − G_t − y_t − ĉ_t, with e, h or 1 in place of k_{g,i} for what t or a later operator may read (eq. 2)."""
    rows, layout = Rows(variables), relaxed.layout
    for g, group in enumerate(layout.groups):
        chains = {x: relaxed.readers[g, x] for x in sorted(group.offers)}
        for t in group.stages:
            terms: list[Term] = [("m", g, 1.0)]
            room = layout.stage_room(t)
            for n in range(len(layout.merged.stages[t])):
                own, constant = layout.decisions.backward[t, n].amount(layout.way_size)
                terms, room = terms + own, room - constant
            for x, readers in chains.items():
                reader = next((y for y in readers if y.stage >= t), None)
                if reader is None:
                    continue
                there, constant = _presence(relaxed, g, x, reader, at=t)
                terms += [*relaxed.throughout(g, x, -layout.size(x)), *there]
                room -= constant
            rows.add(terms, room)
    return rows.at_most()


def _presence(relaxed: _Relaxed, group: int, activation: int, reader: _Reader, *, at: int) -> Amount:
    """|x_i| as far as it is certainly in memory at a stage, the next that may read it being ``reader``."""
    size = relaxed.layout.size(activation)
    if reader.stage > at:
        return relaxed.waiting(group, activation, reader, size)
    return ([], size) if reader.during is None else ([("h", reader.during, size)], 0.0)
