"""The implementations of every convolution: what each takes, and which the schedule chose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from explorer.device_profile import Profile
from explorer.graph import Implementation, Operator, Phase, Role, TrainingGraph
from explorer.simulation import Stage, Timeline
from widgets.scene.layers import covers


class Part(StrEnum):
    """What a call of a convolution computes."""

    FORWARD = "forward"
    RECOMPUTE = "recompute"
    WEIGHT_GRADIENT = "weight gradient"
    INPUT_GRADIENT = "input gradient"


@dataclass(frozen=True, slots=True)
class PartImplementation:
    """One implementation of one part of a convolution.

    Attributes:
        operator: id.
        part: what it computes.
        implementation: its name.
        workspace_bytes: memory beyond what it reads and writes.
        time_ms: of one run.
        runs: how often the schedule runs it; 0 if it did not choose it.
        both: computes the gradients of weight and input at once.
    """

    operator: int
    part: Part
    implementation: str
    workspace_bytes: int
    time_ms: float
    runs: int
    both: bool = False


def convolutions(graph: TrainingGraph) -> tuple[str, ...]:
    """Layers with a convolution, in order; a convolution outside modules counts as a layer by its own name."""
    return tuple(dict.fromkeys(operator.layer or operator.name for operator in graph.forward if _convolves(operator)))


def shown_layer(layers: Sequence[str], selection: str) -> str | None:
    """The first of these convolutions in the selected layer, else the first; None where there is none."""
    return next((x for x in layers if covers(selection, x)), layers[0] if layers else None)


def ways(profile: Profile, timeline: Timeline, layer: str) -> tuple[PartImplementation, ...]:
    """Every implementation of the convolutions of one layer, part by part."""
    runs = _runs(timeline)
    of_layer = [x for x in profile.graph.operators if layer in (x.layer, x.name) and _convolves(x)]
    return tuple(way for operator in of_layer for way in _ways(profile, operator, runs))


def plain_name(way: PartImplementation) -> str:
    """The implementation's name without the part that it is for."""
    if way.both:
        return f"{way.implementation}, both at once"
    name = way.implementation.removeprefix(f"{way.part.value}, ")
    return "aten, alone" if name == way.part.value else name


def chosen(profile: Profile, timeline: Timeline) -> dict[str, dict[Part, tuple[PartImplementation, ...]]]:
    """What the schedule chose for every layer with convolutions."""
    graph, runs = profile.graph, _runs(timeline)
    ran = frozenset(zip(timeline.operators, timeline.implementations, strict=True))
    found: dict[str, dict[Part, tuple[PartImplementation, ...]]] = {
        layer: dict.fromkeys(Part, ()) for layer in convolutions(graph)
    }
    for operator in graph.operators:
        if _convolves(operator):
            parts = found.setdefault(operator.layer or operator.name, dict.fromkeys(Part, ()))
            for way in _ways(profile, operator, runs, only=ran):
                if way.runs:
                    parts[way.part] += (way,)
    return found


def _ways(
    profile: Profile,
    operator: Operator,
    runs: Counter[tuple[int, str, bool]],
    *,
    only: frozenset[tuple[int, str]] | None = None,
) -> list[PartImplementation]:
    """Of one operator; ``only`` those (operator, implementation), if given."""
    graph = profile.graph
    return [
        PartImplementation(
            operator.id,
            part,
            implementation.name,
            profile.workspace_bytes(implementation),
            profile.cost(implementation).time_ms,
            runs[operator.id, implementation.name, part is Part.RECOMPUTE],
            both=_is_both(graph, implementation),
        )
        for implementation in operator.implementations
        if only is None or (operator.id, implementation.name) in only
        for part in _parts(graph, operator, implementation)
    ]


def _runs(timeline: Timeline) -> Counter[tuple[int, str, bool]]:
    again = (stage is Stage.RECOMPUTE for stage in timeline.stages)
    return Counter(zip(timeline.operators, timeline.implementations, again, strict=True))


def _convolves(operator: Operator) -> bool:
    return "conv" in operator.target


def _is_both(graph: TrainingGraph, implementation: Implementation) -> bool:
    roles = {graph.storages[storage].role for storage in implementation.writes}
    return {Role.GRADIENT, Role.PARAMETER_GRADIENT} <= roles


def _parts(graph: TrainingGraph, operator: Operator, implementation: Implementation) -> tuple[Part, ...]:
    if operator.phase is Phase.FORWARD:
        return tuple(
            part
            for part, served in ((Part.FORWARD, implementation.first), (Part.RECOMPUTE, implementation.again))
            if served
        )
    roles = {graph.storages[storage].role for storage in implementation.writes}
    return tuple(
        part
        for part, role in ((Part.WEIGHT_GRADIENT, Role.PARAMETER_GRADIENT), (Part.INPUT_GRADIENT, Role.GRADIENT))
        if role in roles
    )
