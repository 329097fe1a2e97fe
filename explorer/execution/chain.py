"""One scheduled step as autograd sees it: a chain of nodes, one for each group of gradients that are complete together.

Autograd runs one node after the other, and between them what belongs to the gradients that it got: it accumulates them
and calls hooks of parameters. So a gradient that a hook uses and drops is gone before the next node runs, and the
buckets of ``DistributedDataParallel`` go out while the backward pass goes on.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from explorer.execution.buffer import RunningStep
from explorer.execution.code import Program
from explorer.execution.out_of_memory import ADVICE, BACKWARD, named
from explorer.execution.used_gradients import gradient_of
from explorer.torch_errors import is_out_of_memory
from explorer.torch_private import graph_is_kept, unviewed

if TYPE_CHECKING:
    from explorer.execution.scheduled import StepPlan

_NOTHING = contextlib.nullcontext()


class Step:
    """What the nodes of one step share: its values, and how far it has come."""

    def __init__(
        self, plan: StepPlan, program: Program, values: list[Any], *, new: bool, buffer: RunningStep | None
    ) -> None:
        """Begin.

        Args:
            plan: of the module.
            program: to follow.
            values: of the graph inputs.
            new: it is the first of a training.
            buffer: that it runs in, begun; None: none.
        """
        self.new = new
        self.buffer = buffer
        if buffer is not None:
            weakref.finalize(self, buffer.abandon).atexit = False  # whoever drops it wants no backward pass
        self.plan = plan
        self.program = program
        self.values = values
        self.device = values[plan.differentiable[0]].device
        self.saved: list[Any] | None = None
        self.versions: list[int | None] = []
        self.given: list[torch.Tensor | None] = []
        self.leaves = [x for i in plan.differentiable if (x := values[i]).is_leaf]
        self.bare: list[torch.Tensor] = []
        self.advice = ADVICE
        self.running: Iterator[None] = iter(())
        self.left = len(program.groups)

    def run(self) -> tuple[torch.Tensor, ...]:
        """The forward pass; what comes back has the whole chain behind it.

        Autograd goes from the last node to the first, so the group that is complete first enters last.
        """
        first, *later = ([self.values[self.plan.differentiable[x]] for x in group] for group in self.program.groups)
        token: torch.Tensor | None = None
        for group in reversed(later):
            token = _Later.apply(self, token, *group)
        return _First.apply(self, token, *first)

    def forward(self) -> list[torch.Tensor]:
        """Run the forward pass: outputs; what the backward pass reads besides what the caller gave is kept."""
        program = self.program
        with self._uncast(), named(program.place, advice=ADVICE):
            results = program.forward([self.values[i] for i in program.inputs])
        outputs = [unviewed(x) for x in results[: program.output_count]]
        # An output that the backward pass reads is saved as another tensor of the same memory: saving the output
        # itself would make a reference cycle, which keeps every activation until the garbage collector runs.
        own = {id(x) for x in outputs}
        self.saved = [x.detach() if id(x) in own else x for x in results[program.output_count :]]
        # The caller may change outputs in place; tensors of one memory have one version.
        self.versions = [_version(x) for x in self.saved]
        return outputs

    def begin_backward(self, given: tuple[torch.Tensor, ...], tangents: list[torch.Tensor | None]) -> None:
        """Take what the backward pass reads.

        Args:
            given: what is the caller's, as autograd saved it.
            tangents: of the outputs that have one, in the captured layout.
        """
        check_capture()
        if self.saved is None:
            raise RuntimeError(
                "backward() was called twice on one scheduled step, whose activations are gone: run the forward pass "
                "again"
            )
        if self.buffer is not None:
            self.buffer.go_on()
        saved, self.saved = self.saved, None
        if any(_version(x) != version for x, version in zip(saved, self.versions, strict=True)):
            raise RuntimeError(
                "an output of the step has been modified by an inplace operation before its backward pass, which needs "
                "it as it was: change a copy (.clone())"
            )
        if self.plan.capture.graph.iteration.within and (self.new or self.device.type == "cpu"):  # it waits for a GPU
            _check_unscaled(tangents)
        missing = frozenset(number for number, x in enumerate(tangents) if x is None)
        self.bare = [x for x in self.leaves if gradient_of(x) is None]
        if self.plan.capture.graph.iteration.within:
            self.advice += " Some parameters may have been updated already."
        elif len(self.bare) < len(self.leaves):
            self.advice += " Gradients that were there before may have some of this step's added: drop them."
        backward = self.plan.backward_for(self.program, missing)
        self.running = backward([*given, *saved, *tangents], self.given)

    def gradients(self) -> tuple[torch.Tensor | None, ...]:
        """Go on until the next group of gradients is complete."""
        with self._uncast(), named(self.program.place, advice=self.advice), self._taking_back():
            next(self.running)
            self.left -= 1
            if self.buffer is not None:
                self.buffer.leave(self.given)
            if not self.left:
                next(self.running, None)  # what comes after the last gradients serves none
                if self.buffer is not None:
                    self.buffer.end()
        complete = tuple(self.given)
        self.given.clear()
        return complete

    @contextlib.contextmanager
    def _taking_back(self) -> Iterator[None]:
        """If memory runs out, what autograd has accumulated of this step's gradients goes: they are not all there."""
        try:
            yield
        except (RuntimeError, MemoryError) as error:
            if is_out_of_memory(error):
                for leaf in self.bare:
                    leaf.grad = None
            raise

    def _uncast(self) -> contextlib.AbstractContextManager[object]:
        """While open, autocast casts nothing: what it casts are operators of the graph."""
        if torch.is_autocast_enabled(self.device.type):
            return torch.autocast(self.device.type, enabled=False)
        return _NOTHING  # which there are many of in a backward pass


