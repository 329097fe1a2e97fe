"""MONeT's figures and tables (Shah et al., *Memory Optimization for Deep Networks*, ICLR 2021)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import explorer
from benchmarks.papers import jobs, published
from benchmarks.papers.exhibit import Exhibit, Label, Row, Table, figure, grid, source, stored
from benchmarks.papers.published import BUDGETS_GIB, NETWORKS
from explorer.device_profile import Profile
from explorer.schedule import Schedule
from explorer.timeline import Stage, Timeline

GIB, MIB = 2**30, 2**20
SYSTEMS = {"monet": "MONeT", "checkmate-o": "Checkmate-O", "checkmate-d": "Checkmate-D"}
_TEN = 0.1
_COSTS = (
    "ResNet-50, UNet and VGG-16 by the costs that MONeT's authors measured on a P100; GoogLeNet and MobileNet-V2 by "
    "estimates for one, as no costs of theirs are published."
)
_MIXED = (Label.SIMULATED, Label.ESTIMATED)
_ASPECTS = {"none": "none", "convolution": "conv", "output": "output-activated", "intermediate": "intermediate-activated"}
"""The paper's names of what may be chosen."""


def figure_3(*, quick: bool = True, zoo: Path | None = None) -> Exhibit:
    """Overhead against memory: MONeT, Checkmate-D and Checkmate-O for five networks."""
    panels, rows = [], []
    for part in _parts("budgets", quick=quick, zoo=zoo):
        name = part["part"]
        if name not in NETWORKS:
            continue
        theirs = published.MEASURED_CURVES[name]
        ratio = [(x / theirs[0][0], y) for x, y in theirs]
        series = [("MONeT, as published", *map(list, zip(*ratio, strict=True)))]
        series += [
            (title, *_curve(part, method, whole=_whole(part))) for method, title in SYSTEMS.items()
        ]
        panels.append((NETWORKS[name], series))
        for gib, overhead in theirs[1:]:
            ours = [_overhead_within(part, x, round(gib * GIB)) for x in SYSTEMS]
            kind = "published" if part["published_costs"] else "estimated"
            rows.append([NETWORKS[name], kind, f"{gib:.2f}", f"{overhead:+.1f} %", *map(_percent, ours)])
    made = grid(panels, x="share of PyTorch's memory", y="extra time, %", title="MONeT, Figure 3")
    made.update_yaxes(range=[-12, 50])
    made.update_xaxes(range=[0.25, 1.02])
    table = Table(("network", "costs", "GB", "MONeT, measured there", *(f"{x}, here" for x in SYSTEMS.values())), rows)
    note = (
        f"{_COSTS} Theirs are steps run on the GPU. Here they are sums of operators: for MONeT's own costs within a "
        "point of what was measured. Checkmate-D has PyTorch's default convolutions, which take longer than the quickest "
        "ones that PyTorch's benchmark mode finds, and by which overheads are counted: so it never gets to 0.\n"
        "UNet and VGG-16 may be quicker than PyTorch: no magic, but convolutions by algorithms whose workspace "
        "PyTorch's peak has no room for."
    )
    return Exhibit("MONeT, Figure 3", _MIXED, (table,), (made, _measured()), note, _sources("budgets", quick=quick))


def _measured() -> Any:
    """The same of what was run on an H200."""
    made = figure(title="The same measured on an H200", x="share of PyTorch's memory", y="extra time, %")
    for name in ("resnet50", "unet", "mobilenet_v2"):
        plain, *runs = stored(f"../gpu/runs/{name}")
        points = sorted((x["peak_bytes"] / plain["peak_bytes"], 100 * (x["step_time_ms"] / plain["step_time_ms"] - 1)) for x in runs)
        made.add_scatter(x=[x for x, _ in points], y=[y for _, y in points], name=NETWORKS[name], mode="lines+markers")
    return made


