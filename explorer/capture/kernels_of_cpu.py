"""What has other operators on a CUDA device than on a CPU, and none that could stand in: estimates refuse it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from explorer.torch_dispatch import composites_by

_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
_OTHERS = {
    **{f"{x}.{y}": f"a recurrent layer ({x})" for x in _RECURRENT for y in ("input", "data")},
    "lstm_cell": "a cell of an LSTM",
    "gru_cell": "a cell of a GRU",
    "embedding_bag": "an embedding bag",
    "embedding_bag.padding_idx": "an embedding bag",
}
"""Operators that PyTorch makes of others, by what they are: on CUDA of cuDNN's, or of some fused there."""
_MARKS = ("_for_cpu", "mkldnn", "onednn")


@contextmanager
def refused_for_cuda() -> Iterator[None]:
    """While open, a ValueError meets whatever is known to have operators of its own on a CUDA device."""

    def refusing(what: str) -> Callable[..., NoReturn]:
        def refuse(*_args: Any, **_kwargs: Any) -> NoReturn:
            raise ValueError(_sentence(what))

        return refuse

    with composites_by({name: refusing(what) for name, what in _OTHERS.items()}):
        yield


def check_operators(targets: Iterable[str]) -> None:
    """Refuse a graph that has an operator of the CPU's.

    Args:
        targets: its operators, by name.

    Raises:
        ValueError: there is one; names it.
    """
    for target in targets:
        if any(mark in target for mark in _MARKS):
            raise ValueError(_sentence(target))


def _sentence(what: str) -> str:
    return (
        f"the model has {what}, which runs other operators on a CUDA device than on a CPU, so that an estimate would "
        "be of another step: profile it on the device (explorer.profile, schedule-explorer profile --device cuda)"
    )
