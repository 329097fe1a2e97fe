"""rotor's figures and tables (Beaumont et al., *Optimal checkpointing for heterogeneous chains*, RR-9302, 2019)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks.methods.rotor_table import residual_network
from benchmarks.papers import jobs, published
from benchmarks.papers.exhibit import Exhibit, Label, Table, figure, grid, source, stored
from explorer.solvers.methods.rotor.chain import Chain, Kind, Operation, keep_everything
from explorer.solvers.methods.rotor.table import solve
from tests.solvers.methods.rotor.exhaustive import chain, fastest_ms, time_ms

GIB = 2**30
STRATEGIES = {
    "eager": "PyTorch",
    "checkpoint-sequential": "sequential",
    "rotor-revolve": "revolve",
    "rotor": "optimal",
}
_RANDOM = 60  # chains of theorem 1 in quick mode; ten times as many else
_SMALL_STAGES = 120


def figure_2(*, quick: bool = True) -> Exhibit:
    """The chain on which no persistent schedule is the best."""
    rows = []
    for n in range(3, 7 if quick else 9):
        example = counter_example(n)
        table = solve(example, memory_bytes=8, slots=8)
        persistent = fastest_ms(example, 8, persistent=True)
        free = fastest_ms(example, 8, persistent=False)
        rows.append([str(n), f"{3 * n + 1}", f"{table.curve_ms[8]:g}", f"{persistent:g}", f"{2 * n + 2}", f"{free:g}"])
    made = figure(title="rotor, Figure 2: makespans at a memory of 8", x="n", y="time")
    for title, column in (("best persistent, by rotor's table", 2), ("best of all, by searching them", 5)):
        made.add_scatter(
            x=[int(x[0]) for x in rows], y=[float(x[column]) for x in rows], name=title, mode="lines+markers"
        )
    head = ("n", "3n + 1", "rotor's table", "all persistent ones searched", "2n + 2", "all searched")
    note = (
        "Equal throughout. Sizes follow from the text: of 8, the last stage needs 7, those behind the second 6, and "
        "beside them there may be a checkpoint of 1 or of 2. What drops a checkpoint early saves a third as n grows; "
        "MONeT's and Checkmate's programs may do so."
    )
    return Exhibit("rotor, Figure 2", (Label.EXACT,), (Table(head, rows),), (made,), note)


def counter_example(n: int) -> Chain:
    """Section 4.1's, with k = n − 1."""
    return chain(outputs=[1, 2, *[3] * n, 4], forward_ms=[n - 1, 2, *[0] * (n + 1)])


def table_1(*, quick: bool = True) -> Exhibit:
    """The operations, as a chain of three counts them."""
    del quick
    example = chain(
        outputs=[1, 1, 1], saved=[3, 3, 3], gradients=[1, 1, 1], forward_ms=[1.0] * 3, backward_ms=[2.0] * 3
    )
    told = {
        Kind.ALL: ("forward and save all", "a, or ā of the stage before", "the same, and ā"),
        Kind.CHECKPOINT: ("forward and checkpoint the input", "the same", "the same, and a"),
        Kind.EMPTY: ("forward without saving", "a of the stage before", "a in its place"),
        Kind.BACKWARD: ("backward step", "δ, ā, and a or ā of the stage before", "δ of the stage before"),
    }
    rows = [[kind.value, *words] for kind, words in told.items()]
    again = [
        *(Operation(Kind.CHECKPOINT, 0), Operation(Kind.EMPTY, 1), Operation(Kind.ALL, 2), Operation(Kind.BACKWARD, 2)),
        *(Operation(Kind.ALL, 0), Operation(Kind.ALL, 1), Operation(Kind.BACKWARD, 1), Operation(Kind.BACKWARD, 0)),
    ]
    peaks = [["F_all of all, B of all", keep_everything(example)], ["F_ck F_∅ F_all B, then F_all F_all B B", again]]
    counted = [[name, str(example.peak_bytes(x)), f"{time_ms(example, x):g}"] for name, x in peaks]
    tables = (
        Table(("operation", "", "input", "output"), rows),
        Table(("a chain of three stages", "peak", "time"), counted),
    )
    return Exhibit(
        "rotor, Table 1",
        (Label.EXACT,),
        tables,
        (),
        "The second table plays them: ω_a = ω_δ = 1, ω_ā = 3, u_f = 1, u_b = 2.",
    )


