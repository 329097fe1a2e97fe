"""Backward passes in which not every output has a gradient: what eager mode would not run is left out.

A model that returns several losses is often trained on one of them. Gradients of the others are not zero then, they are
not there: parameters that only they reach get None, and an optimizer leaves them alone.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import torch
from torch import fx

from explorer.capture import Capture
from explorer.capture.building import Call, argument_nodes
from explorer.capture.normalise import backward_nodes

aten = torch.ops.aten


class Absence:
    """Which gradients are absent, as a backward pass goes on.

    Attributes:
        fills_sums: a sum of gradients has zeros for one that is absent, because what follows counts on its layout;
            eager mode has the other one there as it lies in memory, and may add it up in another order later.
    """

    def __init__(self, capture: Capture, tangents: Collection[fx.Node]) -> None:
        """Begin with the tangents that have not come."""
        self._storage_of = capture.built.storage_of
        depending = backward_nodes(capture.traced)
        self._gradients = {self._storage_of[node] for node in depending if node in self._storage_of}
        self._absent = {self._storage_of[node] for node in tangents}
        self.fills_sums = False

    def lacks(self, node: fx.Node) -> bool:
        """Is this gradient absent?"""
        return self._storage(node) in self._absent

    def instead(self, call: Call) -> tuple[Call, tuple[fx.Node, ...]] | None:
        """What to call, and which gradients to fill with zeros before; None where all that it would read is absent."""
        gradients = [x for x in argument_nodes(call) if self._storage(x) in self._gradients]
        missing = [x for x in gradients if self.lacks(x)]
        if not missing:
            self._absent -= self._made(call)
            return call, ()
        if len(missing) == len(gradients):
            self._absent |= self._made(call)
            return None
        (other, *_) = (x for x in gradients if x not in missing)
        if call.target in _SUMS and len(call.args) == 2 and not call.kwargs and _alike(other, call.results[0]):
            return replace(call, target=aten.clone.default, args=(other,), overwrites=None), ()
        self.fills_sums = self.fills_sums or call.target in _SUMS
        return call, tuple(missing)

    def _made(self, call: Call) -> set[int]:
        return {self._storage_of[x] for x in call.results if x is not None}

    def _storage(self, node: fx.Node) -> int | None:
        source = node if node in self._storage_of else node.args[0] if node.args else None
        return self._storage_of.get(source) if isinstance(source, fx.Node) else None


def _alike(node: fx.Node, other: fx.Node | None) -> bool:
    values = [x.meta["val"] for x in (node, other) if x is not None]
    return len({(x.shape, x.stride(), x.dtype) for x in values}) == 1


_SUMS = (aten.add.Tensor, aten.add_.Tensor)


def zeros(shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A gradient of nothing, in a given layout."""
    return torch.empty_strided(shape, strides, dtype=dtype, device=device).zero_()
