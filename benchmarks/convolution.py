"""Workspace against time of one layer's convolution implementations (MONeT, figure 7), from a profile.

Run: ``python benchmarks/convolution.py PROFILE [--layer layer2.0.conv2] [--plot FILE.html]``; without a layer, the one
whose implementations differ most in workspace. A star marks what no other implementation beats in both.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from explorer.device_profile import Profile, load_profile
from explorer.graph import Operator, Phase


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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("profile", help="a file or a bundled name")
    parser.add_argument("--layer")
    parser.add_argument("--plot", type=Path, help="also write a plot here, as HTML")
    options = parser.parse_args()
    profile = load_profile(options.profile)
    layers = {x.layer for x in profile.graph.operators if "convolution" in x.target}
    if options.layer is not None and options.layer not in layers:
        parser.error(f"no convolution in layer {options.layer!r}; there are {', '.join(sorted(layers))}")
    layer = options.layer or max(sorted(layers), key=lambda x: _spread(choices(profile, x)))
    found = choices(profile, layer)
    print(f"{layer} on {profile.device.name}")
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
    """A mark for each implementation, a colour and symbol for each part."""
    import plotly.graph_objects as go

    from widgets import style

    figure = go.Figure()
    looks = zip(
        dict.fromkeys(x.part for x in found), (style.BLUE, style.ORANGE, style.GREEN, style.PURPLE), strict=False
    )
    for number, (part, colour) in enumerate(looks):
        row = [x for x in found if x.part == part]
        figure.add_scatter(
            x=[x.workspace_bytes / 2**20 for x in row],
            y=[x.time_ms for x in row],
            text=[x.implementation for x in row],
            name=part,
            mode="markers+text",
            textposition="top center",
            marker={"color": colour, "size": 12, "symbol": number},
        )
    figure.update_layout(
        template="plotly_white",
        title=layer,
        xaxis_title="workspace, MiB",
        yaxis_title="time, ms",
        width=900,
        height=520,
    )
    return figure.to_html(include_plotlyjs=True)


if __name__ == "__main__":
    main()