def theorem_1(*, quick: bool = True) -> Exhibit:
    """C_BP against a search over all persistent sequences, on random chains."""
    generator = random.Random(0)
    count = _RANDOM * (1 if quick else 10)
    equal = feasible = 0
    for _ in range(count):
        example, memory = random_chain(generator), generator.randint(4, 45)
        table = solve(example, memory_bytes=memory, slots=memory)
        best = fastest_ms(example, memory, persistent=True)
        found = float(table.curve_ms[memory])
        feasible += best is not None
        equal += (best is None and not np.isfinite(found)) or (best is not None and abs(found - best) < 1e-9)
    rows = [[str(count), str(feasible), str(equal)]]
    note = (
        "Chains of up to six stages with random sizes, times and overheads. The proof is the paper's; "
        "this would find "
        "a slip in its statement, or in our code."
    )
    return Exhibit(
        "rotor, Theorem 1",
        (Label.EXACT,),
        (Table(("random chains", "that fit", "the table's time is the best"), rows),),
        (),
        note,
    )


def random_chain(generator: random.Random, *, most: int = 6) -> Chain:
    """Up to that many stages."""
    n = generator.randint(1, most)

    def several(least: int, greatest: int) -> list[int]:
        return [generator.randint(least, greatest) for _ in range(n)]

    outputs = several(1, 6)
    return chain(
        outputs=outputs,
        saved=[x + y for x, y in zip(outputs, several(0, 5), strict=True)],
        gradients=several(0, 4),
        forward_ms=[float(x) for x in several(0, 9)],
        backward_ms=[float(x) for x in several(0, 3)],
        forward_overheads=several(0, 3),
        backward_overheads=several(0, 3),
    )


def seconds(*, quick: bool = True) -> Exhibit:
    """How long the table takes (section 5.2)."""
    solve(residual_network(5), memory_bytes=10**9)  # compiles, or loads what was compiled
    rows = []
    for stages in (30, 60, _SMALL_STAGES, *(() if quick else (339,))):
        example = residual_network(stages)
        memory = example.peak_bytes(keep_everything(example))
        began = time.perf_counter()
        solve(example, memory_bytes=memory)
        rows.append([str(stages), f"{time.perf_counter() - began:.2f}"])
    rows.append(["339, as stored", "6.9"])
    note = (
        f"Of 500 slots; the paper: below 1 s for most networks, below {published.ROTOR_SECONDS:g} s for 339 stages "
        "(ResNet-1001), in C. The time grows with the third power of the length. One table answers all memory sizes "
        "(docs/figures.md; python -m benchmarks.methods.rotor_table)."
    )
    return Exhibit("rotor, section 5.2", (Label.MEASURED,), (Table(("stages", "s"), rows),), (), note)


def _shapes(name: str, panels: Sequence[tuple[str, int, int]], *, quick: bool, note: str = "") -> Exhibit:
    """Throughput against peak memory of the four strategies: a panel for each network, image size and batch."""
    wanted = tuple(dict.fromkeys(network for network, *_ in panels))
    parts = {x["part"]: x for x in (stored("chains") if quick else jobs.chains(None, wanted))}
    drawn, gains = [], []
    lacking = sorted({network for network, *_ in panels} - parts.keys())
    for network, image, batch in (x for x in panels if x[0] in parts):
        rows = {x["method"]: x["points"] for x in parts[network]["rows"] if (x["image"], x["batch"]) == (image, batch)}
        series = []
        for method, title in STRATEGIES.items():
            points = [(peak / GIB, 1e3 * batch / milliseconds) for peak, milliseconds in rows.get(method, ())]
            if points:
                series.append((title, [x for x, _ in points], [y for _, y in points]))
        drawn.append((f"{network}, {image}, batch {batch}", series))
        gains += _gain(rows, batch)
    made = grid(drawn, x="peak, GiB", y="pictures/s", title=f"rotor, {name}", columns=3)
    if "ResNet-1001" in wanted and "ResNet-1001" in parts:
        note = " ".join(filter(None, (note, _of_resnet_1001(parts["ResNet-1001"]))))
    gain = 100 * (np.mean(gains) - 1) if gains else 0.0
    average = f"{abs(gain):.1f} % {'higher' if gain >= 0 else 'lower'}"
    told = (
        "By estimates for a V100. Over the best of checkpoint_sequential at its memory, rotor's throughput is "
        f"{average} on average of these panels (the paper: {100 * published.ROTOR_GAIN:.1f} % higher, of all of its). "
        "revolve runs every stage twice whatever the memory, so its line ends early. Estimates scale with the batch "
        "and with the area of the pictures; that small batches do not fill a GPU, which lifts the published "
        "throughput of larger ones, is not in them."
    )
    return Exhibit(
        f"rotor, {name}",
        (Label.ESTIMATED,),
        (),
        (made,),
        " ".join(filter(None, (told, note, f"Not stored: {', '.join(lacking)}." if lacking else ""))),
        (source("chains"),) if quick else ("Made now.",),
    )


