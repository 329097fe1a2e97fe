"""One training step as plain numbers: what the page draws, walks through and tells of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from itertools import accumulate
from typing import Any

import numpy as np

from explorer.analysis.aligning import aligned_runs
from explorer.device_profile import Profile
from explorer.graph import TrainingGraph
from explorer.measurement import Measurement
from explorer.timeline import CATEGORIES, Stage, Timeline
from widgets.scene.blocks import Place, Run, blocks_of
from widgets.scene.layers import NO_MODULE

_STAGES = tuple(Stage)
_NEARLY_ALL = 0.8
_MEASURED = 1500  # bins that a screen can show
OUTLINE = 480
"""Columns of a schedule that is drawn while a hand moves the budget."""


def model_table(profile: Profile) -> dict[str, Any]:
    """What is the same in every schedule: names, sizes, layers and the bands that they are drawn as.

    Returns:
        ``operators``: names; ``layer_of``: int32 for each, its place in ``layers``; ``storages`` and ``sizes``: names
        and bytes; ``labels``: names of bands, and ``picks`` their layers, empty for several; ``chains``: for each layer
        its bands, the outermost first, as places in ``labels``.
    """
    graph = profile.graph
    layers = tuple(dict.fromkeys(x.layer for x in graph.operators))
    place = {layer: i for i, layer in enumerate(layers)}
    labels: dict[str, int] = {}
    paths = {path for layer in layers for path in accumulate(layer.split("."), "{}.{}".format)}
    chains = [[labels.setdefault(x, len(labels)) for x in chain] for chain in _chains(graph, layers)]
    return {
        "operators": [x.name for x in graph.operators],
        "layer_of": np.array([place[x.layer] for x in graph.operators], dtype=np.int32),
        "layers": [x or NO_MODULE for x in layers],
        "storages": [x.name for x in graph.storages],
        "sizes": np.array([profile.allocated_bytes(x) for x in graph.storages], dtype=np.float64),
        "labels": list(labels),
        "picks": [x if x in paths else "" for x in labels],
        "chains": chains,
    }


def _chains(graph: TrainingGraph, layers: tuple[str, ...]) -> list[list[str]]:
    """For each layer the names of what it is part of, the outermost first: repeated blocks are one, then each.

    What has nearly all layers in it, such as ``model``, says nothing of any of them.
    """
    blocks = blocks_of(graph)
    places = {layer: blocks.place(layer) for layer in layers}
    # Lists that have nothing but one run of blocks, whose name is theirs.
    alone = {
        run
        for run in blocks.runs
        if all(place is not None and place.run == run for x, place in places.items() if x.startswith(run.stem))
    }
    found = [_chain(layer, places[layer], alone) if layer else [] for layer in layers]
    runs = {run.label(range(run.count)) for run in blocks.runs}
    while True:
        first = Counter(chain[0] for chain in found if len(chain) > 1)
        name, count = first.most_common(1)[0] if first else ("", 0)
        if count <= _NEARLY_ALL * len(layers) or name in runs:
            return found
        found = [chain[1:] if len(chain) > 1 and chain[0] == name else chain for chain in found]


def _chain(layer: str, place: Place | None, alone: Collection[Run]) -> list[str]:
    parts = layer.split(".")
    names = [".".join(parts[: depth + 1]) for depth in range(len(parts))]
    if place is not None:
        at = place.run.depth - 1
        names[max(0, at - 1) if place.run in alone else at : at] = [place.run.label(range(place.run.count))]
    return names


def columns(timeline: Timeline, *, most: int | None = None) -> dict[str, Any]:
    """Memory and time of a step, a column for each run; of more than ``most`` the highest of some neighbours stands.

    Returns:
        ``runs``: how many; ``ends``: int32, the run after each column's last; ``ends_ms``: the time then; ``rows``:
        int32, the run that a column shows; ``operators`` and ``stages``: of that; ``bytes``: float64 by place of the
        category, of those that there are.
    """
    runs = len(timeline.operators)
    rows, ends = _columns(timeline.total_bytes, most)
    shown = timeline.bytes[rows]
    stage = {x: i for i, x in enumerate(_STAGES)}
    return {
        "runs": runs,
        "ends": ends.astype(np.int32),
        "ends_ms": np.cumsum(timeline.times_ms)[ends - 1],
        "rows": rows.astype(np.int32),
        "operators": np.array(timeline.operators, dtype=np.int32)[rows],
        "stages": np.array([stage[x] for x in timeline.stages], dtype=np.uint8)[rows],
        "bytes": {str(i): shown[:, i].astype(np.float64) for i in range(len(CATEGORIES)) if shown[:, i].any()},
        "peak": [timeline.peak_run, timeline.peak_bytes],
        "time_ms": timeline.time_ms,
    }


def _columns(total: np.ndarray, most: int | None) -> tuple[np.ndarray, np.ndarray]:
    """The run that stands for each column, and the run after its last."""
    runs = len(total)
    if most is None or runs <= most:
        return np.arange(runs), np.arange(1, runs + 1)
    starts = np.unique(np.linspace(0, runs, most, endpoint=False).astype(np.int64))
    ends = np.append(starts[1:], runs)
    return np.array([a + total[a:b].argmax() for a, b in zip(starts, ends, strict=True)]), ends


def step_table(profile: Profile, timeline: Timeline) -> dict[str, Any]:
    """A step run by run: its ``columns``, the stays of its tensors, and how operators run that run in another way.

    Returns:
        ``columns`` with ``stays``: storage, first run, last run and category, each int32; ``ways``: the implementation
        of each run that is not PyTorch's own, by run.
    """
    operators = profile.graph.operators
    category = {x: i for i, x in enumerate(CATEGORIES)}
    stays = sorted(timeline.lifetimes, key=lambda x: x.start)
    ways = enumerate(zip(timeline.operators, timeline.implementations, strict=True))
    return columns(timeline) | {
        "stays": [
            np.array([x.storage for x in stays], dtype=np.int32),
            np.array([x.start for x in stays], dtype=np.int32),
            np.array([x.end for x in stays], dtype=np.int32),
            np.array([category[x.category] for x in stays], dtype=np.int32),
        ],
        "ways": {str(run): way for run, (x, way) in ways if way != operators[x].implementations[0].name},
    }


def measured_line(timeline: Timeline, measurement: Measurement) -> dict[str, Any] | None:
    """What was measured over the runs of the step: ``runs`` and ``bytes``; None where no event was seen."""
    runs = aligned_runs(timeline, measurement)
    if not len(runs):
        return None
    seen = envelope(runs, measurement.allocated_bytes)
    return {"runs": runs[seen], "bytes": measurement.allocated_bytes[seen].astype(np.float64)}


def envelope(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Indices of a curve's lowest and highest point per bin: all that can be seen of it."""
    if len(x) <= 2 * _MEASURED:
        return np.arange(len(x))
    starts = np.flatnonzero(np.diff(np.floor(x / x[-1] * _MEASURED), prepend=-1))
    ends = np.append(starts[1:], len(x))
    picked = {i for a, b in zip(starts, ends, strict=True) for i in (a + y[a:b].argmin(), a + y[a:b].argmax())}
    return np.array(sorted(picked))
