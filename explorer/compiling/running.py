"""A model compiled by ``torch.compile`` with our choice of what to save."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from explorer.arguments import a_flag, a_loss, a_number
from explorer.budgets import a_budget
from explorer.capture import Batch, Loss
from explorer.capture.batch import uncompiled
from explorer.compiling.choosing import choice_of, saved_nodes, tagged, without_costs
from explorer.compiling.partitioning import Choice, Step
from explorer.compiling.partitioning import compiled as compiled_with
from explorer.compiling.profiling import Traced, differentiated, profile_of, traced_of
from explorer.compiling.translating import Translated, translated
from explorer.device_profile import Profile
from explorer.execution.device import device_of
from explorer.execution.measuring import measure as measured
from explorer.kinds import a_profile, a_schedule
from explorer.operators.fusing import why_not
from explorer.saved_results import CompiledStep, saved_by
from explorer.schedule import Schedule
from explorer.simulation import simulate
from explorer.summaries import Fact, Summarised
from explorer.torch_arguments import a_model
from explorer.torch_inductor import without_kernels
from explorer.units import format_bytes, is_share, parse_bytes, shown

_MOST_ROUNDS = 5
_SLACK = 0.02
_ANY_PEAK_BYTES = 2**50  # for a share of one that is not known yet


@dataclass(frozen=True, slots=True)
class Round:
    """A plan that was compiled and measured.

    Attributes:
        planned_bytes: the budget that it was solved for.
        predicted_peak_bytes: by the simulator.
        measured_peak_bytes: of the compiled step.
    """

    planned_bytes: int
    predicted_peak_bytes: int
    measured_peak_bytes: int


@dataclass(frozen=True, repr=False)
class Compiled(Summarised):
    """A compiled model, with what is known of its step.

    Attributes:
        module: from ``torch.compile``; train it in any loop. With a loss it takes (inputs, target) and returns that.
        schedule: of the compiled step.
        choice: what the partitioner is told.
        saved: what it saves, by the names of the graph's nodes.
        predicted_peak_bytes: of the step, model and batch included, by the simulator.
        measured_peak_bytes: likewise, of a real step; None where none was measured.
        budget_bytes: what was asked, here or of the schedule; None: nothing.
        margin_bytes: how much less than the budget the schedule was solved for, so that the measured peak keeps it;
            negative where the compiled step takes less than predicted.
        rounds: of planning for a budget, the first one first; empty: none was asked for.
        unsaid: what a schedule that is not of the compiled step has and this has not, a sentence each.
    """

    module: nn.Module = field(compare=False)
    schedule: Schedule
    choice: Choice
    saved: tuple[str, ...]
    predicted_peak_bytes: int
    measured_peak_bytes: int | None = None
    budget_bytes: int | None = None
    margin_bytes: int | None = None
    rounds: tuple[Round, ...] = ()
    unsaid: tuple[str, ...] = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The module's result."""
        return self.module(*args, **kwargs)

    def facts(self) -> Iterator[Fact]:
        """Of peaks and what is saved."""
        yield "saved", f"{len(self.saved)} results"
        yield "predicted peak", format_bytes(self.predicted_peak_bytes)
        if self.measured_peak_bytes is not None:
            yield "measured peak", format_bytes(self.measured_peak_bytes)
        if self.budget_bytes is not None:
            yield "budget", format_bytes(self.budget_bytes)
        if self.margin_bytes is not None:
            yield "margin", f"{self.margin_bytes} bytes"
        for sentence in self.unsaid:
            yield "cannot say", sentence


