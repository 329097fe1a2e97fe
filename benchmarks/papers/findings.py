"""What MONeT's exhibits and ``docs/papers.md`` say of their rows: no number in these sentences is written down."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

import explorer
from benchmarks.markdown import head, line
from benchmarks.papers import jobs, published
from benchmarks.papers.costs import (
    after_a_minute,
    as_gib,
    budget_of,
    memory_at,
    overhead_within,
    read_parts,
    row_of,
    whole_bytes,
)
from benchmarks.papers.exhibit import stored
from benchmarks.papers.published import BUDGETS_GIB, NETWORKS

GIB = 2**30
_SMALLEST_S = 1.8
"""What is printed as 0.000 hours took no longer."""
_ROUNDED = 0.05
"""Points of overhead below which two are the same, as they are printed."""
_WITHIN = 0.1
"""A share by which counted programs may differ from printed ones without being named."""
TENTH = 0.1
"""More time, of Table 1."""
SYSTEMS = ("Checkmate", "MONeT-NoOp", "MONeT")


@dataclass(frozen=True)
class Race:
    """One entry of MONeT's tables of solver times.

    Attributes:
        network: its name there.
        system: ``"MONeT-NoOp"`` or ``"MONeT"``.
        gib: of memory.
        theirs_s: until Gurobi got there; what is printed as 0.000 hours counts as the most that it can be. None: never.
        ours_s: likewise of the explorer's solver.
    """

    network: str
    system: str
    gib: int
    theirs_s: float | None
    ours_s: float | None

    @property
    def times_less(self) -> float | None:
        """By which factor ours is quicker; below 1 it is slower."""
        return None if self.theirs_s is None or self.ours_s is None else self.theirs_s / self.ours_s


def races(networks: Sequence[str], percent: str, *, parts: dict[str, Any]) -> list[Race]:
    """Every entry to ``percent`` of the optimum for which we have a system of the same kind."""
    hours = published.HOURS_TO_FIVE_PER_CENT if percent == "5" else published.HOURS_TO_TWO_PER_CENT
    found = []
    for network in (x for x in networks if x in parts):
        for kind, system in (("none", "MONeT-NoOp"), ("all", "MONeT")):
            for gib, theirs in zip(BUDGETS_GIB, hours[network][SYSTEMS.index(system)], strict=True):
                ours = row_of(parts[network], kind=kind, gib=gib)[f"to_{percent}"]
                seconds = None if theirs is None else max(3600 * theirs, _SMALLEST_S)
                found.append(Race(NETWORKS[network], system, gib, seconds, ours))
    return found


def of_races(entries: Sequence[Race]) -> str:
    """Where both got there and which was quicker, and where only one did."""
    both = [x for x in entries if x.times_less is not None]
    ratios = [x.times_less for x in both if x.times_less is not None]
    slower = [x for x in both if x.times_less is not None and x.times_less < 1]
    told = (
        f"Where both got there, {len(both)} of {len(entries)} entries, ours took {np.median(ratios):,.0f} times less "
        f"(median; {min(ratios):.2g} to {max(ratios):,.0f})"
    )
    if slower:
        each = (f"{x.network}'s {x.system} at {x.gib} GB ({x.ours_s:.1f} s, {_their_seconds(x)})" for x in slower)
        told += f". Ours is slower at {len(slower)} of these: {_listed(each)}"
    for who, alone in (
        (f"Only theirs got there, ours not within {jobs.TIMES_S:g} s", [x for x in entries if _alone(x, ours=False)]),
        ("Only ours", [x for x in entries if _alone(x, ours=True)]),
    ):
        if alone:
            told += f". {who}: {_listed(_places(alone))}"
    return f"{told}."


def _alone(entry: Race, *, ours: bool) -> bool:
    mine, other = (entry.ours_s, entry.theirs_s) if ours else (entry.theirs_s, entry.ours_s)
    return mine is not None and other is None


def _their_seconds(entry: Race) -> str:
    assert entry.theirs_s is not None, "both got there"
    at_most = entry.theirs_s <= _SMALLEST_S
    return f"theirs at most {entry.theirs_s:g}" if at_most else f"theirs {entry.theirs_s:.1f}"


def _places(entries: Sequence[Race]) -> Iterator[str]:
    for (network, system), group in groupby(entries, key=lambda x: (x.network, x.system)):
        yield f"{network}'s {system} at {_listed(str(x.gib) for x in group)} GB"


def _listed(words: Iterable[str]) -> str:
    *some, last = words
    return f"{', '.join(some)} and {last}" if some else last


@dataclass(frozen=True)
class Point:
    """One measured point of MONeT's Figure 3, of a network whose costs are published.

    Attributes:
        network: its name there.
        gib: the peak that was measured.
        asked_gib: the budget that was asked for.
        theirs: overhead in per cent, as measured.
        ours: by the published costs, of our schedule within ``gib``.
        objective_ratio: our schedule's time over theirs by those costs, within ``asked_gib``; None where theirs is not
            published.
    """

    network: str
    gib: float
    asked_gib: float
    theirs: float
    ours: float
    objective_ratio: float | None

    @property
    def points(self) -> float:
        """How much more ours takes, in points; less than what is printed counts as nothing."""
        more = self.ours - self.theirs
        return 0.0 if abs(more) < _ROUNDED else more


def points(parts: Sequence[dict[str, Any]]) -> list[Point]:
    """Those of all ``parts`` with published costs, as solved for a minute."""
    found = []
    for part in (x for x in map(after_a_minute, parts) if x["part"] in NETWORKS and x["published_costs"]):
        name = part["part"]
        objectives = dict(zip(published.SOLVED_GIB[name], published.OBJECTIVES_MS[name], strict=True))
        for asked, (gib, theirs) in zip(published.ASKED_GIB[name], published.MEASURED_CURVES[name][1:], strict=True):
            ours, within = (overhead_within(part, "monet", round(x * GIB)) for x in (gib, asked))
            assert ours is not None, "what was measured there has a schedule here"
            assert within is not None, "what was asked for there has one, too"
            ratio = (1 + within) * published.pytorch_ms(name) / objectives[asked] if asked in objectives else None
            found.append(Point(NETWORKS[name], gib, asked, theirs, 100 * ours, ratio))
    return found


def of_points(entries: Sequence[Point]) -> str:
    """Where our schedules are quicker than what was measured, where slower, and why; nothing of no points."""
    if not entries:
        return ""
    quicker, slower = ([x for x in entries if sign * x.points > 0] for sign in (-1, 1))
    best = min(entries, key=lambda x: x.points)
    told = (
        f"Of {len(entries)} measured points our schedules are quicker at {len(quicker)}, by up to {-best.points:.1f} "
        f"points ({best.network} at {best.gib:.2f} GB), and as quick at {len(entries) - len(quicker) - len(slower)}"
    )
    if slower:
        worst, *_ = ordered = sorted(slower, key=lambda x: -x.points)
        each = (f"{x.network} at {x.gib:.2f} GB by {x.points:.2f}" for x in ordered)
        told += (
            f". At {len(slower)} they are slower: {_listed(each)}. Ours has to fit the peak that was measured, which "
            f"differs from what was asked for: {worst.gib:.2f} GB for {worst.asked_gib:g}"
        )
    ratios = [x.objective_ratio for x in entries if x.objective_ratio is not None]
    least, most = (100 * (x - 1) for x in (min(ratios), max(ratios)))
    return f"{told}. Within what was asked for, our time is {least:+.1f} to {most:+.1f} % off the published one."


def of_pytorch() -> str:
    """How long PyTorch's step took there, and how far that is the same at every budget."""
    names = list(published.OBJECTIVES_MS)
    found = {x: np.array(published.pytorch_times_ms(x)) / published.pytorch_ms(x) - 1 for x in names}
    worst = max(names, key=lambda x: float(np.abs(found[x]).max()))
    at = int(np.abs(found[worst]).argmax())
    off = abs(float(found[worst][at]))
    found[worst] = np.delete(found[worst], at)
    rest = max(float(np.abs(x).max()) for x in found.values())
    milliseconds = _listed(f"{published.pytorch_ms(x):.0f} ms for {NETWORKS[x]}" for x in names)
    where = f"{NETWORKS[worst]} at {published.SOLVED_GIB[worst][at]:g} GB: {100 * off:.1f} %"
    return f"{milliseconds}, the same at every budget within {100 * rest:.1f} % ({where})"


