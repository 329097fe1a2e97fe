"""What each layer gives: milliseconds of recomputation, and the activations it keeps for the backward pass."""

from __future__ import annotations

import html
from collections.abc import Sequence

import plotly.graph_objects as go

from explorer.device_profile import Profile
from explorer.simulation import Category, Stage, Timeline
from widgets import style
from widgets.layers import LayerGroups, group_layers, sums


def layer_traces(profile: Profile, keep_all: Timeline, timeline: Timeline) -> tuple[list[go.Bar], list[go.Bar]]:
    """Bars of recomputation time, and bars of kept activations before those that a plain step keeps.

    Args:
        profile: of both timelines.
        keep_all: of a plain step.
        timeline: of the schedule shown.
    """
    groups = group_layers(profile.graph)
    plain, kept = (_kept_gib(profile, x, groups) for x in (keep_all, timeline))
    again = _recomputed_ms(timeline, groups)
    # A layer that neither keeps nor repeats anything would only take room.
    shown = [i for i in range(len(groups.labels)) if plain[i] or kept[i] or again[i]]
    labels = [html.escape(groups.labels[i]) for i in shown]

    def bar(name: str, values: Sequence[float], hover: str, colour: str, *, hatch: str = "") -> go.Bar:
        pattern = {"shape": hatch, "size": 5, "fillmode": "overlay", "fgcolor": "#ffffff", "fgopacity": 0.6}
        return go.Bar(
            name=name,
            x=labels,
            y=[values[i] for i in shown],
            marker={"color": colour, "line": {"width": 0}, "pattern": pattern},
            hovertemplate="%{x}: " + hover + "<extra></extra>",
            showlegend=False,
        )

    return (
        [bar("recomputation", again, "%{y:.3~r} ms of recomputation", style.VERMILLION, hatch="/")],
        [
            bar("kept by a plain step", plain, "%{y:.3~r} GiB kept by a plain step", "rgba(128, 128, 128, 0.35)"),
            bar("kept", kept, "%{y:.3~r} GiB kept", style.ORANGE),
        ],
    )


def _recomputed_ms(timeline: Timeline, groups: LayerGroups) -> list[float]:
    again = [i for i, stage in enumerate(timeline.stages) if stage is Stage.RECOMPUTE]
    return sums(groups, (timeline.operators[i] for i in again), (float(timeline.times_ms[i]) for i in again))


def _kept_gib(profile: Profile, timeline: Timeline, groups: LayerGroups) -> list[float]:
    """Activations in memory when the forward pass has ended, by layer, in GiB."""
    graph = profile.graph
    boundary = timeline.operators.index(graph.forward_count)
    kept = [graph.storages[x.storage] for x in timeline.alive_at(boundary) if x.category is Category.SAVED]
    makers = (graph.producer[storage.id] for storage in kept)
    return sums(groups, makers, (profile.allocated_bytes(storage) / style.GIB for storage in kept))
