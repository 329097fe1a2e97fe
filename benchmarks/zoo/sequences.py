"""Sequences, sets and graphs: recurrent networks by hand and by nn, WaveNet, PointNet, graph and expert layers."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.zoo.specimen import Specimen


class _WaveNet(nn.Module):
    """Van den Oord et al., 2016: causal dilated convolutions, gates, a sum of skips."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.enter = nn.Embedding(32, width)
        self.gates = nn.ModuleList(nn.Conv1d(width, 2 * width, 2, dilation=2**d) for d in range(4))
        self.mixes = nn.ModuleList(nn.Conv1d(width, 2 * width, 1) for _ in range(4))
        self.leave = nn.Conv1d(width, 32, 1)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.enter(tokens[:, :-1]).transpose(1, 2)
        skips = torch.zeros_like(x)
        for number, (gate, mix) in enumerate(zip(self.gates, self.mixes, strict=True)):
            a, b = gate(F.pad(x, (2**number, 0))).chunk(2, 1)
            residual, skip = mix(torch.tanh(a) * torch.sigmoid(b)).chunk(2, 1)
            x = x + residual
            skips += skip
        return F.cross_entropy(self.leave(F.relu(skips)), tokens[:, 1:])


class _Tcn(nn.Module):
    """Bai et al., 2018: a temporal convolutional network, with the chomp that its code is known for."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Conv1d(3 if d == 0 else width, width, 3, padding=2 * 2**d, dilation=2**d) for d in range(3)
        )
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number, layer in enumerate(self.layers):
            y = layer(x)[:, :, : -(2 * 2**number)].contiguous()
            x = F.dropout(F.relu(y), 0.1, self.training)
        return self.head(x[:, :, -1])


class _LstmByHand(nn.Module):
    """Hochreiter and Schmidhuber, 1997, written out over 8 steps."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.inputs = nn.Linear(8, 4 * width)
        self.states = nn.Linear(width, 4 * width, bias=False)
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = c = x.new_zeros(len(x), self.states.in_features)
        for t in range(x.shape[1]):
            i, f, g, o = (self.inputs(x[:, t]) + self.states(h)).chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        return self.head(h)


