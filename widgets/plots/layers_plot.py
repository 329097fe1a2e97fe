"""What each layer gives against a plain step: memory saved and time added (MONeT's Figure 5)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from explorer.device_profile import Profile
from explorer.harmless import in_figure
from explorer.timeline import Category, Stage, Timeline
from widgets import style
from widgets.plots.figure import Figure, Trace, axis, bar, base_layout, short_path, subtitle
from widgets.scene.blocks import Blocks, blocks_of, folded
from widgets.scene.layers import FEW, LayerGroups, covers, group_layers, sums

_TITLES = ("Time added per layer (ms)", "Activations kept per layer ({unit}; grey: saved)")
_SPLIT = 0.5
_TICK = 16  # characters below the axis
_MOST_NAMED = 16  # blocks
_FEWEST_TICKS = 2  # between the ends of an axis


def layers_figure(
    profile: Profile, keep_all: Timeline, timeline: Timeline, *, selection: str = "", single: bool = False
) -> Figure:
    """Bars by layer; each one's ``customdata`` is its layer, or the first of those that it stands for.

    Where there are too many, repeated blocks with equal bars are one, of their sum; that of the selection shows its
    layers.

    Args:
        profile: of both timelines.
        keep_all: of a plain step.
        timeline: of the schedule shown.
        selection: layer to mark, as ``Scene`` has it.
        single: a bar for each block nevertheless.
    """
    bars, upper, lower, unit = _bars(profile, keep_all, timeline, selection=selection, single=single)
    named = _named(bars, blocks_of(profile.graph))
    titles = [title.format(unit=unit) for title in _TITLES]
    zoom = f"{unit} of {', '.join(label for label, _ in bars)}"
    layout = dict(
        **(base_layout(310, "; ".join(titles)) | {"uirevision": zoom}),  # the reader's zoom is of these bars
        barmode="overlay",
        bargap=0.2,
        annotations=[subtitle(text, x=0.5, y=y) for text, y in zip(titles, (1.0, _SPLIT - 0.08), strict=True)],
        xaxis=axis("", type="category", showticklabels=False, anchor="y", matches="x2"),
        xaxis2=axis(
            "",
            type="category",
            tickangle=-40,
            tickfont={"size": 10},
            automargin=True,
            anchor="y2",
            tickvals=[in_figure(label) for label in named],
            ticktext=[short_path(label, most=_TICK) for label in named],
        ),
        yaxis=axis("", tickvals=_ticks(upper), domain=[_SPLIT + 0.08, 1]),
        yaxis2=axis("", rangemode="tozero", tickvals=_ticks(lower), domain=[0, _SPLIT - 0.08]),
    )
    return Figure([*upper, *lower], layout)


def _named(bars: Sequence[tuple[str, str]], blocks: Blocks) -> list[str]:
    """What stands below the axis: the names of so many blocks, and of all other layers."""
    of_blocks = [label for label, layer in bars if blocks.place(layer) is not None]
    left_out = set(of_blocks) - set(of_blocks[:: -(-len(of_blocks) // _MOST_NAMED) or 1])
    return [label for label, _ in bars if label not in left_out]


def _bars(
    profile: Profile, keep_all: Timeline, timeline: Timeline, *, selection: str, single: bool
) -> tuple[list[tuple[str, str]], list[Trace], list[Trace], str]:
    """Name and first layer of each bar, the traces of both plots, and the unit of memory in them."""
    groups = group_layers(profile.graph, within=selection)
    plain, kept = (_kept_bytes(profile, x, groups) for x in (keep_all, timeline))
    unit = style.unit_of(max(*plain, *kept, 1))
    plain, kept = ([x / style.UNITS[unit] for x in amounts] for amounts in (plain, kept))
    again = _time_ms(timeline, groups, again=True)
    ways = [a - b for a, b in zip(*(_time_ms(x, groups, again=False) for x in (timeline, keep_all)), strict=True)]
    # A layer that neither keeps nor repeats anything would only take room.
    shown = [i for i in range(len(groups.labels)) if plain[i] or kept[i] or again[i] or abs(ways[i]) > 0.001]
    alike = folded(
        shown,
        blocks_of(profile.graph),
        layer=lambda i: groups.labels[i],
        equal=lambda i: (
            i if single or len(shown) <= FEW else tuple(f"{values[i]:.2g}" for values in (plain, kept, again, ways))
        ),
    )
    marked = [2 if any(covers(selection, groups.labels[i]) for i in members) else 0 for _, members in alike]

    def drawn(
        name: str, values: Sequence[float], hover: str, colour: str, *, hatch: str = "", lower: bool = False
    ) -> Trace:
        pattern = {"shape": hatch, "size": 5, "fillmode": "overlay", "fgcolor": "#ffffff", "fgopacity": 0.6}
        return bar(
            name=name,
            x=[in_figure(label) for label, _ in alike],
            y=[sum(values[i] for i in members) for _, members in alike],
            customdata=[groups.labels[members[0]] for _, members in alike],
            hovertext=[f" in {len(members)} blocks" if len(members) > 1 else "" for _, members in alike],
            marker={"color": colour, "line": {"width": marked, "color": style.TEXT}, "pattern": pattern},
            hovertemplate="%{x}: " + hover + "%{hovertext}<extra></extra>",
            showlegend=False,
            **({"xaxis": "x2", "yaxis": "y2"} if lower else {}),
        )

    return (
        [(label, groups.labels[members[0]]) for label, members in alike],
        [
            drawn("other implementations", ways, "%{y:+.3~f} ms by other implementations", style.BLUE),
            drawn("recomputation", again, "%{y:.3~r} ms of recomputation", style.VERMILLION, hatch="/"),
        ],
        [
            drawn(
                "kept by a plain step",
                plain,
                f"%{{y:.3~r}} {unit} kept by a plain step",
                "rgba(128, 128, 128, 0.35)",
                lower=True,
            ),
            drawn("kept", kept, f"%{{y:.3~r}} {unit} kept", style.ORANGE, lower=True),
        ],
        unit,
    )


def _time_ms(timeline: Timeline, groups: LayerGroups, *, again: bool) -> list[float]:
    """Of recomputations, or of everything else, by layer."""
    of = np.array([(stage is Stage.RECOMPUTE) is again for stage in timeline.stages], dtype=bool)
    return sums(groups, np.array(timeline.operators)[of].tolist(), timeline.times_ms[of].tolist())


def _kept_bytes(profile: Profile, timeline: Timeline, groups: LayerGroups) -> list[float]:
    """Activations in memory when the forward pass has ended, by layer."""
    graph = profile.graph
    boundary = timeline.operators.index(graph.forward_count)
    kept = [graph.storages[x.storage] for x in timeline.alive_at(boundary) if x.category is Category.SAVED]
    makers = (graph.producer[storage.id] for storage in kept)
    return sums(groups, makers, (profile.allocated_bytes(storage) for storage in kept))


def _ticks(traces: Sequence[Trace]) -> list[float]:
    """Round numbers from the lowest bar to the highest, three or more: plotly's own may be a single one."""
    values = [y for trace in traces for y in trace["y"]]
    low, high = min(0.0, *values, 0.0), max(0.0, *values, 0.0)
    rough = (high - low) / _FEWEST_TICKS or 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    step = max(x * power for x in (1, 2, 5) if x * power <= rough)
    return [step * x for x in range(math.ceil(low / step), math.floor(high / step) + 1)]
