"""MONeT's figures (Shah et al., *Memory Optimization for Deep Networks*, ICLR 2021)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import explorer
from benchmarks.papers import findings, jobs, published
from benchmarks.papers.costs import (
    COSTS,
    MIXED,
    after_a_minute,
    as_percent,
    curve_of,
    overhead_within,
    read_parts,
    row_of,
    sources_of,
    whole_bytes,
)
from benchmarks.papers.exhibit import Exhibit, Label, Row, Table, figure, grid, source, stored
from benchmarks.papers.monet_tables import table_1, table_2, table_3, table_5, table_6, table_7
from benchmarks.papers.published import NETWORKS
from explorer.device_profile import Profile
from explorer.schedule import Schedule
from explorer.timeline import Stage, Timeline

__all__ = ["figure_3", "figure_4", "figure_5", "figure_6", "figure_7", "figure_8"]
__all__ += ["table_1", "table_2", "table_3", "table_5", "table_6", "table_7"]

GIB, MIB = 2**30, 2**20
SYSTEMS = {"monet": "MONeT", "checkmate-o": "Checkmate-O", "checkmate-d": "Checkmate-D"}
_ASPECTS = {
    "none": "none",
    "convolution": "conv",
    "output": "output-activated",
    "intermediate": "intermediate-activated",
}
"""The paper's names of what may be chosen."""


def figure_3(*, quick: bool = True, zoo: Path | None = None) -> Exhibit:
    """Overhead against memory: MONeT, Checkmate-D and Checkmate-O for five networks."""
    panels, rows, parts = [], [], read_parts("budgets", quick=quick, zoo=zoo)
    for part in map(after_a_minute, parts):
        name = part["part"]
        if name not in NETWORKS:
            continue
        theirs = published.MEASURED_CURVES[name]
        ratio = [(x / theirs[0][0], y) for x, y in theirs]
        series = [("MONeT, as published", *map(list, zip(*ratio, strict=True)))]
        series += [(title, *curve_of(part, method, whole=whole_bytes(part))) for method, title in SYSTEMS.items()]
        panels.append((NETWORKS[name], series))
        for gib, overhead in theirs[1:]:
            ours = [overhead_within(part, x, round(gib * GIB)) for x in SYSTEMS]
            kind = "published" if part["published_costs"] else "estimated"
            rows.append([NETWORKS[name], kind, f"{gib:.2f}", f"{overhead:+.1f} %", *map(as_percent, ours)])
    made = grid(panels, x="share of PyTorch's memory", y="extra time, %", title="MONeT, Figure 3")
    made.update_yaxes(range=[-12, 50])
    made.update_xaxes(range=[0.25, 1.02])
    table = Table(("network", "costs", "GB", "MONeT, measured there", *(f"{x}, here" for x in SYSTEMS.values())), rows)
    note = (
        f"{COSTS} Theirs are steps run on the GPU, ours sums of operators. What PyTorch took is not among the "
        "published costs, but follows: the published objectives, each divided by one and the overhead measured there, "
        f"give {findings.of_pytorch()}. So what they simulated is what they measured. "
        f"{findings.of_points(findings.points(parts))} Ours are those of a minute (docs/figures.md); Checkmate's are "
        "of some seconds.\n\n"
        "Checkmate-D has PyTorch's default convolutions, which take longer than the quickest ones that PyTorch's "
        "benchmark mode finds. UNet and VGG-16 may be quicker than PyTorch: no magic, but convolutions by algorithms "
        "for whose workspace PyTorch's step, which keeps everything, has no room. By estimates GoogLeNet gains from "
        "poolings and losses of other implementations too, which the paper did not have; MobileNet-V2 "
        "needs more, for "
        "its ReLU6 is not in place."
    )
    return Exhibit("MONeT, Figure 3", MIXED, (table,), (made, _measured()), note, sources_of("budgets", quick=quick))


def _measured() -> Any:
    """The same of what was run on an H200."""
    made = figure(title="The same measured on an H200", x="share of PyTorch's memory", y="extra time, %")
    for name in ("resnet50", "unet", "mobilenet_v2"):
        plain, *runs = stored(f"../gpu/runs/{name}")
        points = sorted(
            (x["peak_bytes"] / plain["peak_bytes"], 100 * (x["step_time_ms"] / plain["step_time_ms"] - 1)) for x in runs
        )
        made.add_scatter(x=[x for x, _ in points], y=[y for _, y in points], name=NETWORKS[name], mode="lines+markers")
    return made


