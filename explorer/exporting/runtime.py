"""What an exported file has at its end: two passes as a training step of a model. Needs torch alone.

Its text is copied as it stands, behind the passes of a schedule; what it needs of ``planned`` stands before it.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.autograd import forward_ad
from torch.autograd.function import once_differentiable

from explorer.exporting.planned import (
    Plan,
    check_autocast,
    check_batch,
    check_conditions,
    check_memory,
    check_modes,
    check_modules,
    check_state,
    is_like,
    parameters_of,
)


@dataclass(frozen=True)
class Passes:
    """The functions of this file.

    Attributes:
        forward: of a step.
        backward: by which of ``Plan.tangents`` have come.
        scheduled: makes a model follow them.
        has_loss: a step takes the target, too, and returns the loss.
    """

    forward: Callable[..., Any]
    backward: dict[tuple[int, ...], Callable[..., Any]]
    scheduled: Callable[[nn.Module], Any]
    has_loss: bool


class Step:
    """What the nodes of one step share, and how far it has come."""

    def __init__(self, plan: Plan, passes: Passes, values: list[Any]) -> None:
        """Begin, with parameters, buffers and the batch."""
        self.plan, self.passes, self.values = plan, passes, values
        self.device = values[plan.groups[0][0]].device
        self.saved: list[Any] | None = None
        self.read_outputs: list[torch.Tensor] = []
        self.given: list[torch.Tensor | None] = []
        self.running: Iterator[None] = iter(())
        self.left = len(plan.groups)

    def run(self) -> tuple[torch.Tensor, ...]:
        """The forward pass, with a node of autograd behind it for each group of gradients: the last group's first."""
        first, *later = ([self.values[x] for x in group] for group in self.plan.groups)
        token: torch.Tensor | None = None
        for group in reversed(later):
            token = Later.apply(self, token, *group)
        return First.apply(self, token, *first)

    def forward(self) -> list[torch.Tensor]:
        """Outputs; what the backward pass reads besides is kept."""
        check_memory(self.plan, self.values)
        with torch.autocast(self.device.type, enabled=False):
            results = self.passes.forward([self.values[x] for x in self.plan.inputs])
        outputs = results[: self.plan.output_count]
        own = {id(x) for x in outputs}
        self.read_outputs = [x for x in results[self.plan.output_count :] if id(x) in own]
        self.saved = [x.detach() if id(x) in own else x for x in results[self.plan.output_count :]]
        return outputs

    def begin_backward(self, given: tuple[torch.Tensor, ...], tangents: list[torch.Tensor | None]) -> None:
        """Take what the backward pass reads, once."""
        arrived = tuple(x for x, tangent in enumerate(tangents) if tangent is not None)
        if arrived not in self.passes.backward:
            raise RuntimeError(
                f"gradients came for {len(arrived)} of {len(tangents)} results of this step, and the file has no "
                "backward pass for these alone: let the model return what is trained on, or put all into one loss"
            )
        if self.saved is None:
            raise RuntimeError("backward() twice: the activations of this step are gone; run the forward pass again")
        saved, self.saved = self.saved, None
        self.running = self.passes.backward[arrived]([*given, *saved, *tangents], self.given)

    def gradients(self) -> tuple[torch.Tensor | None, ...]:
        """Go on until the next group of gradients is complete."""
        with torch.autocast(self.device.type, enabled=False):
            next(self.running)
            self.left -= 1
            if not self.left:
                next(self.running, None)
        complete = tuple(self.given)
        self.given.clear()
        return complete


