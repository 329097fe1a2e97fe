"""Updates within the backward pass: each parameter as soon as its gradient is complete, which is gone then."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import torch
from torch import nn, optim
from torch.utils.hooks import RemovableHandle

from explorer.execution.optimizers import Updater, label_of, unwrapped
from explorer.execution.scheduled import ScheduledModule
from explorer.execution.used_gradients import UsedGradient, drop_used
from explorer.torch_arguments import a_module
from explorer.torch_private import optimizers_on_meta, when_backward_is_complete
from explorer.units import shown

_ACCUMULATED = (
    "several backward passes come before one optimizer.step() here, and with updates within the backward pass each of "
    "them updates the parameters: gradients are not accumulated. Plan for it: profile(…, accumulate=True), with "
    "update='end'"
)
_FAILED = (
    "a backward pass failed after {0} of {1} parameters had been updated within it, by gradients of its batch: "
    "training goes on from there"
)
_FEW = 2
"""Parameters of a group that show whether it is trained one by one as together."""
_RATE = 0.01
"""Learning rate at which that shows, at least."""


class UpdatesWithin:
    """Hooks that update a module's parameters within its backward passes.

    Attributes:
        optimizer: whose steps they are.
    """

    def __init__(self, module: nn.Module, optimizer: optim.Optimizer) -> None:
        """Register them."""
        self.optimizer = optimizer
        self._module = module
        trained = [x for group in optimizer.param_groups for x in group["params"] if x.requires_grad]
        self._parameters = len(trained)
        self._updated: set[int] = set()
        self._twice = self._updating = self._has_steps = False
        self._open: set[int] = set()  # those of a backward pass that is not complete, or failed
        self._used = {id(x): (x, UsedGradient(x)) for x in trained}
        self._handles: list[RemovableHandle] = [x.register_post_accumulate_grad_hook(self._update) for x in trained]
        self._handles += [x.register_hook(partial(_make_room, x)) for x in trained]
        self._handles.append(optimizer.register_step_pre_hook(self._before_step))
        self._handles.append(optimizer.register_step_post_hook(self._after_step))
        self._count(1)

    def _update(self, parameter: torch.Tensor) -> None:
        """Of one parameter, whose gradient is there.

        Raises:
            RuntimeError: it was updated already since the loop's last ``optimizer.step()``.
        """
        if id(parameter) in self._open:  # each pass has it once: that one failed
            warnings.warn(_FAILED.format(len(self._open), self._parameters), UserWarning, stacklevel=1)
            self._open.clear()
        if id(parameter) in self._updated:
            self._twice = True
            if self._has_steps:
                raise RuntimeError(_ACCUMULATED)
            self._drop_used()  # a loop without steps
        if not self._open:
            when_backward_is_complete(self._end)
        self._open.add(id(parameter))
        self._updating = True
        try:
            step_one(self.optimizer, parameter)
        finally:
            self._updating = False
        if not self._twice:
            parameter.grad = self._used[id(parameter)][1]

    def _end(self) -> None:
        """Of a backward pass in which nothing was raised."""
        self._updated |= self._open
        self._open.clear()

    def _before_step(self, *_: Any) -> None:
        """The loop's own step finds no gradients."""
        if not self._updating:
            self._drop_used()

    def _drop_used(self) -> None:
        for parameter, _ in self._used.values():
            drop_used(parameter)

    def _after_step(self, *_: Any) -> None:
        """After the loop's own step: by then every backward pass has had its updates.

        Raises:
            RuntimeError: there were several.
        """
        if self._updating:
            return
        self._has_steps = True
        self._updated.clear()
        self._open.clear()
        if self._twice:
            self._twice = False
            raise RuntimeError(_ACCUMULATED)

    def remove(self) -> None:
        """From now on, gradients stay as always."""
        if self._handles:
            self._count(-1)
        self._drop_used()
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _count(self, by: int) -> None:
        if isinstance(self._module, ScheduledModule):
            for plan in type(self._module).plans:
                plan.bindings[self._module].updating += by