def figure_4(*, quick: bool = True, zoo: Path | None = None) -> Exhibit:
    """Ablation at 8 GB: each kind of optimization alone, and all."""
    made = figure(title="MONeT, Figure 4: memory ratio 0.53 (8 GB)", x="", y="extra time, %", barmode="group")
    rows = []
    parts = {x["part"]: x for x in read_parts("ablation", quick=quick, zoo=zoo)}
    for name in ("resnet50", "googlenet", "vgg16"):
        found = {kind: row_of(parts[name], set=kind, gib=8)["overhead"] for kind in jobs.SETS}
        made.add_bar(
            x=[_ASPECTS.get(x, x) for x in found],
            y=[None if y is None else 100 * y for y in found.values()],
            name=NETWORKS[name],
        )
        rows.append([NETWORKS[name], *map(as_percent, found.values())])
    table = Table(("network", *(_ASPECTS.get(x, x) for x in jobs.SETS)), rows)
    note = (
        f"{COSTS} All choose operators in place; without convolutions, the quickest that fit are put in afterwards, "
        "as in the paper. More choices are never worse in themselves: where a bar is higher than one of fewer choices, "
        "the solver had too little time for the larger program, four seconds."
    )
    return Exhibit("MONeT, Figure 4", MIXED, (table,), (made,), note, sources_of("ablation", quick=quick))


def figure_6(*, quick: bool = True, zoo: Path | None = None) -> Exhibit:
    """The same at every budget, for five networks."""
    panels, best, count = [], 0, 0
    for part in read_parts("ablation", quick=quick, zoo=zoo):
        series = []
        for kind in jobs.SETS:
            points = [
                (x["gib"], 100 * x["overhead"]) for x in part["rows"] if x["set"] == kind and x["overhead"] is not None
            ]
            series.append((_ASPECTS.get(kind, kind), [x for x, _ in points], [y for _, y in points]))
        panels.append((NETWORKS[part["part"]], series))
        for gib in jobs.ABLATION_GIB:
            at = {x["set"]: x["overhead"] for x in part["rows"] if x["gib"] == gib}
            if at["all"] is not None:
                count += 1
                best += all(x is None or at["all"] <= x + 1e-3 for x in at.values())
    made = grid(panels, x="budget, GiB", y="extra time, %", title="MONeT, Figure 6")
    note = (
        f"{COSTS} All together is the best choice (within 0.1 points) at {best} of {count} budgets; the "
        "paper says of "
        "its own that it always is. Where it is not, it had too little time: four seconds each, beside "
        "other work. As there, "
        "VGG-16 fits its smallest budgets by bits alone (intermediate-activated). Convolutions matter "
        "most where they are large, and least in MobileNet-V2, whose "
        "convolutions are depthwise."
    )
    return Exhibit("MONeT, Figure 6", MIXED, (), (made,), note, sources_of("ablation", quick=quick))


def figure_5(*, quick: bool = True) -> Exhibit:
    """Case study of ResNet-50 at 8 GB: memory over the step, and where it is saved and paid."""
    profile = explorer.load_profile("resnet50-p100-16gb")
    plain = explorer.keep_all(profile.graph)
    options: dict[str, Any] = {"budget": "8 GiB", "time_limit": 3.0 if quick else 30.0, "remember": False}
    schedules = {
        "PyTorch": plain,
        "MONeT without optimizations": explorer.solve(profile, optimizations=["inplace"], **options).schedule,
        "MONeT": explorer.solve(profile, **options).schedule,
    }
    lines = {name: explorer.simulate(profile, x) for name, x in schedules.items() if x is not None}
    top = figure(
        title="ResNet-50, batch 184: memory while each operator runs", x="operator (forward, then backward)", y="GiB"
    )
    for name, line in lines.items():
        top.add_scatter(x=_positions(line), y=line.total_bytes / GIB, name=name, mode="lines")
    saved, paid = _per_operator(profile, schedules["MONeT"], lines)
    middle = figure(title="Memory that MONeT's forward pass does not keep", x="operator", y="MiB", height=240)
    middle.add_bar(x=list(range(len(saved))), y=saved / MIB, marker_line_width=0)
    bottom = figure(title="Time that is spent on recomputation before each operator", x="operator", y="ms", height=240)
    bottom.add_bar(x=list(range(len(paid))), y=paid, marker_line_width=0)
    peaks = [[name, f"{x.peak_bytes / GIB:.2f}", f"{x.time_ms:.0f}"] for name, x in lines.items()]
    measured = stored("../gpu/timeline-resnet50-0.50")
    note = (
        "The paper: 14.7 GB for PyTorch and 8 for MONeT; memory is saved in early layers, and most of the overhead "
        "is in the backward pass. So it is here, on an estimated P100, made anew each time. On an H200 a schedule of "
        "this network was followed run by run: measured memory was the predicted one plus one MiB at each of its "
        f"{len(measured['runs'])} runs (docs/gpu.md)."
    )
    return Exhibit(
        "MONeT, Figure 5", (Label.ESTIMATED,), (Table(("", "peak, GiB", "ms"), peaks),), (top, middle, bottom), note
    )


def _positions(line: Timeline) -> list[float]:
    """Operators that run again stand at the place of the backward operator that they run for."""
    at, found = 0.0, []
    for operator, stage in zip(line.operators, line.stages, strict=True):
        at = at if stage is Stage.RECOMPUTE else float(operator)
        found.append(at)
    return found


