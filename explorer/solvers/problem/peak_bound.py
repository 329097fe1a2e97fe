"""How little memory a step can take: what no schedule avoids, operator by operator."""

from __future__ import annotations

from dataclasses import dataclass

from explorer.solvers.problem.problem import Form, ForwardOperator, Problem
from explorer.solvers.problem.sets import in_all


@dataclass(frozen=True, slots=True)
class PeakBound:
    """No schedule has a smaller peak.

    Attributes:
        peak_bytes: the bound.
        operator: id of the operator that no schedule runs with less.
    """

    peak_bytes: int
    operator: int


def peak_lower_bound(problem: Problem) -> PeakBound:
    """Bound the peak of all schedules (``BoundScope``) from below, whatever they keep, recompute or choose.

    While an operator runs for the first time, these are in memory: what is persistent or held, the gradients alive
    then, what it reads and writes, its workspace, and whatever was made before and is read by a first run from then on
    but cannot be made again by then: outputs of operators without recomputation, and during the forward pass every
    activation that the rest of the forward pass reads (MONeT equation 1 with nothing stored; recomputations come in the
    backward pass).
    """
    there = _There(problem)
    best = PeakBound(problem.fixed_bytes, 0)
    for i, forward in enumerate(problem.forward):
        there.pass_by(i)
        if not forward.optional:
            least = min(map(there.while_running, forward.first))
            best = max(best, PeakBound(least, i), key=lambda x: x.peak_bytes)
        there.make(forward)
    for t, backward in enumerate(problem.backward, start=len(problem.forward)):
        there.pass_by(t)
        if backward.forms:
            least = min(map(there.while_running, backward.forms)) + backward.idle_bytes + backward.made_bytes
            best = max(best, PeakBound(least, t), key=lambda x: x.peak_bytes)
    return best


class _There:
    """What is certainly in memory beside what an operator reads and writes, as one operator after the other runs."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._until = _needed_until(problem)
        self._leaving: dict[int, list[int]] = {}
        for x, at in self._until.items():
            self._leaving.setdefault(at, []).append(x)
        self._kept: set[int] = set()
        self._bytes = problem.fixed_bytes

    def pass_by(self, at: int) -> None:
        """The operator at this place runs: it may be the last that certainly needs something."""
        for x in self._leaving.get(at, ()):
            if x in self._kept:
                self._kept.remove(x)
                self._bytes -= self._problem.activations[x].bytes

    def make(self, operator: ForwardOperator) -> None:
        """What an operator's first run makes is there as long as it is needed."""
        for x in {x for form in operator.first for x in form.writes}:
            activation = self._problem.activations[x]
            if activation.held or self._until.get(x, -1) > activation.producer:
                self._kept.add(x)
                self._bytes += activation.bytes

    def while_running(self, form: Form) -> int:
        """Activations and workspace, with the option that takes least; what is fixed included."""
        activations = self._problem.activations
        more = sum(activations[x].bytes for x in {*form.reads, *form.writes} - self._kept)
        return self._bytes + more + min(x.extra_bytes(activations) for x in form.options)


def _needed_until(problem: Problem) -> dict[int, int]:
    """For what is not held, the last operator that reads it in any case while it cannot be made again."""
    remade = {x for op in problem.forward for form in op.again for x in form.writes}
    until: dict[int, int] = {}
    for i, forward in enumerate(problem.forward):
        if not forward.optional:
            until |= dict.fromkeys(in_all(form.reads for form in forward.first), i)
    for t, backward in enumerate(problem.backward, start=len(problem.forward)):
        until |= dict.fromkeys((x for x in in_all(form.reads for form in backward.forms) if x not in remade), t)
    return {x: at for x, at in until.items() if not problem.activations[x].held}
