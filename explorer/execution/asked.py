"""What a step's functions ask for at every call, and nobody tells when it is another: switches, contexts, threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from functools import partial
from typing import Any

import torch

_CUDNN: Any = torch.backends.cudnn  # whose stub lacks some
_SWITCHES: dict[str, Callable[[], Any]] = {
    x.__name__: x
    for x in (
        torch.are_deterministic_algorithms_enabled,
        torch.is_deterministic_algorithms_warn_only_enabled,
        torch.get_float32_matmul_precision,
        torch.get_deterministic_debug_mode,
        torch.backends.cuda.flash_sdp_enabled,
        torch.backends.cuda.mem_efficient_sdp_enabled,
        torch.backends.cuda.math_sdp_enabled,
        torch.backends.cuda.cudnn_sdp_enabled,
        torch.get_num_threads,
        torch.is_warn_always_enabled,
    )
} | {
    f"{module}.{name}": partial(getattr, settings, name)
    for module, settings, names in (
        ("cudnn", _CUDNN, ("enabled", "benchmark", "deterministic", "allow_tf32")),
        ("conv", _CUDNN.conv, ("fp32_precision",)),
        ("matmul", torch.backends.cuda.matmul, ("allow_tf32", "fp32_precision")),
        ("mkldnn", torch.backends.mkldnn, ("enabled",)),
    )
    for name in names
}
"""By what is mentioned where they are asked for."""


class Asked(Mapping[str, Any]):
    """Answers to questions, each asked anew whenever it is looked up."""

    def __init__(self, questions: Mapping[str, Callable[[], Any]]) -> None:
        """By name."""
        self._questions = questions

    def __getitem__(self, name: str) -> Any:
        try:
            return self._questions[name]()
        except RuntimeError as error:  # of settings that contradict each other
            return str(error)

    def __iter__(self) -> Iterator[str]:
        return iter(self._questions)

    def __len__(self) -> int:
        return len(self._questions)


def environment(mentioned: frozenset[Any]) -> Asked:
    """Variables of the environment by names among what is mentioned, also those that are not set yet."""
    names = (x for x in mentioned if isinstance(x, str) and "=" not in x and "\0" not in x)
    return Asked({x: partial(os.environ.get, x) for x in names})


def switches(mentioned: frozenset[Any]) -> Asked:
    """PyTorch's settings among what is mentioned."""
    return Asked({x: ask for x, ask in _SWITCHES.items() if mentioned.issuperset(x.split("."))})


def of_thread(value: Any, mentioned: frozenset[Any]) -> Asked | None:
    """What a context variable or an object of each thread's own says here; None for anything else."""
    if isinstance(value, ContextVar):
        return Asked({"value": partial(_value_of, value)})
    if isinstance(value, threading.local):
        names = (x for x in mentioned if isinstance(x, str) and not x.startswith("__"))
        return Asked(
            {x: partial(getattr, value, x, None) for x in names if not callable(getattr(type(value), x, None))}
        )
    return None


def _value_of(variable: ContextVar[Any]) -> Any:
    try:
        return variable.get()
    except LookupError:
        return None
