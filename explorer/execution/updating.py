"""Updates within the backward pass: each parameter as soon as its gradient is complete, which is gone then."""

from __future__ import annotations

from functools import partial

import torch
from torch import nn, optim
from torch.utils.hooks import RemovableHandle

from explorer.execution.optimizers import label_of
from explorer.execution.scheduled import ScheduledModule
from explorer.torch_arguments import a_module
from explorer.units import shown


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
        update = partial(step_one, optimizer)
        self._handles: list[RemovableHandle] = [x.register_post_accumulate_grad_hook(update) for x in trained]
        self._count(1)

    def remove(self) -> None:
        """From now on, gradients stay as always."""
        if self._handles:
            self._count(-1)
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
    once has nothing to work on: clipping by their common norm, accumulation, ``GradScaler``.

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
    if isinstance(optimizer, optim.LBFGS):
        raise ValueError("LBFGS works on all parameters together, so it cannot update one after the other")
    mine = {id(x) for x in module.parameters()}
    foreign = [x for group in optimizer.param_groups for x in group["params"] if id(x) not in mine]
    if foreign:
        raise ValueError(
            f"the optimizer trains a tensor {tuple(foreign[0].shape)} that is no parameter of the module: give the "
            "optimizer of this module"
        )
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
