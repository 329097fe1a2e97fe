"""MONeT's tables (Shah et al., *Memory Optimization for Deep Networks*, ICLR 2021)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.papers import findings, published
from benchmarks.papers.costs import (
    COSTS,
    MIXED,
    after_a_minute,
    as_gib,
    as_percent,
    budget_of,
    memory_at,
    overhead_within,
    read_parts,
    row_of,
    sources_of,
    whole_bytes,
)
from benchmarks.papers.exhibit import Exhibit, Label, Row, Table
from benchmarks.papers.published import BUDGETS_GIB, NETWORKS

GIB = 2**30


def table_1(*, quick: bool = True, zoo: Path | None = None) -> Exhibit:
    """Memory for a step that takes 10 % longer than PyTorch's."""
    rows, parts = [], [after_a_minute(x) for x in read_parts("budgets", quick=quick, zoo=zoo)]
    for part in (x for x in parts if x["part"] in NETWORKS):
        theirs = published.MEMORY_AT_TEN_PER_CENT_GB[part["part"]]
        ours = [as_gib(memory_at(part, x, findings.TENTH), beyond=budget_of(part, x)) for x in ("checkmate-o", "monet")]
        kind = "published" if part["published_costs"] else "estimated"
        cells = [
            f"{theirs[0]:.1f}",
            f"{whole_bytes(part) / GIB:.1f}",
            f"{theirs[1]:.1f}",
            ours[0],
            f"{theirs[2]:.1f}",
            ours[1],
        ]
        rows.append([NETWORKS[part["part"]], kind, *cells])
    head = ("network", "costs", "PyTorch", "here", "Checkmate", "Checkmate-O here", "MONeT", "here")
    note = (
        f"GB at 10 % more time, between budgets by straight lines; ≤: the smallest budget tried takes less than 10 % "
        f"already. {COSTS} {findings.of_memory(parts)} VGG-16's smallest is the smallest budget that was published "
        "with a schedule."
    )
    return Exhibit("MONeT, Table 1", MIXED, (Table(head, rows),), (), note, sources_of("budgets", quick=quick))


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
    parts = {x["part"]: x for x in read_parts("solve_times", quick=quick, zoo=zoo)}
    rows = []
    for network in (x for x in networks if x in parts):
        for system, kind, theirs in zip(findings.SYSTEMS, (None, "none", "all"), hours[network], strict=True):
            rows.append([NETWORKS[network], system, "hours", *map(_hours, theirs)])
            if kind is None:
                continue
            cells = [_seconds(row_of(parts[network], kind=kind, gib=gib), percent) for gib in BUDGETS_GIB]
            where = "seconds here" if parts[network]["published_costs"] else "seconds here, estimated costs"
            rows.append(["", "", where, *cells])
    table = Table(("network", "system", "", *(f"{x} GB" for x in BUDGETS_GIB)), rows)
    note = (
        f"Until the schedule was proven within {percent} % of the fastest of all, search compiled and problem loaded; "
        "–: not reached, or infeasible. Theirs: Gurobi on twelve threads; ours: SCIP and a plan search, two cores "
        f"beside other work. {findings.of_races(findings.races(networks, percent, parts=parts))} Hours are printed to "
        "a thousandth, which is 3.6 s. Not the same program: groups of operators share a sweep of recomputation, "
        "memory is counted incrementally, and the plan search's schedules come first (docs/figures.md, sizes of the "
        "programs)."
    )
    return Exhibit(name, MIXED, (table,), (), note, sources_of("solve_times", quick=quick))


