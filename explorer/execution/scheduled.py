"""A model that trains by a schedule: the same object to its user, another forward and backward below."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, cast
from weakref import WeakKeyDictionary

import torch
from torch import nn

from explorer.capture import Capture
from explorer.capture.batch import as_arguments
from explorer.capture.traced import Source
from explorer.execution.binding import Binding
from explorer.execution.buffer import StepBuffer
from explorer.execution.chain import Step, check_capture
from explorer.execution.code import Backward, Program, generate
from explorer.execution.fallback import without
from explorer.execution.guards import ModelChangedError
from explorer.execution.other_batches import plan_for
from explorer.execution.out_of_memory import ADVICE, FORWARD, named
from explorer.execution.returning import Returning, made_by_step
from explorer.operators import Guard
from explorer.schedule import Run, Schedule
from explorer.torch_arguments import Scheduled
from explorer.torch_private import is_transformed

_COMPILED_OF = "_torchdynamo_orig_callable"
"""Where ``torch.compile`` notes what it was given."""


@dataclass(frozen=True)
class StepPlan:
    """Everything a scheduled module needs to run one training step.

    Attributes:
        capture: graph and interface of the step.
        program: the schedule, compiled.
        schedule: what was compiled.
        differentiable: positions in ``Traced.inputs`` of what gets a gradient, in the program's order.
        tangent_outputs: for each tangent, which of the step's tensor outputs it is the gradient of.
        tangent_strides: the layout of each tangent that the captured step counts on.
        guards: operators whose implementation has a condition, and that condition.
        returning: puts the outputs of a step together.
        fallbacks: programs for steps in which conditions of some operators do not hold, made when needed.
        partial: programs for backward passes in which some tangents have not come, likewise.
        bindings: of the modules that follow this plan.
    """

    capture: Capture
    program: Program
    schedule: Schedule
    differentiable: tuple[int, ...]
    tangent_outputs: tuple[int, ...]
    tangent_strides: tuple[tuple[int, ...], ...]
    guards: tuple[tuple[int, Guard], ...]
    returning: Returning
    fallbacks: dict[frozenset[int], Program] = field(default_factory=dict)
    partial: dict[tuple[int, frozenset[int]], Program] = field(default_factory=dict)
    bindings: WeakKeyDictionary[nn.Module, Binding] = field(default_factory=WeakKeyDictionary)

    @classmethod
    def of(cls, capture: Capture, schedule: Schedule) -> StepPlan:
        """Compile a valid schedule for a capture."""
        traced = capture.traced
        position = {x: index for index, x in enumerate(traced.inputs)}
        tensors = made_by_step(capture)
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
            returning=Returning(capture),
        )

    def bind(self, module: nn.Module) -> None:
        """Let ``module``, whose model is now as it was captured, follow this plan."""
        self.bindings[module] = Binding(self.capture, module)

    def backward_for(self, program: Program, missing: frozenset[int]) -> Backward:
        """The backward pass of ``program`` without the tangents at these positions."""
        if not missing:
            return program.backward
        key = (id(program), missing)
        if key not in self.partial:
            tangents = [x.node for x in self.capture.traced.inputs if x.source is Source.TANGENT]
            absent = [tangents[x] for x in missing]
            self.partial[key] = generate(self.capture, program.schedule, absent=absent)
            if self.partial[key].fills_sums and self._is_exact(program.schedule):
                warnings.warn(
                    "not every result is trained on here, so that gradients may differ from eager mode's in the last "
                    "bits: let the model return what is trained on alone, or put it into a loss",
                    stacklevel=2,
                )
        return self.partial[key].backward

    def _is_exact(self, schedule: Schedule) -> bool:
        operators = self.capture.graph.operators
        runs = (x for x in schedule.steps if isinstance(x, Run))
        return all(operators[x.operator].implementation(x.implementation).exact for x in runs)

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


class ScheduledModule(Scheduled, nn.Module):
    """Base of the classes that ``apply`` makes; mixed in before the model's own class.

    The object shares the model's parameters, buffers, submodules, hooks and mode: ``state_dict()`` has the model's
    keys, and training it trains the model. In training mode with gradients enabled a call runs the schedule; anything
    else runs the model as it was. Hooks of the model and of its parameters run; submodules are not called, so their
    hooks would not, and a call says so.
    """

    plans: list[StepPlan]
    other_batches: str
    passed_plain: set[tuple[str, ...]]

    @property
    def schedule(self) -> Schedule:
        """The schedule that training steps follow; of several, the first."""
        return type(self).plans[0].schedule

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As for any module.

        Raises:
            ModelChangedError: the model was compiled in place, and would run instead of the schedule.
        """
        compiled = getattr(self, "_compiled_call_impl", None)
        if compiled is not None and getattr(getattr(compiled, _COMPILED_OF, None), "__self__", self) is not self:
            raise ModelChangedError(
                f"the {type(self).model_class.__name__} below was compiled in place by model.compile(), and would run "
                "instead of the schedule: leave that out, or compile the scheduled module"
            )
        return super().__call__(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run one training step's forward pass by the schedule.

        With a loss, the arguments are the inputs and the target, and the loss comes back. ``module(inputs)`` alone
        gives the model's own output, without the schedule's savings; of a model that takes several inputs, those of
        the sample batch together or one by one.

        Raises:
            ValueError: the batch has other shapes, dtypes or structure than the schedule was made for, and plain
                PyTorch may not do (``apply(…, other_batches="plain")``), or takes more memory; or a CUDA graph is
                being captured.
            ModelChangedError: model or settings are not what was captured: modes, attributes, hooks, what requires a
                gradient, autocast. Names what changed and the remedy.
        """
        plan, own = type(self).plans[0], type(self).model_class.forward
        loss = plan.capture.loss
        if loss is not None:
            together = plan.capture.batch.inputs_together
            if len(args) == 1 and not kwargs and together is not None and isinstance(args[0], together):
                args, kwargs = as_arguments(args[0])
                return own(self, *args, **kwargs)
            if len(args) != 2 or kwargs or not isinstance(args[0], together or object):
                return own(self, *args, **kwargs)
        if self.training and torch.is_grad_enabled() and (plan := plan_for(self, args, kwargs)) is not None:
            return run_step(plan, self, args, kwargs)
        if loss is None:
            return own(self, *args, **kwargs)
        model_args, model_kwargs = as_arguments(args[0])
        return loss(own(self, *model_args, **model_kwargs), args[1])

    def __reduce__(self) -> Any:
        """Pickling would need the generated class: save the ``state_dict`` and the schedule instead."""
        raise TypeError(
            f"a scheduled {type(self).model_class.__name__} cannot be pickled; save its state_dict() and its "
            "schedule (module.schedule.save(path)), and apply the schedule again after loading"
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> ScheduledModule:
        """A copy with parameters of its own that follows the same schedule."""
        from copy import deepcopy

        kind = type(self)
        # Of a class of its own: a schedule that is added to one of them is not the other's.
        own = {**vars(kind), "plans": list(kind.plans), "passed_plain": set(kind.passed_plain)}
        own = {name: x for name, x in own.items() if name not in ("__dict__", "__weakref__")}
        copied = cast("ScheduledModule", object.__new__(type(kind.__name__, kind.__bases__, own)))
        memo[id(self)] = copied
        copied.__dict__ = {key: deepcopy(value, memo) for key, value in self.__dict__.items()}
        for plan in kind.plans:
            binding = plan.bindings[self]
            plan.bind(copied)
            plan.bindings[copied].buffer = None if binding.buffer is None else StepBuffer(binding.buffer.device)
            plan.bindings[copied].wrong = binding.wrong or binding.changed()
        return copied


def scheduled_class(model_class: type[nn.Module], plan: StepPlan, *, other_batches: str) -> type[nn.Module]:
    """A class of the model's that runs the plan: with its name, and with its signature where no target is added.

    What trains models looks at both, to choose columns of a data set and to save the class's name.
    """
    attributes: dict[str, Any] = {"model_class": model_class, "__doc__": model_class.__doc__}
    attributes |= {"plans": [plan], "other_batches": other_batches, "passed_plain": set()}
    attributes |= {"__module__": model_class.__module__, "__qualname__": f"Scheduled{model_class.__qualname__}"}
    if "num_items_in_batch" not in plan.capture.batch.names:
        # Where this is true, or a signature takes any keyword, the Trainer of Hugging Face adds that one.
        attributes["accepts_loss_kwargs"] = False
    if plan.capture.loss is None:

        @wraps(model_class.forward)
        def forward(self: ScheduledModule, *args: Any, **kwargs: Any) -> Any:
            return ScheduledModule.forward(self, *args, **kwargs)

        attributes["forward"] = forward
    return type(model_class.__name__, (ScheduledModule, model_class), attributes)


@contextmanager
def following(module: ScheduledModule, program: Program, plan: StepPlan | None = None) -> Iterator[StepPlan]:
    """While open, steps of the module run another program for the capture of ``plan``, its first; yields that plan."""
    kind = type(module)
    known, plans = plan or kind.plans[0], kind.plans
    kind.plans = [replace(known, program=program, guards=(), fallbacks={}, partial={})]
    try:
        yield known
    finally:
        kind.plans = plans


@contextmanager
def by_itself(module: ScheduledModule) -> Iterator[None]:
    """While open, steps are nobody's training: what else works on the parameters does not matter."""
    with ExitStack() as stack:
        for plan in type(module).plans:
            stack.enter_context(plan.bindings[module].by_itself())
        yield


def _check_transforms() -> None:
    """Tangents would be dropped in silence, and what stands for tensors within ``vmap`` has no memory."""
    if is_transformed():
        raise RuntimeError(
            "a step by a schedule cannot be transformed by torch.func (grad, vmap, jvp …), nor differentiated in "
            "forward mode: call the model itself there"
        )


def run_step(plan: StepPlan, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Forward pass of one training step; the result's backward pass follows the schedule too."""
    check_capture()
    _check_transforms()
    binding = plan.bindings[module]
    new = binding.new
    values = binding.values(args, kwargs)
    with named(FORWARD, advice=ADVICE):
        program = plan.program_for(values)
    running = None if binding.buffer is None else binding.buffer.begin()
    tensors = Step(plan, program, values, new=new, buffer=running).run()
    return plan.capture.traced.result.build(plan.returning.outputs(values, tensors))
