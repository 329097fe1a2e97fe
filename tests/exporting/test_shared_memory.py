"""An exported file refuses tensors in one memory where its step changes some in place, and only there."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.exporting.test_guards import made

Batch = tuple[torch.Tensor, dict[str, list[torch.Tensor]]]


class Doubling(nn.Module):
    """Changes what it is given, and a buffer, in place, and reads the rest of the batch afterwards."""

    def __init__(self, *, in_place: bool = True) -> None:
        super().__init__()
        self.layer, self.in_place = nn.Linear(6, 6), in_place
        self.register_buffer("seen", torch.zeros(6))
        self.register_buffer("scale", torch.ones(6))

    def forward(self, x: torch.Tensor, *, more: dict[str, list[torch.Tensor]]) -> torch.Tensor:
        if self.in_place:
            x.mul_(2)
            self.seen.add_(1)
        found = torch.tanh(self.layer(x + self.seen)) * more["of"][0] * self.scale
        return found.square().mean()


def batch_of(x: torch.Tensor, y: torch.Tensor) -> dict[str, Any]:
    return {"x": x, "more": {"of": [y]}}


def rows(count: int = 5) -> torch.Tensor:
    return torch.randn(count, 6, generator=torch.Generator().manual_seed(0))


def twice(_: Doubling) -> dict[str, Any]:
    x = rows()
    return batch_of(x, x)


def overlapping(_: Doubling) -> dict[str, Any]:
    x = rows(6)
    return batch_of(x[1:], x[:-1])


def of_a_buffer(model: Doubling) -> dict[str, Any]:
    model.seen.set_(rows(1)[0])
    return batch_of(model.seen.expand(1, 6), rows(1))


def of_a_parameter(model: Doubling) -> dict[str, Any]:
    return batch_of(model.layer.bias.detach()[None], rows(1))


def a_buffer_is_read(model: Doubling) -> dict[str, Any]:
    return batch_of(rows(1), model.seen[None])


def buffers(model: Doubling) -> dict[str, Any]:
    model.scale.set_(model.seen)
    return batch_of(rows(1), rows(1))


def plainly(_: Doubling) -> dict[str, Any]:
    return batch_of(rows(), rows())


def halves(model: Doubling) -> dict[str, Any]:
    """One allocation, but no element of it twice: of a batch that was moved at once, or of buffers in one piece."""
    piece = torch.ones(12)
    model.seen.set_(piece[:6])
    model.scale.set_(piece[6:])
    x = torch.cat([rows(), rows()])
    return batch_of(x[:5], x[5:])


SHARED: list[tuple[Callable[[Doubling], dict[str, Any]], str]] = [
    (twice, "x shares memory with more['of'][0]"),
    (overlapping, "x shares memory with more['of'][0]"),
    (of_a_buffer, "seen shares memory with x"),
    (of_a_parameter, "x shares memory with layer.bias"),
    (a_buffer_is_read, "seen shares memory with more['of'][0]"),
    (buffers, "seen shares memory with scale"),
]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[bool, int], Any]:
    """By whether the step changes something in place, and how many rows it takes."""
    return {
        (in_place, count): made(
            tmp_path_factory.mktemp("files"), Doubling(in_place=in_place), batch_of(rows(count), rows(count))
        )
        for in_place, count in ((True, 1), (True, 5), (False, 5))
    }


@pytest.mark.parametrize(("given", "said"), SHARED, ids=lambda x: getattr(x, "__name__", ""))
def test_what_is_changed_in_place_must_not_be_something_else_too(given: Any, said: str, files: Any) -> None:
    model = Doubling()
    batch = given(model)
    module = files[True, len(batch["x"])].scheduled(model)
    before = [x.clone() for x in (batch["x"], *model.buffers())]
    with pytest.raises(ValueError, match=rf"^{re.escape(said)}, and the step changes \S+ in place; .*\(\.clone\(\)\)"):
        module(**batch)
    assert all(torch.equal(x, y) for x, y in zip(before, (batch["x"], *model.buffers()), strict=True))


@pytest.mark.parametrize(("given", "in_place"), [(halves, True), (twice, False), (overlapping, False)])
def test_other_memory_may_be_shared(given: Any, in_place: Any, files: Any) -> None:
    losses = []
    model = Doubling(in_place=in_place)
    for follow in (lambda x: x, files[in_place, 5].scheduled):
        subject = copy.deepcopy(model)
        batch = given(subject)
        losses.append(follow(subject)(**batch))
        losses[-1].backward()
    assert torch.equal(*losses)