def deviations(part: dict[str, Any]) -> list[tuple[float, float]]:
    """By which share counted constraints and variables differ from those printed, of Checkmate, MONeT-NoOp, MONeT."""
    _, *printed = published.PROGRAM_SIZES[part["part"]]
    counted = [(sum(x["rows"].values()), sum(x["columns"].values())) for x in part["rows"]]
    pairs = zip(counted, printed[::2], printed[1::2], strict=True)
    return [(rows / theirs - 1, columns / others - 1) for (rows, columns), theirs, others in pairs]


def of_sizes(parts: Sequence[dict[str, Any]]) -> str:
    """How near counted programs are to printed ones: on their graphs, and on ours."""
    groups: dict[bool, dict[str, tuple[float, float]]] = {True: {}, False: {}}
    for part in parts:
        for row, system, off in zip(part["rows"], SYSTEMS, deviations(part), strict=True):
            groups[bool(row["instance"])][f"{NETWORKS[part['part']]}'s {system}"] = off
    theirs, ours = groups[True], groups[False]
    far = {name: max(x, key=abs) for name, x in theirs.items() if max(map(abs, x)) > _WITHIN}
    near = max((max(map(abs, x)) for name, x in theirs.items() if name not in far), default=0.0)
    told = f"{len(theirs)} of {len(theirs) + len(ours)} programs are counted on the published graphs: within {near:.1%}"
    if far:
        told += f" but for {_listed(f'{name} ({x:+.0%})' for name, x in far.items())}"
    if ours:
        name, off = max(ours.items(), key=lambda x: max(map(abs, x[1])))
        many = sum(max(map(abs, x)) > _WITHIN for x in ours.values())
        told += (
            f". The other {len(ours)} are counted on our own captures: up to {max(off, key=abs):+.0%} from what is "
            f"printed ({name}), {many} of them by more than {_WITHIN:.0%}"
        )
    return f"{told}."


