"""Deep models: one block again and again is captured a few times, and the graph of all of them follows.

A capture takes PyTorch about a second for a block of a transformer, and a language model has up to a hundred. Whether
its blocks are equal is seen from a forward pass of fake tensors, which takes a tenth of that.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._guards import detect_fake_mode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from explorer.autocast import Autocast
from explorer.capture import Batch, Capture, Loss, capture
from explorer.capture.batch import TrainingStep, call_arguments
from explorer.capture.stand_in import as_on_cuda, capture_for_cuda, stand_in_for
from explorer.exclusion import TRACING
from explorer.graph import TrainingGraph
from explorer.repeating import NotRepeating, deeper
from explorer.torch_private import as_if_compiling, without_checkpoints

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
    cudnn_attention: bool = False,
    fuse: bool = False,
) -> tuple[Capture, TrainingGraph]:
    """As ``capture_for_cuda``; of a model that repeats blocks, only a few of them are captured.

    Args:
        model: as for ``capture_for_cuda``.
        batch: likewise.
        loss: likewise.
        dtype: likewise.
        autocast: likewise.
        cudnn_attention: likewise.
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
                model, batch, loss=loss, dtype=dtype, autocast=autocast, cudnn_attention=cudnn_attention, fuse=fuse
            )
        except Exception:  # noqa: BLE001 - whatever a model minds about fewer blocks: the whole of it will tell
            found = None
        if found is not None:
            return found
    captured = capture_for_cuda(
        model, batch, loss=loss, dtype=dtype, autocast=autocast, cudnn_attention=cudnn_attention, fuse=fuse
    )
    return captured, captured.graph


def _by_induction(
    model: nn.Module,
    batch: Batch,
    *,
    loss: Loss | None,
    dtype: torch.dtype | None,
    autocast: Autocast | torch.dtype | str | None,
    cudnn_attention: bool,
    fuse: bool,
) -> tuple[Capture, TrainingGraph] | None:
    standing, batch = stand_in_for(model, batch, dtype=dtype)
    with as_on_cuda(autocast, cudnn_attention=cudnn_attention) as casts:
        repetition = repetition_of(standing, batch, loss=loss)
        if repetition is None:
            return None
        modules: Any = standing.get_submodule(repetition.path)
        of_all = list(modules)
        del modules[:]
        captures: list[Capture] = []
        for depth in repetition.depths():
            modules.extend(of_all[len(modules) : depth])
            captures.append(capture(standing, batch, loss=loss, autocast=casts, fuse=fuse))
            graphs = [x.graph for x in captures[-_GRAPHS:]]
            if len(graphs) == _GRAPHS:
                # A first and a last block may be others than those between: then it takes one more of these.
                with suppress(NotRepeating):
                    return captures[-1], deeper(graphs, more=(repetition.count - depth) // repetition.period)
    return None


def _longest(model: nn.Module) -> tuple[str, nn.ModuleList | nn.Sequential] | None:
    """The longest list of modules of a kind, if it is so long that it can pay."""
    least = sum(range(_LEAST_PERIODS, _LEAST_PERIODS + _GRAPHS))
    lists = [(path, x) for path, x in model.named_modules() if isinstance(x, nn.ModuleList | nn.Sequential)]
    path, modules = max(lists, key=lambda x: len(x[1]), default=("", None))
    return None if modules is None or len(modules) <= least else (path, modules)


def repetition_of(model: nn.Module, batch: Batch, *, loss: Loss | None) -> Repetition | None:
    """How the model's longest list of modules repeats itself, judged by what they call; the first is as it may be.

    Args:
        model: of fake tensors.
        batch: likewise.
        loss: as for ``capture``.

    Returns:
        The shortest period, or None: each of the modules, or nearly, is another.
    """
    found = _longest(model)
    if found is None:
        return None
    path, modules = found
    own = [x for module in modules for x in module.parameters()]
    calls = _calls_of(model, modules, batch, loss=loss)
    if len({id(x) for x in own}) < len(own) or not calls or not all(calls):
        return None  # parameters in common get one gradient from several blocks; modules may not be called as such
    told = [(_parameters_of(x), *y) for x, y in zip(modules, calls, strict=True)]
    # The first module may be another: a capture of few has it as well.
    for period in range(1, _LONGEST_PERIOD + 1):
        if all(told[i] == told[i + period] for i in range(1, len(told) - period)):
            return Repetition(path, len(modules), period)
    return None


def _parameters_of(module: nn.Module) -> tuple[Any, ...]:
    """What its parameters and buffers are, used or not, and the classes of its modules."""
    named = [*module.named_parameters(), *module.named_buffers()]
    tensors = tuple((name, *_told(x)) for name, x in named)
    return (*tensors, *(type(x) for x in module.modules()))


def _calls_of(
    model: nn.Module, modules: nn.ModuleList | nn.Sequential, batch: Batch, *, loss: Loss | None
) -> list[tuple[Any, ...]]:
    """The calls of ATen within each of ``modules``, with what they are given."""
    args, kwargs = call_arguments(batch, loss=loss)
    step = TrainingStep(model, loss)
    # Libraries leave out questions about values while they are compiled, as ``trace`` has it.
    mode = detect_fake_mode([*model.parameters()])
    assert mode is not None, "the model is of fake tensors"
    for as_compiled in (nullcontext, as_if_compiling):
        calls = _Calls()
        try:
            with ExitStack() as stack:
                for context in (TRACING, mode, without_checkpoints(), as_compiled(), torch.enable_grad()):
                    stack.enter_context(context)
                stack.enter_context(calls.by_module(modules))
                with calls:
                    step(*args, **kwargs)
        except RuntimeError:
            continue
        return [tuple(x) for x in calls.made]
    return []


class _Calls(TorchDispatchMode):
    """Writes down which operators run while one of some modules does."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[list[Any]] = []
        self._within: list[Any] | None = None

    @contextmanager
    def by_module(self, modules: nn.ModuleList | nn.Sequential) -> Iterator[None]:
        self.made = [[] for _ in modules]
        handles = []
        for module, made in zip(modules, self.made, strict=True):
            handles.append(module.register_forward_pre_hook(lambda *_, made=made: self._enter(made), prepend=True))
            handles.append(module.register_forward_hook(lambda *_: self._enter(None), always_call=True))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _enter(self, made: list[Any] | None) -> None:
        self._within = made

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._within is not None:
            leaves, structure = pytree.tree_flatten((args, kwargs))
            self._within.append((func, tuple(_told(x) for x in leaves), str(structure)))
        return func(*args, **kwargs)


def _told(value: Any) -> Any:
    """A tensor's layout, or a plain value."""
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.stride(), value.dtype, value.requires_grad
    return repr(value)
