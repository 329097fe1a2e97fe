"""Checkmate's figures and tables (Jain et al., *Checkmate: Breaking the Memory Wall …*, MLSys 2020)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import explorer
from benchmarks.papers import jobs
from benchmarks.papers.exhibit import Exhibit, Label, Table, figure, grid, source, stored
from explorer.graph import Role
from explorer.profiles.loading import bundled_profiles
from explorer.solvers.methods.table import METHODS
from teaching.chain import Taught, taught_chain

GIB, MIB = 2**30, 2**20
FIGURE_4 = {"vgg16-p100-16gb": "VGG-16", "mobilenet_v2-p100-16gb": "MobileNet-V2", "unet-p100-16gb": "U-Net"}
BASELINES = {
    "checkpoint-all": ("Checkpoint all", "yes", "no", "no"),
    "griewank-walther": ("Griewank & Walther, log n", "no", "no", "no"),
    "chen-root": ("Chen, √n", "no", "no", "no"),
    "chen-greedy": ("Chen, greedy", "no", "no", "partly"),
    "ap-root": ("AP √n", "partly", "no", "no"),
    "ap-greedy": ("AP greedy", "partly", "no", "partly"),
    "linearized-root": ("Linearized √n", "yes", "no", "no"),
    "linearized-greedy": ("Linearized greedy", "yes", "no", "partly"),
    "checkmate": ("Checkmate, MILP", "yes", "yes", "yes"),
}
"""Table 1: the paper's name, then: general graphs, aware of costs, aware of memory."""
_MOST_OVERHEAD = 100.0
_SHARE = 0.75
WORTH = {"vgg16-a100-80gb": "VGG-16", "mobilenet_v2-p100-16gb": "MobileNet-V2"}
"""What the strategies of Table 1 are tried on, and its name there."""
_SLOW = ("llama3_70b", "qwen2_5", "whisper", "t5")


def figure_1(*, quick: bool = True) -> Exhibit:
    """Memory of activations and of parameters, by model."""
    names = [x for x in bundled_profiles() if x.endswith("a100-80gb") and not (quick and x.startswith(_SLOW))]
    rows = []
    for name in names:
        profile = explorer.load_profile(name)
        graph = profile.graph
        parameters = sum(x.bytes for x in graph.storages if x.role is Role.PARAMETER)
        line = explorer.simulate(profile, explorer.keep_all(graph))
        boundary = next(n for n, x in enumerate(line.operators) if x >= graph.forward_count)
        kept = sum(graph.storages[x.storage].bytes for x in line.lifetimes if x.start < boundary <= x.end)
        batch = next((x.shape[0] for x in graph.batch if x.shape), 0)
        rows.append((profile.graph.model, batch, kept, parameters))
    made = figure(title="Checkmate, Figure 1: what a step keeps", x="", y="GiB", barmode="stack")
    titles = [f"{model} ({batch})" for model, batch, *_ in rows]
    made.add_bar(x=titles, y=[x / GIB for _, _, x, _ in rows], name="activations kept for the backward pass")
    made.add_bar(x=titles, y=[x / GIB for *_, x in rows], name="parameters")
    table = Table(
        ("model (batch)", "activations, GiB", "parameters, GiB", "ratio"),
        [
            [title, f"{a / GIB:.2f}", f"{p / GIB:.2f}", f"{a / p:.1f}"]
            for title, (*_, a, p) in zip(titles, rows, strict=True)
        ],
    )
    note = (
        "The paper's bars are a picture without numbers, of models from AlexNet to BigGAN; these are those that come "
        "with the explorer, at its batches. Bytes are exact. That activations outweigh parameters holds for pictures "
        "and short sequences by far, and least for language models."
    )
    return Exhibit("Checkmate, Figure 1", (Label.EXACT,), (table,), (made,), note)


def figure_2(*, quick: bool = True) -> Exhibit:
    """Three layers: everything kept, and one dropped and made again."""
    del quick
    example = Taught(times_ms=(1.0, 1.0, 1.0), sizes=(2, 2, 2), gradients=True)
    profile = taught_chain(example)
    plain = explorer.keep_all(profile.graph)
    kept = explorer.simulate(profile, plain)
    least = explorer.solve(profile, budget=kept.peak_bytes - 1, gap=0.0, time_limit=5.0, remember=False)
    assert least.schedule is not None, "less than everything does"
    made = figure(title="Checkmate, Figure 2: a three-layer network", x="ms", y="units of memory")
    rows = []
    for name, schedule in (("every activation kept", plain), ("one dropped and made again", least.schedule)):
        line = explorer.simulate(profile, schedule)
        ends = line.times_ms.cumsum()
        made.add_scatter(
            x=[0.0, *ends], y=[line.total_bytes[0], *line.total_bytes], name=name, line_shape="vh", mode="lines"
        )
        rows.append([name, str(line.peak_bytes), f"{line.time_ms:g}"])
    note = (
        "Layers and gradients of two units each, a unit of time for each run. The paper has no numbers; the budget is "
        "one unit less than plain."
    )
    return Exhibit("Checkmate, Figure 2", (Label.EXACT,), (Table(("", "peak", "ms"), rows),), (made,), note)


