"""Variables of the paper's program, and what the constraints say with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import cvxpy as cp
import numpy as np
from scipy import sparse

from explorer.solvers.formulation.paper.stages import Alternative, Stages

Matrix = Any
"""Dense or sparse, shape (rows, columns)."""


def unit_rows(columns: Sequence[int] | np.ndarray, width: int) -> Matrix:
    """One row per entry of ``columns``, with a single 1 in that column."""
    rows = np.arange(len(columns))
    return sparse.csr_matrix((np.ones(len(columns)), (rows, np.asarray(columns, dtype=int))), (len(columns), width))


@dataclass(frozen=True, eq=False)
class Variables:
    """The variables, blocks of each in stage order; those without entries are absent from ``blocks``.

    ``S`` (s): saved into a stage, one block more than there are stages, for the last may need what it saves.
    ``R`` (r): run again. ``delta``: another option than the base one, in place (q) or not (δ).
    ``P`` (p): made in a stage and not overwritten there, for activations that may be overwritten.
    ``R0`` and ``delta0``: the same of the forward pass, R0 where a first run need not be.
    ``M`` (δ̂): form of a backward operator that has several; ``delta_backward``: its option.
    ``sigma`` (σ): needed by the chosen form and saved too (appendix C.1), where some forms need it and some do not.

    Attributes:
        stages: their index.
        blocks: by name.
    """

    stages: Stages
    blocks: dict[str, cp.Variable]

    @classmethod
    def of(cls, stages: Stages) -> Variables:
        """Fresh variables."""
        count, activations = len(stages.stages), len(stages.activations)
        sizes = {
            "S": (count + 1) * activations,
            "R": count * len(stages.nodes),
            "delta": count * len(stages.alternatives),
            "P": count * len(stages.overwritable),
            "R0": len(stages.optional_first),
            "delta0": len(stages.first_alternatives),
            "M": len(stages.chosen_forms),
            "delta_backward": len(stages.backward_alternatives),
        }
        blocks = {name: cp.Variable(size, name=name, boolean=True) for name, size in sizes.items() if size}
        if sometimes := len(sometimes_needed(stages)):
            blocks["sigma"] = cp.Variable(sometimes, name="sigma", bounds=[0, 1])
        return cls(stages, blocks)

    def times(self, matrix: Matrix, name: str) -> cp.Expression:
        """``matrix`` times a block; zeros where that has no entries."""
        if name not in self.blocks or not matrix.shape[0]:
            return cp.Constant(np.zeros(matrix.shape[0]))
        return cp.Constant(sparse.csr_matrix(matrix)) @ self.blocks[name]

    def in_every_stage(self, matrix: Matrix, name: str) -> cp.Expression:
        """``matrix`` times a block's part in each stage; of S, what is saved into it."""
        repeated = self._repeated(matrix)
        if name == "S":
            repeated = sparse.hstack([repeated, self._nothing(repeated)], format="csr")
        return self.times(repeated, name)

    def saved_past(self, matrix: Matrix) -> cp.Expression:
        """``matrix`` times S[t+1] in every stage t."""
        repeated = self._repeated(matrix)
        return self.times(sparse.hstack([self._nothing(repeated), repeated], format="csr"), "S")

    def saved_first(self, matrix: Matrix) -> cp.Expression:
        """``matrix`` times what the forward pass saves."""
        width = len(self.stages.stages) * len(self.stages.activations)
        wide = sparse.hstack([sparse.csr_matrix(matrix), sparse.csr_matrix((matrix.shape[0], width))], format="csr")
        return self.times(wide, "S")

    @cached_property
    def each(self) -> Matrix:
        """The identity: one row per activation."""
        return sparse.identity(len(self.stages.activations), format="csr")

    @cached_property
    def made(self) -> cp.Expression:
        """R[t] of whatever makes an activation, or P[t] where it may be overwritten; shape (stages · activations,)."""
        positions = [self.stages.position[x] for x in self.stages.overwritable]
        lasting = self.stages.makes.copy()
        lasting[:, positions] = 0.0
        overwritable = unit_rows(positions, len(self.stages.activations)).T
        return self.in_every_stage(lasting.T, "R") + self.in_every_stage(overwritable, "P")

    @cached_property
    def needed(self) -> cp.Expression:
        """Σ over the forms of a backward operator that need an activation of δ̂, shape (stages · activations,)."""
        return cp.Constant(always_needed(self.stages).ravel()) + self.times(needed_by_choice(self.stages), "M")

    @cached_property
    def there(self) -> cp.Expression:
        """Saved past a stage or needed by its backward operator: S[t+1] ∪ D, shape (stages · activations,)."""
        always = always_needed(self.stages).ravel()
        saved = cp.Constant(sparse.diags(1.0 - always, format="csr")) @ self.saved_past(self.each)
        entries = unit_rows(sometimes_needed(self.stages), always.size).T
        return saved + self.needed - self.times(entries, "sigma")

    def beside(self, matrix: Matrix) -> cp.Expression:
        """``matrix`` times what is ``there`` in every stage."""
        repeated = self._repeated(matrix)
        return cp.Constant(repeated) @ self.there

    def first(self, matrix: Matrix) -> cp.Expression:
        """``matrix`` times the first runs: 1 for each that takes place."""
        chosen = list(self.stages.optional_first)
        return self._with_certain(matrix, chosen, "R0")

    def form(self, matrix: Matrix) -> cp.Expression:
        """``matrix`` times the forms of the backward operators: 1 for each that is chosen."""
        return self._with_certain(matrix, list(self.stages.chosen_forms), "M")

    def _with_certain(self, matrix: Matrix, chosen: list[int], name: str) -> cp.Expression:
        """``matrix`` times a block that has a variable for some columns, 1 for the others."""
        columns: Matrix = sparse.csc_matrix(matrix)
        certain = np.ones(columns.shape[1])
        certain[chosen] = 0.0
        return cp.Constant(columns @ certain) + self.times(columns[:, chosen], name)

    def _repeated(self, matrix: Matrix) -> Matrix:
        """A block of ``matrix`` for every stage."""
        return sparse.kron(sparse.identity(len(self.stages.stages)), sparse.csr_matrix(matrix), format="csr")

    def _nothing(self, beside: Matrix) -> Matrix:
        return sparse.csr_matrix((beside.shape[0], len(self.stages.activations)))


