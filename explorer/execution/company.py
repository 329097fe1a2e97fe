"""Who else works on a module's parameters: looked for once, before its first step writes any gradient.

An optimizer, a ``GradScaler`` or ``DistributedDataParallel`` around it are no business of a scheduled module's, until
its plan counts on what they do.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable

import torch
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel

from explorer.execution.guards import ModelChangedError
from explorer.execution.optimizers import label_of
from explorer.iteration import Iteration


def check_company(module: nn.Module, iteration: Iteration) -> None:
    """Compare what trains the module with what was planned for.

    Raises:
        ModelChangedError: it is something else; says what to do.
    """
    if iteration.optimizer is None:
        return
    objects = gc.get_objects()
    mine = {id(x) for x in module.parameters()}
    for optimizer in (x for x in objects if issubclass(type(x), optim.Optimizer)):
        trains = any(id(x) in mine for group in optimizer.param_groups for x in group["params"])
        if trains and label_of(optimizer) != iteration.optimizer:
            raise ModelChangedError(
                f"{label_of(optimizer)} trains this model, and its schedule was made for {iteration.optimizer}, which "
                "takes other memory: profile(…, optimizer=optimizer) with this one, and solve again"
            )
    if iteration.within:
        _check_within(module, objects)


def _check_within(module: nn.Module, objects: Iterable[object]) -> None:
    for x in objects:
        if (
            issubclass(type(x), DistributedDataParallel)
            and isinstance(x, DistributedDataParallel)
            and x.module is module
        ):
            raise ModelChangedError(
                "an update within the backward pass would come before DistributedDataParallel has averaged the "
                "gradients: plan for an update at the end, profile(…, update='end')"
            )
        if issubclass(type(x), torch.amp.GradScaler) and isinstance(x, torch.amp.GradScaler) and x.is_enabled():
            raise ModelChangedError(
                "an update within the backward pass would use gradients as a GradScaler scaled them: plan for one at "
                "the end, profile(…, update='end'), or train in bfloat16 without a scaler"
            )