def table_1(*, quick: bool = True, zoo: Path | None = None) -> Exhibit:
    """Memory for a step that takes 10 % longer than PyTorch's."""
    rows = []
    for part in _parts("budgets", quick=quick, zoo=zoo):
        if part["part"] not in NETWORKS:
            continue
        theirs = published.MEMORY_AT_TEN_PER_CENT_GB[part["part"]]
        ours = [_memory_at(part, x, _TEN) for x in ("checkmate-o", "monet")]
        kind = "published" if part["published_costs"] else "estimated"
        cells = [f"{theirs[0]:.1f}", f"{_whole(part) / GIB:.1f}", f"{theirs[1]:.1f}", _gib(ours[0]), f"{theirs[2]:.1f}", _gib(ours[1])]
        rows.append([NETWORKS[part["part"]], kind, *cells])
    head = ("network", "costs", "PyTorch", "here", "Checkmate", "Checkmate-O here", "MONeT", "here")
    note = (
        f"GB at 10 % more time, between budgets by straight lines. {_COSTS} Ours need a little less than MONeT's own: "
        "schedules that its integer program has no room for (it charges what is saved past a backward operator twice), "
        "and no allocator's fragments. PyTorch's memory here is the larger of theirs and the captured step's peak."
    )
    return Exhibit("MONeT, Table 1", _MIXED, (Table(head, rows),), (), note, _sources("budgets", quick=quick))


def table_2(*, quick: bool = True, zoo: Path | None = None) -> Exhibit:
    """Solver time to 5 % of the optimum: three networks."""
    return _times("MONeT, Table 2", ("resnet50", "googlenet", "vgg16"), "5", quick=quick, zoo=zoo)


def table_5(*, quick: bool = True, zoo: Path | None = None) -> Exhibit:
    """Solver time to 5 % of the optimum: all five."""
    return _times("MONeT, Table 5", tuple(NETWORKS), "5", quick=quick, zoo=zoo)


def table_6(*, quick: bool = True, zoo: Path | None = None) -> Exhibit:
    """Solver time to 2 % of the optimum."""
    return _times("MONeT, Table 6", tuple(NETWORKS), "2", quick=quick, zoo=zoo)


def _times(name: str, networks: Sequence[str], percent: str, *, quick: bool, zoo: Path | None) -> Exhibit:
    hours = published.HOURS_TO_FIVE_PER_CENT if percent == "5" else published.HOURS_TO_TWO_PER_CENT
    parts = {x["part"]: x for x in _parts("solve_times", quick=quick, zoo=zoo)}
    rows, ratios = [], []
    for network in (x for x in networks if x in parts):
        for number, (title, kind) in enumerate((("Checkmate", None), ("MONeT-NoOp", "none"), ("MONeT", "all"))):
            theirs = hours[network][number]
            rows.append([NETWORKS[network], title, "hours", *("–" if x is None else f"{x:g}" for x in theirs)])
            if kind is None:
                continue
            ours = [_row(parts[network], kind=kind, gib=gib) for gib in BUDGETS_GIB]
            cells = [_seconds(x, percent) for x in ours]
            where = "seconds here" if parts[network]["published_costs"] else "seconds here, estimated costs"
            rows.append(["", "", where, *cells])
            ratios += [
                3600 * hour / row[f"to_{percent}"]
                for hour, row in zip(theirs, ours, strict=True)
                if hour and row[f"to_{percent}"]
            ]
    table = Table(("network", "system", "", *(f"{x} GB" for x in BUDGETS_GIB)), rows)
    note = (
        f"Until the schedule was proven within {percent} % of the fastest of all, search compiled and problem loaded; –: not "
        "reached, or infeasible. Theirs: Gurobi on twelve threads; ours: SCIP and a plan search, two cores. Where both got there, "
        f"ours took {np.median(ratios):,.0f} times less (median), {min(ratios):,.1f} to {max(ratios):,.0f}: hours are printed "
        "to a thousandth, which is 3.6 s. Not the same program: groups of operators share a sweep of recomputation, memory is counted "
        "incrementally, and the plan search's schedules come first (docs/figures.md, sizes of the programs)."
    )
    return Exhibit(name, _MIXED, (table,), (), note, _sources("solve_times", quick=quick))


def table_3(*, quick: bool = True) -> Exhibit:
    """Gist's single schedule beside MONeT's smallest."""
    curves = {x["part"]: x for x in stored("budgets")}
    rows = []
    for part in _parts("gist", quick=quick):
        (gist,) = part["rows"]
        batch, *theirs = published.GIST[part["part"]]
        curve = curves[part["part"]]
        budget = round(theirs[2] * _whole(curve))
        ours = _overhead_within(curve, "monet", budget)
        rows.append([
            f"{NETWORKS[part['part']]} ({batch})",
            f"{theirs[0]:.2f}", f"{theirs[1]:+.1f} %", f"{gist['memory']:.2f}", f"{100 * gist['overhead']:+.1f} %",
            f"{theirs[2]:.2f}", f"{theirs[3]:+.1f} %", _percent(ours), f"{1e3 * batch / gist['plain_ms']:.0f}",
        ])  # fmt: skip
    head = ("network (batch)", "Gist, memory", "overhead", "here", "overhead", "MONeT, memory", "overhead", "overhead here", "pictures/s, PyTorch, estimated")
    note = (
        "Gist: 16 bits for what waits, sparse storage counted with half of the values zero (what it is depends on the values), "
        "bits before poolings, ReLUs in place; on an estimated P100. Theirs paid for cuSPARSE's conversion, 144 ms for one layer; "
        "the estimate has a conversion at the memory's bandwidth, so its overheads are lower than any that were measured. MONeT "
        "here is the schedule within the same share of memory, by the costs of Figure 3."
    )
    return Exhibit("MONeT, Table 3", (Label.ESTIMATED, Label.SIMULATED), (Table(head, rows),), (), note, _sources("gist", quick=quick))