def check_capture() -> None:
    """A graph of CUDA replays kernels with their addresses; nobody has seen one of a schedule replayed rightly.

    Raises:
        ValueError: one is being captured.
    """
    if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
        raise ValueError(
            "a CUDA graph is being captured, and steps by a schedule are not made for that: they look at values and "
            "random states on the host; train without torch.cuda.graph, or capture the model as it was"
        )


class _First(torch.autograd.Function):
    """Where a backward pass begins. The differentiable tensors tie the chain to them; all values are in the step."""

    @staticmethod
    def forward(
        ctx: Any,
        step: Step,
        _token: torch.Tensor | None,
        *_differentiable: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        ctx.set_materialize_grads(False)
        outputs = tuple(step.forward())
        ctx.step = step
        # What is the caller's goes through autograd's own saving, which notices if it is changed too early.
        ctx.save_for_backward(*(step.values[i] for i in step.program.backward_inputs))
        step.values = []
        ctx.output_specs = [(x.shape, x.dtype, x.device) for x in outputs]
        with_gradient = set(step.plan.tangent_outputs)
        ctx.mark_non_differentiable(*(x for i, x in enumerate(outputs) if i not in with_gradient))
        return outputs

    @staticmethod
    def backward(ctx: Any, *tangents: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        if graph_is_kept():
            raise RuntimeError(
                "a scheduled step frees its activations as its backward pass goes on, so it supports neither "
                "retain_graph=True nor create_graph=True"
            )
        step: Step = ctx.step
        plan = step.plan
        with named(BACKWARD, advice=ADVICE):
            arrived = [
                None if (x := tangents[i]) is None else _tangent(x, ctx.output_specs[i], strides)
                for i, strides in zip(plan.tangent_outputs, plan.tangent_strides, strict=True)
            ]
        step.begin_backward(ctx.saved_tensors, arrived)
        del arrived
        return (None, None, *step.gradients())


class _Later(torch.autograd.Function):
    """Where it goes on. The token ties the nodes; it has no elements, so that it takes no memory."""

    @staticmethod
    def forward(
        ctx: Any,
        step: Step,
        _token: torch.Tensor | None,
        *_differentiable: torch.Tensor,
    ) -> torch.Tensor:
        ctx.set_materialize_grads(False)
        ctx.step = step
        return torch.empty(0, dtype=torch.float32, device=step.device)

    @staticmethod
    def backward(ctx: Any, _: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        return (None, None, *ctx.step.gradients())


def _check_unscaled(tangents: list[torch.Tensor | None]) -> None:
    """An update within the backward pass uses gradients as they come: those of the loss itself."""
    for tangent in tangents:
        if tangent is not None and tangent.ndim == 0 and float(tangent) not in (0.0, 1.0):
            raise RuntimeError(
                f"the loss goes back scaled by {float(tangent):g}, by a GradScaler or for accumulation, and this "
                "schedule has parameters updated within the backward pass, with such gradients: plan for an update at "
                "the end, profile(…, update='end')"
            )


def _version(tensor: torch.Tensor | None) -> int | None:
    """As autograd's own check has it; some operators save nothing in a place for a tensor."""
    return None if tensor is None else tensor._version  # noqa: SLF001 - there is no other name for it


def _tangent(given: torch.Tensor, spec: tuple[Any, ...], strides: tuple[int, ...]) -> torch.Tensor:
    """The gradient of an output in the captured layout; autograd's own may repeat one number, or have another order."""
    shape, dtype, device = spec
    if all(size == 1 or own == wanted for size, own, wanted in zip(shape, given.stride(), strides, strict=True)):
        return given.as_strided(shape, strides)  # the strides of dimensions of one element say nothing
    return torch.empty_strided(shape, strides, dtype=dtype, device=device).copy_(given)
