"""A model compiled by ``torch.compile`` with our choice of what to save."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from explorer.arguments import a_flag
from explorer.capture import Batch, Loss
from explorer.capture.batch import uncompiled
from explorer.compiling.choosing import choice_of, saved_nodes, without_costs
from explorer.compiling.costs import costs_of
from explorer.compiling.partitioning import Choice, Step
from explorer.compiling.partitioning import compiled as compiled_with
from explorer.compiling.predicting import predicted_peak_bytes
from explorer.compiling.profiling import Traced, differentiated, traced_of
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
from explorer.units import format_bytes, shown


@dataclass(frozen=True, slots=True)
class Round:
    """A plan that was compiled and measured.

    Attributes:
        planned_bytes: the budget that it was solved for.
        predicted_peak_bytes: before it was compiled.
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
        predicted_peak_bytes: of the step, model and batch included, by the kernels of what PyTorch divides.
        measured_peak_bytes: likewise, of a real step; None where none was measured.
        budget_bytes: what was asked, here or of the schedule; None: nothing.
        margin_bytes: how much less than the budget the schedule was solved for, so that the measured peak keeps it;
            negative where the compiled step takes less than the schedule.
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
        if self.choice.channels_last is not None:
            yield "convolutions", "channels last" if self.choice.channels_last else "in the model's own layout"
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
        profile: from ``profile_compiled``, for workspaces in the predicted peak, and for convolutions' layout where the
            schedule says nothing of it; None: the peak of tensors alone, with channels last if that is not said.
        measure: also run a step and measure its peak. A warning tells where that, or the prediction of a step that is
            not measured, is above the schedule's budget.

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
        check_compiler(model)
    traced = traced_of(model, batch, loss=loss)
    if schedule.identity.compiled:
        choice = choice_of(traced, schedule)
        known = _costed(profile, traced, own_layout=choice.channels_last is False)
        found = Translated(choice, *_as_compiled(known, schedule))
    else:
        own_layout = profile is not None and traced.is_own_layout(profile.graph.identity)
        known = _costed(profile, traced, own_layout=own_layout)
        found = translated(model, schedule, batch, loss=loss, traced=traced, own_layout=own_layout)
    peak_bytes = predicted_peak_bytes(traced, found.choice, known)
    made = replace(step_with(model, traced, found, loss, peak_bytes), budget_bytes=schedule.budget_bytes)
    if measure:
        made = measured_step(made, batch)
    _warn_above(made)
    return made


def _costed(profile: Profile | None, traced: Traced, *, own_layout: bool) -> Profile:
    """Of the step in a layout; with costs if there is a profile, or measured now if that came to the other layout."""
    if profile is None:
        return without_costs(traced, own_layout=own_layout)
    graph = traced.in_layout(own=own_layout).graph
    other = traced.in_layout(own=not own_layout).graph
    if profile.graph.identity.difference(graph.identity) and not profile.graph.identity.difference(other.identity):
        costs = costs_of(traced.in_layout(own=own_layout).work, device=torch.device("cpu"))
        return Profile(graph, costs, profile.device)
    return profile


def _warn_above(made: Compiled) -> None:
    """Say where a compiled step does not keep the budget that its schedule was solved for, or is not expected to."""
    measured_bytes, predicted_bytes = made.measured_peak_bytes, made.predicted_peak_bytes
    budget_bytes = made.budget_bytes
    if budget_bytes is None or (predicted_bytes if measured_bytes is None else measured_bytes) <= budget_bytes:
        return
    predicted = format_bytes(predicted_bytes)
    peaks = "is predicted to peak at " + predicted
    if measured_bytes is not None:
        peaks = f"peaks at {format_bytes(measured_bytes)} (predicted: {predicted})"
    warnings.warn(
        f"the compiled step {peaks}, above the schedule's budget of {format_bytes(budget_bytes)}; "
        "explorer.compiled_within(…, budget=…) plans until the measured peak keeps it",
        UserWarning,
        stacklevel=3,
    )


def check_compiler(model: nn.Module) -> None:
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


def step_with(
    model: nn.Module, traced: Traced, found: Translated, loss: Loss | None, predicted_peak_bytes: int
) -> Compiled:
    """The model, compiled with a choice at its first step."""
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


def measured_step(made: Compiled, batch: Batch) -> Compiled:
    """With the peak of a real step."""
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