def figure_4(*, quick: bool = True, zoo: Path | None = None) -> Exhibit:
    """Ablation at 8 GB: each kind of optimization alone, and all."""
    made = figure(title="MONeT, Figure 4: memory ratio 0.53 (8 GB)", x="", y="extra time, %", barmode="group")
    rows = []
    parts = {x["part"]: x for x in _parts("ablation", quick=quick, zoo=zoo)}
    for name in ("resnet50", "googlenet", "vgg16"):
        found = {kind: _row(parts[name], set=kind, gib=8)["overhead"] for kind in jobs.SETS}
        made.add_bar(x=[_ASPECTS.get(x, x) for x in found], y=[None if y is None else 100 * y for y in found.values()], name=NETWORKS[name])
        rows.append([NETWORKS[name], *map(_percent, found.values())])
    table = Table(("network", *(_ASPECTS.get(x, x) for x in jobs.SETS)), rows)
    note = f"{_COSTS} All choose operators in place; without convolutions, the quickest that fit are put in afterwards, as in the paper."
    return Exhibit("MONeT, Figure 4", _MIXED, (table,), (made,), note, _sources("ablation", quick=quick))


def figure_6(*, quick: bool = True, zoo: Path | None = None) -> Exhibit:
    """The same at every budget, for five networks."""
    panels, best, count = [], 0, 0
    for part in _parts("ablation", quick=quick, zoo=zoo):
        series = []
        for kind in jobs.SETS:
            points = [(x["gib"], 100 * x["overhead"]) for x in part["rows"] if x["set"] == kind and x["overhead"] is not None]
            series.append((_ASPECTS.get(kind, kind), [x for x, _ in points], [y for _, y in points]))
        panels.append((NETWORKS[part["part"]], series))
        for gib in BUDGETS_GIB:
            at = {x["set"]: x["overhead"] for x in part["rows"] if x["gib"] == gib}
            if at["all"] is not None:
                count += 1
                best += all(x is None or at["all"] <= x + 1e-3 for x in at.values())
    made = grid(panels, x="budget, GiB", y="extra time, %", title="MONeT, Figure 6")
    note = (
        f"{_COSTS} All together is the best choice (within 0.1 points) at {best} of {count} budgets; the paper says of its own that it always is. "
        "Convolutions matter most where they are large, and least in MobileNet-V2, whose convolutions are depthwise."
    )
    return Exhibit("MONeT, Figure 6", _MIXED, (), (made,), note, _sources("ablation", quick=quick))


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
    top = figure(title="ResNet-50, batch 184: memory while each operator runs", x="operator (forward, then backward)", y="GiB")
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
        "The paper: 14.7 GB for PyTorch and 8 for MONeT; memory is saved in early layers, and most of the overhead is in the "
        "backward pass. So it is here, on an estimated P100, made anew each time. On an H200 a schedule of this network was followed run "
        f"by run: measured memory was the predicted one plus one MiB at each of its {measured['runs']} runs (docs/gpu.md)."
    )
    return Exhibit("MONeT, Figure 5", (Label.ESTIMATED,), (Table(("", "peak, GiB", "ms"), peaks),), (top, middle, bottom), note)


def _positions(line: Timeline) -> list[float]:
    """Operators that run again stand at the place of the backward operator that they run for."""
    at, found = 0.0, []
    for operator, stage in zip(line.operators, line.stages, strict=True):
        at = at if stage is Stage.RECOMPUTE else float(operator)
        found.append(at)
    return found


