"""Plain values in a batch, and what a forward pass does with chance and with numbers of its own."""

from __future__ import annotations

import itertools
import random
import types
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import explorer
from explorer.capture import capture

VALUES = {
    "dtype": (torch.float64, torch.float32),
    "device": (torch.device("cpu"), torch.device("meta")),
    "complex": (2j, 3j),
    "bytes": (b"a", b"b"),
    "slice": (slice(0, 2), slice(1, 3)),
    "range": (range(2), range(3)),
    "frozenset": (frozenset("ab"), frozenset("a")),
    "NumPy's number": (np.float32(2), np.float32(3)),
    "ellipsis": (..., slice(0, 1)),
    "truth": (True, 1),
    "zero": (0.0, -0.0),
    "members": (frozenset([1]), frozenset([True])),
    "steps": (range(0, 3, 2), range(0, 4, 2)),
    "ends": (slice(1, 2), slice(True, 2)),
    "memory format": (torch.contiguous_format, torch.channels_last),
}


class Told(nn.Module):
    """Reads a value in a way of its own."""

    def __init__(self, read: Callable[[torch.Tensor, Any], torch.Tensor] = lambda x, _: x, *, width: int = 4) -> None:
        super().__init__()
        self.layer, self.read = nn.Linear(4, width), read

    def forward(self, x: torch.Tensor, value: Any) -> torch.Tensor:
        return self.read(self.layer(x), value).square().mean()


@pytest.mark.parametrize("kind", VALUES)
def test_a_schedule_holds_for_batches_with_equal_values(kind: str) -> None:
    (value, other), x = VALUES[kind], torch.randn(3, 4)
    model = Told()
    module = explorer.apply(model, explorer.keep_all(capture(model, (x, value)).graph), (x, value))
    assert torch.equal(module(x, value), model(x, value))
    with pytest.raises(ValueError, match=r"batch\[1\] is .*; the schedule was made for"):
        module(x, other)


