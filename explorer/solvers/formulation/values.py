"""What a solution says, by the names of its variables."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from explorer.solvers.formulation.decisions import Decision
from explorer.solvers.formulation.ways import Way


@dataclass(frozen=True, eq=False)
class Values:
    """A solution of a program with whole numbers.

    Attributes:
        blocks: where each block of variables lies in the columns.
        x: shape (columns,).
    """

    blocks: dict[str, slice]
    x: np.ndarray

    def of(self, block: str, position: int | None) -> float:
        """Of one variable; 0 where there is none."""
        return 0.0 if position is None or block not in self.blocks else float(self.x[self.blocks[block]][position])

    def holds(self, block: str, position: int | None) -> bool:
        """Is a binary variable 1?"""
        return self.of(block, position) > 0.5

    def way(self, decision: Decision) -> Way:
        """How something runs."""
        # Of a continuous one the forms are the base's: which of the two runs is the simulator's to find.
        chosen = [a.way for a in decision.others if a.block == "a" and self.holds("a", a.position)]
        way = chosen[0] if chosen else decision.base
        assert way is not None, "without a base, one of the others is chosen"
        return way

    def form(self, positions: list[int | None]) -> int:
        """Which of the forms of a backward operator runs, by their positions in block ``d``."""
        return max(range(len(positions)), key=lambda n: self.of("d", positions[n]))