def _per_operator(profile: Profile, schedule: Schedule | None, lines: dict[str, Timeline]) -> tuple[np.ndarray, np.ndarray]:
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
    made = figure(title="MONeT, Figure 7: its layer on an H200, and ResNet-50's like it on a P100", x="workspace, MiB", y="ms", height=440)
    rows = []
    for file, title in (("layer-float32", "H200, float32"), ("layer-tf32", "H200, TF32")):
        found = stored(f"../gpu/{file}")
        for part in ("forward", "input gradient", "weight gradient"):
            several = [x for x in found if x["part"] == part]
            made.add_scatter(
                x=[x["workspace_bytes"] / MIB for x in several], y=[x["time_ms"] for x in several], mode="markers",
                text=[x["implementation"] for x in several], name=f"{title}: {part}", visible=True if file == "layer-float32" else "legendonly",
            )  # fmt: skip
            rows.append([title, part, str(len(several)), str(sum(x["best"] for x in several))])
    for part in stored("layer"):
        found = part["rows"]
        made.add_scatter(
            x=[x["workspace_bytes"] / MIB for x in found], y=[x["ms"] for x in found], mode="markers", marker_symbol="x",
            text=[f"algorithm {x['algorithm']}" for x in found], name=f"P100, as published: {part['part']}",
        )  # fmt: skip
        rows.append(["P100, as published", part["part"], str(len(found)), str(_unbeaten(found))])
    note = (
        "The layer (256 × 64 × 56 × 56, 3 × 3, 64 channels) was measured on an H200. From 2020 there are the authors' costs of "
        "ResNet-50's layer of the same shape at a batch of 184, on a P100. Then as now the memory used is not inversely "
        "proportional to time, and no algorithm is best in both; today PyTorch's own choice in parts of the batch fills the gap "
        "that retired algorithms left (docs/gpu.md)."
    )
    table = Table(("device", "part", "implementations", "that none beats in both"), rows)
    return Exhibit("MONeT, Figure 7", (Label.MEASURED,), (table,), (made,), note, (source("../gpu/layer-float32"), source("layer")))


def _unbeaten(rows: Sequence[Row]) -> int:
    costs = {(x["ms"], x["workspace_bytes"]) for x in rows}
    return sum(not any(y != x and y[0] <= x[0] and y[1] <= x[1] for y in costs) for x in costs)


def figure_8(*, quick: bool = True) -> Exhibit:
    """3D-UNet: overhead against memory."""
    (part,) = (x for x in _parts("budgets", quick=quick, only=("unet3d",)) if x["part"] == "unet3d")
    xs, ys = _curve(part, "monet", whole=part["plain_bytes"])
    made = figure(title="MONeT, Figure 8: 3D-UNet", x="share of PyTorch's memory", y="extra time, %")
    made.add_scatter(x=xs, y=ys, name="MONeT here", mode="lines+markers")
    made.add_scatter(x=[x for x, _ in published.VOLUME_NETWORK], y=[y for _, y in published.VOLUME_NETWORK], name="as published", mode="markers", marker_symbol="x", marker_size=10)
    rows = [[f"{x:.2f}", f"{y:+.1f} %", _percent(_overhead_within(part, "monet", round(x * part["plain_bytes"])))] for x, y in published.VOLUME_NETWORK]
    note = "A 3D-UNet of ours at a batch of 1 on an estimated P100: their training patches are smaller, 22 of which fill 16 GB."
    return Exhibit("MONeT, Figure 8", (Label.ESTIMATED,), (Table(("memory ratio", "published", "here"), rows),), (made,), note, _sources("budgets", quick=quick))


def table_7(*, quick: bool = True, zoo: Path | None = None) -> Exhibit:
    """Constraints and variables of the three programs at 10 GB."""
    rows, families = [], []
    for part in _parts("program_counts", quick=quick, zoo=zoo):
        name = part["part"]
        forward, *theirs = published.PROGRAM_SIZES[name]
        for number, x in enumerate(part["rows"]):
            title = ("Checkmate", "MONeT-NoOp", "MONeT")[number]
            counted = sum(x["rows"].values()), sum(x["columns"].values())
            printed = theirs[2 * number], theirs[2 * number + 1]
            cells = [f"{a:,}" + f" ({a / b - 1:+.1%})" for a, b in zip(counted, printed, strict=True)]
            built = [f"{y['rows']:,} / {y['columns']:,}" if (y := x["built"].get(z)) else "–" for z in ("paper", "checkmate", "grouped")]
            ours = built[1] if number == 0 else built[0]
            kind = "their graph" if x["instance"] else "our graph"
            rows.append([NETWORKS[name], title, f"{forward} / {x['forward']}, {kind}", *(f"{y:,}" for y in printed), *cells, ours, built[2]])
            if name == "resnet50":
                kinds = (("rows", x["rows"]), ("columns", x["columns"]))
                families += [[title, what, family, f"{count:,}"] for what, found in kinds for family, count in found.items() if count]
    head = ("network", "program", "forward operators", "constraints, printed", "variables, printed", "constraints, counted", "variables, counted", "our statement of it, built", "our own program, built")
    return Exhibit(
        "MONeT, Table 7",
        (Label.EXACT,),
        (Table(head, rows), Table(("program", "", "family", "count"), families, title="ResNet-50 by family")),
        (),
        _WHY_SIZES,
        _sources("program_counts", quick=quick),
    )


