"""Costs by static FLOPs, as Checkmate's Figure 6 counts them: from shapes alone, no device."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from explorer.device_profile import Cost, Device, Profile
from explorer.graph import Implementation, Operator, Role, TrainingGraph


def by_flops(profile: Profile) -> Profile:
    """The same graph with one unit of time for 10⁹ multiplications and additions, and no workspace.

    A convolution or a product takes two for each weight and place that it meets; its backward pass as much for either
    gradient; everything else one for each element that it writes. Memory is that of the values, unrounded.

    Args:
        profile: any; its costs are not looked at.
    """
    graph = profile.graph
    costs = {
        implementation.cost: Cost(flops(graph, operator, implementation) / 1e9, 0)
        for operator in graph.operators
        for implementation in reversed(operator.implementations)
    }
    device = Device("static FLOPs", "cuda", profile.device.torch_version, estimated=True)
    return replace(profile, costs=costs, device=device, eager_time_ms=None, eager_peak_bytes=None)


def flops(graph: TrainingGraph, operator: Operator, implementation: Implementation) -> float:
    """Multiplications and additions of one run."""
    made = [graph.storages[x] for x in implementation.writes]
    read = [graph.storages[x] for x in implementation.reads]
    elements = float(sum(prod(x.shape) for x in made))
    name = operator.target.partition(".")[2].partition(".")[0]
    weights = [x for x in read if x.role is Role.PARAMETER and len(x.shape) > 1]
    if "convolution" in name:
        if name.startswith("convolution_backward"):
            # Places are those of the incoming gradient; one product for each gradient that is made.
            weight = weights[0] if weights else max(made, key=lambda x: len(x.shape))
            halves = sum(len(x.shape) == len(weight.shape) for x in made)
            return 2.0 * halves * _convolution(read[0].shape, weight.shape)
        # A transposed convolution meets its weights at the places of its input.
        shape = made[0].shape if made[0].shape[1] == weights[0].shape[0] else read[0].shape
        return 2.0 * _convolution(shape, weights[0].shape)
    if name in {"mm", "addmm"} and made:
        inner = next((x.shape[-1] for x in read if len(x.shape) == 2 and x.shape[0] == made[0].shape[0]), 1)
        return 2.0 * elements * inner
    return elements


def _convolution(places: tuple[int, ...], weight: tuple[int, ...]) -> float:
    return float(places[0] * prod(places[2:]) * prod(weight))
