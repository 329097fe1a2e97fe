"""Habits of training loops: a scheduled step does what eager mode does, or says why not in time."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import explorer
from explorer.capture import capture
from explorer.execution.guards import ModelChangedError
from tests.schedules import random_schedule


def scheduled(model: nn.Module, batch: Any, *, loss: Any = None, keep: float = 0.4) -> explorer.ScheduledModule:
    graph = capture(model, batch, loss=loss).graph
    return explorer.apply(model, random_schedule(graph, 3, keep=keep, allowed=lambda x: x.exact), batch, loss=loss)


class Net(nn.Module):
    """Normalisation, dropout, two heads, a plain number."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.3))
        self.head = nn.Linear(8, 3)
        self.other = nn.Linear(8, 3)
        self.scale = 2.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x)) * self.scale


class Losses(Net):
    """Two losses and what they are made of, as models for detection have it."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:  # type: ignore[override]
        h = self.body(x)
        logits = self.head(h)
        return {"loss": logits.square().mean(), "other": self.other(h).exp().mean(), "logits": logits}


def sample() -> torch.Tensor:
    return torch.randn(5, 6, generator=torch.Generator().manual_seed(1))


def assert_equal_gradients(plain: nn.Module, module: nn.Module) -> None:
    for a, b in zip(plain.parameters(), module.parameters(), strict=True):
        assert (a.grad is None) == (b.grad is None)
        assert a.grad is None or torch.equal(a.grad, b.grad)  # type: ignore[arg-type]


def assert_equal_steps(
    model: nn.Module, batch: Any, back: Callable[[Any], None], *, arguments: tuple[Any, ...] | None = None
) -> None:
    """Two steps of a copy in eager mode and two scheduled ones leave the same bits everywhere."""
    plain = copy.deepcopy(model)
    module = scheduled(model, batch)
    for seed in range(2):
        for each in (plain, module):
            torch.manual_seed(seed)
            back(each(*((batch,) if arguments is None else arguments)))
        assert_equal_gradients(plain, module)
        for a, b in zip(plain.buffers(), module.buffers(), strict=True):
            assert torch.equal(a, b)
        for each in (plain, module):
            each.zero_grad()


def test_what_an_unused_loss_alone_reaches_gets_no_gradient() -> None:
    model = Losses()
    assert_equal_steps(model, sample(), lambda out: out["loss"].backward())
    assert_equal_steps(model, sample(), lambda out: out["other"].backward())
    assert_equal_steps(model, sample(), lambda out: (out["loss"] + out["other"]).backward())
    module = scheduled(model, sample())
    module(sample())["loss"].backward()
    assert model.other.weight.grad is None


def test_gradients_in_another_order_are_told_once() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.rand(6))

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            hidden = x * self.weight + 0 * y
            twice = hidden + hidden
            return functional.scaled_dot_product_attention(hidden, hidden, twice, dropout_p=0.3), twice

    x = torch.randn(2, 2, 6, requires_grad=True, dtype=torch.float64)
    batch, model = (x, x.detach().clone().requires_grad_()), Two().double()
    scheduled = explorer.apply(model, explorer.keep_all(capture(model, batch).graph), batch)
    with pytest.warns(UserWarning, match="one tensor twice that requires a gradient"):
        scheduled(x, x)
    with pytest.warns(UserWarning, match="not every result is trained on"):
        scheduled(x, x)[1].sum().backward()
    scheduled.zero_grad()
    scheduled(x, x)[1].sum().backward()


def test_one_of_two_results_that_are_views_of_one_tensor_may_be_trained_alone() -> None:
    class Views(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            first, _ = self.linear(x).tanh().split([1, 2])
            return first.reshape(-1), first

    batch, gradients = torch.randn(3, 4), []
    plain = Views()
    scheduled = explorer.apply(copy.deepcopy(plain), explorer.keep_all(capture(plain, batch).graph), batch)
    for step in (plain, scheduled):
        for number in (0, 1):
            step(batch)[number].square().sum().backward()
            gradients.append(step.linear.weight.grad.clone())  # type: ignore[union-attr]
            step.zero_grad()
    assert torch.equal(gradients[0], gradients[2])
    assert torch.equal(gradients[1], gradients[3])


def test_an_unused_loss_that_is_infinite_does_no_harm() -> None:
    model = Losses()
    with torch.no_grad():
        model.other.bias.fill_(1e4)  # its loss is infinite, its gradient times zero not a number
    assert_equal_steps(model, sample(), lambda out: out["loss"].backward())


def test_a_term_beside_a_returned_loss_is_refused() -> None:
    out = scheduled(Losses(), sample())(sample())
    assert out["logits"].requires_grad
    with pytest.raises(RuntimeError, match="Put the term into the loss"):
        (out["loss"] + out["logits"].square().mean()).backward()


class Views(Net):
    """Results that share memory with each other, with the batch, with parameters."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:  # type: ignore[override]
        h = self.head(self.body(x))
        return h, h[:, :2], h.t(), x, self.head.weight, h.detach(), x[1:]


