"""Settings of PyTorch outside the model that decide which operators a trace meets."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from explorer.autocast import Autocast
from explorer.capture.batch import dtype_name
from explorer.units import shown

_ALLOWED = "allowed: torch.bfloat16 and torch.float16, or their names, or None for what is active here"
_OUTSIDE = Autocast(None)
_FIRST_DTYPES = {"cpu": torch.bfloat16, "cuda": torch.float16}


@dataclass(frozen=True)
class Ambient:
    """What a captured step depends on besides the model and the batch.

    Attributes:
        autocast: what ``torch.autocast`` was, for each type of device.
        default_dtype: of tensors that are made without one.
        defaults: of autocast where the forward pass enters it by itself: for each type of device, the dtype and the
            caching that it takes if the code names none; else empty.
    """

    autocast: tuple[tuple[str, Autocast], ...]
    default_dtype: torch.dtype
    defaults: tuple[tuple[str, Autocast], ...] = ()

    @classmethod
    def now(cls, devices: Iterable[str], *, with_defaults: bool) -> Ambient:
        """The settings at this moment, for these types of devices; those of autocast's defaults if they matter."""
        kinds = sorted(x for x in set(devices) if torch.amp.is_autocast_available(x))
        defaults = tuple((x, _default(x)) for x in kinds if with_defaults)
        return cls(tuple((x, autocast_now(x)) for x in kinds), torch.get_default_dtype(), defaults)

    def region(self) -> contextlib.AbstractContextManager[None]:
        """A region of autocast for one forward pass, as the captured one had it, whatever is active around it."""
        return autocast_region(*self.autocast)

    def difference(self) -> str | None:
        """In words, what is set otherwise at this moment, with the remedy; None where nothing is."""
        for kind, before in self.autocast:
            now = autocast_now(kind)
            if now != before:
                return (
                    f"{_told(kind, now)} here, and the step was captured {_told(kind, before)}: {_remedy(now, before)}"
                )
        for kind, before in self.defaults:
            if (now := _default(kind)) != before:
                return (
                    f"the model enters autocast by itself, whose defaults make it {_call(kind, now)} here, and made it "
                    f"{_call(kind, before)} when the step was captured: call it outside of that region"
                )
        if torch.get_default_dtype() != self.default_dtype:
            return (
                f"the default dtype is {torch.get_default_dtype()}, and was {self.default_dtype} when the step was "
                f"captured: torch.set_default_dtype({self.default_dtype})"
            )
        return None


def autocast_now(kind: str) -> Autocast:
    """What ``torch.autocast`` is at this moment, for a type of device."""
    return _default(kind) if torch.is_autocast_enabled(kind) else _OUTSIDE


def _default(kind: str) -> Autocast:
    """What a region has that names neither dtype nor caching."""
    return Autocast(dtype_name(torch.get_autocast_dtype(kind)), torch.is_autocast_cache_enabled())


def an_autocast(value: Any, kind: str) -> Autocast:
    """What a step is to be captured under, on a type of device.

    Args:
        value: a dtype or its name; None: what is active; an ``Autocast`` as it is.
        kind: ``"cpu"`` or ``"cuda"``.

    Raises:
        ValueError: it is none of these, or not for this device.
    """
    if value is None:
        return autocast_now(kind) if torch.amp.is_autocast_available(kind) else _OUTSIDE
    if isinstance(value, Autocast):
        if value.dtype is not None:
            _check_available(value.dtype, kind)
        return value
    name = dtype_name(value) if isinstance(value, torch.dtype) else value
    if not isinstance(name, str) or name not in ("bfloat16", "float16"):
        raise ValueError(f"autocast is {shown(name)}; {_ALLOWED}")
    _check_available(name, kind)
    if kind == "cuda" and name == "bfloat16" and not torch.cuda.is_bf16_supported():
        raise ValueError("autocast is bfloat16, which this GPU does not have; allowed: torch.float16, or None")
    return Autocast(name)


def _check_available(name: str, kind: str) -> None:
    if not torch.amp.is_autocast_available(kind):
        raise ValueError(f"autocast is {name!r}, and the model is on {kind!r}, where there is none; allowed: None")


@contextlib.contextmanager
def autocast_region(*states: tuple[str, Autocast]) -> Iterator[None]:
    """A region for one forward pass, as if there were none around it: parameters that were cast there are cast anew.

    Args:
        states: type of device and what ``torch.autocast`` is for it.
    """
    states = tuple(x for x in states if torch.amp.is_autocast_available(x[0]))  # not on the device ``meta``
    before = [(kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind, _ in states]
    with _outermost(), contextlib.ExitStack() as stack:
        try:
            for kind, state in states:
                if torch.is_autocast_enabled(kind):  # what code takes outside that names no dtype
                    torch.set_autocast_dtype(kind, _FIRST_DTYPES[kind])
                torch.set_autocast_enabled(kind, False)
                if state.dtype is not None:
                    dtype = getattr(torch, state.dtype)
                    stack.enter_context(torch.autocast(kind, dtype, cache_enabled=state.cached))
            yield
        finally:
            stack.close()
            for kind, enabled, dtype in before:
                torch.set_autocast_enabled(kind, enabled)
                torch.set_autocast_dtype(kind, dtype)


@contextlib.contextmanager
def _outermost() -> Iterator[None]:
    """While open, regions are not within others: where one ends, what was cast in it is forgotten."""
    cached, depth = torch.is_autocast_cache_enabled(), torch.autocast_increment_nesting() - 1
    for _ in range(depth + 1):
        torch.autocast_decrement_nesting()
    torch.set_autocast_cache_enabled(True)
    torch.clear_autocast_cache()
    try:
        yield
    finally:
        torch.clear_autocast_cache()
        torch.set_autocast_cache_enabled(cached)
        for _ in range(depth):
            torch.autocast_increment_nesting()


def _told(kind: str, state: Autocast) -> str:
    if state.dtype is None:
        return f"outside torch.autocast for {kind}"
    return f"under {_call(kind, state)}"


def _call(kind: str, state: Autocast) -> str:
    return f"torch.autocast({kind!r}, torch.{state.dtype}{'' if state.cached else ', cache_enabled=False'})"


def _remedy(now: Autocast, before: Autocast) -> str:
    there = "outside" if before.dtype is None else "inside that"
    here = "outside" if now.dtype is None else f"with autocast=torch.{now.dtype}" if now.cached else "here"
    return f"call it {there}, or profile {here}, solve and apply again"
