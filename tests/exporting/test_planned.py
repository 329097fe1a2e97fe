"""What an exported file compares of model and batch: dtypes, devices, kinds of values, modules; and transforms."""

from __future__ import annotations

import enum
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from tests.capture.test_plain_values import VALUES, Told
from tests.exporting.test_export import batch, exported, file_of, small
from tests.exporting.test_guards import made


class Words(nn.Module):
    """Of whole numbers; its logits are cast to what they are."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(8, 6), nn.Linear(6, 8)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.head(self.words(tokens)).float(), tokens)


def test_a_model_that_was_cast_or_moved_since_is_refused(tmp_path: Path) -> None:
    tokens, model = torch.arange(8), Words()
    module = made(tmp_path, model, tokens).scheduled(model)
    module.bfloat16()
    with pytest.raises(ValueError, match=r"words\.weight is torch\.bfloat16 now, and was torch\.float32"):
        module(tokens)
    module.float()(tokens).backward()
    model.head.weight.data = model.head.weight.data.double()
    with pytest.raises(ValueError, match=r"head\.weight is torch\.float64 now"):
        module(tokens)
    with pytest.raises(ValueError, match=r"words\.weight is on meta now; the schedule was made for 'cpu'"):
        module.float().to("meta")(tokens)


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Whole(int):
    pass


SAME = {
    **VALUES,
    "one": (1, True),
    "two": (2, 2.0),
    "not a number": (math.nan, math.inf),
    "complex not a number": (complex("nan+infj"), 1j),
    "sign of zero": (0.0, -0.0),
    "members": (frozenset([1, (2, 3.0)]), frozenset([True, (2, 3.0)])),
    "parts": (slice(None, 1, None), slice(None, True, None)),
    "enumeration": (Colour.RED, Colour.BLUE),
    "NumPy's kind": (np.float64(2), 2.0),
    "another of NumPy's": (np.int64(2), np.int32(2)),
    "NumPy's not a number": (np.float32("nan"), math.nan),
}


@pytest.mark.parametrize("kind", SAME)
def test_values_are_the_same_in_kind_and_value(kind: str, tmp_path: Path) -> None:
    (value, other), x, model = SAME[kind], torch.randn(3, 4), Told()
    path = file_of(tmp_path, model, (x, value))
    module = exported(path).scheduled(model)
    assert torch.equal(module(x, value), model(x, value))
    again = type(value)(value) if isinstance(value, float | np.generic) else value
    assert torch.equal(module(x, again), model(x, value))
    for given in (other, x):
        with pytest.raises(ValueError, match=r"the batch has .* where the schedule was made for"):
            module(x, given)
    assert "np." not in path.read_text(encoding="utf-8") and "import numpy" not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("value", [Whole(3), np.longdouble(3), np.datetime64("2020-01-01"), frozenset([np.float64(1)])])
def test_values_that_no_file_can_make_are_refused(value: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"on torch alone: .*(it cannot compare|cannot be written down)"):
        file_of(tmp_path, Told(), (torch.randn(3, 4), value))


class Observing(nn.Module):
    """Prints what changes as it is trained, and where it is."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.layer, self.p = nn.Linear(6, 3), p
        self.register_buffer("seen", torch.zeros(()))

    def extra_repr(self) -> str:
        return f"p={self.p}, seen={self.seen.item()}, training={self.training}"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.add_(1)
        return self.layer(x).tanh()


def test_modules_of_other_settings_are_told(tmp_path: Path) -> None:
    def model(between: nn.Module, p: float = 0.1) -> nn.Sequential:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(6, 8), between, nn.Dropout(p), nn.Linear(8, 3))

    file = made(tmp_path, model(nn.GELU()), batch(), F.cross_entropy)
    file.scheduled(file.scheduled(model(nn.GELU())))(*batch()).backward()
    said = r"^1 was GELU when the step was captured, and is ReLU: this file computes what was captured"
    with pytest.warns(UserWarning, match=said) as found:
        file.scheduled(model(nn.ReLU()))
    assert found[0].filename == __file__
    with pytest.warns(UserWarning, match=r"^1\.approximate was 'none' when .*, and is 'tanh'; 2\.p was 0\.1 "):
        file.scheduled(model(nn.GELU("tanh"), p=0.2))
    with pytest.warns(UserWarning, match=r"^4 was missing when the step was captured, and is Tanh: "):
        file.scheduled(model(nn.GELU()).append(nn.Tanh()))
    with pytest.warns(UserWarning, match=r"and is Tanh \(and 1 more\): this file computes what was captured$"):
        file.scheduled(model(nn.ReLU(), p=0.2).extend([nn.Tanh(), nn.Tanh()]))


def test_modules_may_print_what_changes(tmp_path: Path) -> None:
    file = made(tmp_path, Observing(), batch(), F.cross_entropy)
    trained = Observing()
    trained(batch()[0])
    file.scheduled(trained.eval()).train()(*batch()).backward()


@pytest.mark.filterwarnings("ignore:`torch.jit.script`:DeprecationWarning")  # of make_dual itself
def test_transforms_of_a_step_are_refused(tmp_path: Path) -> None:
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Tanh()), torch.randn(3, 4)
    module = made(tmp_path, model, x).scheduled(model)
    parameters = {name: value.detach() for name, value in module.named_parameters()}
    for transform in (
        lambda: grad(lambda given: functional_call(module, given, (x,)).sum())(parameters),
        lambda: vmap(module)(x[None]),
        lambda: torch.func.jvp(module, (x,), (x,)),
    ):
        with pytest.raises(RuntimeError, match=r"cannot be transformed by torch\.func"):
            transform()
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match="differentiated in forward mode"):
        module(forward_ad.make_dual(x, torch.ones_like(x)))
    assert torch.equal(functional_call(module, dict(module.named_parameters()), (x,)), model(x))
    assert module(x).sum().backward() is None


def test_errors_of_a_step_are_its_own(tmp_path: Path) -> None:
    module = made(tmp_path, model := small(), batch(), F.cross_entropy).scheduled(model)
    with pytest.raises(IndexError, match="out of bounds"):
        module(batch()[0], batch()[1] + 7)
