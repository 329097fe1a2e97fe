"""The part of an exported file that checkpoints the blocks of a model; its text is in the file, after ``KEPT``."""

from collections import Counter
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

KEPT: dict[str, dict[str, tuple[int, ...]]] = {}
CALLS: dict[str, dict[str, int]] = {}
EVALUATING: dict[str, tuple[str, ...]] = {}


def scheduled(model: nn.Module) -> nn.Module:
    """The model with its blocks checkpointed as ``KEPT`` says; the same object, with its own parameters."""
    missing = [path for path in KEPT if path not in dict(model.named_modules())]
    if missing:
        raise ValueError(f"{type(model).__name__} has no module {missing[0]!r}: this file is for another model")
    for path in KEPT:
        block = model.get_submodule(path)
        if "forward" in vars(block):
            raise ValueError(f"{path} is checkpointed already, or its forward pass is somebody else's")
        block.forward = partial(checkpointed, block, path)
    return model


def checkpointed(block: nn.Module, path: str, *args: Any, **kwargs: Any) -> Any:
    """A block's forward pass: what is kept of it stays, the rest runs again in the backward pass."""
    forward = partial(type(block).forward, block)
    if not (block.training and torch.is_grad_enabled()):
        return forward(*args, **kwargs)
    evaluating = [name for name, module in block.named_modules() if not module.training]
    other = sorted({*evaluating} ^ {*EVALUATING.get(path, ())})
    if other:
        raise ValueError(
            f"{', '.join(f'{path}.{name}'.rstrip('.') for name in other)}: training now and evaluating where this file "
            "was made, or the other way round, and what a block updates depends on it: export again in these modes"
        )
    seen, again = Counter[str](), Counter[str]()

    def policy(context: Any, operator: Any, *_: Any, **__: Any) -> CheckpointPolicy:
        calls = again if context.is_recompute else seen  # until torch 2.12 it is asked when a block runs again, too
        position = calls[str(operator)]
        calls[str(operator)] += 1
        kept = position in KEPT[path].get(str(operator), ())
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

    # Of work in place that is kept, the version counts once more after the result was put aside: that is no mistake.
    in_place = any(operator.split(".")[1].endswith("_") or operator.endswith("out") for operator in KEPT[path])
    contexts = partial(create_selective_checkpoint_contexts, policy, allow_cache_entry_mutation=in_place)
    result = checkpoint(forward, *args, use_reentrant=False, context_fn=contexts, **kwargs)
    for operator, calls in CALLS[path].items():
        if seen[operator] != calls:
            raise RuntimeError(
                f"{path} calls {operator} {seen[operator]} times here and {calls} times where this file was made: "
                "another model, dtype, device or version of PyTorch; make it again"
            )
    return result
