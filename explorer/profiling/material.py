"""Real tensors for the arguments of a captured call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx

from explorer.capture.building import Call
from explorer.torch_private import storage_key

_HELD_BYTES = 1 << 30  # of storages that wait for the next call; more where a single call reads more


class Material:
    """Makes arguments: random numbers from 0.1 to 1 where numbers are wanted; what computes whole numbers is run.

    Indices, masks and packed bits must fit what reads them, so the calls that make them are run on random numbers;
    whole numbers that come from the batch (classes, tokens, lengths) and from the model are those there are. Every
    storage is as large as the captured one: some calls copy all that lies below a view. Random numbers are drawn once
    for each size, and calls read them where they lie, unless they overwrite them; fresh memory for each call would take
    as long as the calls.
    """

    def __init__(self, device: torch.device, *, given: Mapping[fx.Node, torch.Tensor]) -> None:
        """For calls on ``device``; ``given``: graph inputs whose own values are taken where they are whole numbers."""
        self._device = device
        self.given = {node: x.detach() for node, x in given.items() if not _is_drawn(x.dtype)}
        self._numbers: dict[tuple[torch.dtype, int, int], torch.Tensor] = {}
        self._held_bytes = 0

    def runnable(self, call: Call) -> Callable[[], Any]:
        """The call with arguments in storages of their own; copies where it overwrites one."""
        arguments = _Arguments(self, self._device, copies=call.overwrites is not None)
        args: Any = fx.map_arg(call.args, arguments.real)
        kwargs: Any = fx.map_arg(call.kwargs, arguments.real)
        target = call.target

        def run() -> None:
            target(*args, **kwargs)

        return run

    def numbers(self, count: int, dtype: torch.dtype, *, number: int) -> torch.Tensor:
        """A storage of ``count`` random numbers: the same one for the same ``number``, others for others."""
        key = (dtype, count, number)
        if key not in self._numbers:
            made = torch.empty(count, dtype=dtype, device=self._device)
            (torch.view_as_real(made) if dtype.is_complex else made).uniform_(0.1, 1.0)
            if self._held_bytes + made.nbytes > _HELD_BYTES:
                # Calls that have some of these keep them for as long as they are needed.
                self._numbers.clear()
                self._held_bytes = 0
            self._numbers[key] = made
            self._held_bytes += made.nbytes
        return self._numbers[key]


class _Arguments:
    def __init__(self, material: Material, device: torch.device, *, copies: bool = False) -> None:
        self.material = material
        self.device = device
        self.copies = copies
        self.taken: Counter[tuple[torch.dtype, int]] = Counter()
        self.known: dict[fx.Node, Any] = {}
        self.storages: dict[tuple[int, torch.dtype], torch.Tensor] = {}

    def real(self, node: fx.Node) -> Any:
        if node not in self.known:
            value = node.meta["val"]
            run = node.op == "call_function" and _has_whole_numbers(value)
            self.known[node] = self.computed(node) if run else self.taken_or_drawn(node)
            if "explorer.density" in node.meta:
                self.known[node] = self.thinned(self.known[node], node.meta["explorer.density"])
        return self.known[node]

    def taken_or_drawn(self, node: fx.Node) -> Any:
        """What is there, of whole numbers; else random numbers."""
        given = self.material.given.get(node)
        if given is None:
            return self.drawn(node.meta["val"])
        return given.clone() if self.copies else given

    def thinned(self, tensor: torch.Tensor, density: float) -> torch.Tensor:
        """The same with zeros, as a ReLU makes them."""
        threshold = 1.0 - 0.9 * density  # the numbers are from 0.1 to 1
        return torch.where(tensor > threshold, tensor, 0.0)

    def computed(self, node: fx.Node) -> Any:
        assert callable(node.target)
        args: Any = fx.map_arg(node.args, self.real)
        kwargs: Any = fx.map_arg(node.kwargs, self.real)
        return node.target(*args, **kwargs)

    def drawn(self, value: Any) -> Any:
        """A real tensor (or tuple) like the fake one; views of one storage stay views of one storage."""
        if isinstance(value, tuple | list):
            return tuple(self.drawn(x) for x in value)
        if not isinstance(value, torch.Tensor):
            return value
        key = (storage_key(value), value.dtype)
        if key not in self.storages:
            count = value.untyped_storage().nbytes() // value.element_size()
            self.storages[key] = (
                self.numbers(count, value.dtype)
                if _is_drawn(value.dtype)
                else torch.zeros(count, dtype=value.dtype, device=self.device)
            )
        made = self.storages[key].as_strided(value.shape, value.stride(), value.storage_offset())
        # Of these, many calls make a copy that is as it says, in memory of their own.
        made = torch.conj(made) if value.is_conj() else made
        return torch.ops.aten._neg_view(made) if value.is_neg() else made  # noqa: SLF001 - an operator's name

    def numbers(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """Random numbers in a storage that this call has no tensor of yet; copied where they do not stay."""
        found = self.material.numbers(count, dtype, number=self.taken[dtype, count])
        self.taken[dtype, count] += 1
        return found.clone() if self.copies else found


def _has_whole_numbers(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return any(_has_whole_numbers(x) for x in value)
    return isinstance(value, torch.Tensor) and not _is_drawn(value.dtype)


def _is_drawn(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex
