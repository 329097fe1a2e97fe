"""How little memory a step can take: what no schedule avoids, operator by operator."""

from __future__ import annotations

from dataclasses import dataclass

from explorer.solvers.problem.problem import Form, Problem
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
    remade = {x for op in problem.forward for form in op.again for x in form.writes}
    later: set[int] = set()
    forward_needs: list[set[int]] = []
    backward_needs: list[set[int]] = []
    for backward in reversed(problem.backward):
        backward_needs.append(later - remade)
        later |= in_all(form.reads for form in backward.forms)
    lasting, later = later - remade, set()
    for forward in reversed(problem.forward):
        forward_needs.append(later | lasting)
        if not forward.optional:
            later |= in_all(form.reads for form in forward.first)
    held = {x for x, activation in enumerate(problem.activations) if activation.held}
    best = PeakBound(problem.fixed_bytes, 0)
    made: set[int] = set()
    for i, (forward, needs) in enumerate(zip(problem.forward, reversed(forward_needs), strict=True)):
        if not forward.optional:
            least = min(_while_running(problem, form, made & (needs | held)) for form in forward.first)
            best = max(best, PeakBound(least, i), key=lambda x: x.peak_bytes)
        made |= {x for form in forward.first for x in form.writes}
    for t, (backward, needs) in enumerate(zip(problem.backward, reversed(backward_needs), strict=True)):
        if backward.forms:
            there = made & (needs | held)
            least = min(_while_running(problem, form, there) for form in backward.forms)
            least += backward.idle_bytes + backward.made_bytes
            best = max(best, PeakBound(least, len(problem.forward) + t), key=lambda x: x.peak_bytes)
    return best


def _while_running(problem: Problem, form: Form, kept: set[int]) -> int:
    """Activations and workspace, with the option that takes least; what is fixed included."""
    there = sum(problem.activations[x].bytes for x in kept | {*form.reads, *form.writes})
    extra = min(x.extra_bytes(problem.activations) for x in form.options)
    return problem.fixed_bytes + there + extra
