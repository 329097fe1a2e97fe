"""Every figure and table of the papers: made by which cell, and how far it can be held against the published one.

    python -m benchmarks.papers.coverage

puts the table, and what is found of MONeT's, into ``docs/papers.md``. ``tests/test_papers.py`` holds it against the
notebooks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.markdown import head, line
from benchmarks.papers.exhibit import Label
from benchmarks.papers.findings import page_blocks
from benchmarks.report import fill

PAGE = Path(__file__).parents[2] / "docs" / "papers.md"
PAPERS = {"monet": "MONeT", "checkmate": "Checkmate", "rotor": "rotor", "model": "MODeL"}
EXACT, SIMULATED, ESTIMATED, MEASURED, NEEDS_A_GPU, NOT_NUMERIC = Label


@dataclass(frozen=True)
class Item:
    """A figure or table.

    Attributes:
        paper: key of ``PAPERS``.
        name: as the paper numbers it.
        shows: what.
        labels: strongest first; of what is not made, why.
        cell: id of the notebook's cell and name of the function that makes it; empty where it is not made.
        text: it is text rather than a picture or table that the paper numbers.
    """

    paper: str
    name: str
    shows: str
    labels: tuple[Label, ...]
    cell: str = ""
    text: bool = False

    @property
    def needs_no_device(self) -> bool:
        """Can it be made here at all?"""
        return not {NOT_NUMERIC, NEEDS_A_GPU} & set(self.labels)


def _sketch(paper: str, name: str, shows: str) -> Item:
    return Item(paper, name, shows, (NOT_NUMERIC,))


ITEMS = (
    _sketch("monet", "Figure 1", "the idea"),
    _sketch("monet", "Figure 2", "algorithms 1 and 2"),
    Item("monet", "Figure 3", "overhead against memory, five networks", (SIMULATED, ESTIMATED, MEASURED), "figure_3"),
    Item("monet", "Figure 4", "ablation at 8 GB", (SIMULATED, ESTIMATED), "figure_4"),
    Item("monet", "Figure 5", "ResNet-50 at 8 GB, run by run", (ESTIMATED, MEASURED), "figure_5"),
    Item("monet", "Figure 6", "ablation at every budget", (SIMULATED, ESTIMATED), "figure_6"),
    Item("monet", "Figure 7", "workspace against time of one layer", (MEASURED,), "figure_7"),
    Item("monet", "Figure 8", "3D-UNet", (ESTIMATED,), "figure_8"),
    Item("monet", "Table 1", "memory at 10 % overhead", (SIMULATED, ESTIMATED), "table_1"),
    Item("monet", "Table 2", "solver time to 5 %, three networks", (SIMULATED, ESTIMATED), "table_2"),
    Item("monet", "Table 3", "Gist", (ESTIMATED, SIMULATED), "table_3"),
    _sketch("monet", "Table 4", "notation"),
    Item("monet", "Table 5", "solver time to 5 %", (SIMULATED, ESTIMATED), "table_5"),
    Item("monet", "Table 6", "solver time to 2 %", (SIMULATED, ESTIMATED), "table_6"),
    Item("monet", "Table 7", "constraints and variables", (EXACT,), "table_7"),
    Item("checkmate", "Figure 1", "activations and parameters", (EXACT,), "figure_1"),
    Item("checkmate", "Figure 2", "three layers, one made again", (EXACT,), "figure_2"),
    _sketch("checkmate", "Figure 3", "when a value may be freed"),
    Item("checkmate", "Figure 4", "overhead against budget", (ESTIMATED,), "figure_4"),
    _sketch("checkmate", "Figure 5", "the system"),
    Item("checkmate", "Figure 6", "largest batch", (EXACT,), "figure_6"),
    Item("checkmate", "Table 1", "strategies", (EXACT, ESTIMATED), "table_1"),
    _sketch("rotor", "Figure 1", "graphs of a chain"),
    Item("rotor", "Figure 2", "the counter-example", (EXACT,), "figure_2"),
    *(
        Item("rotor", f"Figure {number}", shows, (ESTIMATED,), f"figure_{number}")
        for number, shows in {
            3: "ResNet-101, pictures of 1000",
            4: "ResNet-1001, of 224",
            5: "a selection",
            6: "ResNets, of 224",
            7: "ResNets, of 500",
            8: "ResNets, of 1000",
            9: "DenseNets, of 224",
            10: "DenseNets, of 500",
            11: "DenseNets, of 1000",
            12: "Inception v3",
            13: "ResNet-1001",
        }.items()
    ),
    Item("rotor", "Table 1", "the operations", (EXACT,), "table_1"),
    Item("rotor", "Theorem 1", "the best persistent sequence", (EXACT,), "theorem_1", text=True),
    Item("rotor", "section 5.2", "time for 339 stages", (MEASURED,), "seconds", text=True),
    Item("model", "Figure 1", "parameters over the years", (EXACT,), "figure_1"),
    Item("model", "Figure 2", "memory of GPUs over the years", (EXACT,), "figure_2"),
    Item("model", "Figure 3", "two orders", (EXACT,), "figure_3"),
    Item("model", "Figure 4", "fragmentation", (EXACT,), "figure_4"),
    Item("model", "Figure 5", "saved by order and addresses", (ESTIMATED,), "figure_5"),
    Item("model", "Figure 6", "optimization times", (MEASURED,), "figure_6"),
    Item("model", "Figure 7", "fragmentation by PyTorch", (ESTIMATED,), "figure_7"),
    Item("model", "Figure 8", "saved by the order", (ESTIMATED,), "figure_8"),
    _sketch("model", "Figure 9", "precedence of edges"),
    Item(
        "model", "AlexNet at 32", "0.5618 GB, 0.4783 by the order (README of its code)", (EXACT,), "alexnet", text=True
    ),
)


def main() -> None:
    """Put table and findings into the page."""
    fill(PAGE, {"coverage": table(), **page_blocks()})


def table() -> Iterator[str]:
    """A row for each, and how many are made of those that need no device."""
    yield from head("paper", "", "shows", "label", "made by")
    for x in ITEMS:
        cell = f"[`{x.paper}.{x.cell}`](../notebooks/papers/{x.paper}.ipynb)" if x.cell else "–"
        yield line(PAPERS[x.paper], x.name, x.shows, ", ".join(x.labels), cell)
    numbered = [x for x in ITEMS if not x.text]
    possible = [x for x in numbered if x.needs_no_device]
    made = [x for x in possible if x.cell]
    yield ""
    yield (
        f"Of {len(numbered)} figures and tables {len(numbered) - len(possible)} are not numeric; of the other "
        f"{len(possible)}, {len(made)} are made ({len(made) / len(possible):.0%})."
    )


if __name__ == "__main__":
    main()
