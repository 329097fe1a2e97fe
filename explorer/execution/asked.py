"""What a step's functions ask for at every call, and nobody tells when it is another: switches, contexts, threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from functools import partial
from typing import Any

import torch

_SWITCHES: dict[str, Callable[[], Any]] = {
    x.__name__: x
    for x in (
        torch.are_deterministic_algorithms_enabled,
        torch.is_deterministic_algorithms_warn_only_enabled,
        torch.get_float32_matmul_precision,
        torch.get_num_threads,
        torch.is_warn_always_enabled,
    )
} | {
    f"{module}.{name}": partial(getattr, settings, name)
    for module, settings, names in (
        ("cudnn", torch.backends.cudnn, ("enabled", "benchmark", "deterministic", "allow_tf32")),
        ("matmul", torch.backends.cuda.matmul, ("allow_tf32",)),
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
        return self._questions[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._questions)

    def __len__(self) -> int:
        return len(self._questions)


def environment(mentioned: frozenset[Any]) -> Asked:
    """Variables of the environment among what is mentioned, also those that are not set yet."""
    names = (x for x in mentioned if isinstance(x, str) and (x.isupper() or x in os.environ))
    return Asked({x: partial(os.environ.get, x) for x in names if "=" not in x and "\0" not in x})


def switches(mentioned: frozenset[Any]) -> Asked:
    """PyTorch's settings among what is mentioned."""
    return Asked({x: ask for x, ask in _SWITCHES.items() if mentioned.issuperset(x.split("."))})


def of_thread(value: Any, mentioned: frozenset[Any]) -> Asked | None:
    """What a context variable or an object of each thread's own says here; None for anything else."""
    if isinstance(value, ContextVar):
        return Asked({"value": partial(_value_of, value)})
    if isinstance(value, threading.local):
        names = (x for x in mentioned if isinstance(x, str) and not hasattr(type(value), x))
        return Asked({x: partial(getattr, value, x, None) for x in names})
    return None


def _value_of(variable: ContextVar[Any]) -> Any:
    try:
        return variable.get()
    except LookupError:
        return None
