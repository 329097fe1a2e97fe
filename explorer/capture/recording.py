"""What a training step calls, written down from a run on fake tensors: a tenth of what a capture takes.

Two steps with equal records are captured alike: a record has every call of both passes with its arguments, whichever
module or plain function makes it, where each tensor comes from, what is returned, and what is assigned to buffers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.fx import traceback as fx_traceback
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from explorer.autocast import Autocast
from explorer.capture.ambient import autocast_region
from explorer.capture.batch import Batch, Loss, TrainingStep, call_arguments, check_kind
from explorer.capture.interface import Interface
from explorer.capture.refusing import check_modules, own_hooks_aside
from explorer.capture.tracing import as_traced
from explorer.induction import Line, Sections, without_numbers
from explorer.torch_private import as_if_compiling

_DEVICE = torch.ops.prim.device.default  # a question, which computes nothing
PLACES = 3
"""So many first sections of a record are what its lines refer to."""


@dataclass(frozen=True, slots=True)
class Record:
    """A step's calls.

    Attributes:
        sections: tensors that are given, calls of the forward pass, calls of the backward pass; what is returned;
            gradients; what is assigned.
        within: of each of some modules, the calls of the forward pass that it makes.
        after: of each, those between it and the next one that is called.
    """

    sections: Sections
    within: list[list[Line]]
    after: list[list[Line]]


def record(
    model: nn.Module,
    batch: Batch,
    *,
    loss: Loss | None,
    autocast: Autocast,
    modules: nn.ModuleList | nn.Sequential,
) -> Record:
    """The calls of a training step.

    Args:
        model: of fake tensors.
        batch: likewise.
        loss: as for ``capture``.
        autocast: likewise.
        modules: of the model, whose calls are told apart.

    Raises:
        Exception: whatever a capture of the model would refuse, and more.
    """
    check_kind(model)
    check_modules(model, with_loss=loss is not None)
    args, kwargs = call_arguments(batch, loss=loss)
    leaves, structure = pytree.tree_flatten((args, kwargs))
    step = TrainingStep(model, loss)
    with autocast_region(("cpu", autocast)), torch.enable_grad(), own_hooks_aside(model):
        try:
            return _run(step, leaves, structure, modules, compiling=False)
        except (RuntimeError, NotImplementedError):
            # Libraries leave out questions about values while they are compiled, as ``trace`` has it.
            return _run(step, leaves, structure, modules, compiling=True)


def _run(
    step: TrainingStep,
    leaves: list[Any],
    structure: pytree.TreeSpec,
    modules: nn.ModuleList | nn.Sequential,
    *,
    compiling: bool,
) -> Record:
    with ExitStack() as stack:
        interface, distinct = stack.enter_context(as_traced(step, leaves))
        stack.enter_context(as_if_compiling() if compiling else nullcontext())
        calls = _Calls(distinct, step)
        stack.enter_context(calls.told_apart(modules))
        stack.enter_context(calls)
        args, kwargs = pytree.tree_unflatten(distinct, structure)
        results = interface(*args, **kwargs)
        forward, calls.made = calls.made, []
        gradients = _gradients(interface, results, [*distinct, *step.parameters()])
        backward = calls.made
        told = zip(results, interface.given, interface.refused, strict=False)
        returned = [calls.line((given, refused), x) for x, given, refused in told]
        reached = [calls.line("gradient", x) for x in gradients]
        return Record(
            [calls.given, forward, backward, returned, reached, list(_stored(interface, calls, results))],
            within=[calls.by_module[i, True] for i in range(len(modules))],
            after=[calls.by_module[i, False] for i in range(len(modules))],
        )


def _gradients(interface: Interface, results: Sequence[torch.Tensor], leaves: list[Any]) -> Any:
    wanted = [x for x in leaves if isinstance(x, torch.Tensor) and x.requires_grad]
    roots = [x for x, carries in zip(results, interface.differentiable, strict=False) if carries]
    tangents = [torch.empty_like(x, requires_grad=False) for x in roots]
    return torch.autograd.grad(roots, wanted, tangents, allow_unused=True)


def _stored(interface: Interface, calls: _Calls, results: Sequence[torch.Tensor]) -> Iterator[Line]:
    """What the step assigns: those tensors come last among its results."""
    for x, value in zip(interface.stored, results[len(interface.differentiable) :], strict=True):
        place, numbers = without_numbers(f"{x.place} {x.buffer}")
        line = calls.line((place, x.is_plain, x.fits), value)
        yield Line(line.fixed, line.refers, numbers)


class _Calls(TorchDispatchMode):
    """Writes down the operators that run.

    Attributes:
        given: the batch's tensors and the model's, in the order of its modules.
        made: the calls, in order.
        by_module: those of the module with this number, within it or after it.
    """

    def __init__(self, leaves: list[Any], step: nn.Module) -> None:
        super().__init__()
        self.given: list[Line] = []
        self.made: list[Line] = []
        self.by_module: dict[tuple[int, bool], list[Line]] = defaultdict(list)
        self._now = (-1, False)
        self._known: dict[int, tuple[int, int]] = {}
        self._alive: list[torch.Tensor] = []  # else another tensor may get an id that is known
        self._count = 0
        for leaf in leaves:
            self._give("batch", leaf)
        for path, module in step.named_modules():
            own = (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))
            for name, tensor in own:
                self._give(f"{path}.{name}", tensor)

    def _give(self, name: str, value: Any) -> None:
        fixed, numbers = without_numbers(name)
        self.given.append(Line((fixed, _told(value, [])), numbers=numbers))
        self._remember(value)

    def _remember(self, value: Any) -> None:
        """The next line makes these tensors, as far as they are new."""
        for index, x in enumerate(_tensors(value)):
            self._known.setdefault(id(x), (self._count, index))
            self._alive.append(x)
        self._count += 1

    @contextmanager
    def told_apart(self, modules: nn.ModuleList | nn.Sequential) -> Iterator[None]:
        """While open, calls are noted by module as well."""
        handles = []
        for number, module in enumerate(modules):
            handles.append(module.register_forward_pre_hook(lambda *_, x=number: self._enter((x, True)), prepend=True))
            handles.append(module.register_forward_hook(lambda *_, x=number: self._enter((x, False)), always_call=True))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _enter(self, now: tuple[int, bool]) -> None:
        self._now = now

    def line(self, kind: Any, value: Any) -> Line:
        """What is told of a value, which refers to the calls that made its tensors."""
        tensors: list[torch.Tensor] = []
        told = _told(value, tensors)
        sources = [self._known.get(id(x)) for x in tensors]
        # What nobody made is a constant of the model's code.
        outputs = tuple(None if x is None else x[1] for x in sources)
        return Line((kind, told, outputs), tuple(x[0] for x in sources if x is not None))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is _DEVICE:
            return func(*args, **kwargs)
        layer, numbers = without_numbers(fx_traceback.current_meta.get("custom", {}).get("layer", ""))
        call = self.line((func, layer), (args, kwargs))
        call = Line(call.fixed, call.refers, numbers)
        self.made.append(call)
        self.by_module[self._now].append(call)
        found = func(*args, **kwargs)
        self._remember(found)
        return found


def _told(value: Any, tensors: list[torch.Tensor]) -> Any:
    """A value's structure with the layouts of its tensors, which are collected."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return tuple(value.shape), value.stride(), value.dtype, value.requires_grad
    if isinstance(value, tuple | list):
        return tuple(_told(x, tensors) for x in value)
    if isinstance(value, dict):
        return tuple((key, _told(x, tensors)) for key, x in value.items())
    return repr(value)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for x in value:
            yield from _tensors(x)
