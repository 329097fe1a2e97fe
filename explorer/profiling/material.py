"""Real tensors for the arguments of a captured call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from explorer.capture.building import Call
from explorer.torch_private import storage_key

_ALIGNMENT = 64  # elements: whole cache lines, as PyTorch's own allocations


class Material:
    """Makes arguments: random numbers from 0.1 to 1 where numbers are wanted; what computes whole numbers is run.

    Indices, masks and packed bits must fit what reads them, so the calls that make them are run on random numbers;
    whole numbers that come from the batch (classes, tokens) are 0. Random numbers are drawn once: calls read them where
    they lie, side by side, unless they overwrite them; fresh memory for each call would take as long as the calls.
    """

    def __init__(self, device: torch.device) -> None:
        """For calls on ``device``."""
        self._device = device
        self._numbers: dict[torch.dtype, torch.Tensor] = {}

    def runnable(self, call: Call) -> Callable[[], Any]:
        """The call with arguments that lie side by side; copies of its own where it overwrites one."""
        arguments = _Arguments(self, self._device, copies=call.overwrites is not None)
        args: Any = fx.map_arg(call.args, arguments.real)
        kwargs: Any = fx.map_arg(call.kwargs, arguments.real)
        target = call.target

        def run() -> None:
            target(*args, **kwargs)

        return run

    def numbers(self, start: int, count: int, dtype: torch.dtype) -> torch.Tensor:
        """``count`` of the random numbers, from the one at ``start``."""
        known = self._numbers.get(dtype)
        if known is None or known.numel() < start + count:
            size = max(2 * (start + count), 1 << 20)
            known = torch.empty(size, dtype=dtype, device=self._device).uniform_(0.1, 1.0)
            self._numbers[dtype] = known
        return known[start : start + count]


class _Arguments:
    def __init__(self, material: Material, device: torch.device, *, copies: bool = False) -> None:
        self.material = material
        self.device = device
        self.copies = copies
        self.starts: dict[torch.dtype, int] = {}
        self.known: dict[fx.Node, Any] = {}
        self.storages: dict[tuple[int, torch.dtype], torch.Tensor] = {}

    def real(self, node: fx.Node) -> Any:
        if node not in self.known:
            value = node.meta["val"]
            run = node.op == "call_function" and _has_whole_numbers(value)
            self.known[node] = self.computed(node) if run else self.drawn(value)
            if "explorer.density" in node.meta:
                self.known[node] = self.thinned(self.known[node], node.meta["explorer.density"])
        return self.known[node]

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
                if value.dtype.is_floating_point
                else torch.zeros(count, dtype=value.dtype, device=self.device)
            )
        return self.storages[key].as_strided(value.shape, value.stride(), value.storage_offset())

    def numbers(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """Random numbers beside those that this call has already; copied where they do not stay."""
        start = self.starts.get(dtype, 0)
        self.starts[dtype] = -(-(start + count) // _ALIGNMENT) * _ALIGNMENT
        found = self.material.numbers(start, count, dtype)
        return found.clone() if self.copies else found


def _has_whole_numbers(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return any(_has_whole_numbers(x) for x in value)
    return isinstance(value, torch.Tensor) and not value.dtype.is_floating_point