class _GruByHand(nn.Module):
    """Cho et al., 2014, by cells; every state is kept, as many do, in a list that is stacked."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.cell = nn.GRUCell(8, width)
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.zeros(len(x), self.cell.hidden_size)
        states = []
        for step in x.unbind(1):
            h = self.cell(step, h)
            states.append(h)
        return self.head(torch.stack(states, 1).amax(1))


class _Recurrent(nn.Module):
    """nn.LSTM or nn.GRU over embedded tokens, in both directions."""

    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.embedding = nn.Embedding(40, 16)
        self.recurrent = kind(16, 16, num_layers=2, batch_first=True, bidirectional=True, dropout=0.1)
        self.head = nn.Linear(32, 10)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        states, _ = self.recurrent(self.embedding(tokens))
        return self.head(states[:, -1])


class _PointNet(nn.Module):
    """Qi et al., 2017: a learned transform, shared perceptrons, a maximum over points."""

    def __init__(self) -> None:
        super().__init__()
        self.transform = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU())
        self.matrix = nn.Linear(16, 9)
        self.points = nn.Sequential(
            nn.Conv1d(3, 24, 1), nn.BatchNorm1d(24), nn.ReLU(), nn.Conv1d(24, 48, 1), nn.BatchNorm1d(48), nn.ReLU()
        )
        self.head = nn.Linear(48, 10)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        matrix = self.matrix(self.transform(x).max(2)[0]).view(-1, 3, 3) + torch.eye(3)
        x = torch.bmm(x.transpose(1, 2), matrix).transpose(1, 2)
        return self.head(torch.max(self.points(x), 2, keepdim=True)[0].squeeze(2)), matrix


def _with_regulariser(outputs: tuple[torch.Tensor, torch.Tensor], target: torch.Tensor) -> torch.Tensor:
    logits, matrix = outputs
    excess = torch.linalg.matrix_norm(torch.eye(3) - matrix @ matrix.transpose(1, 2))
    return F.cross_entropy(logits, target) + 0.001 * excess.mean()


class _GraphConvolution(nn.Module):
    """Kipf and Welling, 2017, with the graph as a dense matrix, and attention after Veličković et al., 2018."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, width), nn.Linear(width, width)
        self.source, self.target = nn.Linear(width, 1), nn.Linear(width, 1)
        self.head = nn.Linear(width, 5)

    def forward(self, nodes: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        degrees = edges.sum(1).clamp(min=1).rsqrt()
        x = F.relu((degrees[:, None] * edges * degrees) @ self.first(nodes))
        y = self.second(F.dropout(x, 0.2, self.training))
        scores = F.leaky_relu(self.source(y) + self.target(y).T, 0.2)
        scores = scores.masked_fill(edges == 0, float("-inf"))
        return self.head(F.elu(torch.softmax(scores, 1) @ y))


class _MessagePassing(nn.Module):
    """Gilmer et al., 2017: messages along a list of edges, gathered and added by index."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.message = nn.Linear(2 * 8, width)
        self.update = nn.Linear(8 + width, width)
        self.head = nn.Linear(width, 5)

    def forward(self, nodes: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        source, target = edges
        messages = F.relu(self.message(torch.cat([nodes[source], nodes[target]], 1)))
        gathered = torch.zeros(len(nodes), messages.shape[1]).index_add_(0, target, messages)
        return self.head(F.relu(self.update(torch.cat([nodes, gathered], 1))))


class _Experts(nn.Module):
    """Shazeer et al., 2017, the dense way: every expert on every token, the best two weighted."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.gate = nn.Linear(width, 4, bias=False)
        self.enter = nn.Parameter(torch.randn(4, width, 48) * 0.1)
        self.leave = nn.Parameter(torch.randn(4, 48, width) * 0.1)
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        best, which = self.gate(x).softmax(-1).topk(2, dim=-1)
        weights = torch.zeros(*x.shape[:-1], 4).scatter(-1, which, best / best.sum(-1, keepdim=True))
        hidden = F.silu(torch.einsum("ntd,edh->enth", x, self.enter))
        made = torch.einsum("enth,ehd->entd", hidden, self.leave)
        return self.head(torch.einsum("entd,nte->ntd", made, weights).mean(1))


class _Recommender(nn.Module):
    """DLRM (Naumov et al., 2019): bags of categories, pairwise products, a perceptron."""

    pairs: torch.Tensor

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(30, width, mode="sum") for _ in range(3))
        self.dense = nn.Sequential(nn.Linear(5, width), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(width + 6, 16), nn.ReLU(), nn.Linear(16, 1))
        self.register_buffer("pairs", torch.tril_indices(4, 4, offset=-1))

    def forward(self, dense: torch.Tensor, categories: torch.Tensor) -> torch.Tensor:
        first = self.dense(dense)
        vectors = torch.stack([first, *(bag(categories[:, i]) for i, bag in enumerate(self.bags))], 1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        crossed = products[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([first, crossed], 1)).squeeze(1)


def _sequences() -> Any:
    return torch.randn(16, 8, 8), torch.randint(10, (16,))


def _tokens() -> Any:
    return torch.randint(40, (8, 12)), torch.randint(10, (8,))


def _graph() -> Any:
    edges = (torch.rand(24, 24) < 0.2).float()
    edges = ((edges + edges.T + torch.eye(24)) > 0).float()
    return (torch.randn(24, 8), edges), torch.randint(5, (24,))


def _clicks() -> Any:
    return (torch.randn(16, 5), torch.randint(30, (16, 3, 4))), torch.rand(16)


_loss = F.cross_entropy
_family = "Sequences, sets, graphs"
SPECIMENS = (
    Specimen("wavenet", _family, _WaveNet, lambda: torch.randint(32, (4, 64)), None, ("`+=` on a sum of skips",)),
    Specimen(
        "tcn", _family, _Tcn, lambda: (torch.randn(8, 3, 64), torch.randint(10, (8,))), _loss, ("chomp", "dropout")
    ),
    Specimen("lstm_by_hand", _family, _LstmByHand, _sequences, _loss),
    Specimen("gru_by_hand", _family, _GruByHand, _sequences, _loss, ("nn.GRUCell", "a list of states")),
    Specimen("nn_lstm", _family, lambda: _Recurrent(nn.LSTM), _tokens, _loss, ("nn.LSTM", "dropout")),
    Specimen("nn_gru", _family, lambda: _Recurrent(nn.GRU), _tokens, _loss, ("nn.GRU", "dropout")),
    Specimen(
        "pointnet",
        _family,
        _PointNet,
        lambda: (torch.randn(8, 3, 64), torch.randint(10, (8,))),
        _with_regulariser,
        ("maximum over points",),
    ),
    Specimen("gcn_gat", _family, _GraphConvolution, _graph, _loss, ("dense graph", "dropout")),
    Specimen(
        "message_passing",
        _family,
        _MessagePassing,
        lambda: ((torch.randn(24, 8), torch.randint(24, (2, 60))), torch.randint(5, (24,))),
        _loss,
        ("index_add_",),
    ),
    Specimen(
        "mixture_of_experts",
        _family,
        _Experts,
        lambda: (torch.randn(4, 12, 24), torch.randint(10, (4,))),
        _loss,
        ("top-k gate",),
    ),
    Specimen("dlrm", _family, _Recommender, _clicks, F.binary_cross_entropy_with_logits, ("embedding bags",)),
)