def of_exchange(parts: Sequence[dict[str, Any]]) -> str:
    """MONeT-NoOp's programs of the two networks whose entries are exchanged, against the other's entry."""
    counts = {x["part"]: [sum(x["rows"][1][kind].values()) for kind in ("rows", "columns")] for x in parts}
    told = []
    for name, other in (("resnet50", "googlenet"), ("googlenet", "resnet50")):
        if name in counts:
            rows, columns = (f"{x:,}" for x in counts[name])
            pairs = zip(counts[name], published.PROGRAM_SIZES[other][3:5], strict=True)
            off = " and ".join(f"{100 * (x / y - 1):+.1f} %" for x, y in pairs)
            told.append(f"{NETWORKS[name]} as counted, {rows} and {columns}, is {off} from {NETWORKS[other]}'s entry.")
    return " ".join(told)


def of_own_programs(parts: Sequence[dict[str, Any]]) -> str:
    """How many of the counted rows the explorer's own program has."""
    shares = [
        x["built"]["grouped"]["rows"] / sum(x["rows"].values())
        for part in parts
        for x in part["rows"]
        if "grouped" in x["built"]
    ]
    told = f" {100 * min(shares):.1f} to {100 * max(shares):.1f} % of the rows" if shares else " fewer rows"
    return f"The program that the explorer solves has{told}."


def by_system(parts: Sequence[dict[str, Any]]) -> str:
    """The same by program, of published graphs, without what is further off."""
    found: dict[str, list[float]] = {x: [] for x in SYSTEMS}
    for part in parts:
        for row, system, off in zip(part["rows"], SYSTEMS, deviations(part), strict=True):
            if row["instance"] and max(map(abs, off)) <= _WITHIN:
                found[system] += map(abs, off)
    return ", ".join(f"{x}'s within {max(y):.1%}" for x, y in found.items() if y)


