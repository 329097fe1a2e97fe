"""MONeT's checkpointing program as the paper writes it (section 4, appendix C.2): dense rows, one stage per operator.

Stage t ends with backward operator t; the forward pass comes before all of them. R[t,j]: operator j is recomputed in
stage t (r). S[t,i]: activation i is saved into stage t, so S[first] is what the forward pass saves. As published, an
activation that backward operator t needs is either recomputed in t or saved *past* t (S[t+1]), where the grouped model
saves only up to t; and the constant L̄ of appendix B bounds local memory. Both cost this model schedules that fit.
Every matrix below has one row per operator (or per stage) and one column per activation, the same in every stage.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import cvxpy as cp
import numpy as np
from scipy import sparse

from explorer.schedule import Schedule
from explorer.solution import Statistics
from explorer.solvers.milp import Milp
from explorer.solvers.monet.encoding import closure, represented
from explorer.solvers.monet.merge import MergedProblem, merge
from explorer.solvers.monet.program import ROUNDING, compile_milp
from explorer.solvers.monet.scaling import Scaled
from explorer.solvers.problem import CheckpointProblem


@dataclass(frozen=True, eq=False)
class Stages(Scaled):
    """Index of the variables: S as ((stages + 1) · activations,), R as (stages · nodes,), stage by stage.

    Attributes:
        activations: those with a choice.
        nodes: indices of the operators that may be recomputed.
        stages: indices of the backward operators, all but the boundary, before which nothing is recomputed.
    """

    activations: tuple[int, ...]
    nodes: tuple[int, ...]
    stages: tuple[int, ...]

    @classmethod
    def of(cls, merged: MergedProblem, budget_bytes: int) -> Stages:
        """Every stage has every activation and operator that is of use to the backward pass at all."""
        activations, nodes = merged.last_useful
        chosen = tuple(sorted(x for x in activations if x not in merged.pinned))
        return cls(merged, budget_bytes, chosen, tuple(sorted(nodes)), tuple(range(1, len(merged.needs))))

    @cached_property
    def sizes(self) -> np.ndarray:
        """|x_i| in units, shape (activations,)."""
        return np.array([self.size(x) for x in self.activations])

    @cached_property
    def makes(self) -> np.ndarray:
        """1 where a node makes an activation again, shape (nodes, activations)."""
        return self._incidence(lambda node: self.merged.nodes[node].writes)

    @cached_property
    def reads(self) -> np.ndarray:
        """1 where a node reads an activation, shape (nodes, activations)."""
        return self._incidence(lambda node: self.merged.nodes[node].reads)

    @cached_property
    def earlier(self) -> np.ndarray:
        """1 where an activation is made before a node's place in the forward order, shape (nodes, activations)."""
        places = np.array([self.merged.nodes[node].place for node in self.nodes])
        made = np.array([self.merged.problem.activations[x].producer for x in self.activations])
        return (made[None, :] < places[:, None]).astype(float)

    @cached_property
    def local(self) -> np.ndarray:
        """L̄ of appendix B: made before a node's place, read by it or a later one; shape (nodes, activations)."""
        read_from_here_on = self.reads[::-1].cumsum(axis=0)[::-1] > 0
        return self.earlier * read_from_here_on

    @cached_property
    def needs(self) -> np.ndarray:
        """D: 1 where a stage's backward operator needs an activation, shape (stages, activations)."""
        entries = [float(x in self.merged.needs[t]) for t in self.stages for x in self.activations]
        return np.array(entries).reshape(len(self.stages), len(self.activations))

    @cached_property
    def sweep_room(self) -> np.ndarray:
        """Room for activations and workspace of a stage's recomputations, shape (stages · nodes,)."""
        return np.repeat([self.idle_room(t) for t in self.stages], len(self.nodes))

    def needed(self, matrix: np.ndarray) -> np.ndarray:
        """``matrix`` (rows, activations) applied to what each stage needs, shape (stages · rows,)."""
        return (self.needs @ matrix.T).ravel()

    def _incidence(self, of: Callable[[int], frozenset[int]]) -> np.ndarray:
        entries = [float(x in of(node)) for node in self.nodes for x in self.activations]
        return np.array(entries).reshape(len(self.nodes), len(self.activations))


