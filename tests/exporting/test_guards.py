"""What an exported file refuses, and what it must not: models, batches and calls other than it was made with."""

from __future__ import annotations

import copy
import pickle
import re
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import explorer
from explorer.capture import capture
from explorer.execution.checking import CheckFailedError
from explorer.execution.guards import ModelChangedError
from explorer.schedule import keep_all
from tests.exporting.test_export import batch, exported, file_of, small
from tests.exporting.test_results import Held


class Tied(nn.Module):
    """A head with the embedding's weight, or one of its own."""

    def __init__(self, *, tied: bool = True) -> None:
        super().__init__()
        self.words = nn.Embedding(8, 6)
        self.head = nn.Linear(6, 8, bias=False)
        if tied:
            self.head.weight = self.words.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.words(tokens)).square().mean()


class Normalised(nn.Module):
    """Two normalisations, which may share their statistics."""

    def __init__(self, *, shared: bool = True) -> None:
        super().__init__()
        self.first, self.second = nn.BatchNorm1d(6), nn.BatchNorm1d(6)
        if shared:
            self.second.running_mean = self.first.running_mean

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x)).square().mean()


class Losses(nn.Module):
    """Several results, each from a layer of its own and from one before."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.trunk = nn.Linear(6, 6)
        self.heads = nn.ModuleList(nn.Linear(6, 2) for _ in range(count))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        inside = torch.tanh(self.trunk(x))
        # Its derivative is infinite where a row is zero: a gradient of zero would become none that is a number.
        first, *others = (head(inside) for head in self.heads)
        return (first.sum(), *(x.sum() + (x * 0.0).pow(2).sum(1).sqrt().sum() for x in others))


class Named(nn.Module):
    """Attributes with names that a file might have for itself."""

    has_loss = 3.0

    def __init__(self) -> None:
        super().__init__()
        self.plan, self.passes = nn.Linear(6, 3), [1]
        self.values, self.given = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
        self.unused = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.plan(x) * self.values * self.has_loss + self.given.detach()


class Parts(nn.Module):
    """A batch and a result of any kind of dict."""

    def __init__(self, kind: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.layer, self.kind = nn.Linear(6, 3), kind

    def forward(self, parts: dict[str, torch.Tensor]) -> Any:
        return self.kind(self.layer(parts["x"]).square().mean())


def rows() -> torch.Tensor:
    return batch()[0]


def made(folder: Path, model: nn.Module, given: Any, loss: Any = None) -> Any:
    return exported(file_of(folder, model, given, loss=loss))


def test_a_model_that_changes_after_it_was_loaded_is_refused(tmp_path: Path) -> None:
    file = made(tmp_path, frozen := small(), batch(), F.cross_entropy)
    model = file.scheduled(frozen)
    frozen[0].requires_grad_(False)
    model(*batch()).backward()
    assert frozen[0].weight.grad is None

    def unfrozen(found: nn.Sequential) -> None:
        found[0].requires_grad_(True)

    def adapted(found: nn.Sequential) -> None:
        found.append(nn.Linear(3, 3))

    def other_head(found: nn.Sequential) -> None:
        found[-1] = nn.Linear(found[-1].in_features, 5)

    for change, said in ((unfrozen, "needs a gradient now"), (adapted, "parameters now"), (other_head, "now, and was")):
        base = small()
        base[0].requires_grad_(change is not unfrozen)
        model = made(tmp_path, base, batch(), F.cross_entropy).scheduled(base)
        change(base)
        with pytest.raises(ValueError, match=said):
            model(*batch())


def test_a_model_that_is_frozen_as_a_whole_gives_its_results(tmp_path: Path) -> None:
    """As a discriminator does while the generator trains: a forward pass in training mode, with nothing to train."""
    for model in (Normalised(), Losses(2), Parts(lambda x: {"loss": x, "more": x.exp()})):
        given = ({"x": rows()},) if isinstance(model, Parts) else (rows(),)
        module = made(tmp_path, model, given).scheduled(copy.deepcopy(model))
        results = []
        for subject in (model, module):
            subject.requires_grad_(False)
            found = subject(*given)
            results.append(list(found.values()) if isinstance(found, dict) else found)
        torch.testing.assert_close(*results, rtol=0, atol=0, equal_nan=True)
        assert all(torch.equal(x, y) for x, y in zip(model.buffers(), module.buffers(), strict=True))


def test_other_ties_and_parameters_are_refused(tmp_path: Path) -> None:
    tokens = torch.arange(8)
    file = made(tmp_path, Tied(), tokens)
    file.scheduled(Tied())(tokens).backward()
    with pytest.raises(ValueError, match=r"tied otherwise.*head\.weight"):
        file.scheduled(Tied(tied=False))
    file = made(tmp_path, Normalised(), rows())
    with pytest.raises(ValueError, match=r"tied otherwise.*running_mean"):
        file.scheduled(Normalised(shared=False))
    file = made(tmp_path, small(), batch(), F.cross_entropy)
    with pytest.raises(ValueError, match=r"without 4\.bias, 4\.weight"):
        file.scheduled(small().append(nn.Linear(3, 3)))
    model = small()
    model.register_buffer("counter", torch.zeros(()))  # nothing that the passes could miss
    file.scheduled(model)(*batch()).backward()


def test_another_memory_format_is_refused(tmp_path: Path) -> None:
    def model() -> nn.Sequential:
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2))

    images = torch.randn(2, 3, 6, 6)
    file = made(tmp_path, model(), images)
    with pytest.raises(ValueError, match=r"0\.weight lies in another memory format"):
        file.scheduled(model().to(memory_format=torch.channels_last))
    module = file.scheduled(base := model())
    module(images).sum().backward()
    base.to(memory_format=torch.channels_last)
    with pytest.raises(ValueError, match=r"0\.weight lies in another memory format"):
        module(images)


def test_a_step_is_never_the_models_without_a_word(tmp_path: Path) -> None:
    file = made(tmp_path, small(), batch(), F.cross_entropy)
    compiled, replaced = small(), small()
    compiled.compile(backend="eager")
    with pytest.raises(ValueError, match="compiled in place"):
        file.scheduled(compiled)
    own = replaced.forward
    replaced.forward = lambda x: own(x)  # noqa: PLW0108 - as a wrapper does
    with pytest.raises(ValueError, match="forward was replaced"):
        file.scheduled(replaced)
    later = file.scheduled(base := small())
    base.compile(backend="eager")
    with pytest.raises(ValueError, match="compiled in place"):
        later(*batch())


def test_apply_runs_no_step_that_was_compiled_in_place() -> None:
    model = small()
    schedule = keep_all(capture(model, batch(), loss=F.cross_entropy).graph)
    module = explorer.apply(model, schedule, batch(), loss=F.cross_entropy)
    model.compile(backend="eager")
    with pytest.raises(ModelChangedError, match="compiled in place"):
        module(*batch())
    with pytest.raises(ValueError, match="compiled in place"):
        explorer.apply(model, schedule, batch(), loss=F.cross_entropy)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_what_was_not_trained_on_has_no_gradient(count: int, tmp_path: Path) -> None:
    model = Losses(count)
    module = made(tmp_path, model, rows()).scheduled(model)
    for trained in range(count):
        found = []
        for subject in (model, module):
            model.zero_grad()
            subject(rows())[trained].backward()
            found.append([x.grad for x in model.parameters()])
        torch.testing.assert_close(*found, rtol=0, atol=0, equal_nan=True)
        assert trained or not any(x.isnan().any() for x in found[1] if x is not None)
    if count > 3:
        first, second, *_ = module(rows())
        with pytest.raises(RuntimeError, match="gradients came for 2 of 4 results"):
            (first + second).backward()


def test_names_of_the_model_are_its_own(tmp_path: Path) -> None:
    model = Named()
    module = made(tmp_path, model, batch(), F.cross_entropy).scheduled(model)
    loss = F.cross_entropy(model(rows()), batch()[1])
    assert torch.equal(module(*batch()), loss)
    module(*batch()).backward()
    assert model.unused.weight.grad is None
    assert torch.equal(module.eval()(rows()), model(rows()))


@pytest.mark.parametrize("batch_of", [OrderedDict, lambda **x: defaultdict(int, x)])
@pytest.mark.parametrize(
    ("result", "said"),
    [
        (lambda x: OrderedDict(loss=x), None),
        (lambda x: {"loss": x, "most": float("inf"), "none": float("nan")}, None),
        (lambda x: defaultdict(list, loss=x), "a defaultdict as its result: let it return tensors"),
        (lambda x: {"loss": x, "past_key_values": Held(x, x)}, "model.config.use_cache = False leaves it out"),
    ],
)
def test_dicts_are_written_as_python(batch_of: Any, result: Any, said: str | None, tmp_path: Path) -> None:
    given = batch_of(x=rows())
    model = Parts(result)
    if said is not None:
        with pytest.raises(ValueError, match=re.escape(said)):
            file_of(tmp_path, model, (given,))
        return
    module = made(tmp_path, model, (given,)).scheduled(model)
    found = module(given)
    found["loss"].backward()
    assert type(found) is type(result(rows()))


def test_a_module_is_scheduled_twice_copied_and_pickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = made(tmp_path, model := small(), batch(), F.cross_entropy)
    module = first.scheduled(first.scheduled(model))
    copied = copy.deepcopy(module)
    monkeypatch.setitem(sys.modules, first.__name__, first)
    restored = pickle.loads(pickle.dumps(module))  # noqa: S301 - our own bytes
    expected = module(*batch())
    for other in (copied, restored):
        loss = other(*batch())
        assert torch.equal(loss, expected)
        assert "First" in type(loss.grad_fn).__name__
        loss.backward()
        assert other[0].weight.grad is not None
    assert model[0].weight.grad is None


def test_batches_are_told_apart_in_words(tmp_path: Path) -> None:
    module = made(tmp_path, model := small(), batch(), F.cross_entropy).scheduled(model)
    inputs, target = batch()
    for given, said in (
        ((None, target), "is a NoneType"),
        ((inputs.numpy(), target), "is a ndarray"),
        ((inputs[:3], target[:3]), "drop_last=True"),
    ):
        with pytest.raises(ValueError, match=said):
            module(*given)
    with torch.no_grad(), pytest.raises(ValueError, match="give the inputs alone"):
        module(*batch())


class Checkpointed(nn.Module):
    """Statistics that eager mode updates twice, and no captured step does."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from torch.utils.checkpoint import checkpoint

        inside = checkpoint(lambda y: torch.tanh(self.norm(self.first(y))), x, use_reentrant=False)
        return self.last(inside)


def test_a_step_that_is_not_the_models_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(CheckFailedError, match="running_mean"):
        file_of(tmp_path, Checkpointed(), batch(), loss=F.cross_entropy)