_WHY_SIZES = """Printed is what Gurobi's presolve left; counted is the published statement by family on the published graph, without variables \
that equal a constant or another variable. Where graph and program are theirs, the two agree within 2 to 9 %, VGG-16's joint program \
aside. The causes of what is left:
1. The MONeT-NoOp entries of GoogLeNet and ResNet-50 are exchanged in the paper. The log that its authors published for ResNet-50 at 10 GB \
has 221,630 constraints and 104,673 variables, which Table 7 prints for GoogLeNet; counted on ResNet-50's graph they are 221,916 and 103,324 \
(+0.1 and −1.3 %), against 344,652 and 167,238 as printed. GoogLeNet's are then those, to which ours (of a graph of 223 operators) come within 8 and 13 %.
2. VGG-16's joint program is a third smaller than counted: its first feature maps are of 2 GB each, so that at this budget many memory rows fix \
variables, which Gurobi finds and a count does not. Its smaller budgets' logs have 8 % fewer rows still.
3. In the joint programs of UNet and ResNet-50 we leave out every algorithm that another one beats in time and workspace; Gurobi kept some of them.
4. GoogLeNet and MobileNet-V2 are counted on our own captures: other auxiliary heads, bit masks for ReLU6 that theirs did not have, and \
residual additions that PyTorch's tracer splits differently.
Our own statement of MONeT's program (section 4, one row per distinct need, products only where a choice depends on them) is about two thirds of it; \
the program that the explorer solves has a tenth to a hundredth of the rows, which is why it is solved in seconds. It allows the same schedules up to its grouping."""


def _parts(job: str, *, quick: bool, zoo: Path | None = None, only: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """Stored, or made now."""
    return stored(job) if quick else list(getattr(jobs, job)(zoo, only))


def _sources(job: str, *, quick: bool) -> tuple[str, ...]:
    return (source(job),) if quick else ("Made now.",)


def _row(part: dict[str, Any], **keys: Any) -> Row:
    return next(x for x in part["rows"] if all(x[key] == value for key, value in keys.items()))


def _whole(part: dict[str, Any]) -> float:
    """PyTorch's memory as published: the captured peak of an instance is that of its slowest convolutions."""
    return published.MEMORY_AT_TEN_PER_CENT_GB[part["part"]][0] * GIB if part["published_costs"] else part["plain_bytes"]


def _points(part: dict[str, Any], method: str) -> list[tuple[float, float]]:
    return sorted((x["budget_bytes"], x["overhead"]) for x in part["rows"] if x["method"] == method and x["overhead"] is not None)


def _curve(part: dict[str, Any], method: str, *, whole: float) -> tuple[list[float], list[float]]:
    points = _points(part, method)
    return [x / whole for x, _ in points], [100 * y for _, y in points]


def _overhead_within(part: dict[str, Any], method: str, budget_bytes: int) -> float | None:
    """Between two budgets by a straight line."""
    points = _points(part, method)
    if not points or budget_bytes < points[0][0]:
        return None
    return float(np.interp(budget_bytes, [x for x, _ in points], [y for _, y in points]))


def _memory_at(part: dict[str, Any], method: str, overhead: float) -> float | None:
    """The smallest budget at which a method takes no more than that."""
    points = _points(part, method)
    for (low, slow), (high, fast) in zip(points, points[1:], strict=False):
        if slow <= overhead:
            return low
        if fast <= overhead:
            return low + (high - low) * (slow - overhead) / (slow - fast)
    return None


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:+.1f} %"


def _gib(value: float | None) -> str:
    return "–" if value is None else f"{value / GIB:.1f}"


def _seconds(row: Row, percent: str) -> str:
    found = row[f"to_{percent}"]
    return "–" if found is None else f"{found:.1f}"