def of_memory(parts: Sequence[dict[str, Any]]) -> str:
    """How much less than published our schedules need at a tenth more time, by the published costs."""
    less = []
    for part in (x for x in parts if x["part"] in NETWORKS and x["published_costs"]):
        ours = memory_at(part, "monet", TENTH)
        assert ours is not None, "what is published has a schedule here"
        less.append(round(published.MEMORY_AT_TEN_PER_CENT_GB[part["part"]][2] - ours.budget_bytes / GIB, 1))
    if not less:
        return ""
    return f"By MONeT's own costs we need {min(less) + 0:.1f} to {max(less):.1f} GB less than they measured."


def of_gist(overheads: dict[str, tuple[float, float]]) -> str:
    """Where Gist's overhead here is lower than it was measured there (per cent, theirs and ours, by network)."""
    higher = {name: x for name, x in overheads.items() if x[1] >= x[0]}
    told = (
        f"its overheads are lower than those measured for {len(overheads) - len(higher)} of {len(overheads)} networks"
    )
    each = (f"{name}'s is higher, {ours:.1f} against {theirs:.1f} %" for name, (theirs, ours) in higher.items())
    return f"{told}; {_listed(each)}" if higher else told


def page_blocks() -> dict[str, list[str]]:
    """What stands between comments in ``docs/papers.md``, by their names."""
    sizes = read_parts("program_counts", quick=True)
    curves = read_parts("budgets", quick=True)
    times = {x["part"]: x for x in read_parts("solve_times", quick=True)}
    told = [f"**To {x} %.** {of_races(races(tuple(NETWORKS), x, parts=times))}" for x in ("5", "2")]
    return {
        "peaks": [_of_peaks()],
        "sizes": [of_sizes(sizes), f"By program, what is further off left aside: {by_system(sizes)}."],
        "memory": list(_memory(curves)),
        "curves": [f"PyTorch's step took {of_pytorch()}. {of_points(points(curves))}"],
        "seconds": [told[0], "", told[1]],
    }


def _memory(parts: Sequence[dict[str, Any]]) -> Iterator[str]:
    chosen = [after_a_minute(x) for x in parts if x["part"] in NETWORKS and x["published_costs"]]
    theirs = [published.MEMORY_AT_TEN_PER_CENT_GB[x["part"]] for x in chosen]
    yield from head("MONeT, Table 1: GB at 10 % more time", *(NETWORKS[x["part"]] for x in chosen))
    yield line("PyTorch", *(f"{whole_bytes(x) / GIB:.1f}" for x in chosen))
    yield line("published, measured on a P100", *(f"{x[2]:.1f}" for x in theirs))
    yield line("here, by the costs that they published", *(as_gib(memory_at(x, "monet", TENTH)) for x in chosen))
    yield line("Checkmate there", *(f"{x[1]:.1f}" for x in theirs))
    cells = (as_gib(memory_at(x, "checkmate-o", TENTH), beyond=budget_of(x, "checkmate-o")) for x in chosen)
    yield line("Checkmate's schedule here, with the quickest convolutions that fit", *cells)


def _of_peaks() -> str:
    """How much higher the peaks of today's estimates are than those of stored results."""
    kept: dict[str, float] = {x: y["plain_bytes"] for x, y in stored("../compare").items()}
    grown = []
    for name, before in kept.items():
        profile = explorer.load_profile(name)
        now = explorer.simulate(profile, explorer.keep_all(profile.graph)).peak_bytes
        told = f"{profile.graph.model} {now / before - 1:.0%} ({before / GIB:.2f}, now {now / GIB:.2f} GiB)"
        grown.append((now / before - 1, told))
    named = (text for share, text in sorted(grown, reverse=True) if share >= 0.01)
    rest = max((share for share, _ in grown if share < 0.01), default=0.0)
    return f"Peaks have grown since, by {_listed(named)}, the others by {rest:.1%} at most."
