"""Who else works on a module's parameters: looked for once, before its first step writes any gradient.

An optimizer, a ``GradScaler`` or a ``DistributedDataParallel`` around it is no business of a scheduled module's, until
its plan counts on what it does.
"""

from __future__ import annotations

import gc
import warnings

import torch
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel

from explorer.execution.guards import ModelChangedError
from explorer.execution.optimizers import label_of
from explorer.iteration import Buckets, Iteration
from explorer.units import format_bytes


def check_company(module: nn.Module, iteration: Iteration) -> None:
    """Compare what trains the module with what was planned for.

    Raises:
        ModelChangedError: it is something else; says what to do.
    """
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    if iteration.optimizer is None and not distributed:
        return
    # By type: some objects import modules, or warn, when they are asked for their class.
    for found in gc.get_objects():
        kind = type(found)
        if issubclass(kind, DistributedDataParallel) and getattr(found, "module", None) is module:
            _check_buckets(found, iteration)
        elif issubclass(kind, torch.amp.GradScaler) and iteration.within and found.is_enabled():
            raise ModelChangedError(
                "an update within the backward pass would use gradients as a GradScaler scaled them: plan for one at "
                "the end, profile(…, update='end'), or train in bfloat16 without a scaler"
            )
    if iteration.optimizer is not None and _is_trained_otherwise(module, iteration.optimizer):
        gc.collect()  # an optimizer of an earlier training may still be there
        if _is_trained_otherwise(module, iteration.optimizer):
            others = ", ".join(sorted({label_of(x) for x in _optimizers_of(module)}))
            raise ModelChangedError(
                f"{others} trains this model, and its schedule was made for {iteration.optimizer}, which takes other "
                "memory: profile(…, optimizer=optimizer) with this one, and solve again"
            )


def _optimizers_of(module: nn.Module) -> list[optim.Optimizer]:
    mine = {id(x) for x in module.parameters()}
    known = [x for x in gc.get_objects() if issubclass(type(x), optim.Optimizer)]
    return [x for x in known if any(id(y) in mine for group in x.param_groups for y in group["params"])]


def _is_trained_otherwise(module: nn.Module, planned: str) -> bool:
    """Are there optimizers, and none as planned?"""
    labels = {label_of(x) for x in _optimizers_of(module)}
    return bool(labels) and planned not in labels


def _check_buckets(around: DistributedDataParallel, iteration: Iteration) -> None:
    """Gradients in buckets that were planned for otherwise take other memory; updates within would come too early."""
    if iteration.within:
        raise ModelChangedError(
            "an update within the backward pass would come before DistributedDataParallel has averaged the gradients: "
            "plan for an update at the end, profile(…, update='end', distributed='ddp')"
        )
    found = Buckets.VIEWS if around.gradient_as_bucket_view else Buckets.OWN
    if iteration.buckets is not found:
        size = sum(x.nbytes for x in around.module.parameters() if x.requires_grad)
        warnings.warn(
            f"DistributedDataParallel has gradients in buckets here, of {format_bytes(size)}, which this schedule was "
            "not made for: a step may peak by so much above what was predicted. "
            f"profile(…, distributed={found.value!r}) and solve again",
            stacklevel=8,
        )
