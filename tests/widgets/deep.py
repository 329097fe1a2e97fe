"""A model of many equal blocks."""

from __future__ import annotations

from dataclasses import replace

from explorer.device_profile import Profile
from explorer.graph import Phase
from tests.solvers.graphs import chain


def deep(blocks: int, *, each: int = 4) -> Profile:
    """A chain in blocks of ``each`` layers, ``model.layers.7.part2``, with a head behind the last."""
    profile = chain(blocks * each)
    graph = profile.graph
    names = [f"model.layers.{i // each}.part{i % each}" for i in range(blocks * each)]
    forward = dict(zip((x.id for x in graph.forward), (*names, "model.head"), strict=True))
    backward = [x for x in graph.backward if any(y in graph.producer for y in x.implementations[0].reads)]
    layers = forward | dict(zip((x.id for x in backward), reversed(names), strict=True))
    assert all(x.phase is not Phase.FORWARD or layers[x.id] for x in graph.operators)
    return replace(
        profile, graph=replace(graph, operators=tuple(replace(x, layer=layers.get(x.id, "")) for x in graph.operators))
    )
