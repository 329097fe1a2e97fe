"""The largest batch that fits a budget at the cost of at most one more forward pass (Checkmate equations 7 and 8)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from explorer.budgets import a_budget
from explorer.device_profile import Cost, Profile
from explorer.graph import Role
from explorer.kinds import a_profile
from explorer.solution import Solution
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
        solution: its schedule, for that profile; None without one.
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
        profile: measured for some batch; everything that is no parameter, buffer or parameter gradient, workspace too,
            is taken to grow with the batch, and so is time.
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
        return (scaled, solution) if solution.time_ms is not None and solution.time_ms <= allowed_ms else None

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


def with_batch_size(profile: Profile, batch_size: int, *, measured: int) -> Profile:
    """A profile as it would be for another batch, everything that grows with it in proportion.

    Args:
        profile: for a batch of ``measured`` samples.
        batch_size: samples wanted.
        measured: samples there are.
    """
    factor = batch_size / measured
    storages = tuple(
        replace(x, bytes=round(x.bytes * factor)) if x.role in _GROWS else x for x in profile.graph.storages
    )
    costs = {
        key: Cost(cost.time_ms * factor, round(cost.workspace_bytes * factor)) for key, cost in profile.costs.items()
    }
    graph = replace(profile.graph, storages=storages)
    return replace(profile, graph=graph, costs=costs, eager_time_ms=None, eager_peak_bytes=None)


def _one_more_forward_ms(profile: Profile) -> float:
    """2 Σ_forward C_i + Σ_backward C_i (eq. 7), a little more for what sums round."""
    from explorer.solvers.methods.checkmate.nodes import Nodes

    nodes = Nodes.of(profile)
    return (1 + 1e-9) * (nodes.step_ms + nodes.forward_ms)


def _samples(profile: Profile) -> int:
    sizes = [spec.shape[0] for spec in profile.graph.batch if spec.shape]
    if not sizes or min(sizes) < 1:
        raise ValueError("the profile's batch has no tensor with a first dimension, by which a batch could grow")
    return max(sizes)
