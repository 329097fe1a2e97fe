"""The calls that PyTorch makes within blocks, seen as a policy of selective checkpointing sees them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import SAC_IGNORED_OPS

from explorer.autocast import Autocast
from explorer.capture import Batch, Loss
from explorer.capture.ambient import autocast_region
from explorer.capture.batch import TrainingStep, call_arguments
from explorer.execution.device import device_of
from explorer.execution.steps import unchanged
from explorer.exporting.memory import Memory, tensors_in
from explorer.torch_private import storage_key

_CHANGES = "updates a buffer, or other memory that is not the block's own"
_READS = "reads memory that the step changes afterwards"


@dataclass(frozen=True, slots=True)
class Call:
    """An operator that PyTorch called.

    Attributes:
        name: of the operator, as ``aten.addmm.default``.
        once: why it would not do the same when the block runs again; None: it would.
        apart: its results can be put aside and taken for those of a second run: it does not work in place on what the
            block made, which a second run makes anew, and nothing writes over them.
    """

    name: str
    once: str | None = None
    apart: bool = True


def calls_of_blocks(
    model: nn.Module, blocks: Collection[str], batch: Batch, *, loss: Loss | None, autocast: Autocast | None
) -> dict[str, list[Call]]:
    """Run the forward pass once and watch every block; the model is as before afterwards.

    Args:
        model: in training mode.
        blocks: paths of modules.
        batch: as for ``apply``.
        loss: likewise.
        autocast: of the forward pass; None: as it is here.

    Raises:
        ValueError: a block is called more than once in a step, or PyTorch could not run it again.
    """
    watched: dict[str, list[_Watch]] = {name: [] for name in blocks}
    kind = device_of(model).type
    region = autocast_region(*([] if autocast is None else [(kind, autocast)]))
    args, kwargs = call_arguments(batch, loss=loss)
    step = TrainingStep(model, loss)
    memory = Memory(step)
    with unchanged(model, batch, loss=loss), _forwards(model, watched, memory), region, torch.enable_grad():
        with memory:
            step(*args, **kwargs)
        memory.look()
    for name, times in watched.items():
        if len(times) != 1:
            raise ValueError(
                f"block {name!r} is called {len(times)} times in a step, and a policy is for one call: form='python' "
                "can say this schedule"
            )
    memory.check_attributes()
    return {name: watch.finished() for name, (watch,) in watched.items()}


@contextmanager
def _forwards(model: nn.Module, watched: dict[str, list[_Watch]], memory: Memory) -> Iterator[None]:
    """While open, the blocks' forward passes are watched."""
    modules = {name: model.get_submodule(name) for name in watched}
    own = {name: module.__dict__.get("forward") for name, module in modules.items()}
    for name, module in modules.items():
        watch = partial(_Watch, name, memory)
        module.forward = partial(_watching, module.forward, watch, watched[name])
    try:
        yield
    finally:
        for name, module in modules.items():
            del module.forward
            if own[name] is not None:
                module.__dict__["forward"] = own[name]


def _watching(
    forward: Callable[..., Any], watch: Callable[[Any], _Watch], done: list[_Watch], *args: Any, **kwargs: Any
) -> Any:
    watching = watch((args, kwargs))
    done.append(watching)
    with watching:
        result = forward(*args, **kwargs)
    watching.memory.look(watching.block)
    return result


class _Watch(TorchDispatchMode):
    """What one call of a block calls, but for what no policy is asked about.

    Attributes:
        block: its path.
        memory: of the whole step.
        calls: in order.
    """

    def __init__(self, block: str, memory: Memory, given: Any) -> None:
        """``given`` is what the block is called with."""
        super().__init__()
        memory.look()
        self.block = block
        self.memory = memory
        self.calls: list[Call] = []
        self._start = memory.now
        self._given = [memory.number(x) for x in tensors_in(given)]
        self._reads: list[tuple[int, frozenset[int]]] = []  # of each call: when, and of which memory
        self._makers: dict[int, int] = {}  # of memory to the call that made what is there

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Make the call, and note it."""
        given = {storage_key(x): self.memory.number(x) for x in tensors_in((args, kwargs))}
        before = self.memory.now
        result = func(*args, **(kwargs or {}))
        if func not in SAC_IGNORED_OPS:
            self._note(str(func), given, before, tensors_in(result))
        return result

    def _note(self, name: str, given: dict[int, int], before: int, made: list[torch.Tensor]) -> None:
        written = {x for x in given.values() if self.memory.is_written_after(x, before)}
        own = {x for x in written if self._is_own(x)}
        for maker in {self._makers[x] for x in own if x in self._makers}:
            self.calls[maker] = replace(self.calls[maker], apart=False)
        for tensor in made:
            number = self.memory.number(tensor)
            if self._is_own(number) and (storage_key(tensor) not in given or number in written):
                self._makers[number] = len(self.calls)
        is_view = bool(made) and not written and all(storage_key(x) in given for x in made)
        self.calls.append(Call(name, _CHANGES if written - own else None, apart=not own))
        reads = frozenset() if is_view else frozenset(x for x in given.values() if not self._is_own(x))
        self._reads.append((self.memory.now, reads))

    def _is_own(self, number: int) -> bool:
        """Was this memory made within the block?"""
        return self.memory.made.get(number, -1) > self._start

    def finished(self) -> list[Call]:
        """The calls, when the step is over.

        Raises:
            ValueError: PyTorch refuses to run the block again, since what it is called with has changed.
        """
        for number in self._given:
            if number not in self.memory.made and self.memory.is_written_after(number, self._start):
                raise ValueError(
                    f"block {self.block!r} is called with a tensor that {self.memory.writers[number]} changes "
                    "afterwards in the step, so that PyTorch would refuse to run it again: form='python' can say this "
                    "schedule"
                )
        return [
            replace(call, once=_READS)
            if not call.once and any(self.memory.changes_after(x, time) for x in reads)
            else call
            for call, (time, reads) in zip(self.calls, self._reads, strict=True)
        ]
