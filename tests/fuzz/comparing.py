"""Steps of training in eager mode and by a schedule, and where they differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

import explorer
from explorer.capture.batch import as_arguments
from tests.fuzz.program import Loaded

STEPS = 3


@dataclass(frozen=True)
class Seen:
    """Something that a user could see of a step, with its name: a tensor's value, a layout, a random state."""

    name: str
    value: Any


def train(module: nn.Module, loaded: Loaded, *, steps: int = STEPS) -> list[Seen]:
    """All that a user sees of some steps of training.

    Args:
        module: the program's own, or what ``apply`` made of it.
        loaded: its batches, its loss, and what is trained on.
        steps: each with another batch.
    """
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)
    seen: list[Seen] = []
    for number in range(steps):
        batch = loaded.batch(number)
        leaves = [x for x in pytree.tree_leaves(batch) if isinstance(x, torch.Tensor)]
        torch.manual_seed(number)
        result = call(module, batch, loaded)
        step = f"step {number}: "
        seen.append(Seen(step + "random state after forward", torch.get_rng_state()))
        seen += _results(step, module, leaves, result)
        _backward(loaded.trained, result)
        seen.append(Seen(step + "random state after backward", torch.get_rng_state()))
        seen += [Seen(step + f"batch {i}", x.detach().clone()) for i, x in enumerate(leaves)]
        seen += [Seen(step + f"gradient of batch {i}", _copied(x.grad)) for i, x in enumerate(leaves) if x.is_leaf]
        seen += [Seen(step + f"gradient of {name}", _copied(x.grad)) for name, x in module.named_parameters()]
        seen += [Seen(step + f"buffer {name}", x.detach().clone()) for name, x in module.named_buffers()]
        optimizer.step()
        if number % 2 == 0:
            optimizer.zero_grad()  # the next step's gradients add to this one's otherwise
    return seen


def call(module: nn.Module, batch: Any, loaded: Loaded) -> Any:
    """One call, as a training loop makes it."""
    if loaded.loss is None:
        args, kwargs = as_arguments(batch)
        return module(*args, **kwargs)
    if isinstance(module, explorer.ScheduledModule) or hasattr(module, "schedule_explorer_step"):
        return module(*batch)
    args, kwargs = as_arguments(batch[0])
    return loaded.loss(module(*args, **kwargs), batch[1])


def _results(step: str, module: nn.Module, leaves: list[torch.Tensor], result: Any) -> list[Seen]:
    """Values and layouts of what a step returned, and which of its tensors share memory or are one."""
    tensors = [x for x in pytree.tree_leaves(result) if isinstance(x, torch.Tensor)]
    others = [x for x in pytree.tree_leaves(result) if not isinstance(x, torch.Tensor)]
    structure = pytree.tree_structure(result)
    seen = [Seen(step + "structure", str(structure)), Seen(step + "what is no tensor", repr(others))]
    known = [*leaves, *module.parameters(), *tensors]  # a buffer that is assigned is a copy in a scheduled module
    for number, x in enumerate(tensors):
        name = step + f"result {number}"
        seen.append(Seen(name, x.detach().clone()))
        seen.append(Seen(f"{name}: dtype", x.dtype))
        seen.append(Seen(f"{name}: needs a gradient", x.requires_grad))
        seen.append(Seen(f"{name}: strides", _strides(x)))
        first = next(i for i, y in enumerate(known) if _memory(x) == _memory(y))
        seen.append(Seen(f"{name}: memory of", first - len(known) + len(tensors)))
    return seen


def _strides(x: torch.Tensor) -> tuple[int, ...]:
    """Those that matter."""
    return tuple(stride for stride, size in zip(x.stride(), x.shape, strict=True) if size > 1)


def _memory(x: torch.Tensor) -> int:
    return x.untyped_storage().data_ptr()


def _backward(trained: str, result: Any) -> None:
    """Gradients of some of the results, weighted so that no two elements count alike.

    Where there are scalars among them, only those are trained on, as documented, but for ``"everything"``.
    """
    ends = [x for x in pytree.tree_leaves(result) if isinstance(x, torch.Tensor) and x.requires_grad]
    if trained != "everything":
        ends = [x for x in ends if x.ndim == 0] or ends
    chosen = {"first": ends[:1], "last": ends[-1:]}.get(trained, ends)
    if chosen:
        torch.stack([(x * _weights(x)).sum() for x in chosen]).sum().backward()


def _weights(x: torch.Tensor) -> torch.Tensor:
    """In the layout of ``x``, which the gradient then has too."""
    return torch.empty_like(x, dtype=torch.float64).copy_(torch.linspace(0.5, 1.0, x.numel()).view(x.shape))


def _copied(gradient: torch.Tensor | None) -> torch.Tensor | None:
    return None if gradient is None else gradient.detach().clone()


def difference(found: Sequence[Seen], expected: Sequence[Seen], same: Callable[[Any, Any], bool]) -> str | None:
    """The first that is not the same, in words; None if all are."""
    if [x.name for x in found] != [x.name for x in expected]:
        names = {x.name for x in found} ^ {x.name for x in expected}
        return f"seen only once: {sorted(names)}"
    for here, there in zip(found, expected, strict=True):
        if not _same(here.value, there.value, same):
            return (
                f"{here.name}: {_told(here.value)} where eager has {_told(there.value)}{_far(here.value, there.value)}"
            )
    return None


def _same(a: Any, b: Any, same: Callable[[Any, Any], bool]) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.shape == b.shape and a.dtype == b.dtype and same(a, b)
    return not isinstance(a, torch.Tensor) and not isinstance(b, torch.Tensor) and a == b


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal in every bit, where a NaN is a NaN."""
    if torch.equal(a, b):
        return True
    return a.dtype.is_floating_point and bool(((a == b) | (a.isnan() & b.isnan())).all())


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal but for what rounding in another order makes of it; for double precision."""
    if not a.dtype.is_floating_point:
        return torch.equal(a, b)
    scale = b[b.isfinite()].abs().max().item() if b.isfinite().any() else 0.0
    return torch.allclose(a, b, rtol=1e-7, atol=1e-8 * max(scale, 1.0), equal_nan=True)


def _told(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor {list(value.shape)}"
    return repr(value)


def _far(a: Any, b: Any) -> str:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and a.shape == b.shape and a.numel():
        gap = (a.double() - b.double()).abs().max().item() if not a.is_complex() else 0.0
        return f", off by {gap:.3g} of {b.double().abs().max().item():.3g}"
    return ""
