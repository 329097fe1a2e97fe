"""What a step returns, as an exported file makes it: named tuples, tuples of plain values; and what it cannot make."""

from __future__ import annotations

import enum
import re
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from tests.exporting.test_export import exported, file_of


class Pair(NamedTuple):
    """Two losses, of which one has a default."""

    first: Any
    second: Any = None

    def total(self) -> Any:
        return self.first + self.second


class Step(NamedTuple):
    """Called as a class that a file has for itself."""

    loss: Any
    pairs: Any


@dataclass
class Held:
    """No tuple."""

    loss: Any
    other: Any


class Kind(enum.IntEnum):
    ONE = 1


class Returning(nn.Module):
    """Returns what ``kind`` makes of a loss."""

    def __init__(self, kind: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.layer, self.kind = nn.Linear(6, 3), kind

    def forward(self, x: torch.Tensor) -> Any:
        return self.kind(self.layer(x).square().mean(0))


def local() -> type:
    return namedtuple("Local", ("first", "second"))  # noqa: PYI024 - made as old code does


def made(folder: Path, kind: Callable[[torch.Tensor], Any]) -> tuple[Any, Any, str]:
    """Results of a model and of its file, and the file's text."""
    x, model = torch.randn(4, 6), Returning(kind)
    path = file_of(folder, model, x)
    return model(x), exported(path).scheduled(model)(x), path.read_text(encoding="utf-8")


def test_named_tuples_are_of_their_own_class(tmp_path: Path) -> None:
    expected, found, text = made(tmp_path, lambda x: Step(x.sum(), [Pair(x.exp(), 2.0), Pair(x, Pair(1, "a"))]))
    assert type(found) is Step and [type(x) for x in found.pairs] == [Pair, Pair] and type(found.pairs[1][1]) is Pair
    assert torch.equal(found.loss, expected.loss) and torch.equal(found.pairs[0].total(), expected.pairs[0].total())
    assert f"from {__name__} import Pair, Step as Step_2" in text
    found.loss.backward()


def test_those_that_cannot_be_imported_are_made_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = local()
    expected, found, text = made(tmp_path, lambda x: kind(x.sum(), x))
    assert found._fields == expected._fields and type(found).__name__ == "Local" and "import Local" not in text
    assert torch.equal(found.first, expected.first) and torch.equal(found[1], expected[1])
    monkeypatch.setattr(Pair, "__module__", "__main__")
    _, found, text = made(tmp_path, lambda x: Pair(x.sum()))
    assert found._fields == Pair._fields and "__main__" not in text


def shown(result: Any) -> str:
    return re.sub(r", grad_fn=<\w+>", "", repr(result))


@pytest.mark.parametrize(
    "kind",
    [
        lambda x: (x.sum(), (), (1, (None, float("inf"))), ("a",), []),
        lambda x: (x.sum(), Pair(1, False)),
        lambda x: torch.max(x, 0),
        lambda x: {"loss": x.sum(), "best": torch.sort(x)},
    ],
)
def test_tuples_are_written_as_python(kind: Any, tmp_path: Path) -> None:
    expected, found, _ = made(tmp_path, kind)
    assert type(found) is type(expected)
    assert shown(found) == shown(expected)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (
            lambda x: Held(x, x),
            "a dataclass Held as its result: let it return tensors and plain values, in tuples, named",
        ),
        (lambda x: Pair(x, [Held(x, x)]), "a dataclass Held as its result.second[0]: let it return tensors"),
        (lambda x: (x, Kind.ONE), "a Kind as its result[1]: let it return tensors and plain values"),
        (lambda x: Pair(x, np.float64(2)), "a float64 as its result.second: let it return"),
    ],
)
def test_what_cannot_be_made_is_named(kind: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        file_of(tmp_path, Returning(kind), torch.randn(4, 6))
