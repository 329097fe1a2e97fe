"""Deep models: one block again and again is captured a few times, and the graph of all of them follows.

A capture takes PyTorch about a second for a block of a transformer, and a language model has up to a hundred. Whether
its blocks are equal is seen from a forward pass of fake tensors, which takes a tenth of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch import nn

from explorer.autocast import Autocast
from explorer.capture import Batch, Capture, Loss, capture
from explorer.capture.attention import AMPERE, Architecture
from explorer.capture.kernels_of_cpu import check_operators
from explorer.capture.recording import PLACES, Record, record
from explorer.capture.stand_in import as_on_cuda, capture_for_cuda, stand_in_for
from explorer.graph import TrainingGraph
from explorer.induction import Family, Line, NotRepeating, Sections
from explorer.repeating import deeper

_LEAST_PERIODS = 3
_GRAPHS = 3
"""From so many graphs, each with a period more, every function of a block can be told."""
_LONGEST_PERIOD = 6


@dataclass(frozen=True, slots=True)
class Repetition:
    """A list of modules in which the same ones come again.

    Attributes:
        path: of the list.
        count: of modules in it.
        period: how many different ones follow each other.
    """

    path: str
    count: int
    period: int

    def depths(self) -> list[int]:
        """How many modules the models may have that are captured instead: all together fewer than there are."""
        found: list[int] = []
        depth = self.count % self.period + _LEAST_PERIODS * self.period
        while sum(found) + depth < self.count:
            found.append(depth)
            depth += self.period
        return found if len(found) >= _GRAPHS else []


def capture_in_depth(
    model: nn.Module,
    batch: Batch,
    *,
    loss: Loss | None = None,
    dtype: torch.dtype | None = None,
    autocast: Autocast | torch.dtype | str | None = None,
    architecture: Architecture = AMPERE,
    fuse: bool = False,
) -> tuple[Capture, TrainingGraph]:
    """As ``capture_for_cuda``; of a model that repeats blocks, only a few of them are captured.

    Args:
        model: as for ``capture_for_cuda``.
        batch: likewise.
        loss: likewise.
        dtype: likewise.
        autocast: likewise.
        architecture: likewise.
        fuse: likewise.

    Returns:
        A capture that has every different call of the step, and the graph of the whole step: the capture's own, or one
        with more of the same.

    Raises:
        ValueError: as ``capture`` does.
    """
    plain = not isinstance(loss, nn.Module) or not any(loss.parameters())
    if plain and _longest(model) is not None:
        try:
            found = _by_induction(
                model, batch, loss=loss, dtype=dtype, autocast=autocast, architecture=architecture, fuse=fuse
            )
        except Exception:  # noqa: BLE001 - whatever a model minds about fewer blocks: the whole of it will tell
            found = None
        if found is not None:
            check_operators(x.target for x in found[1].operators)
            return found
    captured = capture_for_cuda(
        model, batch, loss=loss, dtype=dtype, autocast=autocast, architecture=architecture, fuse=fuse
    )
    return captured, captured.graph


def _by_induction(
    model: nn.Module,
    batch: Batch,
    *,
    loss: Loss | None,
    dtype: torch.dtype | None,
    autocast: Autocast | torch.dtype | str | None,
    architecture: Architecture,
    fuse: bool,
) -> tuple[Capture, TrainingGraph] | None:
    standing, batch = stand_in_for(model, batch, dtype=dtype)
    found = _longest(standing)
    assert found is not None, "as of the model"
    path, modules = found
    with as_on_cuda(autocast, architecture) as casts:
        shortened = _Shortened(standing, batch, loss=loss, autocast=casts, fuse=fuse, modules=modules)
        whole = shortened.record(len(modules))
        repetition = repetition_of(path, modules, whole)
        if repetition is None:
            return None
        depths = repetition.depths()
        # A first and a last block may be others than those between: then it takes one more of these.
        for few in zip(*(depths[i:] for i in range(_GRAPHS)), strict=False):
            more = (repetition.count - few[-1]) // repetition.period
            with suppress(NotRepeating):
                if _follows(whole.sections, [shortened.record(x).sections for x in few], more=more):
                    captures = [shortened.capture(x) for x in few]
                    return captures[-1], deeper([x.graph for x in captures], more=more)
    return None


class _Shortened:
    """A model with the first few of its repeated modules: what it calls, and its captures, each made once."""

    def __init__(
        self,
        model: nn.Module,
        batch: Batch,
        *,
        loss: Loss | None,
        autocast: Autocast,
        fuse: bool,
        modules: nn.ModuleList | nn.Sequential,
    ) -> None:
        """Of a model of fake tensors, which is changed."""
        self._modules: Any = modules
        self._all = list(modules)
        self._step: dict[str, Any] = {"model": model, "batch": batch, "loss": loss, "autocast": autocast}
        self.record = cache(self._record)
        self.capture = cache(partial(self._capture, fuse=fuse))

    def _record(self, depth: int) -> Record:
        self._take(depth)
        return record(**self._step, modules=self._modules)

    def _capture(self, depth: int, *, fuse: bool) -> Capture:
        self._take(depth)
        return capture(**self._step, fuse=fuse)

    def _take(self, depth: int) -> None:
        del self._modules[:]
        self._modules.extend(self._all[:depth])


def _follows(whole: Sections, few: Sequence[Sections], *, more: int) -> bool:
    """Is the record of the whole model the one that follows from those of few blocks?"""
    family = Family(few, places=PLACES)
    return all(family.lines(i) == x for i, x in enumerate(few)) and family.lines(len(few) - 1 + more) == whole


def _longest(model: nn.Module) -> tuple[str, nn.ModuleList | nn.Sequential] | None:
    """The longest list of modules of a kind, if it is so long that it can pay."""
    least = sum(range(_LEAST_PERIODS, _LEAST_PERIODS + _GRAPHS))
    lists = [(path, x) for path, x in model.named_modules() if isinstance(x, nn.ModuleList | nn.Sequential)]
    path, modules = max(lists, key=lambda x: len(x[1]), default=("", None))
    return None if modules is None or len(modules) <= least else (path, modules)


def repetition_of(path: str, modules: nn.ModuleList | nn.Sequential, found: Record) -> Repetition | None:
    """How a list of modules repeats itself, judged by what they call; the first is as it may be.

    Args:
        path: of the list.
        modules: of fake tensors.
        found: of a step of their model.

    Returns:
        The shortest period, or None: each of the modules, or nearly, is another.
    """
    own = [x for module in modules for x in module.parameters()]
    if len({id(x) for x in own}) < len(own) or not all(found.within):
        return None  # parameters in common get one gradient from several blocks; modules may not be called as such
    within = [(_parameters_of(x), _kinds(y)) for x, y in zip(modules, found.within, strict=True)]
    after = [_kinds(x) for x in found.after]
    last = len(modules) - 1
    for period in range(1, _LONGEST_PERIOD + 1):
        # The first module may be another: a capture of few has it as well. After the last comes the model's end.
        if all(within[i] == within[i + period] for i in range(1, last - period + 1)) and all(
            after[i] == after[i + period] for i in range(1, last - period)
        ):
            return Repetition(path, len(modules), period)
    return None


def _kinds(calls: list[Line]) -> list[Any]:
    return [x.fixed for x in calls]


def _parameters_of(module: nn.Module) -> tuple[Any, ...]:
    """What its parameters and buffers are, used or not, and the classes of its modules."""
    named = [*module.named_parameters(), *module.named_buffers()]
    tensors = tuple((name, x.shape, x.stride(), x.dtype, x.requires_grad) for name, x in named)
    return (*tensors, *(type(x) for x in module.modules()))