def update_within(module: nn.Module, optimizer: optim.Optimizer) -> UpdatesWithin:
    """Update each parameter as soon as a backward pass has its gradient, and let the gradient go.

    The training loop stays as it is: ``optimizer.step()`` and ``zero_grad()`` find no gradients, and do nothing;
    groups, learning rates, their schedulers and ``state_dict()`` are the optimizer's own. What needs all gradients at
    once has nothing to work on: clipping by their common norm, accumulation, ``GradScaler``. Until then ``.grad`` is a
    ``UsedGradient`` without memory, which raises where it is computed with. A second backward pass before the loop's
    ``optimizer.step()`` raises; in the first iteration, that step does. Where a backward pass failed
    half way (out of memory, caught by the loop), the next one warns that some parameters were updated, and goes on.

    Args:
        module: from ``apply`` with a schedule that was planned so (``profile(…, update="within")``), or a plain model.
        optimizer: that trains it.

    Returns:
        What can take the hooks away again (``remove()``).

    Raises:
        ValueError: the optimizer works on all parameters together, trains others, or is another than planned for.
    """
    a_module(module)
    if not isinstance(optimizer, optim.Optimizer):
        raise ValueError(f"optimizer is {shown(optimizer)}; give the torch.optim.Optimizer that trains the model")
    optimizer = unwrapped(optimizer)
    mine = {id(x) for x in module.parameters()}
    foreign = [x for group in optimizer.param_groups for x in group["params"] if id(x) not in mine]
    if foreign:
        raise ValueError(
            f"the optimizer trains a tensor {tuple(foreign[0].shape)} that is no parameter of the module: give the "
            "optimizer of this module"
        )
    check_apart(Updater.of(optimizer, module))
    if isinstance(module, ScheduledModule):
        iteration = type(module).plans[0].capture.graph.iteration
        if iteration.accumulate:
            raise ValueError("this schedule accumulates gradients, which an update within would use up")
        if iteration.within and label_of(optimizer) != iteration.optimizer:
            raise ValueError(
                f"this schedule was planned for updates by {iteration.optimizer}, not by {label_of(optimizer)}: "
                "profile(…, optimizer=optimizer, update='within') and solve again"
            )
    return UpdatesWithin(module, optimizer)


def check_apart(updater: Updater) -> None:
    """Train the smallest parameters of each group on copies, together and one after the other.

    Raises:
        ValueError: what comes of it differs: the optimizer looks at all gradients at once, or counts its steps once for
            a group (as Prodigy and schedule-free ones do), so that updates one by one would silently train otherwise.
    """
    (together, all_at_once), (apart, one_by_one) = (_few(updater) for _ in range(2))
    with optimizers_on_meta():
        for factor in (1.0, -0.5, 0.25):
            for x, y in zip(all_at_once, one_by_one, strict=True):
                x.grad, y.grad = (_spread(x) * factor for _ in range(2))
            together.step()
            for y in one_by_one:
                step_one(apart, y)
    groups = ([_numbers(group) for group in made.param_groups] for made in (together, apart))
    alike = all(torch.allclose(x, y) for x, y in zip(all_at_once, one_by_one, strict=True))
    if not alike or len({str(x) for x in groups}) > 1:
        raise ValueError(
            f"{updater.label} works on its parameters together (it counts steps for all of them, or looks at all "
            "gradients at once), so it cannot update one after the other within the backward pass: update='end'"
        )


def _few(updater: Updater) -> tuple[optim.Optimizer, list[torch.Tensor]]:
    """One like it over copies of the parameters, of which a few are more than their shape; and those few."""
    tensors = [torch.empty_like(x, device="meta").requires_grad_() for x in updater.trained]
    position = {id(x): number for number, x in enumerate(tensors)}
    with optimizers_on_meta():
        made = updater.over(tensors)
    few: dict[int, torch.Tensor] = {}
    for group in made.param_groups:
        for x in sorted(group["params"], key=lambda x: x.numel())[:_FEW]:
            number = position[id(x)]
            there = updater.trained[number]
            copy = _spread(torch.empty_like(x, device="cpu" if there.is_meta else there.device)).requires_grad_()
            group["params"] = [copy if y is x else y for y in group["params"]]
            few[number] = copy
    if made.state:  # made with it, as Adagrad until torch 2.11: that of the copies is not there
        with optimizers_on_meta():
            made = updater.over([few.get(number, x) for number, x in enumerate(tensors)])
    for group in made.param_groups:
        _hurry(group)
    return made, list(few.values())


def _hurry(group: dict[str, Any]) -> None:
    """Give a group a rate at which a difference shows: a warm-up begins with 0, or with next to nothing."""
    rate = group.get("lr")
    if isinstance(rate, torch.Tensor):
        group["lr"] = rate.detach().clone().clamp_(min=_RATE)
    elif isinstance(rate, int | float):
        group["lr"] = max(rate, _RATE)


def _spread(like: torch.Tensor) -> torch.Tensor:
    """Numbers around zero, the same every time."""
    return torch.linspace(-1.0, 1.1, like.numel(), device=like.device).to(like.dtype).view(like.shape)


def _numbers(group: dict[str, Any]) -> dict[str, Any]:
    return {name: x for name, x in group.items() if name != "params"}


def _make_room(parameter: torch.Tensor, _: torch.Tensor) -> None:
    """Before a gradient comes: to what is there it would be added."""
    drop_used(parameter)


def step_one(optimizer: optim.Optimizer, parameter: torch.Tensor) -> None:
    """A step of one parameter alone, whose gradient is gone afterwards; its state is the optimizer's own."""
    groups = optimizer.param_groups
    optimizer.param_groups = [
        {**group, "params": [parameter]} for group in groups if any(x is parameter for x in group["params"])
    ]
    try:
        optimizer.step()
    finally:
        optimizer.param_groups = groups
    parameter.grad = None
