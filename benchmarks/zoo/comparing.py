"""Training steps side by side with eager mode: the same bits, or how far from a reference in higher precision."""

from __future__ import annotations

import contextlib
import copy
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

import explorer
from benchmarks.zoo.specimen import Specimen
from explorer.capture.batch import as_arguments

# What implementations that are not exact may be off by: this many times as far from a reference in double precision
# as eager mode is, or this share of the tensor, whichever is more.
TIMES_EAGER = 8.0
SHARE = 1e-4
SHARE_IN_BFLOAT16 = 0.05
# Gradients of the same step are this alike, whatever the precision.
SAME_STEP = 0.2
# A gradient that is zero but for rounding (a bias before BatchNorm) has no share to speak of.
SHARE_OF_ALL = 1e-6


@dataclass(frozen=True)
class Seen:
    """Everything that a step leaves behind, by name."""

    tensors: Mapping[str, torch.Tensor | None]

    def differences(self, other: Seen) -> list[str]:
        """Names of what is not the same bits in both, in order."""
        if self.tensors.keys() != other.tensors.keys():
            return sorted(self.tensors.keys() ^ other.tensors.keys())
        return [name for name, mine in self.tensors.items() if not _same(mine, other.tensors[name])]

    def numbers(self) -> dict[str, torch.Tensor]:
        """Results, gradients and buffers of floating point, in double precision."""
        kinds = ("result", "gradient", "buffer")
        found = {key: x for key, x in self.tensors.items() if x is not None and key.split()[0] in kinds}
        return {key: _double(x) for key, x in found.items() if x.is_floating_point() or x.is_complex()}