def table_3(*, quick: bool = True) -> Exhibit:
    """Gist's single schedule beside MONeT's smallest."""
    curves = {x["part"]: after_a_minute(x) for x in read_parts("budgets", quick=True)}
    rows, overheads = [], {}
    for part in read_parts("gist", quick=quick):
        (gist,) = part["rows"]
        batch, *theirs = published.GIST[part["part"]]
        curve = curves[part["part"]]
        budget = round(theirs[2] * whole_bytes(curve))
        ours = overhead_within(curve, "monet", budget)
        overheads[NETWORKS[part["part"]]] = theirs[1], 100 * gist["overhead"]
        rows.append(
            [
                f"{NETWORKS[part['part']]} ({batch})",
                f"{theirs[0]:.2f}",
                f"{theirs[1]:+.1f} %",
                f"{gist['memory']:.2f}",
                f"{100 * gist['overhead']:+.1f} %",
                f"{theirs[2]:.2f}",
                f"{theirs[3]:+.1f} %",
                as_percent(ours),
                f"{1e3 * batch / gist['plain_ms']:.0f}",
            ]
        )
    head = (
        "network (batch)",
        "Gist, memory",
        "overhead",
        "here",
        "overhead",
        "MONeT, memory",
        "overhead",
        "overhead here",
        "pictures/s, PyTorch, estimated",
    )
    note = (
        "Gist: 16 bits for what waits, sparse storage counted with half of the values zero (what it is depends on the "
        "values), bits before poolings, ReLUs in place; on an estimated P100. Theirs paid for cuSPARSE's conversion, "
        "144 ms for one layer; the estimate has a conversion at the memory's bandwidth: "
        f"{findings.of_gist(overheads)}. MONeT here is the schedule within the same share of memory, by the costs of "
        "Figure 3."
    )
    return Exhibit(
        "MONeT, Table 3",
        (Label.ESTIMATED, Label.SIMULATED),
        (Table(head, rows),),
        (),
        note,
        sources_of("gist", quick=quick),
    )


def table_7(*, quick: bool = True, zoo: Path | None = None) -> Exhibit:
    """Constraints and variables of the three programs at 10 GB."""
    rows, families, parts = [], [], read_parts("program_counts", quick=quick, zoo=zoo)
    for part in parts:
        name = part["part"]
        forward, *theirs = published.PROGRAM_SIZES[name]
        for number, (title, x) in enumerate(zip(findings.SYSTEMS, part["rows"], strict=True)):
            counted = sum(x["rows"].values()), sum(x["columns"].values())
            printed = theirs[2 * number], theirs[2 * number + 1]
            cells = [f"{a:,}" + f" ({a / b - 1:+.1%})" for a, b in zip(counted, printed, strict=True)]
            built = [
                f"{y['rows']:,} / {y['columns']:,}" if (y := x["built"].get(z)) else "–"
                for z in ("paper", "checkmate", "grouped")
            ]
            ours = built[1] if number == 0 else built[0]
            kind = "their graph" if x["instance"] else "our graph"
            rows.append(
                [
                    NETWORKS[name],
                    title,
                    f"{forward} / {x['forward']}, {kind}",
                    *(f"{y:,}" for y in printed),
                    *cells,
                    ours,
                    built[2],
                ]
            )
            if name == "resnet50":
                kinds = (("rows", x["rows"]), ("columns", x["columns"]))
                families += [
                    [title, what, family, f"{count:,}"]
                    for what, found in kinds
                    for family, count in found.items()
                    if count
                ]
    head = (
        "network",
        "program",
        "forward operators",
        "constraints, printed",
        "variables, printed",
        "constraints, counted",
        "variables, counted",
        "our statement of it, built",
        "our own program, built",
    )
    return Exhibit(
        "MONeT, Table 7",
        (Label.EXACT,),
        (Table(head, rows), Table(("program", "", "family", "count"), families, title="ResNet-50 by family")),
        (),
        _why_sizes(parts),
        sources_of("program_counts", quick=quick),
    )


def _why_sizes(parts: Sequence[Row]) -> str:
    return f"""\
Printed is what Gurobi's presolve left; counted is the published statement by family on the published graph, without
variables that equal a constant or another variable. {findings.of_sizes(parts)} The causes of what is left:

1. The MONeT-NoOp entries of GoogLeNet and ResNet-50 are exchanged in the paper. The log that its authors published for
ResNet-50 at 10 GB has 221,630 constraints and 104,673 variables, which Table 7 prints for GoogLeNet.
{findings.of_exchange(parts)}

2. VGG-16's joint program is smaller than counted: its first feature maps take 2 GB each, so that at these budgets many
memory rows fix variables, which Gurobi finds and a count does not.

3. In the joint programs we leave out every algorithm of a convolution that another one beats in time and workspace;
Gurobi kept some of them.

4. GoogLeNet and MobileNet-V2 are counted on our own captures: other auxiliary heads, masks for ReLU6 that theirs did
not have, no nodes for views.

Our own statement of MONeT's program is the published one but for products, which stand only where a choice depends on
them. {findings.of_own_programs(parts)} Operators are merged, groups of backward operators share a sweep of
recomputation, and memory is counted incrementally."""


def _hours(value: float | None) -> str:
    return "–" if value is None else f"{value:g}" if value else "0.000"


def _seconds(row: Row, percent: str) -> str:
    found = row[f"to_{percent}"]
    return "–" if found is None else f"{found:.1f}"