class First(torch.autograd.Function):
    """Where a backward pass begins."""

    @staticmethod
    def forward(ctx: Any, step: Step, _token: torch.Tensor | None, *_: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """All of the forward pass."""
        ctx.set_materialize_grads(False)
        outputs = tuple(step.forward())
        ctx.step = step
        # Autograd notices what is changed too early: the caller's tensors, and outputs that the backward pass reads.
        ctx.save_for_backward(*(step.values[x] for x in step.plan.backward_inputs), *step.read_outputs)
        step.values, step.read_outputs = [], []
        ctx.layouts = [(x.shape, x.dtype, x.device) for x in outputs]
        trained = {number for number, _ in step.plan.tangents}
        ctx.mark_non_differentiable(*(x for number, x in enumerate(outputs) if number not in trained))
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *tangents: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        """The backward pass up to the first complete gradients."""
        arrived = []
        for number, strides in ctx.step.plan.tangents:
            arrived.append(in_layout(tangents[number], ctx.layouts[number], strides))
        given = ctx.saved_tensors[: len(ctx.step.plan.backward_inputs)]
        ctx.step.begin_backward(given, arrived)
        del arrived
        return (None, None, *ctx.step.gradients())


def in_layout(tangent: torch.Tensor | None, layout: tuple[Any, ...], strides: tuple[int, ...]) -> torch.Tensor | None:
    """The gradient of an output as the backward pass reads it; None where none has come."""
    shape, dtype, device = layout
    if tangent is None:
        return None
    if all(size == 1 or own == wanted for size, own, wanted in zip(shape, tangent.stride(), strides, strict=True)):
        return tangent.as_strided(shape, strides)
    return torch.empty_strided(shape, strides, dtype=dtype, device=device).copy_(tangent)


class Later(torch.autograd.Function):
    """Where it goes on: gradients that were complete are with their parameters by then."""

    @staticmethod
    def forward(ctx: Any, step: Step, _token: torch.Tensor | None, *_: torch.Tensor) -> torch.Tensor:
        """A token without elements, which ties the nodes and takes no memory."""
        ctx.set_materialize_grads(False)
        ctx.step = step
        return torch.empty(0, device=step.device)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        """Up to the next complete gradients."""
        return (None, None, *ctx.step.gradients())


class WithoutGradient(torch.autograd.Function):
    """An output that cannot have a gradient in this schedule, and says so when one arrives."""

    @staticmethod
    def forward(_ctx: Any, output: torch.Tensor, _anchor: torch.Tensor) -> torch.Tensor:
        """The output; the anchor makes it require a gradient."""
        return output.detach()

    @staticmethod
    def backward(_ctx: Any, *_: Any) -> Any:
        """Refused."""
        raise RuntimeError(
            "beside a loss only the loss carries a gradient in this schedule: put the term into the loss"
        )


class Scheduled:
    """Mixed in before the model's own class: training steps follow the schedule, anything else is the model's."""

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        """As for any module."""
        compiled = getattr(self, "_compiled_call_impl", None)
        of = getattr(getattr(compiled, "_torchdynamo_orig_callable", None), "__self__", self)
        if compiled is not None and of is not self:
            raise ValueError(COMPILED)
        return super().__call__(*args, **kwargs)  # type: ignore[misc]

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        """A training step's forward pass, with the target where a loss was planned for."""
        plan, passes, model_class = self.schedule_explorer_step
        with_target = passes.has_loss and len(args) == 2 and not kwargs
        trains = self.training and torch.is_grad_enabled()
        if not trains and with_target and takes_one(model_class):
            raise ValueError(
                "the loss is a part of the training step here: in evaluation give the inputs alone, and compute the "
                "loss of what comes back"
            )
        if not trains or (passes.has_loss and not with_target):
            return model_class.forward(self, *args, **kwargs)
        if not is_like((args, kwargs), plan.structure):
            raise ValueError(f"the batch is made of other parts than the schedule was made for: {plan.structure}")
        leaves = plan.leaves(args, kwargs)
        check_batch(plan, leaves)
        # Autograd looks at what it is given by itself; the batch is within the step.
        if any(isinstance(x, torch.Tensor) and forward_ad.unpack_dual(x).tangent is not None for x in leaves):
            raise RuntimeError(TRANSFORMED)
        check_modes(self, plan)
        check_autocast(plan)
        values = [*parameters_of(self, plan), *leaves]
        check_conditions(plan, values)
        try:
            outputs = Step(plan, passes, values).run()
        except RuntimeError as error:
            # Autograd names the method that its functions need there; those of a schedule cannot have it.
            if "setup_context" in str(error) or "jvp" in str(error):
                raise RuntimeError(TRANSFORMED) from error
            raise
        anchor = next((x for x in outputs if x.requires_grad), None)
        if anchor is None:  # all that was trained is frozen now
            return plan.result(outputs)
        return plan.result(
            [WithoutGradient.apply(x.detach(), anchor) if i in plan.refused else x for i, x in enumerate(outputs)]
        )

    def __reduce__(self: Any) -> Any:
        """Copied and pickled as the model, which follows the schedule again."""
        _, passes, _ = self.schedule_explorer_step
        return passes.scheduled, (plain(self),)


COMPILED = (
    "the model was compiled in place, and would run instead of the schedule: leave out model.compile(), or compile "
    "what scheduled(model) returns"
)


TRANSFORMED = (
    "a step by a schedule cannot be transformed by torch.func (grad, vmap, jvp …), nor differentiated in forward mode: "
    "call the model itself there, plain(scheduled_model)"
)


def takes_one(model_class: Any) -> bool:
    """Can a forward method not be called with two arguments?"""
    try:
        inspect.signature(model_class.forward).bind(None, None, None)
    except TypeError:
        return True
    return False


def plain(module: Any) -> Any:
    """The model as it was before it followed a schedule; any other model is as it is."""
    while isinstance(getattr(type(module), "schedule_explorer_step", None), tuple):
        _, _, model_class = type(module).schedule_explorer_step
        made = object.__new__(model_class)
        made.__dict__ = module.__dict__
        module = made
    return module


def scheduled_module(model: nn.Module, plan: Plan, passes: Passes) -> Any:
    """The model, of a class that follows the schedule: it shares parameters, buffers and hooks with ``model``.

    Raises:
        ValueError: it is not the model that was planned for; says what differs.
    """
    if torch.__version__.split(".")[:2] != plan.torch_version.split(".")[:2]:
        warnings.warn(f"made with torch {plan.torch_version}, and this is {torch.__version__}", stacklevel=3)
    model = plain(model)
    if getattr(model, "_compiled_call_impl", None) is not None:
        raise ValueError(COMPILED)
    if "forward" in vars(model):
        raise ValueError(
            "forward was replaced on this object, and would run instead of the schedule: give the model without that"
        )
    check_state(model, plan)
    check_modules(model, plan)
    attributes = {"schedule_explorer_step": (plan, passes, type(model))}
    kind: Any = type(type(model).__name__, (Scheduled, type(model)), attributes)
    module = object.__new__(kind)
    module.__dict__ = model.__dict__
    return module
