"""Which backward operators share one sweep of recomputation."""

from __future__ import annotations

from dataclasses import dataclass

from explorer.solvers.monet.merge import MergedProblem

DEFAULT_THRESHOLD = 0.2


@dataclass(frozen=True, slots=True)
class Group:
    """Consecutive backward operators with one sweep of recomputation before the first.

    Attributes:
        start: index of its first backward operator, which needs an activation.
        stop: index after its last.
        needs: activations with a choice that its operators read (D_g); all are present after the sweep.
    """

    start: int
    stop: int
    needs: frozenset[int]

    @property
    def stages(self) -> range:
        """Its backward operators."""
        return range(self.start, self.stop)


def group_stages(merged: MergedProblem, budget_bytes: int, *, threshold: float) -> tuple[Group, ...]:
    """Walk the backward operators in order; extend a group while what it needs fits a share of the room there.

    An operator that needs no activation always joins. Operators before the first that needs one belong to no group:
    nothing is recomputed before them.

    Args:
        merged: the problem.
        budget_bytes: of the whole step.
        threshold: Σ |x_i| over D_g is at most this share of what the gradients at the group's start and
            ``fixed_bytes`` leave of the budget; at 0, each operator that needs an activation begins its own group.
    """
    free = budget_bytes - merged.problem.fixed_bytes
    groups: list[Group] = []
    for t, needs in enumerate(merged.needs):
        if not groups and not needs:
            continue
        together = groups[-1].needs | needs if groups else needs
        limit = threshold * (free - merged.problem.backward[groups[-1].start].idle_bytes) if groups else 0.0
        if groups and (not needs or (threshold > 0 and merged.bytes(together) <= limit)):
            groups[-1] = Group(groups[-1].start, t + 1, together)
        else:
            groups.append(Group(t, t + 1, needs))
    return tuple(groups)