@dataclass(frozen=True, eq=False)
class Variables:
    """The variables, and matrices applied to them in every stage.

    Attributes:
        stages: their index.
        saved: S.
        again: R.
    """

    stages: Stages
    saved: cp.Variable
    again: cp.Variable

    @classmethod
    def of(cls, stages: Stages) -> Variables:
        """Fresh variables."""
        count = len(stages.stages)
        saved = cp.Variable((count + 1) * len(stages.activations), name="S", boolean=True)
        return cls(stages, saved, cp.Variable(count * len(stages.nodes), name="R", boolean=True))

    @property
    def first(self) -> cp.Expression:
        """What the forward pass saves, shape (activations,)."""
        return self.saved[: len(self.stages.activations)]

    def before(self, matrix: np.ndarray) -> cp.Expression:
        """``matrix`` (rows, activations) times S[t], shape (stages · rows,)."""
        columns = sparse.hstack([self._per_stage(matrix), self._none(matrix)], format="csr")
        return cp.Constant(columns) @ self.saved

    def after(self, matrix: np.ndarray, *, needed: bool) -> cp.Expression:
        """``matrix`` times S[t+1]; without ``needed``, leaving out what backward operator t needs."""
        blocks = [sparse.csr_matrix(matrix if needed else matrix * (1.0 - needs)) for needs in self.stages.needs]
        columns = sparse.hstack([self._none(matrix), sparse.block_diag(blocks)], format="csr")
        return cp.Constant(columns) @ self.saved

    def run(self, matrix: np.ndarray) -> cp.Expression:
        """``matrix`` (rows, nodes) times R[t], shape (stages · rows,)."""
        return cp.Constant(self._per_stage(matrix)) @ self.again

    def _per_stage(self, matrix: np.ndarray) -> sparse.csr_matrix:
        stages = sparse.identity(len(self.stages.stages))
        return sparse.csr_matrix(sparse.kron(stages, sparse.csr_matrix(matrix)))

    def _none(self, matrix: np.ndarray) -> sparse.csr_matrix:
        """The columns of the one stage that a shift by a stage leaves out."""
        return sparse.csr_matrix((len(self.stages.stages) * matrix.shape[0], len(self.stages.activations)))


def step_time_ms(v: Variables) -> cp.Expression:
    """Every operator once, and Σ τ_j R[t,j] (eq. 9)."""
    times = np.array([v.stages.merged.nodes[node].time_ms for node in v.stages.nodes])
    return v.stages.merged.problem.base_time_ms + np.tile(times, len(v.stages.stages)) @ v.again


def recomputation_inputs(v: Variables) -> cp.Constraint:
    """R[t,j] ≤ S[t,i] + R[t,k] for i read by j, made by k (eq. 7, left)."""
    readers, read = np.nonzero(v.stages.reads)
    runs = np.eye(len(v.stages.nodes))[readers]
    there = np.eye(len(v.stages.activations))[read]
    return v.run(runs - v.stages.makes.T[read]) <= v.before(there)


def saved_was_there(v: Variables) -> cp.Constraint:
    """S[t+1,i] ≤ S[t,i] + R[t,j] for i made by j (eq. 7, right)."""
    each = np.eye(len(v.stages.activations))
    return v.after(each, needed=True) <= v.before(each) + v.run(v.stages.makes.T)


def needed_activations(v: Variables) -> cp.Constraint:
    """S[t+1,i] + R[t,j] ≥ 1 for i in D_t, made by j (eq. 8)."""
    each = np.eye(len(v.stages.activations))
    return v.after(each, needed=True) + v.run(v.stages.makes.T) >= v.stages.needs.ravel()


def forward_memory(v: Variables) -> cp.Constraint:
    """m_i ≤ M: c_i + |x_i| + Σ over L_i + Σ_{j<i, not in L_i} |x_j| S[first,j] (eq. 1 and 14)."""
    problem = v.stages.merged.problem
    last = {x: i for i, op in enumerate(problem.forward) for x in (*op.first.writes, *op.first.reads)}
    ends = np.array([last[x] for x in v.stages.activations])
    beyond = (ends[None, :] < np.arange(len(problem.forward))[:, None]) * v.stages.sizes
    room = np.array([v.stages.room(used) for used in v.stages.forward_bytes])
    return cp.Constant(sparse.csr_matrix(beyond)) @ v.first <= room


def backward_memory(v: Variables) -> cp.Constraint:
    """m̂_t ≤ M: ĉ_t + |y_t| + L̂_t + Σ over D_t + Σ not in D_t of |x_i| S[t+1,i] (eq. 2 and 14)."""
    room = np.array([v.stages.stage_room(t) for t in v.stages.stages])
    row = v.stages.sizes[None, :]
    return v.after(row, needed=False) <= room - v.stages.needed(row)


def boundary_memory(v: Variables) -> cp.Constraint:
    """Σ |x_i| S[first,i] while the gradient of the outputs is made: eq. 2 for an operator that needs nothing."""
    return cp.Constant(v.stages.sizes) @ v.first <= v.stages.stage_room(0)


