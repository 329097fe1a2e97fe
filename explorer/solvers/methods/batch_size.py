"""The largest batch that fits a budget at the cost of at most one more forward pass (Checkmate equations 7 and 8)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from explorer.budgets import a_budget
from explorer.device_profile import Cost, Profile
from explorer.graph import Role, TensorSpec, TrainingGraph
from explorer.kinds import a_profile
from explorer.rearranging import ADDED
from explorer.solution import Solution, Status
from explorer.solvers.methods.table import method_named
from explorer.solvers.options import Optimizations, Options, parse_optimizations

_GROWS = (Role.INPUT, Role.ACTIVATION, Role.GRADIENT)
_MOST = 2**20


@dataclass(frozen=True)
class BatchSize:
    """What was found.

    Attributes:
        batch_size: the largest for which a schedule was found; 0 if there is none even for one sample.
        excluded: the smallest batch for which none was found; what lies beyond was not tried.
        profile: estimated for ``batch_size``; None without one.
        solution: its schedule, for that profile; None without one. Never called optimal, but for the batch measured.
    """

    batch_size: int
    excluded: int
    profile: Profile | None
    solution: Solution | None


def largest_batch(
    profile: Profile,
    *,
    budget: int | str,
    method: str = "checkmate",
    time_limit: float = 10.0,
    optimizations: Optimizations = "all",
    exact: bool = False,
) -> BatchSize:
    """Search for the largest batch whose step takes at most one more forward pass than without recomputation.

    The paper states it as one quadratic program, U_{t,k} ≤ budget with b M_i in place of M_i, and
    Σ C_i R_{t,i} ≤ 2 Σ_forward C_i + Σ_backward C_i (eq. 7). For a given b that is the program for a budget, and what
    fits b fits every smaller batch: so this doubles and halves b. Where a method has a few schedules whatever the
    budget, the largest b that one of them fits is eq. 8.

    Args:
        profile: measured for some batch; what depends on the batch and is no parameter gradient, workspace too, is
            taken to grow with it, and so is time. That is an extrapolation: where it matters, profile the batch found.
        budget: peak allowed, as in ``solve``; per cent are of the peak for the batch that was measured.
        method: any of ``METHODS``.
        time_limit: seconds for each batch tried.
        optimizations: as in ``solve``.
        exact: as in ``solve``.

    Raises:
        ValueError: the profile's batch has no first dimension to grow, or an argument is not allowed.
    """
    system = method_named(method)
    options = Options(method, time_limit=time_limit, optimizations=parse_optimizations(optimizations), exact=exact)
    budget_bytes = a_budget(budget, a_profile(profile))
    samples = _samples(profile)

    def tried(batch_size: int) -> tuple[Profile, Solution] | None:
        scaled = with_batch_size(profile, batch_size, measured=samples)
        (solution,) = system.solve(scaled, [budget_bytes], options=options)
        allowed_ms = _one_more_forward_ms(scaled)
        if solution.time_ms is None or solution.time_ms > allowed_ms:
            return None
        return scaled, solution if batch_size == samples else _extrapolated(solution, samples)

    low, high, best = 0, 1, None
    while high <= _MOST and (found := tried(high)) is not None:
        low, high, best = high, 2 * high, found
    while high - low > 1:
        middle = (low + high) // 2
        if (found := tried(middle)) is None:
            high = middle
        else:
            low, best = middle, found
    return BatchSize(low, high, *((None, None) if best is None else best))


def _extrapolated(solution: Solution, samples: int) -> Solution:
    status = Status.FEASIBLE if solution.status is Status.OPTIMAL else solution.status
    message = f"{solution.message}, as far as sizes and times grow in proportion from those of {samples} samples"
    return replace(solution, status=status, message=message)


def with_batch_size(profile: Profile, batch_size: int, *, measured: int) -> Profile:
    """A profile as it would be for another batch, everything that grows with it in proportion.

    What is made of parameters alone (their casts) does not, nor what updates and adds up gradients.

    Args:
        profile: for a batch of ``measured`` samples.
        batch_size: samples wanted.
        measured: samples there are.
    """
    factor = batch_size / measured
    fed = _fed(profile.graph)
    storages = tuple(
        replace(x, bytes=round(x.bytes * factor)) if x.role in _GROWS and x.id in fed else x
        for x in profile.graph.storages
    )
    same = {
        way.cost
        for x in profile.graph.operators
        for way in x.implementations
        if fed.isdisjoint((*way.reads, *way.writes))
    }
    costs = {
        key: cost
        if key in same or key.startswith(tuple(ADDED))
        else Cost(cost.time_ms * factor, round(cost.workspace_bytes * factor))
        for key, cost in profile.costs.items()
    }
    graph = replace(profile.graph, storages=storages)
    return replace(profile, graph=graph, costs=costs, eager_time_ms=None, eager_peak_bytes=None)


def _fed(graph: TrainingGraph) -> frozenset[int]:
    """Storages that depend on the batch; all, of a graph that does not say what its batch is."""
    fed = {x.id for x in graph.storages if x.role is Role.INPUT}
    if not fed:
        return frozenset(x.id for x in graph.storages)
    for operator in graph.operators:
        read = {x for way in operator.implementations for x in way.reads}
        # Gradients arrive between the passes, and are of what the batch was made into.
        if not read or not fed.isdisjoint(read):
            fed |= {x for way in operator.implementations for x in way.writes}
    return frozenset(fed)


def _one_more_forward_ms(profile: Profile) -> float:
    """2 Σ_forward C_i + Σ_backward C_i (eq. 7), a little more for what sums round."""
    from explorer.solvers.methods.checkmate.nodes import Nodes

    nodes = Nodes.of(profile)
    return (1 + 1e-9) * (nodes.step_ms + nodes.forward_ms)


def samples_of(batch: Sequence[TensorSpec]) -> int | None:
    """How many samples a batch has: the first dimension that most of its tensors share, of those the foremost."""
    sizes = Counter(spec.shape[0] for spec in batch if spec.shape)
    return max(sizes, key=lambda x: sizes[x], default=None)


def _samples(profile: Profile) -> int:
    samples = samples_of(profile.graph.batch)
    if not samples:
        raise ValueError("the profile's batch has no tensor with a first dimension, by which a batch could grow")
    return samples
