"""Common forms of a language model's loss are joined with the layer before them, with the numbers of eager mode."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import explorer
from explorer.capture import capture
from explorer.graph import TrainingGraph
from explorer.schedule import Run, Schedule, keep_all, with_frees
from explorer.simulation import simulate

CLASSES = 700
BOTH = ("linear_cross_entropy", "linear_cross_entropy_backward")
WAYS = [
    ("loss alone, in 4 parts", "logits again, in 8 parts"),
    ("with gradients, in 4 parts", "made before"),
    ("aten", "in 8 parts"),
    ("in place", "in 4 parts, in place"),
]
Form = Callable[..., torch.Tensor]


def shifted(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x[..., :-1, :].contiguous(), y[..., 1:].contiguous()


def flat(x: torch.Tensor, y: torch.Tensor, **options: Any) -> torch.Tensor:
    return F.cross_entropy(x.reshape(-1, CLASSES), y.reshape(-1), **options)


FORMS: dict[str, Form] = {
    "flat": flat,
    "second": lambda x, y, **options: F.cross_entropy(x.transpose(1, 2), y, **options),
    "permuted": lambda x, y, **options: F.cross_entropy(x.permute(0, 2, 1).contiguous(), y, **options),
    "second_shifted": lambda x, y, **options: F.cross_entropy(x[:, :-1].transpose(1, 2), y[:, 1:], **options),
    "shifted_second": lambda x, y, **options: F.cross_entropy(x.transpose(1, 2)[..., :-1], y[:, 1:], **options),
    "second_float": lambda x, y, **options: F.cross_entropy(x.transpose(1, 2).float(), y, **options),
    "shifted": lambda x, y, **options: flat(*shifted(x, y), **options),
    "sequence_first": lambda x, y, **options: flat(x.transpose(0, 1), y.t(), **options),
    "sequence_first_shifted": lambda x, y, **options: flat(x.transpose(0, 1)[:-1], y.t()[1:], **options),
    "image": lambda x, y, **options: F.cross_entropy(
        x.unflatten(1, (3, -1)).permute(0, 3, 1, 2), y.unflatten(1, (3, -1)), **options
    ),
    "one_sample": lambda x, y, **options: F.cross_entropy(x[0, :-1], y[0, 1:], **options),
    "capped_second": lambda x, y, **options: F.cross_entropy(30 * torch.tanh(x.transpose(1, 2) / 30), y, **options),
    "capped_shifted": lambda x, y, **options: flat(*shifted(30 * torch.tanh(x / 30), y), **options),
    "shifted_capped": lambda x, y, **options: F.cross_entropy(
        30 * torch.tanh(shifted(x, y)[0].flatten(0, 1) / 30), shifted(x, y)[1].flatten(), **options
    ),
    "capped_sequence_first": lambda x, y, **options: flat((30 * torch.tanh(x / 30)).transpose(0, 1), y.t(), **options),
    "log_softmax": lambda x, y, **options: F.nll_loss(F.log_softmax(x, -1).flatten(0, 1), y.flatten(), **options),
}
PLAIN: dict[str, Any] = {}
SMOOTHED: dict[str, Any] = {"label_smoothing": 0.1, "weighted": True}
OPTIONS: list[dict[str, Any]] = [
    {"reduction": reduction, "weighted": weighted, "label_smoothing": smoothing, "ignore_index": ignored}
    for (reduction, ignored), weighted, smoothing in itertools.product(
        (("mean", 3), ("sum", -100), ("none", 3)), (False, True), (0.0, 0.1)
    )
]


class Model(nn.Module):
    """Tokens through a layer to logits, and their loss."""

    def __init__(
        self, form: Form, *, weighted: bool = False, bias: bool = False, tied: bool = True, **options: Any
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(CLASSES, 16)
        self.head = nn.Linear(16, CLASSES, bias=bias)
        if tied:
            self.head.weight = self.embedding.weight
        self.register_buffer("weights", torch.linspace(0.1, 2, CLASSES) if weighted else None)
        self.form, self.options = form, options

    def forward(self, tokens: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        logits = self.head(torch.tanh(self.embedding(tokens)))
        options = self.options if self.weights is None else {**self.options, "weight": self.weights}
        return self.form(logits, target, **options).mean()


def tokens(form: str = "", *, length: int = 33) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    shape = (1, length) if form == "one_sample" else (4, length)
    # Some are of class 3, which is ignored here and there.
    return torch.randint(0, CLASSES, shape), torch.randint(0, CLASSES, shape).masked_fill(torch.rand(shape) < 0.2, 3)


def pinned(graph: TrainingGraph, ways: tuple[str, str]) -> Schedule | None:
    """Recompute nothing, and run the joined calls in these ways; None where they have others."""
    names = dict(zip(BOTH, ways, strict=True))
    for operator in graph.operators:
        if operator.name in names and names[operator.name] not in {x.name for x in operator.implementations}:
            return None
    runs = [Run(x.id, names.get(x.name, x.default().name)) for x in graph.operators if not x.optional]
    return with_frees(graph, runs, method="test", budget_bytes=None)


def results(step: nn.Module, model: nn.Module, batch: tuple[torch.Tensor, ...], scale: float) -> list[torch.Tensor]:
    """The loss, and the gradients of its multiple."""
    model.zero_grad()
    loss = step(*batch)
    (scale * loss).backward()
    return [loss.detach(), *(x.grad.clone() for x in model.parameters() if x.grad is not None)]


def check(model: Model, batch: tuple[torch.Tensor, ...], *, scale: float = 3.0, most: float = 1e-5) -> None:
    """In every way that there is within ``most`` of double precision; as captured, bit for bit as in eager mode.

    Of smoothed labels with weights and an ignored class, a trace has other last bits, however its calls are run.
    """
    graph = capture(model, batch).graph
    assert set(BOTH) <= {x.name for x in graph.operators}
    eager = results(model, model, batch, scale)
    precise = copy.deepcopy(model).double()
    exact = results(precise, precise, batch, scale)
    kept = explorer.apply(copy.deepcopy(model), keep_all(graph), batch)
    found = results(kept, kept, batch, scale)
    assert all(map(torch.equal, eager, found)) or (model.weights is not None and "ignore_index" in model.options)
    schedules = [x for ways in WAYS if (x := pinned(graph, ways)) is not None]
    assert schedules
    for schedule in schedules:
        scheduled = explorer.apply(copy.deepcopy(model), schedule, batch)
        for found, own, wanted in zip(results(scheduled, scheduled, batch, scale), eager, exact, strict=True):
            error, usual = ((x.double() - wanted).norm() for x in (found, own))
            assert error <= max(most * wanted.norm(), 1.1 * usual)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("form", FORMS)
def test_forms(form: str) -> None:
    torch.manual_seed(0)
    check(Model(FORMS[form]), tokens(form))


@pytest.mark.parametrize("form", ["flat", "second_shifted", "shifted", "sequence_first", "image"])
def test_weights_and_smoothed_labels(form: str) -> None:
    torch.manual_seed(0)
    check(Model(FORMS[form], **SMOOTHED), tokens())


@pytest.mark.sampled(5)
@pytest.mark.filterwarnings("ignore:steps differ from eager mode in the last bits")
@pytest.mark.parametrize("number", range(len(OPTIONS)))
def test_options_of_classes_that_come_second(number: int) -> None:
    """Every other one with a shift, and with a layer of its own that has a bias."""
    torch.manual_seed(0)
    form = FORMS["second_shifted" if number % 2 else "second"]
    check(Model(form, bias=bool(number % 2), tied=not number % 2, **OPTIONS[number]), tokens())


@pytest.mark.parametrize(
    ("form", "dtype"),
    [
        ("second", torch.bfloat16),
        ("shifted", torch.bfloat16),
        ("second", torch.float16),
        ("log_softmax", torch.float16),
    ],
)
def test_halves_are_as_near_as_eager_mode(form: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    check(Model(FORMS[form]).to(dtype), tokens(), scale=4.0, most=0.004)


@pytest.mark.parametrize("form", ["second_shifted", "shifted"])
def test_targets_that_are_all_ignored(form: str) -> None:
    """The loss is NaN then, and so are the gradients."""
    model, (x, y) = Model(FORMS[form]), tokens()
    graph = capture(model, (x, y)).graph
    batch = (x, torch.full_like(y, -100))
    eager = results(model, model, batch, 1.0)
    for ways in WAYS:
        schedule = pinned(graph, ways)
        if schedule is not None:
            scheduled = explorer.apply(copy.deepcopy(model), schedule, (x, y))
            for found, own in zip(results(scheduled, scheduled, batch, 1.0), eager, strict=True):
                torch.testing.assert_close(found, own, equal_nan=True)


@pytest.mark.parametrize(
    ("form", "options"),
    [
        ("second", PLAIN),
        ("second_shifted", SMOOTHED),
        ("shifted", PLAIN),
        ("sequence_first", PLAIN),
        ("flat", SMOOTHED),
    ],
)
def test_logits_are_never_whole(form: str, options: dict[str, Any]) -> None:
    """Plain PyTorch's peak is as it was, and the smallest one is below one tensor of logits, to the byte."""
    torch.manual_seed(0)
    model, batch = Model(FORMS[form], **options), tokens(form, length=260 if form == "one_sample" else 65)
    profile = explorer.profile(model, batch)
    plain = simulate(profile, keep_all(profile.graph)).peak_bytes
    assert plain == pytest.approx(explorer.measure(model, batch, steps=1).peak_bytes, rel=0.01)
    smallest = explorer.smallest_budget(profile, time_limit=2)
    assert smallest.schedule is not None
    scheduled = explorer.apply(model, smallest.schedule, batch)
    assert explorer.measure(scheduled, batch, steps=1).peak_bytes == smallest.peak_bytes
    assert smallest.peak_bytes < 0.5 * batch[1].numel() * CLASSES * 4