def test_results_that_are_views_of_each_other() -> None:
    def back(out: tuple[torch.Tensor, ...]) -> None:
        assert not out[5].requires_grad
        sum(x.square().sum() * (k + 1) for k, x in enumerate(out) if x.requires_grad).backward()  # type: ignore[union-attr]

    x = sample().requires_grad_()
    assert_equal_steps(Views(), x, back)
    assert_equal_steps(Views(), x, lambda out: out[1].sum().backward())
    module = scheduled(Views(), x)
    out = module(x)
    assert out[3] is x
    assert out[4] is module.head.weight


def test_a_gradient_wanted_of_an_input_at_run_time_only() -> None:
    module = scheduled(Net(), sample())
    with pytest.raises(ModelChangedError, match=r"batch\[0\] requires a gradient here.*requires_grad_\(\)"):
        module(sample().requires_grad_())
    x = sample().requires_grad_()
    scheduled(Net(), x)(x).sum().backward()
    assert x.grad is not None


def test_a_parameter_unfrozen_after_apply() -> None:
    model = Net()
    model.head.requires_grad_(requires_grad=False)
    module = scheduled(model, sample())
    model.head.weight.requires_grad_()
    with pytest.raises(ModelChangedError, match=r"head\.weight requires a gradient now"):
        module(sample())


def test_a_parameter_frozen_after_apply_is_left_alone() -> None:
    model = Net()
    plain, module = copy.deepcopy(model), scheduled(model, sample())
    for each in (plain, module):
        each.head.requires_grad_(requires_grad=False)
        torch.manual_seed(0)
        each(sample()).sum().backward()
    assert module.head.weight.grad is None
    assert torch.equal(module.body[0].weight.grad, plain.body[0].weight.grad)  # type: ignore[union-attr]


def _to_evaluation(model: Net) -> None:
    model.body[1].eval()


def _less_dropout(model: Net) -> None:
    model.body[3].p = 0.1  # type: ignore[assignment]


def _another_scale(model: Net) -> None:
    model.scale = 3.0


def _another_epsilon(model: Net) -> None:
    model.body[1].eps = 1e-3  # type: ignore[assignment]


def _hook(model: Net) -> None:
    model.head.register_forward_hook(lambda *_: None)


def _another_head(model: Net) -> None:
    model.head = nn.Linear(8, 3)


def _in_double(model: Net) -> None:
    model.double()


CHANGES = {
    _to_evaluation: r"body\.1 was captured in training mode and is in evaluation mode now: call body\.1\.train",
    _less_dropout: r"body\.3\.p is 0\.1, and was 0\.3",
    _another_scale: r"scale is 3\.0, and was 2\.0",
    _another_epsilon: r"body\.1\.eps is 0\.001",
    _hook: r"hooks of head changed",
    _another_head: "submodules of the model were exchanged",
    _in_double: r"float64 .* now, and was torch\.float32",
}


@pytest.mark.parametrize("change", CHANGES, ids=lambda x: x.__name__.strip("_"))
def test_a_change_of_the_model_is_noticed(change: Callable[[Net], None]) -> None:
    model = Net()
    module = scheduled(model, sample())
    module(sample())
    change(model)
    with pytest.raises(ModelChangedError, match=CHANGES[change]):
        module(sample())


def test_a_copy_is_guarded_by_itself() -> None:
    module = scheduled(Net(), sample())
    other = copy.deepcopy(module)
    module.scale = 3.0
    other(sample()).sum().backward()
    with pytest.raises(ModelChangedError, match="scale"):
        module(sample())


def test_autocast_is_as_it_was_captured() -> None:
    module = scheduled(Net(), sample())
    with torch.autocast("cpu"), pytest.raises(ModelChangedError, match=r"under torch\.autocast.*captured outside"):
        module(sample())
    with torch.autocast("cpu"):
        assert_equal_steps(Net(), sample(), lambda out: out.float().square().sum().backward())
        under = scheduled(Net(), sample())
        assert under(sample()).dtype is torch.bfloat16
    with pytest.raises(ModelChangedError, match=r"outside torch\.autocast.*captured under"):
        under(sample())


def test_hooks_at_capture() -> None:
    model = Net()
    handle = model.head.register_forward_hook(lambda *_: None)
    with pytest.raises(ValueError, match="head has hooks, which a schedule cannot run"):
        capture(model, sample())
    handle.remove()
    calls: list[int] = []
    model.register_forward_hook(lambda *_: calls.append(1))
    module = scheduled(model, sample())
    calls.clear()
    module(sample())
    assert len(calls) == 1


