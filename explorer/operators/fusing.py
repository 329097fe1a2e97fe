"""Groups of calls as kernels of PyTorch's compiler."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import torch
from torch import fx

from explorer.graph import Optimization
from explorer.operators.feed_forward import Value
from explorer.operators.groups import Group, GroupStep, group_of_calls, mapped
from explorer.operators.registry import Variant, rule
from explorer.torch_private import compiled_graph, storage_key

aten = torch.ops.aten
Run = Callable[..., Sequence[torch.Tensor]]

_COMPILED: dict[tuple[str, torch.device], Run] = {}


def fused(group: Group, given: Sequence[torch.Tensor]) -> Any:
    """``group_of_calls`` as a kernel, or a few, of PyTorch's compiler, which works when it is called first."""
    key = (group.key, given[0].device)
    run = _COMPILED.get(key)
    if run is None:
        run = _COMPILED[key] = compiled(group, given)
    made = iter(run(*given))
    over = dict(group.over)
    found = tuple(given[over[x]] if x in over else next(made) for x in group.results)
    return found[0] if len(found) == 1 else found


@rule(group_of_calls)
def ways_of_group(node: fx.Node) -> Iterator[Variant]:
    """As one kernel; without what the backward pass alone reads; from what that is made from; over an argument."""
    args: Any = node.args
    group, given, alone, again, source, over = args
    kind: dict[str, Any] = {"exact": False, "optimization": Optimization.FUSED}
    yield Variant("fused", fused, (group, given), **kind)
    if alone:
        yield Variant("fused, alone", fused, (group.only(alone), given), outputs=tuple(alone), **kind)
    if over is not None:
        yield Variant("fused, in place", fused, (_over(group, given, over), given), **kind, overwrites=over)
    if again is not None:
        normalises = any(x.target is aten.native_batch_norm_backward.default for x in again.steps)
        name = "fused, from statistics" if normalises else "fused, from source"
        yield Variant(name, fused, (again, source), **kind)
        if over is not None:
            yield Variant(f"{name}, in place", fused, (_over(again, source, over), source), **kind, overwrites=over)


def _over(group: Group, given: Sequence[fx.Node], place: fx.Node) -> Group:
    """With the first result in the memory of what is given there."""
    return group.writing(group.results[0], over=list(given).index(place))


def compiled(group: Group, given: Sequence[torch.Tensor]) -> Run:
    """A function of what is given that returns the results.

    Where there is no compiler, or none of its code can be used, it makes the calls one by one, which is said once.

    Args:
        group: what to compute.
        given: on the device on which it will run.
    """
    device = given[0].device
    if reason := why_not(device.type):
        warnings.warn(
            f"{reason}: operators of a schedule that are to run fused make PyTorch's calls one by one, which takes "
            "more memory and time",
            UserWarning,
            stacklevel=2,
        )
        return one_by_one(group)
    return _Checked(compiled_graph(graph_of(group), group.given, device), group)


@cache
def why_not(kind: str) -> str:
    """Why PyTorch's compiler makes no kernels for a kind of device here; empty where it does.

    Args:
        kind: ``"cpu"`` or ``"cuda"``.
    """
    layout = ((64,), (1,), torch.float32)
    step = GroupStep(aten.add.Tensor, (Value(0), Value(0)))
    group = Group((layout,), (step, GroupStep(aten.exp.default, (Value(1),))), (2,), (layout,))
    device = torch.device(kind)
    try:
        (found,) = compiled_graph(graph_of(group), group.given, device)(torch.ones(64, device=device))
    except Exception as error:  # noqa: BLE001 - whatever keeps it from compiling
        return f"PyTorch's compiler does not work here ({_first_line(error)})"
    assert found.shape == (64,)
    return ""


def _first_line(error: Exception) -> str:
    lines = [x for x in str(error).splitlines() if x.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}".rstrip(": ")


def graph_of(group: Group) -> fx.GraphModule:
    """The calls as a graph of ATen."""
    graph = fx.Graph()
    values: list[Any] = [graph.placeholder(f"given_{x}") for x in range(len(group.given))]
    for step in group.steps:
        args, kwargs = mapped((step.args, step.kwargs), lambda x: values[x.number])
        values.append(graph.call_function(step.target, args, dict(kwargs)))
    for number, place in group.over:
        graph.call_function(aten.copy_.default, (values[place], values[number]))
    graph.output(tuple(values[x] for x in group.returned()))
    return fx.GraphModule(torch.nn.Module(), graph)


def one_by_one(group: Group) -> Run:
    """What stands in for a kernel: PyTorch's calls, with their bits."""

    def run(*given: torch.Tensor) -> Sequence[torch.Tensor]:
        found = group_of_calls(group, given)
        found = (found,) if len(group.results) == 1 else found
        own = group.returned()
        return [tensor for number, tensor in zip(group.results, found, strict=True) if number in own]

    return run


class _Checked:
    """Compiled code, whose first results are looked at: one tensor may be there twice, or be one that was given."""

    def __init__(self, run: Run, group: Group) -> None:
        self.run = run
        self.layouts = tuple(group.returned().values())
        self.apart: tuple[int, ...] | None = None

    def __call__(self, *given: torch.Tensor) -> Sequence[torch.Tensor]:
        found = self.run(*given)
        if self.apart is None:
            self.apart = self._shared(given, found)
        if not self.apart:
            return found
        made = list(found)
        for place in self.apart:
            shape, strides, dtype = self.layouts[place]
            made[place] = torch.empty_strided(shape, strides, dtype=dtype, device=made[place].device).copy_(made[place])
        return made

    def _shared(self, given: Sequence[torch.Tensor], found: Sequence[torch.Tensor]) -> tuple[int, ...]:
        """Places of the results that are to be copied."""
        known = {storage_key(x) for x in given}
        copied = []
        for place, (tensor, layout) in enumerate(zip(found, self.layouts, strict=True)):
            key = storage_key(tensor)
            if key in known or (tuple(tensor.shape), tensor.stride(), tensor.dtype) != layout:
                copied.append(place)
            known.add(key)
        return tuple(copied)