def _per_operator(
    profile: Profile, schedule: Schedule | None, lines: dict[str, Timeline]
) -> tuple[np.ndarray, np.ndarray]:
    """Bytes less kept past the forward pass than by PyTorch, by their maker; milliseconds of recomputation, by when."""
    assert schedule is not None, "there is a schedule for 8 GiB"
    graph = profile.graph
    kept = {}
    for name in ("PyTorch", "MONeT"):
        line = lines[name]
        boundary = next(n for n, x in enumerate(line.operators) if x >= graph.forward_count)
        kept[name] = {x.storage for x in line.lifetimes if x.start < boundary <= x.end}
    saved, paid = np.zeros(len(graph.operators)), np.zeros(len(graph.operators))
    for storage, maker in graph.producer.items():
        saved[maker] += graph.storages[storage].bytes * ((storage in kept["PyTorch"]) - (storage in kept["MONeT"]))
    line = lines["MONeT"]
    for at, stage, milliseconds in zip(_positions(line), line.stages, line.times_ms, strict=True):
        paid[int(at)] += milliseconds if stage is Stage.RECOMPUTE else 0.0
    return saved, paid


def figure_7(*, quick: bool = True) -> Exhibit:
    """Workspace against time of one layer's convolutions."""
    del quick
    made = figure(
        title="MONeT, Figure 7: its layer on an H200, and ResNet-50's like it on a P100",
        x="workspace, MiB",
        y="ms",
        height=440,
    )
    rows = []
    for file, title in (("layer-float32", "H200, float32"), ("layer-tf32", "H200, TF32")):
        found = stored(f"../gpu/{file}")
        for part in ("forward", "input gradient", "weight gradient"):
            several = [x for x in found if x["part"] == part]
            made.add_scatter(
                x=[x["workspace_bytes"] / MIB for x in several],
                y=[x["time_ms"] for x in several],
                mode="markers",
                text=[x["implementation"] for x in several],
                name=f"{title}: {part}",
                visible=True if file == "layer-float32" else "legendonly",
            )
            rows.append([title, part, str(len(several)), str(sum(x["best"] for x in several))])
    for part in stored("layer"):
        found = part["rows"]
        made.add_scatter(
            x=[x["workspace_bytes"] / MIB for x in found],
            y=[x["ms"] for x in found],
            mode="markers",
            marker_symbol="x",
            text=[f"algorithm {x['algorithm']}" for x in found],
            name=f"P100, as published: {part['part']}",
        )
        rows.append(["P100, as published", part["part"], str(len(found)), str(_unbeaten(found))])
    note = (
        "The layer (256 × 64 × 56 × 56, 3 × 3, 64 channels) was measured on an H200. From 2020 there are "
        "the authors' "
        "costs of ResNet-50's layer of the same shape at a batch of 184, on a P100. Then as now the memory used is "
        "not inversely proportional to time, and no algorithm is best in both; today PyTorch's own "
        "choice in parts of "
        "the batch fills the gap that retired algorithms left (docs/gpu.md)."
    )
    table = Table(("device", "part", "implementations", "that none beats in both"), rows)
    return Exhibit(
        "MONeT, Figure 7", (Label.MEASURED,), (table,), (made,), note, (source("../gpu/layer-float32"), source("layer"))
    )


def _unbeaten(rows: Sequence[Row]) -> int:
    costs = {(x["ms"], x["workspace_bytes"]) for x in rows}
    return sum(not any(y != x and y[0] <= x[0] and y[1] <= x[1] for y in costs) for x in costs)


def figure_8(*, quick: bool = True) -> Exhibit:
    """3D-UNet: overhead against memory."""
    (part,) = (x for x in read_parts("budgets", quick=quick, only=("unet3d",)) if x["part"] == "unet3d")
    xs, ys = curve_of(part, "monet", whole=part["plain_bytes"])
    made = figure(title="MONeT, Figure 8: 3D-UNet", x="share of PyTorch's memory", y="extra time, %")
    made.add_scatter(x=xs, y=ys, name="MONeT here", mode="lines+markers")
    made.add_scatter(
        x=[x for x, _ in published.VOLUME_NETWORK],
        y=[y for _, y in published.VOLUME_NETWORK],
        name="as published",
        mode="markers",
        marker_symbol="x",
        marker_size=10,
    )
    rows = [
        [f"{x:.2f}", f"{y:+.1f} %", as_percent(overhead_within(part, "monet", round(x * part["plain_bytes"])))]
        for x, y in published.VOLUME_NETWORK
    ]
    note = (
        "A 3D-UNet of ours at a batch of 1 on an estimated P100: their training patches are smaller, 22 "
        "of which fill "
        "16 GB."
    )
    return Exhibit(
        "MONeT, Figure 8",
        (Label.ESTIMATED,),
        (Table(("memory ratio", "published", "here"), rows),),
        (made,),
        note,
        sources_of("budgets", quick=quick),
    )
