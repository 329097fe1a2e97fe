"""One training step of any module, with everything that it changes put back afterwards."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import torch
from torch import nn
from torch.utils import _pytree as pytree

from explorer.arguments import a_loss
from explorer.autocast import Autocast
from explorer.capture import Batch, Loss
from explorer.capture.ambient import an_autocast, autocast_region
from explorer.capture.batch import TrainingStep, call_arguments, with_scalar_gradients
from explorer.capture.places import plain_tensors
from explorer.capture.results import tensors_of_result
from explorer.capture.state import ObjectState
from explorer.device_profile import round_up
from explorer.execution.buffer import NOTED, StepBuffer
from explorer.execution.device import CUDA_ROUNDING_BYTES, device_of
from explorer.execution.iterating import Iterating
from explorer.execution.optimizers import with_loss
from explorer.execution.scheduled import ScheduledModule
from explorer.torch_arguments import a_batch
from explorer.torch_errors import explained
from explorer.torch_private import ones_for, storage_key, without_gradient_hooks
from explorer.units import shown


def step_of(
    module: nn.Module,
    batch: Batch,
    *,
    loss: Loss | None = None,
    autocast: Autocast | torch.dtype | str | None = None,
    iterating: Iterating | None = None,
    after_backward: Callable[[], None] = lambda: None,
    keep_results: bool = True,
) -> Callable[[], None]:
    """A callable that runs forward and backward of one step, and what an iteration has besides.

    Gradients of the batch are as they were afterwards: each step of a real training has another batch.

    Args:
        module: a model, or one that ``apply`` made (which knows its loss).
        batch: as for ``capture``.
        loss: as for ``capture``.
        autocast: likewise; a scheduled module runs under what it was captured under.
        iterating: the rest of the iteration; None: gradients are dropped, and that is all.
        after_backward: called between the backward pass and that rest.
        keep_results: like a training loop that holds all that the step returns until it has gone back; False: like one
            that holds what it goes back from alone, ``model(**batch).loss``.

    Raises:
        ValueError: ``autocast`` is none, or not a scheduled module's.
    """
    region = _region(module, autocast)
    finish = (Iterating(module, loss=loss) if iterating is None else iterating).finish
    if isinstance(module, ScheduledModule):
        loss = type(module).plans[0].capture.loss
        step: nn.Module = module
    else:
        step = TrainingStep(module, loss)
    a_batch(batch, module)
    args, kwargs = call_arguments(batch, loss=a_loss(loss))
    given = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor) and x.is_leaf]

    def run() -> None:
        with _gradients_apart(given):
            step_once()

    def step_once() -> None:
        with torch.enable_grad(), region():
            if step is module:
                results = tensors_of_result(step(*args, **kwargs))
            else:
                with explained(module, batch, loss=loss):
                    results = tensors_of_result(step(*args, **kwargs))
        losses = [x for x in with_scalar_gradients(results) if x.requires_grad]
        if not losses:
            raise ValueError("nothing that the model returns needs a gradient: is every parameter frozen?")
        if not keep_results:
            results.clear()
        ones = [ones_for(x) for x in losses]
        with without_autocast(losses[0].device.type):
            torch.autograd.backward(losses, ones)
        after_backward()
        finish()
        del results, losses, ones

    return run


def without_autocast(device_type: str) -> contextlib.AbstractContextManager[object]:
    """For backward passes: around one, autocast would cast products of eager mode's once more.

    Where none is on there is no region at all: even one that casts nothing would keep, until it ends, what
    checkpointing casts when it computes again.
    """
    on = torch.is_autocast_enabled(device_type)
    return torch.autocast(device_type, enabled=False) if on else contextlib.nullcontext()


@contextlib.contextmanager
def placed_for(buffer: StepBuffer | None, step: Callable[..., Callable[[], None]]) -> Iterator[bool]:
    """While open, the buffer is placed for steps such as these; some are run before.

    It may have been for steps whose results were not held until they had gone back: something else has their place by
    then. Or for steps that train on other results: then it is noted what these allocate. What was noted here is not
    kept for the steps that come after, which may be of yet another kind.

    Args:
        buffer: in which nothing need have been noted yet; None: steps run in PyTorch's memory.
        step: makes what runs one; with ``keep_results``, as ``step_of`` has it.

    Yields:
        Whether steps are to hold their results.
    """
    if buffer is None:
        yield True
        return
    noted = not buffer.keeps
    try:
        keep_results = _is_as_planned(buffer, step())
        if not keep_results and not _is_as_planned(buffer, step(keep_results=False)):
            noted = True
            buffer.note_anew()
            keep_results = _is_as_planned(buffer, step())
        yield keep_results
    finally:
        if noted:
            buffer.note_anew()


def _is_as_planned(buffer: StepBuffer, run: Callable[[], None]) -> bool:
    """Run a step in the buffer, after those of which it is noted what they allocate: is it one of the kind noted?"""
    steps = buffer.steps
    for _ in range(NOTED + 1):
        if buffer.steps == steps:
            buffer.expect_more()
            run()
    buffer.expect_more()
    return buffer.steps == steps or buffer.use is None or not buffer.use.misses


@contextlib.contextmanager
def _gradients_apart(tensors: list[torch.Tensor]) -> Iterator[None]:
    """While open, they have no gradients of before; then those again, also where a step failed."""
    before = [x.grad for x in tensors]
    for tensor in tensors:
        tensor.grad = None
    try:
        yield
    finally:
        for tensor, gradient in zip(tensors, before, strict=True):
            tensor.grad = gradient


def _region(
    module: nn.Module, autocast: Autocast | torch.dtype | str | None
) -> Callable[[], contextlib.AbstractContextManager[None]]:
    """What makes the region of autocast for a forward pass."""
    kind = next(module.parameters()).device.type
    if not isinstance(module, ScheduledModule):
        return partial(autocast_region, (kind, an_autocast(autocast, kind)))
    captured = type(module).plans[0].capture
    known = captured.graph.autocast
    if autocast is not None and an_autocast(autocast, kind) != known:
        raise ValueError(
            f"autocast is {shown(autocast)}, and the module's schedule was made for {known}: leave it out, or profile "
            "with that, solve and apply again"
        )
    return captured.ambient.region


@contextlib.contextmanager
def unchanged(
    module: nn.Module, batch: Batch = (), *, loss: Loss | None = None, updates: bool = False
) -> Iterator[None]:
    """Put back attributes, buffers, gradients and random state when left, of a loss that is a module too.

    Meanwhile the hooks of its parameters' gradients are not called: they may train, or tell others of a step.

    Args:
        module: whose.
        batch: likewise, if a step may write to it.
        loss: likewise.
        updates: parameters change too.
    """
    module = _both(module, loss)
    state = ObjectState(module, "model")
    tensors = [*module.buffers(), *(x for part in module.modules() for x in plain_tensors(part).values())]
    buffers = [(x, x.detach().clone()) for x in tensors]
    # An average that follows another network is changed by the forward pass; on the CPU, because frozen ones are large.
    # So are those that are trained, where an optimizer is at work.
    changing = [x for x in module.parameters() if updates or not x.requires_grad]
    buffers += [(x, x.detach().to("cpu", copy=True)) for x in changing]
    given = [x for x in pytree.tree_leaves(batch) if isinstance(x, torch.Tensor)]
    copies = [(x, x.detach().to("cpu", copy=True)) for x in given]
    gradients = [(x, x.grad) for x in module.parameters()]
    devices = {x.device for x in module.parameters() if x.device.type == "cuda"}
    for parameter, _ in gradients:
        parameter.grad = None
    quiet = without_gradient_hooks([x for x, _ in gradients])
    with torch.random.fork_rng(devices=[x.index for x in devices], enabled=True), quiet:
        try:
            yield
        finally:
            state.restore()
            with torch.no_grad():
                buffers += [(x, value) for x, value in copies if not torch.equal(x.detach().cpu(), value)]
                for buffer, value in buffers:
                    buffer.copy_(value)
            for parameter, gradient in gradients:
                parameter.grad = gradient


def _both(module: nn.Module, loss: Loss | None) -> nn.Module:
    """Model and loss; a scheduled module knows its own."""
    return with_loss(module, type(module).plans[0].capture.loss if isinstance(module, ScheduledModule) else loss)


def persistent_bytes(
    module: nn.Module, batch: Batch, *, loss: Loss | None = None, held: Iterable[torch.Tensor] = ()
) -> int:
    """What is in memory between two steps, each storage once, as the device's allocator rounds it.

    Args:
        module: parameters, buffers and plain tensors count, and what a scheduled step reads besides.
        batch: its tensors count.
        loss: likewise, if it is a module; a scheduled module knows its own.
        held: besides: an optimizer's state, which on a GPU counts its steps on the CPU; gradients.
    """
    device = device_of(module)
    both = _both(module, loss)
    besides = [x for part in both.modules() for x in plain_tensors(part).values()]
    besides += [x for x in held if x.device == device]
    if isinstance(module, ScheduledModule):
        besides += [x.constant for x in type(module).plans[0].capture.traced.inputs if x.constant is not None]
    tensors = [*both.parameters(), *both.buffers(), *pytree.tree_leaves(batch), *besides]
    storages = {storage_key(x): x.untyped_storage() for x in tensors if isinstance(x, torch.Tensor)}
    return sum(
        round_up(x.nbytes(), CUDA_ROUNDING_BYTES) if x.device.type == "cuda" else x.nbytes() for x in storages.values()
    )
