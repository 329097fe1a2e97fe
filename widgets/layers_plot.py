"""What each layer gives: milliseconds of recomputation, and the activations it keeps for the backward pass."""

from __future__ import annotations

import html

import plotly.graph_objects as go

from explorer.device_profile import Profile
from explorer.simulation import Category, Stage, Timeline
from widgets import style
from widgets.figures import Figure
from widgets.layers import LayerGroups, group_layers, sums

RECOMPUTED, KEPT, KEPT_BY_ALL = "recomputation", "kept", "kept without a schedule"


class LayersPlot:
    """Draws into two cells of a figure, one above the other; call its methods inside ``Figure.redraw``."""

    def __init__(self, figure: Figure, *, rows: tuple[int, int], col: int) -> None:
        time, memory = rows
        figure.add_trace(_bar(RECOMPUTED, style.VERMILLION, "%{x}: %{y:.2f} ms again<extra></extra>", hatch="/"), time, col)
        figure.add_trace(_bar(KEPT_BY_ALL, style.FAINT, "%{x}: %{y:.3f} GiB without a schedule<extra></extra>"), memory, col)
        figure.add_trace(_bar(KEPT, style.ORANGE, "%{x}: %{y:.3f} GiB kept<extra></extra>"), memory, col)
        self._trace = {trace.name: trace for trace in figure.data}
        self._groups: LayerGroups | None = None

    def show_keep_all(self, profile: Profile, timeline: Timeline) -> None:
        """Name the layers, and draw what each keeps when nothing is recomputed."""
        self._groups = group_layers(profile.graph)
        kept = _kept_gib(profile, timeline, self._groups)
        used = {label for label, amount in zip(self._groups.labels, kept, strict=True) if amount}
        self._labels = [html.escape(label) for label in self._groups.labels]
        self._shown = [i for i, label in enumerate(self._groups.labels) if label in used]
        self._draw(KEPT_BY_ALL, kept)

    def show(self, profile: Profile, timeline: Timeline) -> None:
        """Draw a schedule's recomputation and what it keeps."""
        assert self._groups is not None, "show_keep_all comes first"
        again = [i for i, stage in enumerate(timeline.stages) if stage is Stage.RECOMPUTE]
        self._draw(
            RECOMPUTED,
            sums(self._groups, (timeline.operators[i] for i in again), (float(timeline.times_ms[i]) for i in again)),
        )
        self._draw(KEPT, _kept_gib(profile, timeline, self._groups))

    def _draw(self, name: str, values: list[float]) -> None:
        self._trace[name].update(x=[self._labels[i] for i in self._shown], y=[values[i] for i in self._shown])


def _kept_gib(profile: Profile, timeline: Timeline, groups: LayerGroups) -> list[float]:
    """Activations in memory when the forward pass has ended, by layer, in GiB."""
    boundary = timeline.operators.index(profile.graph.forward_count)
    kept = [x for x in timeline.alive_at(boundary) if x.category is Category.SAVED]
    makers = (profile.graph.producer[x.storage] for x in kept)
    storages = profile.graph.storages
    return sums(groups, makers, (profile.allocated_bytes(storages[x.storage]) / style.GIB for x in kept))


def _bar(name: str, colour: str, hover: str, *, hatch: str = "") -> go.Bar:
    pattern = {"shape": hatch, "size": 5, "fgcolor": "#ffffff", "fgopacity": 0.6}
    return go.Bar(name=name, marker={"color": colour, "line": {"width": 0}, "pattern": pattern}, hovertemplate=hover)