def compiled(
    model: nn.Module,
    schedule: Schedule,
    batch: Batch,
    *,
    loss: Loss | None = None,
    profile: Profile | None = None,
    measure: bool = False,
) -> Compiled:
    """Compile a model with ``torch.compile``, which saves for the backward pass what a schedule keeps.

    The compiler's partitioner is told which results to save and which to compute again; what it computes again, it does
    once, where the backward pass first needs it. Kernels are the compiler's.

    Args:
        model: in training mode; it is not changed, and compiled at its first step.
        schedule: of ``profile_compiled``'s graph, as ``solve(…, method="monet-compiled")`` finds them; or of
            ``profile``'s: then what it keeps is kept here, as far as the compiler has it in memory.
        batch: a sample batch with the shapes that the schedule was made for.
        loss: as for the profile; it is compiled, too.
        profile: from ``profile_compiled``, for workspaces in the predicted peak; None: that of tensors alone.
        measure: also run a step and measure its peak.

    Raises:
        ValueError: the schedule is for another model, batch or loss, or has what a compiled step cannot do (names it,
            and what can), or the compiler cannot make one graph of the step; or, with ``measure``, does not work here.
    """
    a_schedule(schedule)
    a_flag(measure, "measure")
    if profile is not None and not a_profile(profile).graph.compiled:
        raise ValueError(f"profile is {shown(profile)}, of a plain step; give that of explorer.profile_compiled")
    model = uncompiled(a_model(model))
    if measure:
        _check_compiler(model)
    traced = traced_of(model, batch, loss=loss)
    known = without_costs(traced) if profile is None else profile
    if schedule.identity.compiled:
        choice = choice_of(traced, schedule)
        found = Translated(choice, *_as_compiled(known, schedule))
    else:
        found = translated(model, schedule, batch, loss=loss, traced=traced)
    peak_bytes = simulate(known, found.schedule).peak_bytes
    made = replace(_compiled(model, traced, found, loss, peak_bytes), budget_bytes=schedule.budget_bytes)
    if not measure:
        return made
    made = _measured(made, batch)
    _warn_above(made)
    return made


def _warn_above(made: Compiled) -> None:
    """Say where a compiled step does not keep the budget that its schedule was solved for."""
    peak_bytes, budget_bytes = made.measured_peak_bytes, made.budget_bytes
    if peak_bytes is not None and budget_bytes is not None and peak_bytes > budget_bytes:
        warnings.warn(
            f"the compiled step peaks at {format_bytes(peak_bytes)} (predicted: "
            f"{format_bytes(made.predicted_peak_bytes)}), above the schedule's budget of {format_bytes(budget_bytes)}; "
            "explorer.compiled_within(…, budget=…) plans until the measured peak keeps it",
            UserWarning,
            stacklevel=3,
        )


def _check_compiler(model: nn.Module) -> None:
    """Raises ValueError where nothing can be compiled, for whatever model."""
    if reason := why_not(device_of(model).type):
        raise ValueError(f"{reason}, so that no compiled step runs: use explorer.apply, which needs no compiler")


