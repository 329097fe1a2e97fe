"""The captured step as a graph of layers: what becomes of the tensors of each, and which reads from which."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from explorer.analysis.explaining import Fate, TensorExplanation
from explorer.device_profile import Profile
from explorer.graph import TrainingGraph
from widgets import style
from widgets.scene.step import model_table

FATES = (
    ("kept", (Fate.KEPT,), style.ORANGE, ""),
    ("recomputed", (Fate.RECOMPUTED,), style.VERMILLION, "/"),
    ("replaced by something smaller, or by another", (Fate.ENCODED, Fate.REPLACED), style.SKY, "\\"),
    ("of use to the forward pass only", (Fate.TEMPORARY,), "#8A8A8A", ""),
)
"""What becomes of tensors, with names, colour and hatch."""


def module_graph(profile: Profile, explained: tuple[TensorExplanation, ...]) -> dict[str, Any]:
    """Bytes of every layer's tensors by what becomes of them, and bytes that flow from layer to layer.

    Args:
        profile: of the schedule.
        explained: its tensors, all of them.

    Returns:
        ``model`` as ``model_table`` has it; ``fates``: name, colour and hatch; ``bytes``: float64 for each fate, one
        for each layer; ``order``: layers of the forward pass, as they run first; ``edges``: from, to and bytes.
    """
    model = model_table(profile)
    layer_of = model["layer_of"]
    amounts = np.zeros((len(FATES), len(model["layers"])))
    row = {fate: i for i, (_, fates, *_) in enumerate(FATES) for fate in fates}
    for tensor in explained:
        if tensor.fate in row and tensor.producer is not None:
            amounts[row[tensor.fate], layer_of[tensor.producer]] += tensor.allocated_bytes
    order = dict.fromkeys(int(layer_of[x.id]) for x in profile.graph.forward)
    edges = _edges(profile.graph, layer_of, model["sizes"])
    return {
        "model": {key: model[key] for key in ("layers", "labels", "picks", "chains")},
        "fates": [{"name": name, "colour": colour, "hatch": hatch} for name, _, colour, hatch in FATES],
        "bytes": list(amounts),
        "order": list(order),
        "edges": [[a, b, size] for (a, b), size in edges.items()],
    }


def _edges(graph: TrainingGraph, layer_of: np.ndarray, sizes: np.ndarray) -> Counter[tuple[int, int]]:
    """Between layers of the forward pass."""
    found: Counter[tuple[int, int]] = Counter()
    for operator in graph.forward:
        for storage in operator.implementations[0].reads:
            producer = graph.producer.get(storage)
            if producer is not None and layer_of[producer] != layer_of[operator.id]:
                found[int(layer_of[producer]), int(layer_of[operator.id])] += int(sizes[storage])
    return found
