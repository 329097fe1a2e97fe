"""Where a scheduled step goes wrong: every run is repeated on memory of its own, and by PyTorch's own way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from explorer.capture import Capture
from explorer.capture.building import Call, argument_nodes
from explorer.graph import Implementation, Operator, When
from explorer.schedule import Run
from explorer.torch_private import OpOverload

LOCAL_TOLERANCE = {torch.float64: 1e-9, torch.float32: 5e-3, torch.bfloat16: 5e-2, torch.float16: 1e-2}
"""How far an implementation that is not exact may be off from PyTorch's own on the same numbers, relative."""


@dataclass(frozen=True)
class Finding:
    """The first operator that differs.

    Attributes:
        operator: of the graph.
        why: in words.
    """

    operator: Operator
    why: str

    def __str__(self) -> str:
        """As ``operator 'tanh_0' of layer 'head': …``."""
        layer = f" of layer {self.operator.layer!r}" if self.operator.layer else ""
        return f"operator {self.operator.name!r}{layer}: {self.why}"


class Shadow:
    """Repeats each run of a scheduled step on copies that nothing overwrites, and notes the first that differs.

    Attributes:
        finding: that run, None so far.
    """

    def __init__(self, capture: Capture, values: Sequence[Any], *, exact: bool) -> None:
        """Begin before the forward pass.

        Args:
            capture: the schedule's.
            exact: the schedule is, so that what is computed again must be what it was.
            values: of the graph inputs, None for tangents.
        """
        self.finding: Finding | None = None
        self._exact = exact
        self._capture = capture
        self._values: dict[fx.Node, Any] = {}
        for graph_input, value in zip(capture.traced.inputs, values, strict=True):
            given = graph_input.constant if value is None else value
            if given is not None:
                self._values[graph_input.node] = given.detach().clone()

    def tangents(self, values: Sequence[torch.Tensor | None]) -> None:
        """The gradients of the outputs have come."""
        nodes = [x.node for x in self._capture.traced.inputs if x.node not in self._values]
        self._values |= {node: x.clone() for node, x in zip(nodes, values, strict=True) if x is not None}

    @torch.no_grad()
    def watch(self, run: Run, nodes: Sequence[fx.Node], results: Sequence[torch.Tensor]) -> None:
        """A run has made these results; called by the generated code."""
        made = dict(zip(nodes, results, strict=True))
        operator = self._capture.graph.operators[run.operator]
        # Memory that was never written is not the same twice.
        if self.finding is None and "empty" not in operator.target:
            why = self._difference(operator, operator.implementation(run.implementation), made)
            self.finding = None if why is None else Finding(operator, why)
        self._values |= {node: x.detach().clone() for node, x in made.items()}

    def _difference(
        self, operator: Operator, implementation: Implementation, results: dict[fx.Node, torch.Tensor]
    ) -> str | None:
        name = implementation.name
        # What draws random numbers or changes buffers cannot be repeated.
        if implementation.when is not When.FIRST:
            mine = self._outcome(self._capture.built.calls[operator.id, name])
            if any(not _is_repeated(mine[node], x) for node, x in results.items()):
                return f"run by {name!r}, it read memory that something else has overwritten or freed"
        own = self._own(operator, name)
        for node, result in results.items():
            before = self._values.get(node) if self._exact else None
            for known, what in ((before, "its first run"), (own.get(node), "PyTorch's own")):
                if known is not None and (off := _unlike(known, result, exact=implementation.exact)):
                    return f"run by {name!r}, its result is {off} from {what}"
        return None

    def _own(self, operator: Operator, name: str) -> dict[fx.Node, Any]:
        """What PyTorch's own makes of the same; nothing if that is what ran, or if that cannot run here."""
        own = operator.implementations[0]
        call = self._capture.built.calls[operator.id, own.name]
        cannot = own.when is When.FIRST or any(self._missing(x) for x in argument_nodes(call))
        return {} if own.name == name or cannot else self._outcome(call)

    def value(self, node: fx.Node) -> torch.Tensor | None:
        """What a run made last, None if it has not run."""
        return self._values.get(node)

    def _missing(self, node: fx.Node) -> bool:
        if node in self._values:
            return False
        return node not in self._capture.built.views or any(self._missing(x) for x in node.all_input_nodes)

    def _outcome(self, call: Call) -> dict[fx.Node, Any]:
        copies: dict[fx.Node, Any] = {}

        def value(node: fx.Node) -> Any:
            if node not in copies:
                found = self._value(node)
                copies[node] = found.clone() if node is call.overwrites else found
            return copies[node]

        args: Any = fx.map_arg(call.args, value)
        kwargs: Any = fx.map_arg(call.kwargs, value)
        made = call.target(*args, **kwargs)
        values = tuple(made) if call.is_tuple else (made,)
        return {node: x for node, x in zip(call.results, values, strict=False) if node is not None}

    def _value(self, node: fx.Node) -> Any:
        if node not in self._values:
            assert callable(node.target)
            args: Any = fx.map_arg(node.args, self._value)
            kwargs: Any = fx.map_arg(node.kwargs, self._value)
            return node.target(*args, **kwargs)
        return self._values[node]


