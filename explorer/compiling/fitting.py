"""Compiled steps planned for a budget, by what steps that were compiled take."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from torch import nn

from explorer.arguments import a_loss, a_number
from explorer.budgets import a_budget
from explorer.capture import Batch, Loss
from explorer.capture.batch import uncompiled
from explorer.compiling.choosing import tagged
from explorer.compiling.profiling import Traced, profile_of, traced_of
from explorer.compiling.running import Compiled, Round, check_compiler, measured_step, rehearsed_peak_bytes, step_with
from explorer.compiling.translating import Translated
from explorer.device_profile import Profile
from explorer.execution.device import device_of
from explorer.saved_results import CompiledStep, saved_by
from explorer.schedule import Schedule
from explorer.simulation import simulate
from explorer.torch_arguments import a_model
from explorer.units import format_bytes, is_share, parse_bytes

_MOST_ROUNDS = 5
_SLACK = 0.02
_ANY_PEAK_BYTES = 2**50  # for a share of one that is not known yet


def compiled_within(
    model: nn.Module, batch: Batch, *, budget: int | str, loss: Loss | None = None, time_limit: float = 10.0
) -> Compiled:
    """Plan a compiled step for a budget, compile and measure it, and plan again until the measured peak keeps it.

    The compiler's own order and memory are known but for some per cent. So what a step takes beyond the prediction is
    the margin by which the next one is planned smaller, or larger where there is room. The compiler also holds memory
    that was freed for later results of the same size; where a step is above the budget, it is tried without that.

    Args:
        model: in training mode; it is not changed.
        batch: a sample batch.
        budget: peak memory of the step, model and batch included: bytes, ``"8 GiB"``, or ``"80 %"`` of the compiled
            step that saves what PyTorch's minimum cut does.
        loss: as for ``compiled``.
        time_limit: seconds for each plan.

    Returns:
        The quickest of those measured within the budget, by the simulator.

    Raises:
        ValueError: no step was found that keeps the budget; says what the smallest takes. Or as ``compiled``.
    """
    a_loss(loss)
    parse_bytes(budget, whole=_ANY_PEAK_BYTES if is_share(budget) else None)  # a wrong one is refused at once
    return Planner.of(model, batch, loss=loss, time_limit=time_limit).within(budget)


@dataclass(frozen=True)
class Planner:
    """A model's compiled step, traced and profiled once for any number of budgets.

    Attributes:
        model: to be compiled.
        batch: for it.
        loss: compiled, too.
        traced: the compiler's graph.
        profile: of that.
        time_limit: seconds for each plan.
    """

    model: nn.Module
    batch: Batch
    loss: Loss | None
    traced: Traced
    profile: Profile
    time_limit: float

    @classmethod
    def of(cls, model: nn.Module, batch: Batch, *, loss: Loss | None, time_limit: float) -> Planner:
        """Trace and profile; the arguments are those of ``compiled_within``."""
        a_number(time_limit, "time_limit", above=0, what="a positive number of seconds")
        model = uncompiled(a_model(model))
        check_compiler(model)
        traced = traced_of(model, batch, loss=loss)
        return cls(model, batch, loss, traced, profile_of(traced, device_of(model)), time_limit)

    def within(self, budget: int | str, *, rehearse: bool = False) -> Compiled:
        """What ``compiled_within`` returns.

        Args:
            budget: likewise.
            rehearse: the peak is that of a rehearsal: the step was not compiled with its loops yet.

        Raises:
            ValueError: nothing that keeps the budget was found.
        """
        return _Fitting(self, a_budget(budget, self.profile)).best(rehearse=rehearse)


@dataclass
class _Fitting:
    planner: Planner
    budget_bytes: int
    tried: dict[frozenset[int], tuple[float, Compiled]] = field(default_factory=dict)
    rounds: list[Round] = field(default_factory=list)

    def best(self, *, rehearse: bool) -> Compiled:
        planned_bytes = self.budget_bytes
        for _ in range(_MOST_ROUNDS):
            made = self._round(planned_bytes)
            if made is None or made.measured_peak_bytes is None:
                break
            more_bytes = made.measured_peak_bytes - made.predicted_peak_bytes
            room = 1.0 - made.measured_peak_bytes / self.budget_bytes
            if 0 <= room <= _SLACK:
                break
            # What the prediction was off by, this time for a plan close by.
            then_bytes = self.budget_bytes - more_bytes
            if then_bytes == planned_bytes:
                break
            planned_bytes = then_bytes
        fitting = [x for x in self.tried.values() if (x[1].measured_peak_bytes or 0) <= self.budget_bytes]
        for _, made in sorted(fitting, key=lambda x: x[0]):
            real = made if rehearse else measured_step(made, self.planner.batch)  # with its loops, at last
            if (real.measured_peak_bytes or 0) <= self.budget_bytes:
                return replace(real, rounds=tuple(self.rounds))
        raise ValueError(self._refusal())

    def _round(self, planned_bytes: int) -> Compiled | None:
        """Plan, compile and measure; None where nothing new comes."""
        schedule = self._schedule(planned_bytes)
        own = self.planner
        saved = saved_by(own.profile.graph, schedule)
        if saved in self.tried:
            return None
        choice = tagged(own.traced, {own.profile.graph.storages[x].name for x in saved})
        found = Translated(choice, schedule, ())
        made = self._rehearsed(found, planned_bytes)
        if (peak_bytes := made.measured_peak_bytes or 0) > self.budget_bytes:
            other = self._rehearsed(replace(found, choice=replace(choice, reuse=False)), planned_bytes)
            made = (
                other if (other.measured_peak_bytes or 0) <= max(self.budget_bytes, (1 - _SLACK) * peak_bytes) else made
            )
        self.tried[saved] = (simulate(own.profile, schedule).time_ms, made)
        return made

    def _schedule(self, planned_bytes: int) -> Schedule:
        """For what a plan may take; where none is predicted to take so little, the one that saves nothing."""
        from explorer.solvers import solve  # a step is compiled and run without what finds schedules

        own = self.planner
        solution = solve(own.profile, budget=max(1, planned_bytes), method="monet-compiled", time_limit=own.time_limit)
        if solution.schedule is not None:
            return solution.schedule
        if not self.tried:
            raise ValueError(f"no compiled step was found for {format_bytes(self.budget_bytes)}: {solution.message}")
        step = CompiledStep(own.profile)
        return step.schedule(frozenset(), method="monet-compiled", budget_bytes=self.budget_bytes)

    def _rehearsed(self, found: Translated, planned_bytes: int) -> Compiled:
        own = self.planner
        predicted_bytes = simulate(own.profile, found.schedule).peak_bytes
        made = step_with(own.model, own.traced, found, own.loss, predicted_bytes)
        peak_bytes = rehearsed_peak_bytes(made.module, own.batch)
        self.rounds.append(Round(planned_bytes, predicted_bytes, peak_bytes, found.choice.reuse))
        return replace(
            made,
            measured_peak_bytes=peak_bytes,
            budget_bytes=self.budget_bytes,
            margin_bytes=self.budget_bytes - planned_bytes,
        )

    def _refusal(self) -> str:
        least = min((x for _, x in self.tried.values()), key=lambda x: x.measured_peak_bytes or 0)
        took = format_bytes(least.measured_peak_bytes or 0)
        return (
            f"no compiled step was found within {format_bytes(self.budget_bytes)} in {len(self.tried)} that were "
            f"compiled and measured: the smallest takes {took} ({least.measured_peak_bytes} bytes), and was predicted "
            f"to take {format_bytes(least.predicted_peak_bytes)}. explorer.apply keeps smaller budgets, not compiled"
        )
