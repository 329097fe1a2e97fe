"""Compiled steps planned for a budget, by what steps that were compiled take."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from torch import nn

from explorer.arguments import a_loss, a_number
from explorer.budgets import a_budget
from explorer.capture import Batch, Loss
from explorer.capture.batch import uncompiled
from explorer.compiling.choosing import tagged
from explorer.compiling.partitioning import Choice
from explorer.compiling.predicting import predicted_peak_bytes
from explorer.compiling.profiling import Traced, profiles_of, traced_of
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
_MOST_PLANS = 3  # for each round, none of which is compiled but one
_SLACK = 0.02  # of room that is not worth another round
_NEAR = 0.9  # of what the step that saves nothing is predicted to take: below that no budget is tried
_ANY_PEAK_BYTES = 2**50  # for a share of one that is not known yet


def compiled_within(
    model: nn.Module, batch: Batch, *, budget: int | str, loss: Loss | None = None, time_limit: float = 10.0
) -> Compiled:
    """Plan a compiled step for a budget, compile and measure it, and plan again until the measured peak keeps it.

    The compiler's own order and memory are known but for some per cent. So what a step takes beyond the prediction is
    the margin by which the next one is planned smaller, or larger where there is room.

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
        others: of it in other layouts of convolutions, which take more time.
        time_limit: seconds for each plan.
    """

    model: nn.Module
    batch: Batch
    loss: Loss | None
    traced: Traced
    profile: Profile
    others: tuple[Profile, ...]
    time_limit: float

    @classmethod
    def of(cls, model: nn.Module, batch: Batch, *, loss: Loss | None, time_limit: float) -> Planner:
        """Trace and profile; the arguments are those of ``compiled_within``."""
        a_number(time_limit, "time_limit", above=0, what="a positive number of seconds")
        model = uncompiled(a_model(model))
        check_compiler(model)
        traced = traced_of(model, batch, loss=loss)
        profile, *others = profiles_of(traced, device_of(model))
        return cls(model, batch, loss, traced, profile, tuple(others), time_limit)

    def within(self, budget: int | str, *, rehearse: bool = False) -> Compiled:
        """What ``compiled_within`` returns.

        Args:
            budget: likewise.
            rehearse: the peak is that of a rehearsal: the step was not compiled with its loops yet.

        Raises:
            ValueError: nothing that keeps the budget was found.
        """
        budget_bytes = a_budget(budget, self.profile)
        refused: list[str] = []
        for profile in (self.profile, *self.others):
            try:
                return _Fitting(replace(self, profile=profile), budget_bytes).best(rehearse=rehearse)
            except ValueError as error:
                refused.append(str(error))
        raise ValueError("; in another layout of convolutions: ".join(refused))


@dataclass(frozen=True)
class _Plan:
    """A set of what is saved, before it is compiled."""

    saved: frozenset[int]
    schedule: Schedule
    choice: Choice
    planned_bytes: int
    simulated_bytes: int  # by the schedule
    predicted_bytes: int  # by what the compiler divides for the choice
    time_ms: float


@dataclass
class _Fitting:
    """What was tried for a budget: sets of what is saved, and steps that were measured."""

    planner: Planner
    budget_bytes: int
    tried: set[frozenset[int]] = field(default_factory=set)
    made: list[Compiled] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)

    def best(self, *, rehearse: bool) -> Compiled:
        last: _Plan | None = None
        for _ in range(_MOST_ROUNDS):
            last = self._promising(last)
            if last is None:
                break
            made = self._rehearsed(last)
            if 0 <= 1.0 - _peak(made) / self.budget_bytes <= _SLACK:
                break
        for made in sorted(self._fitting(), key=self._time_ms):
            real = made if rehearse else self._real(made)
            if _peak(real) <= self.budget_bytes:
                return replace(real, rounds=tuple(self.rounds))
        raise ValueError(self._refusal())

    def _fitting(self) -> list[Compiled]:
        return [x for x in self.made if _peak(x) <= self.budget_bytes]

    def _time_ms(self, made: Compiled) -> float:
        return simulate(self.planner.profile, made.schedule).time_ms

    def _promising(self, last: _Plan | None) -> _Plan | None:
        """Of a few new plans the quickest that is expected within the budget, or the smallest if none is known to be.

        Args:
            last: that was measured; what that took beyond its prediction, and its schedule, the next ones will, too.

        Returns:
            None: there is nothing new that is expected to be better.
        """
        beyond_bytes = 0 if last is None else _peak(self.made[-1]) - last.predicted_bytes
        new = [x for x in self._plans(last, beyond_bytes) if x.saved not in self.tried]
        expected = [x for x in new if x.predicted_bytes + beyond_bytes <= self.budget_bytes]
        quickest = min(expected, key=lambda x: x.time_ms, default=None)
        known_ms = min(map(self._time_ms, self._fitting()), default=None)
        if known_ms is None:
            return quickest or min(new, key=lambda x: x.predicted_bytes, default=None)
        return quickest if quickest is not None and quickest.time_ms < known_ms else None

    def _plans(self, last: _Plan | None, beyond_bytes: int) -> list[_Plan]:
        """A few, each for what the one before leaves of the budget by what it is expected to take."""
        planned_bytes = self.budget_bytes
        if last is not None:
            planned_bytes -= last.predicted_bytes + beyond_bytes - last.simulated_bytes
        found: dict[frozenset[int], _Plan] = {}
        for _ in range(_MOST_PLANS):
            plan = self._predicted(planned_bytes)
            if plan.saved in found or (found and plan.saved in self.tried):
                break
            found[plan.saved] = plan
            expected_bytes = plan.predicted_bytes + beyond_bytes
            if 0 <= 1.0 - expected_bytes / self.budget_bytes <= _SLACK:
                break
            planned_bytes = self.budget_bytes - (expected_bytes - plan.simulated_bytes)
        return list(found.values())

    def _predicted(self, planned_bytes: int) -> _Plan:
        own = self.planner
        saved, schedule = self._plan(planned_bytes)
        graph = own.profile.graph
        names = {graph.storages[x].name for x in saved}
        choice = tagged(own.traced, names, own_layout=own.traced.is_own_layout(graph.identity))
        simulated = simulate(own.profile, schedule)
        predicted_bytes = predicted_peak_bytes(own.traced, choice, own.profile)
        return _Plan(saved, schedule, choice, planned_bytes, simulated.peak_bytes, predicted_bytes, simulated.time_ms)

    def _plan(self, planned_bytes: int) -> tuple[frozenset[int], Schedule]:
        """What is saved, and how the step runs then; where none is predicted to take so little, nothing is saved."""
        from explorer.solvers import solve  # a step is compiled and run without what finds schedules

        own = self.planner
        solution = solve(own.profile, budget=max(1, planned_bytes), method="monet-compiled", time_limit=own.time_limit)
        if solution.schedule is not None:
            return saved_by(own.profile.graph, solution.schedule), solution.schedule
        nothing = frozenset[int]()
        schedule = CompiledStep(own.profile).schedule(nothing, method="monet-compiled", budget_bytes=planned_bytes)
        # A step may take less than predicted, but not by much: budgets far below are refused at once.
        if planned_bytes == self.budget_bytes < _NEAR * simulate(own.profile, schedule).peak_bytes:
            raise ValueError(f"no compiled step was found for {format_bytes(self.budget_bytes)}: {solution.message}")
        return nothing, schedule

    def _rehearsed(self, plan: _Plan) -> Compiled:
        self.tried.add(plan.saved)
        own = self.planner
        found = Translated(plan.choice, plan.schedule, ())
        made = step_with(own.model, own.traced, found, own.loss, plan.predicted_bytes)
        made = replace(
            made,
            measured_peak_bytes=rehearsed_peak_bytes(made.module, own.batch),
            budget_bytes=self.budget_bytes,
            margin_bytes=self.budget_bytes - plan.planned_bytes,
        )
        self.made.append(made)
        self.rounds.append(Round(plan.planned_bytes, plan.predicted_bytes, _peak(made)))
        return made

    def _real(self, made: Compiled) -> Compiled:
        """With its loops, at last; what is known of the step by a rehearsal alone is forgotten."""
        self.made.remove(made)
        real = measured_step(made, self.planner.batch)
        self.made.append(real)
        return real

    def _refusal(self) -> str:
        least = min(self.made, key=_peak)
        return (
            f"no compiled step was found within {format_bytes(self.budget_bytes)} in {len(self.made)} that were "
            f"compiled and measured: the smallest takes {format_bytes(_peak(least))} ({_peak(least)} bytes), and was "
            f"predicted to take {format_bytes(least.predicted_peak_bytes)}. explorer.apply keeps smaller budgets, not "
            "compiled"
        )


def _peak(made: Compiled) -> int:
    assert made.measured_peak_bytes is not None
    return made.measured_peak_bytes
