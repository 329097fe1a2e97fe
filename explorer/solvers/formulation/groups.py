"""Which backward operators share one sweep of recomputation."""

from __future__ import annotations

from dataclasses import dataclass

from explorer.solvers.formulation.merge import MergedProblem

DEFAULT_THRESHOLD = 0.2


@dataclass(frozen=True, slots=True)
class Group:
    """Consecutive backward operators with one sweep of recomputation before the first.

    Attributes:
        start: index of its first backward operator, a form of which reads an activation.
        stop: index after its last.
        needs: activations with a choice that every form of one of its operators reads; all are present after the sweep.
        offers: activations with a choice that some form of one of its operators reads.
    """

    start: int
    stop: int
    needs: frozenset[int]
    offers: frozenset[int]

    @property
    def stages(self) -> range:
        """Its backward operators."""
        return range(self.start, self.stop)

    @classmethod
    def over(cls, merged: MergedProblem, start: int, stop: int) -> Group:
        """The group of the operators from ``start`` until ``stop``."""
        needs = frozenset().union(*merged.needs[start:stop])
        return cls(start, stop, needs, frozenset().union(*merged.offers[start:stop]))


def group_stages(merged: MergedProblem, budget_bytes: int, *, threshold: float) -> tuple[Group, ...]:
    """Walk the backward operators in order; extend a group while what it needs fits a share of the room there.

    An operator that reads no activation in any form always joins. Operators before the first that does belong to no
    group: nothing is recomputed before them.

    Args:
        merged: the problem.
        budget_bytes: of the whole step.
        threshold: what the operators of a group read, each in its smallest form, is at most this share of what the
            gradients at the group's start and ``fixed_bytes`` leave of the budget; at 0, each operator that reads an
            activation begins its own group.
    """
    free = budget_bytes - merged.problem.fixed_bytes
    starts: list[int] = []
    together: frozenset[int] = frozenset()
    for t, offers in enumerate(merged.offers):
        if not offers:
            continue
        wanted = least_reads(merged, t)
        limit = threshold * (free - merged.problem.backward[starts[-1]].idle_bytes) if starts else 0.0
        if starts and threshold > 0 and merged.bytes(together | wanted) <= limit:
            together |= wanted
        else:
            starts.append(t)
            together = wanted
    stops = [*starts[1:], len(merged.offers)]
    return tuple(Group.over(merged, start, stop) for start, stop in zip(starts, stops, strict=False))


def least_reads(merged: MergedProblem, stage: int) -> frozenset[int]:
    """What the smallest form of a backward operator reads."""
    return min((form.reads for form in merged.stages[stage]), key=merged.bytes)