def test_weight_normalisation_by_hook_works() -> None:
    with pytest.warns(FutureWarning):
        normed = torch.nn.utils.weight_norm(nn.Linear(6, 6))
    model = nn.Sequential(normed, nn.Tanh(), nn.Linear(6, 2))
    assert_equal_steps_of_values(model)


def assert_equal_steps_of_values(model: nn.Module) -> None:
    """As ``assert_equal_steps``, of modules that cannot be copied."""
    module = scheduled(model, sample())
    seen = []
    for each in (model, module):
        each(sample()).sum().backward()
        seen.append([x.grad for x in model.parameters()])
        model.zero_grad()
    assert all(torch.equal(a, b) for a, b in zip(*seen, strict=True))  # type: ignore[arg-type]


def test_a_batch_changed_before_backward_is_noticed() -> None:
    x = sample()
    out = scheduled(Net(), x)(x)
    x.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


class Squares(nn.Module):
    """Its backward pass reads what it returns."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.linear(x))


def test_a_result_changed_before_backward_is_noticed() -> None:
    out = scheduled(Squares(), sample(), keep=1.0)(sample())
    with torch.no_grad():
        out.mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_a_loss_with_weights_of_its_own() -> None:
    class Named(Net):
        def __init__(self) -> None:
            super().__init__()
            self.loss = nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.loss(super().forward(x))

    torch.manual_seed(0)
    batch = (sample(), torch.randint(0, 3, (5,)))
    loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 5.0]))
    model = Named()
    plain, module = copy.deepcopy(model), scheduled(model, batch, loss=loss)
    torch.manual_seed(1)
    module(*batch).backward()
    torch.manual_seed(1)
    loss(plain(batch[0]), batch[1]).backward()
    assert_equal_gradients(plain, module)


class Average(nn.Module):
    """Buffers that are assigned anew, one read by the backward pass, two that exchange their values."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)
        self.register_buffer("average", torch.ones(6))
        self.register_buffer("first", torch.zeros(6))
        self.register_buffer("second", torch.arange(6.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x) * self.average
        self.average = 0.9 * self.average + 0.1 * y.detach().mean(0)
        self.first, self.second = self.second, self.first
        return (y * self.average * self.second).tanh()


def test_buffers_that_are_assigned_change() -> None:
    model = Average()
    before = dict(model.named_buffers())
    profile = explorer.profile(model, sample())
    explorer.measure(model, sample(), steps=1)
    assert all(x is before[name] for name, x in model.named_buffers())
    assert torch.equal(model.average, torch.ones(6))
    assert profile.eager_peak_bytes
    assert_equal_steps(model, sample(), lambda out: out.sum().backward())


class Copies(nn.Module):
    """Copies that capture may drop, with views of them, beside what works in place."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.linear = nn.Linear(16, 16)
        self.register_buffer("queue", torch.randn(64, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm(x)
        near = h @ self.queue[:48].clone().t()
        with torch.no_grad():
            self.queue[:4] = h.detach().flatten(0, 1)[:4]
        y = self.linear(functional.dropout(h, 0.0)) + torch.tanh(h.clone().view(8, -1)).view_as(h)
        return y.square().mean() + near.softmax(-1).square().mean()


def test_copies_that_are_dropped_leave_no_views_behind() -> None:
    x = torch.randn(8, 32, 16)
    model = Copies()
    graph = capture(model, x).graph
    for seed in range(4):
        plain = copy.deepcopy(model)
        schedule = random_schedule(graph, seed, keep=1.0, allowed=lambda implementation: implementation.exact)
        module = explorer.apply(copy.deepcopy(model), schedule, x)
        for each in (plain, module):
            each(x).backward()
        assert_equal_gradients(plain, module)
        assert torch.equal(plain.queue, module.queue)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("probability", [0.09, 0.15, 0.3, 0.45])
def test_dropout_is_scaled_as_in_eager_mode(probability: float, dtype: torch.dtype) -> None:
    model = nn.Sequential(nn.Linear(6, 64), nn.Dropout(probability), nn.Tanh()).to(dtype)
    assert_equal_steps(model, sample().to(dtype), lambda out: out.square().sum().backward())


def test_variables_around_a_loss_are_watched() -> None:
    weight = 1.0
    batch = (sample(), torch.zeros(5, 3))
    module = scheduled(Net(), batch, loss=lambda out, target: weight * functional.mse_loss(out, target))
    module(*batch)
    weight = 0.5
    with pytest.raises(ModelChangedError, match=r"in the loss, the variable 'weight' is 0\.5, and was 1\.0"):
        module(*batch)


def test_settings_of_a_loss_are_watched() -> None:
    batch = (sample(), torch.zeros(5, dtype=torch.int64))
    loss = nn.CrossEntropyLoss()
    module = scheduled(Net(), batch, loss=loss)
    loss.label_smoothing = 0.2
    with pytest.raises(ModelChangedError, match=r"label_smoothing is 0\.2, and was 0\.0"):
        module(*batch)
