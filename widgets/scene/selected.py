"""What is selected, as rows: tensors of a layer, or of a stretch of the step."""

from __future__ import annotations

from typing import Any

from widgets.scene.allocations import describe
from widgets.scene.layers import NO_MODULE
from widgets.scene.scene import Scene


def selected_rows(scene: Scene, stretch: tuple[int, int] | None) -> list[dict[str, Any]]:
    """A row for every stay in memory of a tensor that is selected, the largest first.

    Args:
        scene: whose selected layer is meant, if one is.
        stretch: first and last run of those in which a tensor must be in memory; None for all.

    Returns:
        With the keys ``tensor``, ``layer``, ``shape``, ``category``, ``bytes``, ``first_run``, ``last_run``,
        ``alive_ms``; none where neither is selected.
    """
    if not scene.selection and stretch is None:
        return []
    graph, timeline = scene.profile.graph, scene.drawn
    first, last = stretch if stretch is not None else (0, len(timeline.operators) - 1)
    found = []
    for stay in timeline.lifetimes:
        producer, storage = graph.producer[stay.storage], graph.storages[stay.storage]
        if stay.end < first or stay.start > last or (scene.selection and producer not in scene.selected):
            continue
        found.append(
            {
                "tensor": storage.name,
                "layer": graph.operators[producer].layer or NO_MODULE,
                "shape": describe(storage),
                "category": stay.category.value,
                "bytes": scene.profile.allocated_bytes(storage),
                "first_run": stay.start,
                "last_run": stay.end,
                "alive_ms": float(timeline.times_ms[stay.start : stay.end + 1].sum()),
            }
        )
    return sorted(found, key=lambda row: -row["bytes"])
