"""Workspace against time of one layer's convolution implementations (MONeT, figure 7), from a profile.

    python -m benchmarks.execution.convolution PROFILE [--layer layer2.0.conv2] [--plot FILE.html]

Without a layer, the one whose implementations differ most in workspace. A star marks what no other implementation
beats in both.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from benchmarks.provenance import record
from explorer.device_profile import Profile
from explorer.graph import Operator, Phase
from explorer.profiles.loading import load_profile


@dataclass(frozen=True)
class Choice:
    """One implementation of one of a layer's convolution operators."""

    part: str
    implementation: str
    time_ms: float
    workspace_bytes: int
    best: bool


def main() -> None:
    """Print the table; write the plot if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profile", help="a file or a bundled name")
    parser.add_argument("--layer")
    parser.add_argument("--plot", type=Path, help="also write a plot here, as HTML")
    options = parser.parse_args()
    record(options, seeds=())
    profile = load_profile(options.profile)
    layers = {x.layer for x in profile.graph.operators if "convolution" in x.target}
    if options.layer is not None and options.layer not in layers:
        parser.error(f"no convolution in layer {options.layer!r}; there are {', '.join(sorted(layers))}")
    layer = options.layer or max(sorted(layers), key=lambda x: _spread(choices(profile, x)))
    found = choices(profile, layer)
    print(f"{layer} on {profile.device.label}")
    for choice in found:
        star = "*" if choice.best else " "
        memory = choice.workspace_bytes / 2**20
        print(f"{star} {choice.part:16}{choice.implementation:34}{choice.time_ms:9.2f} ms{memory:9.2f} MiB")
    if options.plot:
        options.plot.write_text(plot(found, layer), encoding="utf-8")


def choices(profile: Profile, layer: str) -> list[Choice]:
    """Every implementation of the layer's convolution, forward and backward."""
    found = []
    for operator in profile.graph.operators:
        if operator.layer != layer or "convolution" not in operator.target:
            continue
        costs = {x.name: profile.cost(x) for x in operator.implementations}
        for name, cost in costs.items():
            part = _part(operator, name)
            rivals = [x for other, x in costs.items() if _part(operator, other) == part]
            beaten = any(
                x != cost and x.time_ms <= cost.time_ms and x.workspace_bytes <= cost.workspace_bytes for x in rivals
            )
            found.append(Choice(part, name, cost.time_ms, cost.workspace_bytes, not beaten))
    return found


def _part(operator: Operator, implementation: str) -> str:
    if operator.phase is Phase.FORWARD:
        return "forward"
    if operator.optional:
        return "input gradient"
    return "weight gradient" if implementation.startswith("weight gradient") else "whole backward"


def _spread(found: list[Choice]) -> int:
    sizes = [x.workspace_bytes for x in found]
    return max(sizes, default=0) - min(sizes, default=0)


def plot(found: list[Choice], layer: str) -> str:
    """A panel for each part, a mark for each implementation; full where no other beats it."""
    from plotly.subplots import make_subplots

    from widgets import style

    parts = list(dict.fromkeys(x.part for x in found))
    figure = make_subplots(rows=1, cols=len(parts), subplot_titles=parts, shared_yaxes=True)
    for column, part in enumerate(parts, start=1):
        row = sorted((x for x in found if x.part == part), key=lambda x: x.workspace_bytes)
        figure.add_scatter(
            x=[x.workspace_bytes / 2**20 for x in row],
            y=[x.time_ms for x in row],
            text=[x.implementation.removeprefix(part).strip(", ") or "own" for x in row],
            mode="markers+text",
            textposition=["top center" if number % 2 else "bottom center" for number in range(len(row))],
            cliponaxis=False,
            marker={
                "color": style.BLUE,
                "size": 11,
                "symbol": ["circle" if x.best else "circle-open" for x in row],
            },
            row=1,
            col=column,
        )
        widest = max(x.workspace_bytes for x in row) / 2**20
        figure.update_xaxes(title_text="workspace, MiB", range=[-0.15 * widest, 1.2 * widest], row=1, col=column)
    figure.update_yaxes(title_text="time, ms", rangemode="tozero", col=1)
    figure.update_layout(
        template="plotly_white", title=layer, width=330 * len(parts) + 80, height=460, showlegend=False
    )
    return figure.to_html(include_plotlyjs=True, config={"showSendToCloud": False})


if __name__ == "__main__":
    main()