def _double(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def _same(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.is_floating_point() or one.is_complex():
        return torch.equal(torch.nan_to_num(one), torch.nan_to_num(other)) and bool(
            (one.isnan() == other.isnan()).all()
        )
    return torch.equal(one, other)


def step(specimen: Specimen, module: nn.Module, batch: Any) -> tuple[torch.Tensor, list[Any]]:
    """Forward and backward as a training loop has them; the loss, and all that came with it."""
    if specimen.loss is None:
        args, kwargs = as_arguments(batch)
        result = module(*args, **kwargs)
        loss = _loss_of(result)
    else:
        inputs, target = batch
        if isinstance(module, explorer.ScheduledModule):
            loss = result = module(inputs, target)
        else:
            args, kwargs = as_arguments(inputs)
            result = module(*args, **kwargs)
            loss = result = specimen.loss(result, target)
    loss.backward()
    leaves = pytree.tree_leaves(dict(result) if isinstance(result, Mapping) else result)
    return loss, leaves


def _loss_of(result: Any) -> torch.Tensor:
    """The loss by its usual places: the result itself, ``.loss``, ``["loss"]``, the first of several, a sum of all."""
    if isinstance(result, torch.Tensor):
        return result
    if getattr(result, "loss", None) is not None:
        return result.loss
    if isinstance(result, Mapping):
        return result["loss"] if "loss" in result else torch.stack(list(result.values())).sum()
    return result[0]


class Trainer:
    """One module with its optimizer, trained step by step."""

    def __init__(
        self,
        specimen: Specimen,
        module: nn.Module,
        *,
        cast: Callable[[torch.Tensor], torch.Tensor] = lambda x: x,
    ) -> None:
        """SGD with momentum; ``cast`` is applied to the tensors of every batch."""
        self.specimen = specimen
        self.cast = cast
        self.module = module
        self.optimizer = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)

    def step(self, number: int, precision: Callable[[], Any]) -> Seen:
        """Train on batch ``number``, which is not the one that was captured unless it is 0."""
        batch = pytree.tree_map_only(torch.Tensor, self.cast, self.specimen.sample(number))
        torch.manual_seed(number)
        with precision():
            loss, leaves = step(self.specimen, self.module, batch)
        seen: dict[str, torch.Tensor | None] = {"result loss": loss.detach().clone()}
        tensors = [x for x in leaves if isinstance(x, torch.Tensor)]
        seen |= {f"result {index}": x.detach().clone() for index, x in enumerate(tensors)}
        named = dict(self.module.named_parameters())
        seen |= {f"gradient {key}": None if x.grad is None else x.grad.clone() for key, x in named.items()}
        seen |= {f"buffer {key}": x.clone() for key, x in self.module.named_buffers()}
        seen["random state"] = torch.get_rng_state()
        self.optimizer.step()
        self.optimizer.zero_grad()
        seen |= {f"parameter {key}": x.detach().clone() for key, x in self.module.named_parameters()}
        return Seen(seen)


def bits(specimen: Specimen, scheduled: nn.Module, plain: nn.Module, *, steps: int) -> str | None:
    """Train both; the first difference, or None if every bit is the same."""
    trainers = (Trainer(specimen, scheduled), Trainer(specimen, plain))
    for number in range(1, steps + 1):
        mine, eager = (x.step(number, specimen.precision) for x in trainers)
        if found := mine.differences(eager):
            return f"step {number}: {len(found)} differ, first {found[0]}"
    return None


@dataclass(frozen=True)
class Distance:
    """How far steps that are not exact are from double precision.

    A difference in the last bits moves a ReLU's input or a maximum across its edge now and then, in eager mode too;
    then the gradients of that step differ by far more. What is off for a reason is off in every step: a gradient counts
    as beyond the tolerance if it is in more than half of the steps; losses, outputs and buffers if they are in any.

    Attributes:
        scheduled: the largest share of a gradient that it is off by, in the median of the steps.
        eager: the same of eager mode.
        beyond: what is off by more than is allowed; None if nothing is.
    """

    scheduled: float
    eager: float
    beyond: str | None


def distance(specimen: Specimen, scheduled: nn.Module, plain: nn.Module, *, steps: int) -> Distance:
    """Train eager mode; the scheduled module and one in double precision repeat each step from where it stands."""
    beyond: dict[str, list[str]] = {}
    shares: list[float] = []
    shares_eager: list[float] = []
    trainer = Trainer(specimen, plain)
    share = SHARE_IN_BFLOAT16 if specimen.autocast else SHARE
    for number in range(1, steps + 1):
        exact = _reference(specimen, plain, number)
        scheduled.load_state_dict(copy.deepcopy(plain.state_dict()))
        mine = Trainer(specimen, scheduled).step(number, specimen.precision).numbers()
        eager = trainer.step(number, specimen.precision).numbers()
        if mine.keys() != eager.keys():
            return Distance(float("inf"), 0.0, f"step {number}: {min(mine.keys() ^ eager.keys())} is missing")
        if exact is None or not _alike(exact, eager):  # other random numbers, or another precision
            exact = eager
        gradients = [x for key, x in exact.items() if key.startswith("gradient")]
        everything = torch.stack([x.abs().square().sum() for x in gradients]).sum().sqrt()
        worst = worst_eager = 0.0
        for key, true in exact.items():
            size = true.norm()
            off, off_eager = (mine[key] - true).norm(), (eager[key] - true).norm()
            floor = SHARE_OF_ALL * everything if key.startswith("gradient") else SHARE_OF_ALL
            if not off <= TIMES_EAGER * off_eager + share * size + floor:
                told = f"step {number}: {key} off by {float(off / size):.1e}, eager by {float(off_eager / size):.1e}"
                beyond.setdefault(key, []).append(told)
            if key.startswith("gradient") and size > SHARE * everything:
                worst, worst_eager = max(worst, float(off / size)), max(worst_eager, float(off_eager / size))
        shares.append(worst)
        shares_eager.append(worst_eager)
    lasting = [told[0] for key, told in beyond.items() if len(told) > steps / 2 or not key.startswith("gradient")]
    return Distance(statistics.median(shares), statistics.median(shares_eager), lasting[0] if lasting else None)


def _alike(exact: Mapping[str, torch.Tensor], eager: Mapping[str, torch.Tensor]) -> bool:
    """Is it the same step? Noise that is drawn in double precision is other noise."""
    gradients = [key for key in exact if key.startswith("gradient")]
    true, found = (torch.cat([x[key].flatten().abs() for key in gradients]) for x in (exact, eager))
    return bool((true - found).norm() <= SAME_STEP * true.norm())


def _reference(specimen: Specimen, plain: nn.Module, number: int) -> dict[str, torch.Tensor] | None:
    """The step in double precision without autocast; None where the model insists on another precision."""
    twin = _in_double(copy.deepcopy(plain))
    trainer = Trainer(specimen, twin, cast=_floats_doubled)
    try:
        return trainer.step(number, _by_default_double).numbers()
    except (RuntimeError, TypeError, ValueError):
        return None


@contextlib.contextmanager
def _by_default_double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def _floats_doubled(tensor: torch.Tensor) -> torch.Tensor:
    return _double(tensor) if tensor.is_floating_point() or tensor.is_complex() else tensor


def _in_double(module: nn.Module) -> nn.Module:
    for tensor in (*module.parameters(), *module.buffers()):
        with contextlib.suppress(RuntimeError):
            tensor.data = _floats_doubled(tensor.data)
    return module