def saved_memory(v: Variables) -> cp.Constraint:
    """m̃_S ≤ M before every node j, run again or not: S[t] from j on, S[t+1] or D_t before it (eq. 13 and 14)."""
    earlier = v.stages.earlier * v.stages.sizes
    later = (1.0 - v.stages.earlier) * v.stages.sizes
    return v.before(later) + v.after(earlier, needed=False) <= v.stages.sweep_room - v.stages.needed(earlier)


def recomputation_memory(v: Variables) -> cp.Constraint:
    """m̄_R ≤ M: R[t,j] (c_j + |x_j| + Σ over L̄_j), and what is saved or needed outside L̄_j (eq. 12 and 14)."""
    stages = v.stages
    later = (1.0 - stages.earlier) * (1.0 - stages.makes) * stages.sizes
    earlier = (stages.earlier - stages.local) * stages.sizes
    peaks = np.array([stages.merged.nodes[node].peak_bytes / stages.unit_bytes for node in stages.nodes])
    runs = np.diag(peaks + stages.local @ stages.sizes)
    saved = v.before(later) + v.after(earlier, needed=False)
    return v.run(runs) + saved <= stages.sweep_room - stages.needed(earlier)


FAMILIES = (
    recomputation_inputs,
    saved_was_there,
    needed_activations,
    forward_memory,
    backward_memory,
    boundary_memory,
    saved_memory,
    recomputation_memory,
)


@dataclass(frozen=True, eq=False)
class PaperModel:
    """The paper's program for one budget; the same interface as the grouped one.

    Attributes:
        milp: what to solve.
        stages: its variables.
        blocks: where S and R lie in the columns.
    """

    milp: Milp
    stages: Stages
    blocks: dict[str, slice]

    @property
    def group_count(self) -> int:
        """One per backward operator after the boundary."""
        return len(self.stages.stages)

    @property
    def statistics(self) -> Statistics:
        """Size of the program."""
        return self.milp.statistics(self.group_count)

    def decode(self, x: np.ndarray) -> Schedule:
        """The schedule of a solution; the simulator finds it no slower and no larger than the model did."""
        stages = self.stages
        recomputations = {}
        if "R" in self.blocks and stages.nodes:
            chosen = x[self.blocks["R"]].reshape(len(stages.stages), len(stages.nodes)) > 0.5
            recomputations = {
                t: [i for n in np.flatnonzero(row) for i in stages.merged.nodes[stages.nodes[n]].members]
                for t, row in zip(stages.stages, chosen, strict=True)
            }
        problem = stages.merged.problem
        return problem.schedule_of(recomputations, method="monet-paper", budget_bytes=stages.budget_bytes)

    def encode(self, schedule: Schedule) -> np.ndarray | None:
        """A solution that saves what ``schedule`` keeps into each stage; None where this model has none."""
        stages = self.stages
        read = stages.merged.problem.intervals_of(schedule)
        if read is None:
            return None
        saved = np.zeros((len(stages.stages) + 1, len(stages.activations)))
        again = np.zeros((len(stages.stages), len(stages.nodes)))
        wanted: frozenset[int] = frozenset()
        for n in range(len(stages.stages) - 1, -1, -1):
            needs = stages.merged.needs[stages.stages[n]]
            offered = read[1][stages.stages[n] - 1].kept
            found = closure(stages.merged, needs | wanted, represented(stages.merged, offered))
            if found is None:
                return None
            used, rerun = found
            made = {x for node in rerun for x in stages.merged.nodes[node].writes}
            saved[n + 1] = [float(x in wanted or (x in needs and x not in made)) for x in stages.activations]
            again[n] = [float(node in rerun) for node in stages.nodes]
            wanted = frozenset(used)
        saved[0] = [float(x in wanted) for x in stages.activations]
        x = np.zeros(self.milp.objective.size)
        for name, values in (("S", saved), ("R", again)):
            if name in self.blocks:
                x[self.blocks[name]] = values.ravel()
        return x if self.milp.violation(x) <= ROUNDING else None


def build(problem: CheckpointProblem | MergedProblem, budget_bytes: int) -> PaperModel:
    """State the paper's program.

    Its rows have as many entries as there are activations: ``O(stages · operators · activations)`` in all. It is for
    small graphs, and to compare with.

    Args:
        problem: to solve; not merged, only the smallest activations are pinned. A merged one is taken as it is.
        budget_bytes: of the whole step.
    """
    merged = merge(problem, fold=False) if isinstance(problem, CheckpointProblem) else problem
    stages = Stages.of(merged, budget_bytes)
    variables = Variables.of(stages)
    rows = [family(variables) for family in FAMILIES]
    milp, blocks = compile_milp(step_time_ms(variables), rows, {"S": variables.saved, "R": variables.again})
    return PaperModel(milp, stages, blocks)