@pytest.mark.parametrize(
    ("value", "later"),
    [
        (3, np.int64(3)),
        (True, np.bool_(True)),
        (0.5, np.float64(0.5)),
        ("a", np.str_("a")),
        (float("nan"), float("nan")),
    ],
)
def test_numpys_numbers_are_pythons(value: Any, later: Any) -> None:
    model, x = Told(), torch.randn(3, 4)
    module = explorer.apply(model, explorer.keep_all(capture(model, (x, value)).graph), (x, value))
    assert torch.equal(module(x, later), model(x, value))


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (torch.float64, lambda x, v: x.to(v)),
        (slice(0, 2), lambda x, v: x[v]),
        (frozenset("ab"), lambda x, v: x * (2 if "a" in v else 1)),
        (np.float32(2), lambda x, v: x * v),
        (2j, lambda x, v: (x * v).imag),
    ],
    ids=["cast", "part", "set", "number", "complex"],
)
def test_values_are_what_the_model_reads(value: Any, read: Callable[[torch.Tensor, Any], torch.Tensor]) -> None:
    model, x = Told(read), torch.randn(3, 4)
    module = explorer.apply(model, explorer.keep_all(capture(model, (x, value)).graph), (x, value))
    wanted = torch.autograd.grad(model(x, value), list(model.parameters()))
    found = torch.autograd.grad(module(x, value), list(model.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize(
    "value",
    [{1}, {"k": {1, 2}}, slice(torch.tensor(0), None), types.SimpleNamespace(a=1), len, int, iter([1]), nn.ReLU()],
)
def test_what_tells_no_later_batch_from_this_one_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"batch\[1\].* is a .*, which is neither a tensor nor a value"):
        capture(Told(), (torch.randn(3, 4), value))


def drawn(generator: torch.Generator) -> Callable[[torch.Tensor, Any], torch.Tensor]:
    return lambda x, _: x + torch.randn(x.shape, generator=generator)


def seeded(x: torch.Tensor, value: Any) -> torch.Tensor:
    torch.manual_seed(value)
    return x + torch.randn_like(x)


def forked(x: torch.Tensor, _: Any) -> torch.Tensor:
    with torch.random.fork_rng():
        return x + torch.randn_like(x)


@pytest.mark.parametrize(
    ("read", "value", "words"),
    [
        (drawn(torch.Generator()), 0, r"draws from a torch\.Generator"),
        (lambda x, v: x + torch.rand(4, generator=v), torch.Generator(), "is a random generator of its own"),
        (seeded, 0, r"sets the state of PyTorch's random generator"),
        (forked, 0, r"sets the state of PyTorch's random generator"),
    ],
    ids=["of the model", "in the batch", "seeded", "forked"],
)
def test_chance_of_its_own_is_refused(read: Any, value: Any, words: str) -> None:
    model, x = Told(read), torch.randn(3, 4)
    before = torch.get_rng_state()
    with pytest.raises(ValueError, match=words):
        capture(model, (x, value))
    assert torch.equal(before, torch.get_rng_state())


def of_numpy(x: torch.Tensor, _: Any) -> torch.Tensor:
    # So many that the generator's position is the same afterwards.
    return x * torch.tensor(np.random.rand(39, 8).tolist())  # noqa: NPY002 - as models do


def test_numbers_are_seen_beside_other_threads() -> None:
    with ThreadPoolExecutor(1) as pool:  # which keeps its thread, as a notebook's kernel does
        pool.submit(int).result()
        for read, whose in ((of_numpy, "NumPy's"), (lambda x, _: x * random.random(), "Python's random")):
            with pytest.raises(ValueError, match=f"draws from {whose} numbers"):
                capture(Told(read, width=8), (torch.randn(39, 4), 0))


def test_numbers_of_numpy_are_seen_wherever_its_generator_stands() -> None:
    np.random.seed(0)  # noqa: NPY002
    np.random.rand(1)  # noqa: NPY002
    with pytest.raises(ValueError, match="draws from NumPy's numbers"):
        capture(Told(of_numpy, width=8), (torch.randn(39, 4), 0))


def permuted(x: torch.Tensor, seed: Any) -> torch.Tensor:
    np.random.seed(seed)  # noqa: NPY002
    return x[:, np.random.permutation(4).tolist()]  # noqa: NPY002


def test_a_seed_of_numpys_is_no_excuse() -> None:
    np.random.seed(1)  # noqa: NPY002
    wanted = np.random.rand()  # noqa: NPY002
    np.random.seed(1)  # noqa: NPY002
    with pytest.raises(ValueError, match="draws from NumPy's numbers"):
        capture(Told(permuted), (torch.randn(3, 4), 5))
    assert np.random.rand() == wanted  # noqa: NPY002


def put_back(x: torch.Tensor, _: Any) -> torch.Tensor:
    state = torch.get_rng_state()
    torch.random.set_rng_state(state)
    return x


def forked_in_vain(x: torch.Tensor, _: Any) -> torch.Tensor:
    with torch.random.fork_rng():
        return x * 2


@pytest.mark.parametrize("read", [put_back, forked_in_vain])
def test_a_state_that_is_set_back_where_nothing_is_drawn_is_no_matter(read: Any) -> None:
    model, batch = Told(read), (torch.randn(3, 4), 0)
    module = explorer.apply(model, explorer.keep_all(capture(model, batch).graph), batch)
    assert torch.equal(module(*batch), model(*batch))


class Counting(Told):
    """Counts in an attribute that is its class's before."""

    seen = 0

    def forward(self, x: torch.Tensor, value: Any) -> torch.Tensor:
        self.seen += 1
        return super().forward(x, value) * self.seen


def test_a_counter_that_the_class_begins_is_refused() -> None:
    with pytest.raises(ValueError, match=r"changes 'model\.seen' from 0 to 1"):
        capture(Counting(), (torch.randn(3, 4), 0))


def test_a_step_that_is_another_one_each_time_says_so() -> None:
    turns = itertools.cycle([1.0, 2.0, 3.0])
    model, batch = Told(lambda x, _: x * next(turns)), (torch.randn(3, 4), 0)
    schedule = explorer.keep_all(capture(model, batch).graph)
    with pytest.raises(ValueError, match="computes something else each time it is captured"):
        explorer.apply(model, schedule, batch)
