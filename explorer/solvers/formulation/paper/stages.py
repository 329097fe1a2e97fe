"""Index and constants of the paper's program."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from explorer.solvers.problem.problem import BackwardOperator, Form, Problem

_KIB = 1024
_FINEST = 20
"""Sizes are rounded to the budget over two to this power where that is less than a KiB."""


@dataclass(frozen=True, slots=True)
class PaperNode:
    """One way to run a forward operator.

    Attributes:
        operator: its index.
        number: of the form, among the operator's first or repeated ones.
        form: what it reads and writes, and its options.
    """

    operator: int
    number: int
    form: Form


@dataclass(frozen=True, slots=True)
class Alternative:
    """An option other than the base one: what a variable δ or q chooses.

    Attributes:
        owner: position of its node, or of its form, among those of the stage.
        option: its index in the form.
        time_ms: by how much it takes longer than the base option; all of it where there is none.
        workspace: by how much more memory it needs, in units, likewise; what it overwrites is subtracted.
        overwrites: the activation that it overwrites (index in the problem), or None.
    """

    owner: int
    option: int
    time_ms: float
    workspace: int
    overwrites: int | None


def base_time_ms(form: Form) -> float:
    """Duration of the option that a run has unless an alternative is chosen; 0 where one of those must be."""
    return 0.0 if form.base is None else form.base.time_ms


def base_workspace_bytes(form: Form) -> int:
    """Workspace of that option."""
    return 0 if form.base is None else form.base.workspace_bytes


@dataclass(frozen=True, eq=False)
class Stages:
    """What the program is about: matrices have a row per node (or stage) and a column per activation.

    Attributes:
        problem: to solve.
        budget_bytes: of the whole step.
    """

    problem: Problem
    budget_bytes: int

    @cached_property
    def unit_bytes(self) -> int:
        """What sizes are rounded up to: a KiB as published, less for budgets below a GiB."""
        return max(1, min(_KIB, self.budget_bytes >> _FINEST))

    def units(self, amount_bytes: int) -> int:
        """``amount_bytes``, rounded up; negative ones towards zero."""
        return -(-amount_bytes // self.unit_bytes)

    @cached_property
    def stages(self) -> tuple[int, ...]:
        """Backward operators that run, all but the boundary, before which nothing is recomputed."""
        return tuple(t for t, op in enumerate(self.problem.backward) if t and op.forms)

    @cached_property
    def backward(self) -> tuple[BackwardOperator, ...]:
        """The backward operator of each stage."""
        return tuple(self.problem.backward[t] for t in self.stages)

    @cached_property
    def last_useful(self) -> dict[int, int]:
        """The last stage (its position) that can make use of an activation; those of no use at all are absent."""
        makers: dict[int, list[Form]] = {}
        for operator in self.problem.forward:
            for form in operator.again:
                for x in form.writes:
                    makers.setdefault(x, []).append(form)
        last: dict[int, int] = {}
        for n in range(len(self.stages) - 1, -1, -1):
            pending = [x for form in self.backward[n].forms for x in form.reads]
            while pending:
                x = pending.pop()
                if x not in last and not self.problem.activations[x].held:
                    last[x] = n
                    pending += [y for form in makers.get(x, ()) for y in form.reads]
        return last

    @cached_property
    def activations(self) -> tuple[int, ...]:
        """Those that may be saved: of use to the backward pass, and not held anyway."""
        return tuple(sorted(self.last_useful))

    @cached_property
    def position(self) -> dict[int, int]:
        """Activation to its column."""
        return {x: position for position, x in enumerate(self.activations)}

    @cached_property
    def first(self) -> tuple[PaperNode, ...]:
        """Ways of the first runs, in order."""
        forward = self.problem.forward
        return tuple(PaperNode(i, f, form) for i, op in enumerate(forward) for f, form in enumerate(op.first))

    @cached_property
    def nodes(self) -> tuple[PaperNode, ...]:
        """Ways of the recomputations that make something of use, in order."""
        every = (PaperNode(i, f, form) for i, op in enumerate(self.problem.forward) for f, form in enumerate(op.again))
        return tuple(node for node in every if any(x in self.position for x in node.form.writes))

    @cached_property
    def optional_first(self) -> tuple[int, ...]:
        """Positions of first runs that need not be: optional ones, and those of operators with several forms."""
        forward = self.problem.forward
        return tuple(
            n for n, x in enumerate(self.first) if forward[x.operator].optional or len(forward[x.operator].first) > 1
        )

    @cached_property
    def first_alternatives(self) -> tuple[Alternative, ...]:
        """Options of the first runs beside the base one."""
        return self._alternatives([node.form for node in self.first])

    @cached_property
    def alternatives(self) -> tuple[Alternative, ...]:
        """Options of the recomputations beside the base one, the same in every stage."""
        return self._alternatives([node.form for node in self.nodes])

    @cached_property
    def backward_forms(self) -> tuple[tuple[int, int], ...]:
        """(position of a stage, form) of every backward operator."""
        return tuple((n, f) for n, op in enumerate(self.backward) for f in range(len(op.forms)))

    @cached_property
    def chosen_forms(self) -> tuple[int, ...]:
        """Positions in ``backward_forms`` of those that have rivals."""
        return tuple(k for k, (n, _) in enumerate(self.backward_forms) if len(self.backward[n].forms) > 1)

    @cached_property
    def backward_alternatives(self) -> tuple[Alternative, ...]:
        """Options of the backward forms beside the base one."""
        return self._alternatives([self.backward[n].forms[f] for n, f in self.backward_forms])

    @cached_property
    def overwritable(self) -> tuple[int, ...]:
        """Activations that a recomputation may overwrite."""
        return tuple(sorted({x.overwrites for x in self.alternatives if x.overwrites is not None}))

    @cached_property
    def sizes(self) -> np.ndarray:
        """|x_i| in units, shape (activations,)."""
        return np.array([self.size(x) for x in self.activations], dtype=float)

    @cached_property
    def makes(self) -> np.ndarray:
        """1 where a node makes an activation again, shape (nodes, activations)."""
        return self.incidence([node.form.writes for node in self.nodes])

    @cached_property
    def reads(self) -> np.ndarray:
        """1 where a node reads an activation, shape (nodes, activations)."""
        return self.incidence([node.form.reads for node in self.nodes])

    @cached_property
    def earlier(self) -> np.ndarray:
        """1 where an activation is made before a node's operator, shape (nodes, activations)."""
        return self._made_before([node.operator for node in self.nodes])

    @cached_property
    def local(self) -> np.ndarray:
        """L̄ of appendix B: made before a node, read by it or by a later operator; shape (nodes, activations)."""
        again = [[x for form in op.again for x in form.reads] for op in self.problem.forward]
        places = np.array([node.operator for node in self.nodes], dtype=int)
        later = _from_here_on(self.incidence(again))[places + 1]
        return self.earlier * np.maximum(self.reads, later)

    @cached_property
    def run_size(self) -> np.ndarray:
        """c_j + |x_j| of the base option, in units, shape (nodes,); |x_j| twice for what a node reads and makes."""
        return np.array([self._run_size(node.form, (*_twice(node.form), *node.form.writes)) for node in self.nodes])

    @cached_property
    def first_size(self) -> np.ndarray:
        """The same for the first runs, with L_i and the held activations beside them, shape (first runs,)."""
        forward, activations = self.problem.forward, self.problem.activations
        last = {x: i for i, op in enumerate(forward) for form in op.first for x in (*form.writes, *form.reads)}
        sizes = []
        for node in self.first:
            made = (x for x, activation in enumerate(activations) if activation.producer < node.operator)
            there = [x for x in made if activations[x].held or (x in last and last[x] >= node.operator)]
            sizes.append(self._run_size(node.form, (*there, *node.form.writes)))
        return np.array(sizes, dtype=float)

    @cached_property
    def saved_beside_first(self) -> np.ndarray:
        """1 where an activation is made before a first run and read by no later one: j < i, not in L_i (eq. 1)."""
        first = [[x for form in op.first for x in form.reads] for op in self.problem.forward]
        places = np.array([node.operator for node in self.first], dtype=int)
        local = _from_here_on(self.incidence(first))[places]
        return self._made_before([node.operator for node in self.first]) * (1.0 - local)

    @cached_property
    def needs(self) -> np.ndarray:
        """D: 1 where a backward form needs an activation, shape (backward forms, activations)."""
        return self.incidence([self.backward[n].forms[f].reads for n, f in self.backward_forms])

    @cached_property
    def room(self) -> np.ndarray:
        """What the budget leaves beside G_t and held activations, in units, shape (stages,)."""
        return np.array([self._room(op.idle_bytes) for op in self.backward], dtype=float)

    @cached_property
    def backward_room(self) -> np.ndarray:
        """The same while the backward operator runs, beside its gradients too, shape (stages,)."""
        return np.array([self._room(op.idle_bytes + op.made_bytes) for op in self.backward], dtype=float)

    @cached_property
    def boundary_room(self) -> int:
        """The same while the gradient of the outputs is made; its workspace is taken off."""
        boundary = self.problem.backward[0]
        workspace = self.units(base_workspace_bytes(boundary.forms[0]))
        return self._room(boundary.idle_bytes + boundary.made_bytes) - workspace

    @property
    def first_room(self) -> int:
        """What the budget leaves beside ``fixed_bytes``, in units; below one where it does not even hold those."""
        return self.budget_bytes // self.unit_bytes - self.units(self.problem.fixed_bytes)

    def size(self, activation: int) -> int:
        """|x_i| in units."""
        return self.units(self.problem.activations[activation].bytes)

    def incidence(self, sets: Sequence[Iterable[int]]) -> np.ndarray:
        """A row per set of activations, with ones for its members, shape (sets, activations)."""
        matrix = np.zeros((len(sets), len(self.activations)))
        for row, members in enumerate(sets):
            matrix[row, [self.position[x] for x in members if x in self.position]] = 1.0
        return matrix

    def _made_before(self, places: list[int]) -> np.ndarray:
        made = np.array([self.problem.activations[x].producer for x in self.activations], dtype=int)
        return (made[None, :] < np.array(places, dtype=int)[:, None]).astype(float)

    def _run_size(self, form: Form, there: Iterable[int]) -> int:
        return self.units(base_workspace_bytes(form)) + sum(self.size(x) for x in there)

    def _room(self, used_bytes: int) -> int:
        held = sum(self.size(x) for x, activation in enumerate(self.problem.activations) if activation.held)
        return self.first_room - held - self.units(used_bytes)

    def _alternatives(self, forms: Sequence[Form]) -> tuple[Alternative, ...]:
        found = []
        for owner, form in enumerate(forms):
            for number, option in enumerate(form.options):
                if option is not form.base:
                    more = self.units(option.workspace_bytes) - self.units(base_workspace_bytes(form))
                    saved = 0 if option.overwrites is None else self.size(option.overwrites)
                    time_ms = option.time_ms - base_time_ms(form)
                    found.append(Alternative(owner, number, time_ms, more - saved, option.overwrites))
        return tuple(found)


def _from_here_on(matrix: np.ndarray) -> np.ndarray:
    """1 where a row or a later one has a 1; with a row of zeros after the last."""
    below = np.vstack([matrix, np.zeros((1, matrix.shape[1]))])
    return (below[::-1].cumsum(axis=0)[::-1] > 0).astype(float)


def _twice(form: Form) -> list[int]:
    return [x for x in form.writes if x in form.reads]