def _of_resnet_1001(part: dict[str, Any]) -> str:
    """Of PyTorch's step, the only one of which the paper prints numbers."""
    gib, rate = published.RESNET_1001
    (points,) = (x["points"] for x in part["rows"] if (x["method"], x["image"], x["batch"]) == ("eager", 224, 8))
    ((peak, milliseconds),) = points
    ours = 8e3 / milliseconds
    return (
        f"The paper, of PyTorch for pictures of 224 at a batch of 8, by its tool's estimate: {gib} GiB and {rate} "
        f"pictures/s. Ours has the width of CIFAR's ResNet-1001: {peak / GIB:.1f} GiB and {ours:.2f} pictures/s, "
        f"{peak / GIB / gib:.2f} of the memory and {rate / ours:.2f} of the time. Theirs, of which it says no more, "
        "must be wider or keep larger maps. Of the shapes: sequential needs far more memory for its best throughput "
        "than rotor, and revolve runs all twice."
    )


def _gain(rows: dict[str, Any], batch: int) -> list[float]:
    """Throughput of rotor over that of the quickest segments, within their memory."""
    segments, optimal = rows.get("checkpoint-sequential", []), rows.get("rotor", [])
    if not segments or not optimal or not batch:
        return []
    peak, milliseconds = min(segments, key=lambda x: x[1])
    within = [x[1] for x in optimal if x[0] <= peak]
    return [milliseconds / min(within)] if within else []


_GRIDS: dict[int, Sequence[tuple[str, int, int]]] = {
    3: [("ResNet-101", 1000, 1), ("ResNet-101", 1000, 8)],
    4: [("ResNet-1001", 224, x) for x in (1, 8)],
    5: [("ResNet-50", 500, 8), ("DenseNet-121", 224, 8), ("Inception v3", 500, 8)],
    6: [(f"ResNet-{x}", 224, 8) for x in jobs.DEPTHS],
    7: [(f"ResNet-{x}", 500, 8) for x in jobs.DEPTHS],
    8: [(f"ResNet-{x}", 1000, 1) for x in jobs.DEPTHS],
    9: [(f"DenseNet-{x}", 224, 8) for x in jobs.DENSE],
    10: [(f"DenseNet-{x}", 500, 8) for x in jobs.DENSE],
    11: [(f"DenseNet-{x}", 1000, 1) for x in jobs.DENSE],
    12: [("Inception v3", x, 8) for x in (224, 500, 1000)],
    13: [("ResNet-1001", x, y) for x in (224, 500, 1000) for y in (1, 8)],
}
_MORE = "The paper has more depths: ResNet-34 and -200, DenseNet-161 and -169."
_NOTES = {
    **dict.fromkeys(range(6, 12), _MORE),
    3: "The paper: PyTorch takes 2.83 GiB at a batch of 1; at 8, sequential with two segments 13.91 GiB for "
    "8.13 pictures/s, and optimal has 9.18 at most.",
}
Figure = Callable[..., Exhibit]


def _figure(number: int) -> Figure:
    return partial(_shapes, f"Figure {number}", _GRIDS[number], note=_NOTES.get(number, ""))


figure_3, figure_4, figure_5, figure_6, figure_7, figure_8 = map(_figure, range(3, 9))
figure_9, figure_10, figure_11, figure_12, figure_13 = map(_figure, range(9, 14))