def per_owner(alternatives: Sequence[Alternative], owners: int, values: Sequence[float] | None = None) -> Matrix:
    """One row per owner, with a 1 (or a value) for each of its alternatives."""
    entries = np.ones(len(alternatives)) if values is None else np.asarray(values, dtype=float)
    rows = [x.owner for x in alternatives]
    return sparse.csr_matrix((entries, (rows, np.arange(len(alternatives)))), (owners, len(alternatives)))


def per_stage_form(stages: Stages) -> Matrix:
    """1 where a backward form belongs to a stage, shape (stages, backward forms)."""
    return unit_rows([n for n, _ in stages.backward_forms], len(stages.stages)).T.tocsr()


def always_needed(stages: Stages) -> np.ndarray:
    """1 where every form of a stage's backward operator needs an activation, shape (stages, activations)."""
    forms = np.array([[len(op.forms)] for op in stages.backward]).reshape(-1, 1)
    needed: np.ndarray = per_stage_form(stages) @ stages.needs
    return (needed >= forms).astype(float)


def needed_by_choice(stages: Stages) -> Matrix:
    """1 where a form with rivals needs what not all of them need, shape (stages · activations, chosen forms)."""
    width = len(stages.activations)
    always = always_needed(stages)
    rows: list[int] = []
    columns: list[int] = []
    for column, k in enumerate(stages.chosen_forms):
        stage = stages.backward_forms[k][0]
        found = np.flatnonzero(stages.needs[k] * (1.0 - always[stage]))
        rows += [stage * width + int(x) for x in found]
        columns += [column] * len(found)
    shape = (len(stages.stages) * width, len(stages.chosen_forms))
    return sparse.csr_matrix((np.ones(len(rows)), (rows, columns)), shape)


def sometimes_needed(stages: Stages) -> np.ndarray:
    """Positions in (stages · activations,) of what some forms of a backward operator need, but not all."""
    return np.flatnonzero(np.asarray(needed_by_choice(stages).sum(axis=1)).ravel())
