"""Models as people write them, a few lines each: what capture has to take as it is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

Make = Callable[[], tuple[nn.Module, Any, Callable[[Any, Any], torch.Tensor] | None]]
CASES: dict[str, Make] = {}


def case(make: Make) -> Make:
    """Enter a sample under its function's name."""
    CASES[make.__name__] = make
    return make


class Body(nn.Module):
    """A function of one linear layer and the input, with more submodules by name."""

    def __init__(self, function: Callable[..., Any], width: int = 6, **children: nn.Module) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.function = function
        for name, child in children.items():
            self.add_module(name, child)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(self, *args, **kwargs)


def regression(y: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    return (y.real if y.is_complex() else y).square().mean()


def sample(function: Callable[..., Any], *shape: int, **children: nn.Module) -> Any:
    """One that ends in a tensor; the input passes a linear layer first."""
    shape = shape or (4, 6)

    def body(self: Body, x: torch.Tensor) -> torch.Tensor:
        return function(self, self.linear(x))

    return Body(body, shape[-1], **children), (torch.randn(shape), torch.zeros(1)), regression


# Layers that trace in ways of their own.


@case
def convolution_same():
    return sample(lambda m, x: m.conv(x), 2, 3, 7, 7, conv=nn.Conv2d(3, 4, (3, 5), padding="same"))


@case
def convolution_valid():
    return sample(lambda m, x: m.conv(x), 2, 3, 7, 7, conv=nn.Conv2d(3, 4, 3, padding="valid"))


@case
def convolution_circular():
    return sample(lambda m, x: m.conv(x), 2, 3, 7, 7, conv=nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"))


@case
def convolution_unbatched():
    return sample(lambda m, x: m.conv(x), 3, 7, 7, conv=nn.Conv2d(3, 4, 3))


@case
def channels_last():
    model, batch, loss = sample(
        lambda m, x: m.norm(m.conv(x)).relu(), 2, 3, 8, 8, conv=nn.Conv2d(3, 4, 3), norm=nn.BatchNorm2d(4)
    )
    return (
        model.to(memory_format=torch.channels_last),
        (batch[0].to(memory_format=torch.channels_last), batch[1]),
        loss,
    )


@case
def lstm():
    return sample(lambda m, x: m.rnn(x)[0], 5, 3, 6, rnn=nn.LSTM(6, 4, 2, bidirectional=True, dropout=0.2))


@case
def gru():
    # Eager mode works in place on thirds of a row, which vectors of any processor fill: elsewhere last bits differ.
    return sample(lambda m, x: m.rnn(x)[0], 5, 3, 6, rnn=nn.GRU(6, 32, batch_first=True))


@case
def elman():
    return sample(lambda m, x: m.rnn(x)[1], 5, 3, 6, rnn=nn.RNN(6, 4, nonlinearity="relu"))


@case
def lstm_projected():
    return sample(lambda m, x: m.rnn(x)[0], 5, 3, 6, rnn=nn.LSTM(6, 4, proj_size=2))


@case
def lstm_cell():
    def unrolled(m: Any, x: torch.Tensor) -> torch.Tensor:
        state = None
        for row in x:
            state = m.cell(row, state)
        return state[0]

    return sample(unrolled, 2, 2, 6, cell=nn.LSTMCell(6, 4))


@case
def transformer():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return sample(lambda m, x: m.encoder(x), 2, 5, 8, encoder=nn.TransformerEncoder(layer, 1))


@case
def transformer_masked():
    layer = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    return sample(lambda m, x: m.layer(x, x, tgt_mask=mask, tgt_is_causal=True), 2, 5, 8, layer=layer)


@case
def attention_weights():
    return sample(lambda m, x: m.attention(x, x, x)[1], 2, 5, 8, attention=nn.MultiheadAttention(8, 2))


def embedding(layer: nn.Module) -> Any:
    tokens = torch.tensor([[1, 4, 2], [3, 3, 0]])
    return Body(lambda m, t: m.linear(m.table(t)), 6, table=layer), (tokens, torch.zeros(1)), regression


@case
def embedding_padding():
    return embedding(nn.Embedding(5, 6, padding_idx=3, scale_grad_by_freq=True))


@case
def embedding_bag():
    return embedding(nn.EmbeddingBag(5, 6, mode="mean"))


@case
def batch_norm_stateless():
    return sample(lambda m, x: m.norm(x), norm=nn.BatchNorm1d(6, track_running_stats=False))


@case
def batch_norm_frozen():
    return sample(lambda m, x: m.norm(x), norm=nn.BatchNorm1d(6).eval())


@case
def instance_norm_running():
    norm = nn.InstanceNorm2d(3, affine=True, track_running_stats=True)
    return sample(lambda m, x: m.norm(x), 2, 3, 5, 5, norm=norm)


# Parameters that are computed, shared, complex.


@case
def weight_norm():
    return sample(lambda m, x: m.layer(x), layer=parametrizations.weight_norm(nn.Linear(6, 5)))


@case
def weight_norm_by_hooks():
    return sample(lambda m, x: m.layer(x), layer=torch.nn.utils.weight_norm(nn.Linear(6, 5)))


@case
def spectral_norm():
    return sample(lambda m, x: m.layer(x), layer=parametrizations.spectral_norm(nn.Linear(6, 5)))


@case
def spectral_norm_by_hooks():
    return sample(lambda m, x: m.layer(x), layer=torch.nn.utils.spectral_norm(nn.Linear(6, 5)))


@case
def orthogonal():
    return sample(lambda m, x: m.layer(x), layer=parametrizations.orthogonal(nn.Linear(6, 6)))


@case
def complex_parameters():
    model, batch, loss = sample(lambda m, x: (torch.fft.fft(x) * m.filter).abs())
    model.filter = nn.Parameter(torch.randn(6, dtype=torch.complex64))
    return model, batch, loss


@case
def spectral_convolution():
    def mixed(m: Any, x: torch.Tensor) -> torch.Tensor:
        modes = torch.fft.rfft(x)
        out = torch.zeros_like(modes)
        out[:, :2] = modes[:, :2] * m.filter
        return torch.fft.irfft(out, n=x.shape[-1])

    model, batch, loss = sample(mixed)
    model.filter = nn.Parameter(torch.randn(2, dtype=torch.complex64))
    return model, batch, loss


@case
def parameter_lists():
    model, batch, loss = sample(lambda m, x: x * m.gains[0] + m.named["shift"])
    model.gains = nn.ParameterList([nn.Parameter(torch.ones(6))])
    model.named = nn.ParameterDict({"shift": nn.Parameter(torch.ones(6))})
    return model, batch, loss


# Tensors that are nobody's parameter or buffer.


@case
def plain_attribute():
    model, batch, loss = sample(lambda m, x: x * m.scale)
    model.scale = torch.full((6,), 1.5)
    return model, batch, loss


@case
def plain_attribute_reassigned():
    def averaged(m: Any, x: torch.Tensor) -> torch.Tensor:
        m.average = 0.9 * m.average + 0.1 * x.detach().mean(0)
        return x - m.average

    model, batch, loss = sample(averaged)
    model.average = torch.zeros(6)
    return model, batch, loss


@case
def buffer_reassigned():
    def averaged(m: Any, x: torch.Tensor) -> torch.Tensor:
        m.average, m.before = 0.9 * m.average + 0.1 * x.detach().mean(0), m.average
        return x - m.before

    model, batch, loss = sample(averaged)
    model.register_buffer("average", torch.zeros(6))
    model.register_buffer("before", torch.ones(6))
    return model, batch, loss


@case
def list_of_tensors():
    model, batch, loss = sample(lambda m, x: x * m.scales[0] + m.scales[1])
    model.scales = [torch.full((6,), 1.5), torch.ones(6)]
    return model, batch, loss


@case
def closure():
    index, scale = torch.tensor([0, 2, 5]), torch.tensor([1.0, 2.0, 3.0])
    return sample(lambda _, x: x[:, index] * scale)


@case
def lazy_mask():
    def masked(m: Any, x: torch.Tensor) -> torch.Tensor:
        if m.mask is None:
            m.mask = torch.ones(6, 6).tril()
        return x @ m.mask

    model, batch, loss = sample(masked)
    model.mask = None
    return model, batch, loss


@case
def cache_by_size():
    def masked(m: Any, x: torch.Tensor) -> torch.Tensor:
        if x.shape[-1] not in m.masks:
            m.masks[x.shape[-1]] = torch.ones(6, 6).tril()
        return x @ m.masks[x.shape[-1]]

    model, batch, loss = sample(masked)
    model.masks = {}
    return model, batch, loss


@case
def class_weights_in_a_lambda():
    weight = torch.tensor([0.2, 1.0, 3.0])
    model = nn.Linear(5, 3)
    return model, (torch.randn(4, 5), torch.tensor([0, 2, 1, 2])), lambda y, t: F.cross_entropy(y, t, weight=weight)


@case
def loss_with_buffers():
    loss = nn.CrossEntropyLoss(weight=torch.tensor([0.2, 1.0, 3.0]), label_smoothing=0.1)
    return nn.Linear(5, 3), (torch.randn(4, 5), torch.tensor([0, 2, 1, 2])), loss


@case
def loss_beside_a_loss():
    model = Body(lambda m, x: m.linear(x), 3, loss=nn.CrossEntropyLoss(weight=torch.ones(3)))
    return model, (torch.randn(4, 3), torch.tensor([0, 2, 1, 2])), nn.CrossEntropyLoss(torch.tensor([0.2, 1.0, 3.0]))


@case
def loss_with_parameters():
    class Centred(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.centre = nn.Parameter(torch.randn(6))
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, y: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return (y - self.centre).square().mean()

    model, batch, _ = sample(lambda _, x: x)
    return model, batch, Centred()


# Control of autograd.


def twice(m: Any, x: torch.Tensor) -> torch.Tensor:
    return F.dropout(torch.tanh(m.inner(x)), 0.3)


@case
def checkpoint_reentrant():
    return sample(lambda m, x: checkpoint(twice, m, x, use_reentrant=True), inner=nn.Linear(6, 6))


@case
def checkpoint_plain():
    return sample(lambda m, x: checkpoint(twice, m, x, use_reentrant=False), inner=nn.Linear(6, 6))


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, factor: float) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.factor = factor
        return factor * x**3

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return 2.5 * ctx.factor * x**2 * gradients[0], None


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(_: Any, *gradients: torch.Tensor) -> Any:
        return -0.5 * gradients[0]


@case
def custom_function():
    return sample(lambda _, x: Reversed.apply(Cube.apply(x, 2.0)))


@case
def straight_through():
    return sample(lambda _, x: x + (x.round() - x).detach())


@case
def without_gradient_inside():
    def body(m: Any, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            scale = m.inner(x).abs().amax()
        return x / scale

    return sample(body, inner=nn.Linear(6, 6))


@case
def gradient_inside():
    def body(m: Any, x: torch.Tensor) -> torch.Tensor:
        energy = m.inner(x).tanh().sum()
        (force,) = torch.autograd.grad(energy, x, create_graph=True)
        return force

    return sample(body, inner=nn.Linear(6, 6))


@case
def vmapped():
    return sample(lambda _, x: torch.func.vmap(lambda row: torch.outer(row, row).sum(0))(x))


@case
def tensor_hook():
    def body(_: Any, x: torch.Tensor) -> torch.Tensor:
        x.register_hook(lambda g: g * 0.5)
        return x.tanh()

    return sample(body)


@case
def autocast_inside():
    def body(m: Any, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return m.norm(m.inner(x)).float()

    return sample(body, inner=nn.Linear(6, 6), norm=nn.LayerNorm(6))


# In place, and views.


@case
def masked_assignment():
    def body(_: Any, x: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        x[x > 0.5] = 0.0
        x[:, :2] *= 2
        x.t()[3].fill_(1.0)
        return x

    return sample(body)


@case
def in_place_on_views():
    def body(_: Any, x: torch.Tensor) -> torch.Tensor:
        y = torch.zeros(4, 12)
        y[:, ::2] = x
        y[:, 1::2].copy_(x.tanh())
        y.view(2, -1)[0].mul_(2.0)
        return y

    return sample(body)


@case
def linear_algebra():
    def body(_: Any, x: torch.Tensor) -> torch.Tensor:
        a = x @ x.mT + 3 * torch.eye(6)
        q, r = torch.linalg.qr(a)
        return (
            torch.linalg.inv(a) + torch.linalg.cholesky(a) + torch.linalg.solve(a, x) + q + r
            + torch.linalg.slogdet(a)[1][:, None, None] * torch.linalg.svdvals(a)[:, None]
        )  # fmt: skip

    return sample(body, 3, 6, 6)


# Arguments and results of all kinds.


@dataclasses.dataclass
class Output:
    loss: torch.Tensor
    hidden: list[torch.Tensor]
    name: str = "output"
    nothing: torch.Tensor | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    loss: torch.Tensor
    again: torch.Tensor


class Named(NamedTuple):
    loss: torch.Tensor
    logits: torch.Tensor


class Cache:
    """As those of Hugging Face: an object with lists of objects with tensors."""

    def __init__(self, *layers: torch.Tensor) -> None:
        self.layers = list(layers)
        self.info = {"length": 3}


class Attributes(dict):
    """A dict of a kind that PyTorch does not know."""

    __getattr__ = dict.__getitem__


def returning(make: Callable[[torch.Tensor, torch.Tensor], Any]) -> Any:
    def body(m: Body, x: torch.Tensor) -> Any:
        y = m.linear(x).tanh()
        return make(y.square().mean(), y)

    return Body(body), torch.randn(4, 6), None


@case
def dataclass_result():
    return returning(lambda loss, y: Output(loss, [y, y * 2]))


@case
def frozen_dataclass_result():
    return returning(lambda loss, y: Frozen(loss, loss))  # noqa: ARG005


@case
def named_tuple_result():
    return returning(Named)


@case
def object_result():
    return returning(lambda loss, y: (loss, Cache(y, y[0]), None, 3, "text", True))


@case
def attribute_dict_result():
    return returning(lambda loss, y: Attributes(loss=loss, inner=Attributes(logits=y)))


@case
def distribution_result():
    return returning(lambda loss, y: (loss, torch.distributions.Normal(y, y.exp())))


@case
def distribution_sampled():
    def body(_: Any, x: torch.Tensor) -> torch.Tensor:
        q = torch.distributions.Normal(x, x.exp())
        z = q.rsample()
        return z + torch.distributions.kl_divergence(q, torch.distributions.Normal(0.0, 1.0))

    return sample(body)


@case
def arguments_of_all_kinds():
    def body(m: Body, x: Any, mode: str, layers: Any, flag: bool, nothing: Any, scale: float = 1.0) -> Any:  # noqa: FBT001
        assert mode == "sum"
        assert nothing is None
        y = m.linear(x["left"]) + x["right"][0] * scale
        for layer in layers:
            y = y * layer
        return y.sum() if flag else y.mean()

    x = {"left": torch.randn(4, 6), "right": [torch.randn(4, 6), None]}
    batch = {"x": x, "mode": "sum", "layers": (2, torch.ones(6)), "flag": False, "nothing": None, "scale": 0.5}
    return Body(body), batch, None


@case
def one_tensor_twice():
    x = torch.randn(4, 6)
    return Body(lambda m, a, b: (m.linear(a) - b).square().mean()), {"a": x, "b": x}, None


@case
def views_of_one_tensor():
    rows = torch.randn(4, 12)
    return Body(lambda m, a, b: (m.linear(a) - b).square().mean()), (rows[:, :6], rows[:, 6:]), None


@case
def a_parameter_in_the_batch():
    model = Body(lambda m, a, b: (m.linear(a) - b).square().mean())
    return model, (torch.randn(6, 6), model.linear.weight), None


@case
def input_with_gradient():
    def body(m: Body, x: torch.Tensor) -> torch.Tensor:
        return m.linear(x).square().mean()

    return Body(body), torch.randn(4, 6, requires_grad=True), None


@case
def compiled():
    model, batch, loss = sample(lambda m, x: m.inner(x).tanh(), inner=nn.Linear(6, 6))
    return torch.compile(model, backend="eager"), batch, loss


@case
def compiled_inside():
    return sample(lambda m, x: m.inner(x), inner=torch.compile(nn.Linear(6, 6), backend="eager"))