def _is_repeated(again: torch.Tensor, result: torch.Tensor) -> bool:
    """Is it what the same call makes of the same numbers? On CUDA some add up in an order that changes."""
    if _same_bits(again, result):
        return True
    return result.device.type == "cuda" and relative_error(again, result) <= LOCAL_TOLERANCE.get(result.dtype, 0.0)


def _same_bits(a: Any, b: Any) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and torch.equal(_comparable(a), _comparable(b))


def _of_real_numbers(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def _comparable(tensor: torch.Tensor) -> torch.Tensor:
    """Not a number is as good as another."""
    tensor = _of_real_numbers(tensor)
    return torch.nan_to_num(tensor, nan=12345.0) if tensor.is_floating_point() else tensor


def _unlike(own: torch.Tensor, other: torch.Tensor, *, exact: bool) -> str | None:
    """In words, by how much two results differ more than they may; None if they do not."""
    if _same_bits(own, other):
        return None
    chancy = own.device.type == "cuda"
    tolerance = 0.0 if exact and not chancy else LOCAL_TOLERANCE.get(own.dtype, 0.0)
    off = relative_error(other, own)
    return None if off <= tolerance else f"{off:.1e} off (relative, {tolerance:.0e} is allowed)"


def relative_error(a: torch.Tensor, b: torch.Tensor) -> float:
    """Norm of the difference over the norm of ``b``."""
    if a.shape != b.shape:
        return float("inf")
    a, b = _of_real_numbers(a), _of_real_numbers(b)
    difference, size = (a.double() - b.double()).norm(), b.double().norm()
    return float(difference / size) if size else float(difference)


class OwnNormalisation(TorchFunctionMode):
    """While open, batch normalisation runs by PyTorch's own kernels, as in a captured step, where cuDNN has others.

    Theirs differ in the last bits, which is enough to drive a deep network's gradients apart.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in (F.batch_norm, F.instance_norm, torch.batch_norm, torch.instance_norm):
            return func(*args, **(kwargs or {}))
        before = torch.backends.cudnn.enabled
        torch.backends.cudnn.enabled = False
        try:
            return func(*args, **(kwargs or {}))
        finally:
            torch.backends.cudnn.enabled = before


class Recording(TorchDispatchMode):
    """While open, remembers the calls of ATen that eager mode makes, with what they return."""

    def __init__(self) -> None:
        """Begin with none."""
        super().__init__()
        self.calls: list[tuple[str, list[torch.Tensor]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        made = result if isinstance(result, tuple | list) else (result,)
        copies = [x.detach().clone() for x in made if isinstance(x, torch.Tensor)]
        self.calls.append((str(func.overloadpacket), copies))
        return result


def first_unlike_eager(capture: Capture, shadow: Shadow, recording: Recording) -> Finding | None:
    """The first forward operator that makes something else than the call of eager mode that it stands for."""
    at = 0
    for operator in capture.graph.forward:
        call = capture.built.calls[operator.id, operator.implementations[0].name]
        if operator.optional or not isinstance(call.target, OpOverload):
            continue
        name = _computation(str(call.target.overloadpacket))
        found = next((i for i in range(at, len(recording.calls)) if _computation(recording.calls[i][0]) == name), None)
        if found is None:
            continue  # eager mode has another name for it, of a version or a library
        at = found + 1
        values = [x for node in call.results if node is not None and (x := shadow.value(node)) is not None]
        if any(not any(_same_bits(x, y) for y in recording.calls[found][1]) for x in values):
            return Finding(operator, "what was captured computes something else than eager mode")
    return None


def _computation(name: str) -> str:
    """The same for a call that works in place."""
    return name.rstrip("_")
