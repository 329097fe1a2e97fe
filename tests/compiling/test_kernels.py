"""What the compiler makes of a graph: the same each time, in its own order, and with sums as parts of products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations

import numpy as np
import pytest
import torch
from torch import fx, nn
from torch.nn import functional as F

import explorer
from explorer.compiling.kernels import Kernel
from explorer.compiling.ordering import in_order_of_the_compiler
from explorer.compiling.profiling import traced_of
from explorer.compiling.running import rehearsed_peak_bytes
from explorer.models.gpt import GPT, GPTConfig
from explorer.schedule import keep_all

TOKENS = torch.randint(200, (16, 128))


class Tied(nn.Module):
    """A language model whose embedding is its head: the gradients of both are one sum, after a product."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.layer, self.norm = nn.Embedding(200, 96), nn.Linear(96, 96), nn.LayerNorm(96)
        self.head = nn.Linear(96, 200, bias=False)
        self.head.weight = self.words.weight

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x = self.words(x)
        x = x + F.gelu(self.layer(self.norm(x)))
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), labels.flatten())


class Residual(nn.Module):
    """Products without bias are added to."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(16, 64), nn.Linear(64, 4)
        self.layers = nn.ModuleList(nn.Linear(64, 64, bias=False) for _ in range(3))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for layer in self.layers:
            x = x + layer(torch.tanh(x))
        return F.cross_entropy(self.last(x), labels)


class Repeated(Residual):
    """The gradients of one layer's calls are added up."""

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for _ in range(4):
            x = F.gelu(self.layers[0](x))
        return F.cross_entropy(self.last(x), labels)


def _rows() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(512, 16), torch.randint(4, (512,))


@pytest.mark.parametrize(
    ("made", "batch", "off"),
    [(Tied, (TOKENS, TOKENS.roll(1, 1)), 0.03), (Residual, _rows(), 0.01), (Repeated, _rows(), 0.01)],
    ids=["tied", "residual", "repeated"],
)
def test_peaks_with_sums_of_products(
    made: Callable[[], nn.Module], batch: tuple[torch.Tensor, ...], off: float
) -> None:
    torch.manual_seed(0)
    model = made()
    compiled = explorer.compiled(model, keep_all(traced_of(model, batch).built.graph), batch)
    assert compiled.predicted_peak_bytes == pytest.approx(rehearsed_peak_bytes(compiled.module, batch), rel=off)


def test_the_graph_is_the_same_each_time() -> None:
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocabulary=100, context=16, layers=2, width=16, heads=2, dropout=0.1)).train()
    batch = torch.randint(100, (2, 16)), torch.randint(100, (2, 16))
    first, *others = (traced_of(model, batch).built.graph for _ in range(4))
    assert all(x == first for x in others)


def _random_kernels(random: np.random.Generator) -> tuple[list[Kernel], fx.Graph]:
    graph = fx.Graph()
    made = [graph.placeholder(x) for x in ("primals_1", "saved")]
    kernels = []
    for node in made:
        node.meta["val"] = torch.empty(int(random.integers(1, 9)), device="meta")
    for _ in range(int(random.integers(2, 7))):
        reads = [made[x] for x in random.choice(len(made), int(random.integers(1, 3)), replace=False)]
        node = graph.call_function(torch.sin, (reads[0],))
        node.meta["val"] = torch.empty(int(random.integers(1, 9)), device="meta")
        kernels.append(Kernel((node,), tuple(reads), (node,), outside=False))
        made.append(node)
    graph.output((made[-1],))
    return kernels, graph


def _peak(kernels: Sequence[Kernel], graph: fx.Graph) -> int:
    """Counted kernel by kernel: what was given or made, and is read from here on or handed out."""
    given = {x for x in graph.nodes if x.name == "saved" and any(x in y.reads for y in kernels)}
    handed_out = set(next(x for x in graph.nodes if x.op == "output").all_input_nodes)
    peak = 0
    for at in range(len(kernels)):
        there = given | {y for x in kernels[: at + 1] for y in x.writes}
        later = {y for x in kernels[at:] for y in (*x.reads, *x.writes)} | handed_out
        peak = max(peak, sum(x.meta["val"].nbytes for x in there & later))
    return peak


def test_orders_are_possible_and_take_no_more_memory_than_the_one_before() -> None:
    random = np.random.default_rng(0)
    better = 0
    for _ in range(300):
        kernels, graph = _random_kernels(random)
        found = in_order_of_the_compiler(kernels, graph)
        maker = {y: x for x in kernels for y in x.writes}
        place = {id(x): at for at, x in enumerate(found)}
        assert sorted(map(id, found)) == sorted(map(id, kernels))
        assert all(place[id(maker[y])] < place[id(x)] for x in kernels for y in x.reads if y in maker)
        before, after = _peak(kernels, graph), _peak(found, graph)
        assert after <= before
        better += after < before
    assert better > 30


def test_of_few_kernels_it_is_mostly_the_best_order_there_is() -> None:
    random = np.random.default_rng(1)
    best = 0
    for _ in range(60):
        kernels, graph = _random_kernels(random)
        maker = {y: x for x in kernels for y in x.writes}
        possible = (
            x
            for x in permutations(kernels)
            if all(x.index(maker[y]) < x.index(kernel) for kernel in x for y in kernel.reads if y in maker)
        )
        best += _peak(in_order_of_the_compiler(kernels, graph), graph) == min(_peak(x, graph) for x in possible)
    assert best > 45
