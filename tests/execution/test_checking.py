"""The self-check of ``apply``: passes what is right, names what is wrong, and leaves no traces."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import fx, nn

import explorer
from explorer.capture import Capture, capture
from explorer.execution import applying, checking
from explorer.execution.checking import CheckFailedError
from explorer.execution.shadow import OwnNormalisation
from explorer.operators import Variant, registry
from explorer.schedule import Run, Schedule, keep_all, with_frees
from explorer.storage.cache_folder import VARIABLE

aten = torch.ops.aten


def test_eager_mode_is_asked_for_its_own_batch_normalisation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not cuDNN's, which is what captured steps do not have."""
    seen: list[bool] = []
    plain = torch.batch_norm

    def noting(*args: Any) -> torch.Tensor:
        seen.append(torch.backends.cudnn.enabled)
        return plain(*args)

    monkeypatch.setattr(torch, "batch_norm", noting)
    layer, source = nn.BatchNorm1d(6), sample()
    with OwnNormalisation():
        layer(source)
    layer(source)
    assert seen == [False, True]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.4))
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.body(x)
        return self.head(torch.tanh(h) * h.sigmoid())


def sample() -> torch.Tensor:
    return torch.randn(7, 6, generator=torch.Generator().manual_seed(1))


@pytest.fixture(autouse=True)
def _afresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "off")


def halved(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x) * 0.5


def nearly(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x) * (1 + 1e-6)


def overwriting(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh_(x)


def with_way_of_tanh(monkeypatch: pytest.MonkeyPatch, target: Any, *, exact: bool = True) -> Schedule:
    """A schedule for a registry in which tanh can be computed by ``target``, and is."""

    def rule(node: fx.Node) -> Iterator[Variant]:
        yield Variant("another", target, node.args, exact=exact)

    known = registry._RULES.get(aten.tanh.default, [])
    monkeypatch.setitem(registry._RULES, aten.tanh.default, [*known, rule])
    graph = capture(Net(), sample()).graph
    runs = [
        Run(x.id, "another" if x.target == "aten.tanh.default" else x.default().name)
        for x in graph.operators
        if not x.optional
    ]
    return with_frees(graph, runs, method="test", budget_bytes=None)


def test_a_wrong_implementation_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = with_way_of_tanh(monkeypatch, halved)
    with pytest.raises(CheckFailedError, match=r"First at operator 'tanh': run by 'another', .* from PyTorch's own"):
        explorer.apply(Net(), schedule, sample())
    explorer.apply(Net(), schedule, sample(), check=False)


def test_a_wrong_implementation_is_named_without_room_for_eager_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "free_bytes", lambda _: 0)
    schedule = with_way_of_tanh(monkeypatch, halved)
    with pytest.raises(CheckFailedError, match="First at operator 'tanh'"):
        explorer.apply(Net(), schedule, sample())
    explorer.apply(Net(), keep_all(capture(Net(), sample()).graph), sample())


def test_one_that_overwrites_what_is_read_later_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = with_way_of_tanh(monkeypatch, overwriting)
    with pytest.raises(CheckFailedError, match=r"First at operator 'tanh': run by 'another'"):
        explorer.apply(Net(), schedule, sample())


def test_rounding_is_allowed_where_it_is_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    explorer.apply(Net(), with_way_of_tanh(monkeypatch, nearly, exact=False), sample())


def test_rounding_is_not_allowed_where_it_is_not_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CheckFailedError, match="First at operator 'tanh'"):
        explorer.apply(Net(), with_way_of_tanh(monkeypatch, nearly), sample())


def test_a_wrong_capture_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def misled(*args: Any, **kwargs: Any) -> Capture:
        captured = capture(*args, **kwargs)
        number = next(x.id for x in captured.graph.operators if x.target == "aten.sigmoid.default")
        calls = dict(captured.built.calls)
        for key in [x for x in calls if x[0] == number]:
            calls[key] = replace(calls[key], target=aten.tanh.default)
        return replace(captured, built=replace(captured.built, calls=calls))

    schedule = keep_all(capture(Net(), sample()).graph)
    monkeypatch.setattr(applying, "capture", misled)
    with pytest.raises(CheckFailedError, match=r"gradient|result"):
        explorer.apply(Net(), schedule, sample())


def test_last_bits_are_told_not_refused() -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.GRUCell(6, 24)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.cell(x).square().mean()  # eager mode works in place on slices of 24, with a rest of 8

    torch.manual_seed(0)
    with pytest.warns(UserWarning, match="differ from eager mode in the last bits"):
        explorer.apply(Recurrent(), keep_all(capture(Recurrent(), sample()).graph), sample())


def test_a_budget_that_does_not_hold_is_told() -> None:
    graph = capture(Net(), sample()).graph
    schedule = replace(keep_all(graph), budget_bytes=100)
    with pytest.warns(UserWarning, match=r"took .* more than its budget of 100 B"):
        explorer.apply(Net(), schedule, sample())


class Turned(nn.Module):
    """Its result lies otherwise in memory than it says, as what CTC's loss takes does."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(20, 32), nn.Linear(32, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x).relu()).transpose(0, 1)


def test_a_result_that_lies_otherwise_in_memory_takes_no_more_of_it() -> None:
    model, x = Turned(), torch.randn(4, 300, 20)
    found = explorer.solve(explorer.profile(model, x), budget="100 %", time_limit=1, remember=False)
    assert found.schedule is not None
    explorer.apply(model, found.schedule, x)  # its budget holds, and nobody warns


def test_it_leaves_no_traces() -> None:
    model = Net()
    model(sample()).sum().backward()
    before = {name: x.clone() for name, x in model.state_dict().items()}
    gradients = [x.grad for x in model.parameters()]
    random = torch.get_rng_state()
    explorer.apply(model, keep_all(capture(model, sample()).graph), sample())
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())
    assert all(x.grad is y for x, y in zip(model.parameters(), gradients, strict=True))
    assert torch.equal(random, torch.get_rng_state())


def test_it_runs_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    checked: list[int] = []
    run = checking._Check.run
    monkeypatch.setattr(checking._Check, "run", lambda self: (checked.append(1), run(self)))
    schedule = keep_all(capture(Net(), sample()).graph)
    for _ in range(2):
        explorer.apply(Net(), schedule, sample())
    assert len(checked) == 1
    explorer.apply(Net(), replace(schedule, method="another"), sample())
    assert len(checked) == 2


def test_what_is_not_in_memory_is_not_checked() -> None:
    with torch.device("meta"):
        model, batch = Net(), torch.empty(7, 6)
    explorer.apply(model, keep_all(capture(model, batch).graph), batch)
