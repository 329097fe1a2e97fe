"""A model that trains by a schedule: the same object to its user, another forward and backward below."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import fx, nn
from torch.utils import _pytree as pytree

from explorer.capture import Batch, Capture, Loss, capture
from explorer.capture.batch import FlatBatch, as_arguments, flatten
from explorer.capture.tracing import GraphInput, Source
from explorer.execution.code import Program, generate
from explorer.execution.fallback import without
from explorer.execution.out_of_memory import named
from explorer.operators import Guard
from explorer.operators.encodings import Encoding
from explorer.schedule import Run, Schedule
from explorer.simulation import validate
from explorer.torch_private import graph_is_kept

_ADVICE = "Solve for a smaller budget, or free what else is on the device."


@dataclass(frozen=True)
class Plan:
    """Everything a scheduled module needs to run one training step.

    Attributes:
        capture: graph and interface of the step.
        program: the schedule, compiled.
        schedule: what was compiled.
        differentiable: positions in ``Traced.inputs`` of what gets a gradient, in the program's order.
        tangent_outputs: for each tangent, which of the step's tensor outputs it is the gradient of.
        tangent_strides: the layout of each tangent that the captured step counts on.
        guards: operators whose implementation has a condition, and that condition.
        fallbacks: programs for steps in which conditions of some operators do not hold, made when needed.
    """

    capture: Capture
    program: Program
    schedule: Schedule
    differentiable: tuple[int, ...]
    tangent_outputs: tuple[int, ...]
    tangent_strides: tuple[tuple[int, ...], ...]
    guards: tuple[tuple[int, Guard], ...]
    fallbacks: dict[frozenset[int], Program] = field(default_factory=dict)

    @classmethod
    def of(cls, capture: Capture, schedule: Schedule) -> Plan:
        """Compile a valid schedule for a capture."""
        traced = capture.traced
        position = {x: index for index, x in enumerate(traced.inputs)}
        tensors = [index for index, x in enumerate(traced.outputs) if isinstance(x, fx.Node)]
        tangents = [x for x in traced.inputs if x.source is Source.TANGENT]
        return cls(
            capture=capture,
            program=generate(capture, schedule),
            schedule=schedule,
            differentiable=tuple(position[x] for x, _ in traced.gradients),
            tangent_outputs=tuple(tensors.index(cast("int", x.output)) for x in tangents),
            tangent_strides=tuple(x.node.meta["val"].stride() for x in tangents),
            guards=tuple(
                (step.operator, guard)
                for step in schedule.steps
                if isinstance(step, Run)
                and (guard := capture.built.calls[step.operator, step.implementation].guard) is not None
            ),
        )

    def program_for(self, values: list[Any]) -> Program:
        """The program for a step with these graph inputs: another one where the condition of a guard does not hold."""
        if not self.guards:
            return self.program
        position = {x.node: index for index, x in enumerate(self.capture.traced.inputs)}
        with torch.no_grad():
            given = ([None if x is None else values[position[x]] for x in guard.of] for _, guard in self.guards)
            holds = [guard.holds(*args) for (_, guard), args in zip(self.guards, given, strict=True)]
            held = torch.stack(holds).tolist()
        broken = frozenset(x for (x, _), fine in zip(self.guards, held, strict=True) if not fine)
        if not broken:
            return self.program
        # What failed in one such step stays out of the next, so that there are never many programs.
        broken = broken.union(*self.fallbacks)
        if broken not in self.fallbacks:
            graph = self.capture.graph
            self.fallbacks[broken] = generate(self.capture, without(graph, self.schedule, broken))
            number, guard = next((x, guard) for x, guard in self.guards if x in broken)
            warnings.warn(
                f"{len(broken)} operators, {graph.operators[number].name!r} first, run as in PyTorch and not as "
                f"scheduled, with more memory, because {guard.reason}",
                stacklevel=2,
            )
        return self.fallbacks[broken]


class ScheduledModule(nn.Module):
    """Base of the classes that ``apply`` makes; mixed in before the model's own class.

    The object shares the model's parameters, buffers, submodules, hooks and mode: ``state_dict()`` has the model's
    keys, and training it trains the model. In training mode with gradients enabled a call runs the schedule; anything
    else runs the model as it was.
    """

    plan: Plan
    model_class: type[nn.Module]

    @property
    def schedule(self) -> Schedule:
        """The schedule that training steps follow."""
        return type(self).plan.schedule

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run one training step's forward pass by the schedule.

        With a loss, the arguments are the inputs and the target, and the loss comes back; ``module(inputs)`` alone
        gives the model's own output, without the schedule's savings.

        Raises:
            ValueError: the batch has other shapes, dtypes or structure than the schedule was made for.
        """
        plan = type(self).plan
        loss = plan.capture.loss
        with_target = loss is not None and len(args) == 2 and not kwargs
        if loss is not None and not with_target:
            return type(self).model_class.forward(self, *args, **kwargs)
        if self.training and torch.is_grad_enabled():
            return run_step(plan, self, args, kwargs)
        if loss is None:
            return type(self).model_class.forward(self, *args, **kwargs)
        model_args, model_kwargs = as_arguments(args[0])
        return loss(type(self).model_class.forward(self, *model_args, **model_kwargs), args[1])

    def __reduce__(self) -> Any:
        """Pickling would need the generated class: save the ``state_dict`` and the schedule instead."""
        raise TypeError(
            f"a scheduled {type(self).model_class.__name__} cannot be pickled; save its state_dict() and its "
            "schedule (module.schedule.save(path)), and apply the schedule again after loading"
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> ScheduledModule:
        """A copy with parameters of its own that follows the same schedule."""
        from copy import deepcopy

        copied = object.__new__(type(self))
        memo[id(self)] = copied
        copied.__dict__ = {key: deepcopy(value, memo) for key, value in self.__dict__.items()}
        return copied


def apply(
    model: nn.Module,
    schedule: Schedule,
    batch: Batch,
    *,
    loss: Loss | None = None,
    encoding: Encoding | str | None = None,
) -> ScheduledModule:
    """Make a module that trains ``model`` by ``schedule``.

    Args:
        model: the model the schedule was made for, in training mode; it is not changed.
        schedule: from ``solve`` or ``load_schedule``.
        batch: a sample batch with the shapes the schedule was made for.
        loss: as it was given to ``profile``.
        encoding: as it was given to ``profile``.

    Returns:
        A module that shares everything with ``model`` and computes bit-equal results, unless the schedule uses
        implementations that are not exact.

    Raises:
        ValueError: the schedule belongs to another model, batch or loss (says which differs), or is invalid.
    """
    captured = capture(model, batch, loss=loss, encoding=encoding)
    if difference := schedule.identity.difference(captured.graph.identity):
        raise ValueError(f"the schedule does not fit: {difference} (the schedule's first)")
    validate(captured.graph, schedule)
    plan = Plan.of(captured, schedule)
    attributes = {"plan": plan, "model_class": type(model), "__doc__": type(model).__doc__}
    made = type(f"Scheduled{type(model).__name__}", (ScheduledModule, type(model)), attributes)
    module = object.__new__(made)
    module.__dict__ = model.__dict__
    return cast("ScheduledModule", module)


def run_step(plan: Plan, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Forward pass of one training step; the result's backward pass follows the schedule too."""
    flat = flatten(args, kwargs)
    plan.capture.batch.check(flat)
    values = [_value(x, module, flat) for x in plan.capture.traced.inputs]
    tensors = iter(_Step.apply(plan, plan.program_for(values), values, *(values[i] for i in plan.differentiable)))
    outputs = [next(tensors) if isinstance(x, fx.Node) else x for x in plan.capture.traced.outputs]
    return pytree.tree_unflatten(outputs, plan.capture.traced.output_structure)


def _value(graph_input: GraphInput, module: nn.Module, flat: FlatBatch) -> Any:
    """The tensor that stands for a graph input in this step; None for tangents, which come later."""
    name = graph_input.name.removeprefix("model.")
    if graph_input.source is Source.PARAMETER:
        return module.get_parameter(name)
    if graph_input.source is Source.BUFFER:
        return module.get_buffer(name)
    if graph_input.source is Source.INPUT:
        return flat.leaves[int(graph_input.name)]
    return None


class _Step(torch.autograd.Function):
    """Forward and backward as scheduled. Everything but the differentiable tensors travels in plain lists."""

    @staticmethod
    def forward(
        ctx: Any, plan: Plan, program: Program, values: list[Any], *differentiable: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.set_materialize_grads(False)
        with torch.autocast(differentiable[0].device.type, enabled=False), named(program.place, advice=_ADVICE):
            results = program.forward([values[i] for i in program.inputs])
        outputs = tuple(results[: program.output_count])
        ctx.plan, ctx.program = plan, program
        # An output that the backward pass reads is saved as another tensor of the same memory: saving the output
        # itself would make a reference cycle, which keeps every activation until the garbage collector runs.
        own = {id(x) for x in outputs}
        ctx.saved_activations = [x.detach() if id(x) in own else x for x in results[program.output_count :]]
        # Parameters go through autograd's own saving, which notices if an optimizer changes them too early.
        kept = [values[i] for i in program.backward_inputs]
        ctx.by_autograd = [x.requires_grad for x in kept]
        ctx.save_for_backward(*(x for x in kept if x.requires_grad))
        ctx.others = [x for x in kept if not x.requires_grad]
        ctx.output_specs = [(x.shape, x.dtype, x.device) for x in outputs]
        with_gradient = set(plan.tangent_outputs)
        ctx.mark_non_differentiable(*(x for i, x in enumerate(outputs) if i not in with_gradient))
        return outputs

    @staticmethod
    def backward(ctx: Any, *tangents: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        if graph_is_kept():
            raise RuntimeError(
                "a scheduled step frees its activations as its backward pass goes on, so it supports neither "
                "retain_graph=True nor create_graph=True"
            )
        if ctx.saved_activations is None:
            raise RuntimeError(
                "backward() was called twice on one scheduled step, whose activations are gone: run the forward pass "
                "again"
            )
        saved, ctx.saved_activations = ctx.saved_activations, None
        by_autograd, others = iter(ctx.saved_tensors), iter(ctx.others)
        values = [next(by_autograd) if saved_there else next(others) for saved_there in ctx.by_autograd]
        values += saved
        saved.clear()
        plan = ctx.plan
        values += [
            _tangent(tangents[i], ctx.output_specs[i], strides)
            for i, strides in zip(plan.tangent_outputs, plan.tangent_strides, strict=True)
        ]
        with torch.autocast(values[-1].device.type, enabled=False), named(ctx.program.place, advice=_ADVICE):
            gradients = ctx.program.backward(values)
        return (None, None, None, *gradients)


def _tangent(given: torch.Tensor | None, spec: tuple[Any, ...], strides: tuple[int, ...]) -> torch.Tensor:
    """The gradient of an output in the captured layout; autograd's own may repeat one number, or have another order."""
    if given is not None and given.stride() == strides:
        return given
    shape, dtype, device = spec
    made = torch.empty_strided(shape, strides, dtype=dtype, device=device)
    return made.zero_() if given is None else made.copy_(given)
