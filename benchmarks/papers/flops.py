"""Costs by static FLOPs, as Checkmate's Figure 6 counts them: from shapes alone, no device."""

from __future__ import annotations

from dataclasses import replace
from math import prod, sqrt

from explorer.device_profile import Cost, Device, Profile
from explorer.graph import Implementation, Operator, Role, Storage, TrainingGraph


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
        backward = name.startswith("convolution_backward")
        weight = weights[0] if weights else max(made, key=lambda x: len(x.shape))
        # One product for each result: the output, or either gradient; the bias's is a sum.
        halves = sum(x.role is not Role.PARAMETER_GRADIENT or len(x.shape) > 1 for x in made) if backward else 1
        outside = read[0] if backward else made[0]
        inside = next((x for x in (*made, *read) if x is not outside and _meets(x, weight)), outside)
        # A transposed convolution meets its weights at the places of its input.
        places = outside if _meets(outside, weight) or len(outside.shape) < 3 else inside
        return 2.0 * halves * prod(places.shape) / weight.shape[0] * prod(weight.shape)
    if name in {"mm", "addmm"}:
        # (m × k) (k × n) gives (m × n): all of their elements together are (m k n)².
        *_, first, second = sorted(prod(x.shape) for x in read)
        return 2.0 * sqrt(elements * first * second)
    return elements


def _meets(tensor: Storage, weight: Storage) -> bool:
    """Is it of as many channels as the weight's first dimension?"""
    return tensor is not weight and len(tensor.shape) == len(weight.shape) and tensor.shape[1] == weight.shape[0]