def figure_4(*, quick: bool = True) -> Exhibit:
    """Overhead against budget of every method, for three networks."""
    found: dict[str, Any] = stored("../compare")
    if not quick:
        found = dict(_compared(FIGURE_4))
    panels, rows = [], []
    for name, title in FIGURE_4.items():
        comparison = found[name]
        series = []
        for method in BASELINES:
            points = [
                (x["budget_bytes"] / GIB, 100 * (x["time_ms"] / comparison["plain_ms"] - 1))
                for x in comparison["rows"]
                if x["method"] == method and x["time_ms"] is not None
            ]
            if points:
                series.append((METHODS[method].title, [x for x, _ in points], [y for _, y in points]))
                rows.append([title, METHODS[method].title, f"{min(points)[0]:.2f}", f"{min(points)[1]:+.1f} %"])
        panels.append((title, series))
    made = grid(panels, x="budget, GiB", y="extra time, %", title="Checkmate, Figure 4", height=380)
    made.update_yaxes(range=[-2, _MOST_OVERHEAD])
    note = (
        "On estimated costs of a P100 (theirs: V100), with MobileNet-V2 for their V1, at MONeT's batches. As there: "
        "the program is lowest everywhere, by most on the U-Net, where heuristics for chains have little to choose "
        "from; on linear VGG-16 Chen's greedy comes nearest. Workspace counts here, which the paper leaves out, so "
        "that VGG-16 reaches less far down; how much it takes by today's estimates is in docs/papers.md."
    )
    table = Table(("network", "method", "smallest budget tried that fits, GiB", "extra time there"), rows)
    return Exhibit(
        "Checkmate, Figure 4",
        (Label.ESTIMATED,),
        (table,),
        (made,),
        note,
        (source("../compare"),) if quick else ("Made now.",),
    )


def _compared(names: Iterable[str]) -> Iterable[tuple[str, dict[str, Any]]]:
    for name in names:
        profile = explorer.load_profile(name)
        plain = explorer.simulate(profile, explorer.keep_all(profile.graph))
        budgets = [round(share * plain.peak_bytes) for share in (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)]
        comparison = explorer.trade_off(profile, methods=list(BASELINES), budgets=budgets, time_limit=10.0)
        yield name, {"plain_bytes": plain.peak_bytes, "plain_ms": plain.time_ms, "rows": comparison.rows()}


def figure_6(*, quick: bool = True) -> Exhibit:
    """The largest batch in 16 GiB at the cost of one more forward pass, by static FLOPs."""
    parts = stored("largest_batch") if quick else list(jobs.largest_batch(None, ()))
    order = [x for x in jobs.FIGURE_6 if any(y["part"] == x for y in parts)]
    found = {part["part"]: {x["method"]: x["batch_size"] for x in part["rows"]} for part in parts}
    methods = list(next(iter(found.values())))
    made = figure(
        title="Checkmate, Figure 6: largest batch in 16 GiB",
        x="",
        y="batch, over that of keeping everything",
        barmode="group",
    )
    for method in methods:
        ratios = [found[x][method] / max(1, found[x]["checkpoint-all"]) for x in order]
        made.add_bar(x=order, y=ratios, name=METHODS[method].title, text=[found[x][method] for x in order])
    rows = []
    for name in order:
        best = max((found[name][x] for x in methods if x.startswith(("ap", "linearized"))), default=0)
        checkmate = found[name]["checkmate"]
        ratios = [f"{checkmate / max(1, x):.2f}" for x in (found[name]["checkpoint-all"], best)]
        rows.append([name, *(str(found[name][x]) for x in methods), *ratios])
    table = Table(("network", *(METHODS[x].title for x in methods), "Checkmate / all kept", "/ best heuristic"), rows)
    note = (
        "Costs are multiplications and additions, memory is that of the values, no device is involved: it follows "
        "from definitions. What differs from the paper follows from theirs, too: the graphs are PyTorch's (batch "
        "normalisation and its statistics, ReLU and residual addition are nodes of their own), theirs TensorFlow's. "
        "The text prints two ratios: inputs up to 5.1 times larger than with everything kept, batches up to 2.6 times "
        "larger than by prior work. The program is solved for three seconds for each batch, and batches are halved "
        "between what fits and what does not: like theirs, a lower bound of what Checkmate can do. Where rounding has "
        "a small batch, its relaxation was not solved in that time."
    )
    return Exhibit(
        "Checkmate, Figure 6",
        (Label.EXACT,),
        (table,),
        (made,),
        note,
        (source("largest_batch"),) if quick else ("Made now.",),
    )


def table_1(*, quick: bool = True) -> Exhibit:
    """The strategies, what each is aware of, and what that is worth on a linear network and on another."""
    del quick
    columns = [_worth(name) for name in WORTH]
    rows = [[title, *aware, *(x[method] for x in columns)] for method, (title, *aware) in BASELINES.items()]
    head = ("method", "general graphs", "aware of costs", "aware of memory", *WORTH.values())
    note = (
        "The list is the paper's; the last columns are made now, on estimated GPUs: extra time within a budget "
        f"{_SHARE:g} of the way from the smallest one (by checkpointing alone) to the peak without recomputation. "
        "Unsuited: a method for linear networks, which the other one is not."
    )
    return Exhibit("Checkmate, Table 1", (Label.EXACT, Label.ESTIMATED), (Table(head, rows),), (), note)


def _worth(name: str) -> dict[str, str]:
    """What each strategy's schedule takes longer, or why there is none."""
    profile = explorer.load_profile(name)
    plain = explorer.simulate(profile, explorer.keep_all(profile.graph))
    # No fixed share of the peak will do: VGG-16 needs most of it, whatever is kept, for the workspace of convolutions.
    smallest = explorer.smallest_budget(profile, optimizations="none", time_limit=3.0).budget_bytes
    assert smallest is not None, "some budget is enough"
    budget = round(smallest + _SHARE * (plain.peak_bytes - smallest))
    told = {}
    for method in BASELINES:
        found = explorer.solve(profile, budget=budget, method=method, time_limit=3.0, remember=False)
        longer = None if found.time_ms is None else 100 * (found.time_ms / plain.time_ms - 1)
        told[method] = found.status.value if longer is None else f"{longer:+.1f} %"
    return told