def _as_compiled(profile: Profile, schedule: Schedule) -> tuple[Schedule, tuple[str, ...]]:
    """What the compiler makes of a schedule of its step, by whatever method, and in a sentence how that differs."""
    step = CompiledStep(profile)
    saved = saved_by(step.graph, schedule) & frozenset(step.choices)
    ran = step.schedule(saved, method=schedule.method, budget_bytes=schedule.budget_bytes)
    if ran.steps == schedule.steps:
        return schedule, ()
    wanted, gets = (simulate(profile, x) for x in (schedule, ran))
    if (wanted.peak_bytes, wanted.time_ms) == (gets.peak_bytes, gets.time_ms):
        return schedule, ()
    over = "" if schedule.budget_bytes is None or gets.peak_bytes <= schedule.budget_bytes else ", above its budget"
    told = (
        "when and how often something is computed again: the compiler does it once, where it is first read; the step "
        f"peaks at {format_bytes(gets.peak_bytes)}{over}, not {format_bytes(wanted.peak_bytes)}; "
        "method='monet-compiled' plans for that"
    )
    if over:
        warnings.warn(f"the compiled step cannot say {told}", UserWarning, stacklevel=3)
    return ran, (told,)


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
        _check_compiler(model)
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
            real = made if rehearse else _measured(made, self.planner.batch)  # with its loops, at last
            if (real.measured_peak_bytes or 0) <= self.budget_bytes:
                return replace(real, rounds=tuple(self.rounds))
        raise ValueError(self._refusal())

    def _round(self, planned_bytes: int) -> Compiled | None:
        """Plan, compile and measure; None where nothing fits, or nothing new comes."""
        from explorer.solvers import solve  # a step is compiled and run without what finds schedules

        own = self.planner
        solution = solve(own.profile, budget=max(1, planned_bytes), method="monet-compiled", time_limit=own.time_limit)
        if solution.schedule is None or solution.peak_bytes is None or solution.time_ms is None:
            if self.tried:
                return None
            raise ValueError(f"no compiled step was found for {format_bytes(self.budget_bytes)}: {solution.message}")
        saved = saved_by(own.profile.graph, solution.schedule)
        if saved in self.tried:
            return None
        choice = tagged(own.traced, {own.profile.graph.storages[x].name for x in saved})
        found = Translated(choice, solution.schedule, ())
        made = _compiled(own.model, own.traced, found, own.loss, solution.peak_bytes)
        peak_bytes = rehearsed_peak_bytes(made.module, own.batch)
        self.rounds.append(Round(planned_bytes, solution.peak_bytes, peak_bytes))
        made = replace(
            made,
            measured_peak_bytes=peak_bytes,
            budget_bytes=self.budget_bytes,
            margin_bytes=self.budget_bytes - planned_bytes,
        )
        self.tried[saved] = (solution.time_ms, made)
        return made

    def _refusal(self) -> str:
        least = min((x for _, x in self.tried.values()), key=lambda x: x.measured_peak_bytes or 0)
        took = format_bytes(least.measured_peak_bytes or 0)
        return (
            f"no compiled step was found within {format_bytes(self.budget_bytes)} in {len(self.tried)} that were "
            f"compiled and measured: the smallest takes {took} ({least.measured_peak_bytes} bytes), and was predicted "
            f"to take {format_bytes(least.predicted_peak_bytes)}. explorer.apply keeps smaller budgets, not compiled"
        )


def _compiled(
    model: nn.Module, traced: Traced, found: Translated, loss: Loss | None, predicted_peak_bytes: int
) -> Compiled:
    step = model if loss is None else Step(model, loss)
    module = compiled_with(step, found.choice)
    _checking(module, traced)
    saved = saved_nodes(traced.joint, found.choice)
    return Compiled(module, found.schedule, found.choice, saved, predicted_peak_bytes, unsaid=found.unsaid)


def _checking(module: nn.Module, traced: Traced) -> None:
    """Refuse other batches by name, before the compiler meets them; without gradients anything goes."""
    run = module.forward
    batch, wanted = traced.batch, traced.differentiated

    def forward(*args: Any, **kwargs: Any) -> Any:
        if torch.is_grad_enabled():
            leaves = batch.leaves_of(args, kwargs)
            for name, leaf, wants in zip(batch.names, leaves, wanted, strict=True):
                if differentiated(leaf) != wants:
                    raise ValueError(
                        f"{name} has requires_grad={not wants}, and the step was made for {wants}, which is another "
                        "graph: make one with a batch like this one, too"
                    )
        return run(*args, **kwargs)

    module.forward = forward


def _measured(made: Compiled, batch: Batch) -> Compiled:
    return replace(made, measured_peak_bytes=_peak_bytes(made.module, batch))


def _peak_bytes(module: nn.Module, batch: Batch) -> int:
    measured(module, batch, steps=1)  # compile before anything is watched: the compiler takes memory of its own
    return measured(module, batch, steps=1).peak_bytes


def rehearsed_peak_bytes(module: nn.Module, batch: Batch) -> int:
    """The peak of a compiled step; on the CPU of one whose loops compute nothing, which spares the compiler for C++.

    Args:
        module: from ``torch.compile``, of which no step has run; it is as fresh afterwards, as is all that is compiled.
        batch: for it, with its loss if that is in the module.
    """
    torch.compiler.reset()
    try:
        if device_of(module).type != "cpu":
            return _peak_bytes(module, batch)
        try:
            with without_kernels():
                return _peak_bytes(module, batch)
        except (RuntimeError, ValueError):  # a call of a library's does not take what no loop has computed
            torch.compiler.reset()
            return _peak_bytes(module, batch)
    finally:
        torch.compiler.reset()
