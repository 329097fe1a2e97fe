"""What operators return of fake tensors is known from equal calls, and the capture is the same as without."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn import functional as F
from torch.utils import _pytree as pytree

from explorer.capture import capture, known_results, tracing
from explorer.capture.known_results import results_known
from tests.capture.wide import CASES

aten = torch.ops.aten


pytestmark = pytest.mark.filterwarnings("ignore")  # PyTorch's, of samples


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(known_results, "_known", {})


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each operator was asked on fake tensors, by name."""
    counted = Counter[str]()
    dispatch = FakeTensorMode._dispatch_impl

    def counting(self: FakeTensorMode, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        counted[str(func)] += 1
        return dispatch(self, func, types, args, kwargs)

    monkeypatch.setattr(FakeTensorMode, "_dispatch_impl", counting)
    return counted


def _told(model: nn.Module, batch: Any, loss: Any) -> Any:
    """All that a capture says: the graph, and of every value its layout and whose memory it is."""
    try:
        captured = capture(model, batch, loss=loss)
    except ValueError as error:
        return str(error)
    homes: dict[int, int] = {}
    lines = []
    for node in captured.traced.graph.nodes:
        values = [x for x in pytree.tree_leaves(node.meta.get("val")) if isinstance(x, torch.Tensor)]
        layouts = [(x.shape, x.stride(), x.dtype, x.device, x.storage_offset()) for x in values]
        memory = [(homes.setdefault(id(x.untyped_storage()), len(homes)), x.untyped_storage().nbytes()) for x in values]
        lines.append((str(node.target), str(node.args), layouts, [size for _, size in memory]))
    return captured.graph, lines


@pytest.mark.sampled(25)
@pytest.mark.parametrize("name", CASES)
def test_a_capture_is_the_same_as_one_that_knows_nothing(name: str, monkeypatch: pytest.MonkeyPatch):
    torch.manual_seed(0)
    model, batch, loss = CASES[name]()
    once, again = (_told(model, batch, loss) for _ in range(2))
    monkeypatch.setattr(tracing, "results_known", lambda _: contextlib.nullcontext())
    assert once == again == _told(model, batch, loss)


def _part(later: bool) -> tuple[nn.Module, Any]:  # noqa: FBT001 - of samples
    """Writes to a part of a tensor, or to a tensor of that size."""

    class Part(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made = self.linear(x)
            some = made.tanh()[:4] if later else made[:4].tanh()
            return torch.select_scatter(some, some[0] * 2, 0, 0).square().mean()

    return Part(), torch.rand(64, 4)


def _groups(memory_format: torch.memory_format) -> tuple[nn.Module, Any]:
    model = nn.Sequential(nn.Conv2d(4, 4, 3), nn.GroupNorm(2, 4)).bfloat16()
    return model, torch.rand(2, 4, 6, 6).bfloat16().to(memory_format=memory_format)


@pytest.mark.parametrize(
    ("make", "kinds"),
    [(_part, (False, True)), (_groups, (torch.contiguous_format, torch.channels_last))],
    ids=["a part", "group norm"],
)
def test_a_capture_does_not_depend_on_those_before(make: Any, kinds: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch):
    """Calls that look alike."""
    alone = []
    for kind in kinds:
        monkeypatch.setattr(known_results, "_known", {})
        alone.append(_told(*make(kind), None))
    for order in ((0, 1), (1, 0)):
        monkeypatch.setattr(known_results, "_known", {})
        assert [_told(*make(kinds[x]), None) for x in order] == [alone[x] for x in order]


def test_samples_are_captured_the_same_in_any_order():
    names = list(CASES)[::4]
    first, again = {}, {}
    for found, order in ((first, names), (again, names[::-1])):
        for name in order:
            torch.manual_seed(0)
            found[name] = _told(*CASES[name]())
        known_results._known.clear()
    assert first == again


def test_the_number_of_threads_makes_another_call():
    def strides(threads: int) -> tuple[int, ...]:
        torch.set_num_threads(threads)
        with FakeTensorMode() as mode, results_known(mode):
            source = torch.empty(2, 8, 4, 4, 4).to(memory_format=torch.channels_last_3d)
            return F.conv3d(source, torch.empty(8, 8, 1, 1, 1)).stride()

    before = torch.get_num_threads()
    try:
        alone = []
        for threads in (1, 2):
            known_results._known.clear()
            alone.append(strides(threads))
        known_results._known.clear()
        assert [strides(x) for x in (1, 2)] == alone
    finally:
        torch.set_num_threads(before)


def test_within_another_one_it_is_as_there():
    with FakeTensorMode() as mode, results_known(mode):
        with results_known(mode):
            torch.exp(torch.rand(3))
        assert "_cached_dispatch_impl" in vars(mode)
    assert "_cached_dispatch_impl" not in vars(mode)


def test_equal_layers_are_asked_once(run: Counter[str]):
    model = nn.Sequential(*(x for _ in range(9) for x in (nn.Conv2d(4, 4, 3, padding=1), nn.GELU())))
    capture(model, (torch.rand(2, 4, 6, 6), torch.rand(2, 4, 6, 6)), loss=F.mse_loss)
    asked = {x: run[x] for x in ("aten.convolution.default", "aten.gelu.default", "aten.gelu_backward.default")}
    assert set(asked.values()) == {1}


def _results(*calls: Callable[[torch.Tensor], Any], of: Callable[[], torch.Tensor]) -> list[Any]:
    """Of each call within one mode, so that a wrong memory would be seen."""
    with FakeTensorMode() as mode, results_known(mode):
        source = of()
        return [x(source) for x in calls]


def test_numbers_of_other_types_are_other_calls():
    dtypes = [x.dtype for x in _results(lambda x: x + 1, lambda x: x + 1.0, lambda x: x * True, of=_integers)]
    assert dtypes == [torch.int64, torch.float32, torch.int64]


def _integers() -> torch.Tensor:
    return torch.zeros(3, dtype=torch.int64)


@pytest.mark.parametrize(
    "share",
    [
        lambda x: x.view(6),
        lambda x: x.expand(4, 2, 3),
        lambda x: x.detach(),
        lambda x: aten._unsafe_view(x, [3, 2]),
        lambda x: x.unbind(0)[1],
        lambda x: x.add_(1),
    ],
    ids=["view", "expand", "detach", "a view that the schema does not tell of", "unbind", "in place"],
)
def test_what_shares_memory_does_so_each_time(share: Callable[[torch.Tensor], torch.Tensor]):
    with FakeTensorMode() as mode, results_known(mode):
        for _ in range(3):
            source = torch.rand(2, 3)
            assert share(source).untyped_storage()._cdata == source.untyped_storage()._cdata


def test_each_result_has_memory_of_its_own():
    once, again = _results(torch.exp, torch.exp, of=lambda: torch.rand(4))
    assert type(once) is type(again) is FakeTensor
    assert once.untyped_storage()._cdata != again.untyped_storage()._cdata


def test_a_setting_makes_another_call():
    with FakeTensorMode() as mode, results_known(mode):
        dtypes = []
        for dtype in (torch.float32, torch.float64, torch.float32):
            torch.set_default_dtype(dtype)
            try:
                dtypes.append(torch.ops.aten.arange.default(4.0).dtype)
            finally:
                torch.set_default_dtype(torch.float32)
    assert dtypes == [torch.float32, torch.float64, torch.float32]


def test_what_is_known_by_its_value_stays_so():
    """A tensor of one number that was written into the step is the number wherever it is asked."""
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, results_known(mode):
        values = [(torch.tensor(x) * 2).item() for x in (3, 4, 5)]
    assert values == [6, 8, 10]


def test_what_is_known_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(known_results, "_MOST_KNOWN", 5)
    with FakeTensorMode() as mode, results_known(mode):
        for size in range(1, 40):
            torch.exp(torch.rand(size))
            assert len(known_results._known) <= 5


def test_a_mode_is_left_as_it_was():
    mode = FakeTensorMode()
    before = mode.cache_enabled
    with pytest.raises(RuntimeError, match="within"), mode, results_known(mode):
        raise RuntimeError("within")
    assert mode.cache_enabled == before
    assert "_cached_dispatch_impl" not in vars(mode)
