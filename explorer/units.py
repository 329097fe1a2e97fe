"""Bytes as people write them: ``"8 GiB"`` in, ``"7.45 GiB"`` out."""

from __future__ import annotations

import re
from numbers import Integral, Real

_FACTORS = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "PB": 10**15,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
    "PIB": 2**50,
}
_NUMBER = r"[+-]?(?:\d+(?:[.,]\d*)?|[.,]\d+)(?:e[+-]?\d+)?"
"""With a decimal point, or a comma."""
_QUANTITY = re.compile(rf"\s*({_NUMBER})\s*([a-z]+)\s*", re.IGNORECASE)
_SHARE = re.compile(rf"\s*({_NUMBER})\s*%\s*", re.IGNORECASE)
_THOUSANDS = re.compile(r"[1-9]\d{0,2},\d{3}")
"""What is a thousand times as much in some countries as in others."""
_MOST = 2**60  # bytes; sums of some of these still fit 64 bits
_SHOWN = 60  # characters of a value in a message


def parse_bytes(value: int | str, *, whole: int | None = None) -> int:
    """Turn a budget into bytes.

    Args:
        value: a positive int (bytes) or a string with a unit: ``"8 GiB"``, ``"800 MB"``, ``"80 %"``.
        whole: what per cent are of, in bytes: the peak of a plain PyTorch step; None where that is not known, so that
            per cent are refused.

    Returns:
        Whole bytes, rounded down.

    Raises:
        ValueError: the unit is unknown, or the amount is not a positive number of at most 2^60 bytes.
    """
    return amount_of_bytes(value, whole=whole, name="budget", shares=True)


def amount_of_bytes(value: int | str, *, name: str, whole: int | None = None, shares: bool = False) -> int:
    """As ``parse_bytes``; where the amount is refused it is called ``name``, and per cent are offered if ``shares``."""
    if isinstance(value, bool) or not isinstance(value, Integral | str):
        raise ValueError(f"{name} {shown(value)} must be an int (bytes) or a string such as '8 GiB'")
    if not isinstance(value, str):
        amount: float = int(value)
    elif share := _SHARE.fullmatch(value):
        if whole is None:
            raise ValueError(f"{name} {shown(value)} is a share of PyTorch's peak, which is not known here: give bytes")
        amount = _number(share[1]) * whole / 100
    else:
        amount = _quantity(value, name, shares=shares)
    if amount > _MOST:
        raise ValueError(f"{name} {shown(value)} is too large; allowed: up to 2^60 bytes, a million TiB")
    if int(amount) <= 0:
        raise ValueError(f"{name} {shown(value)} must be positive" + (", at least 1 byte" if amount > 0 else ""))
    return int(amount)


def _quantity(value: str, name: str, *, shares: bool) -> float:
    """A number with a unit."""
    match = _QUANTITY.fullmatch(value)
    if match is None:
        nor = ", nor per cent: '80 %'" if shares else ""
        raise ValueError(f"{name} {shown(value)} is not a number with a unit, such as '8 GiB'{nor}")
    if _THOUSANDS.fullmatch(match[1]):
        whole = match[1].replace(",", "")
        raise ValueError(
            f"{name} {shown(value)} can be read in two ways: write '{whole} {match[2]}', or "
            f"'{_number(match[1]):g} {match[2]}'"
        )
    factor = _FACTORS.get(match[2].upper())
    if factor is None:
        raise ValueError(
            f"{name} {shown(value)} has the unknown unit {shown(match[2])}; allowed: B, KB, MB, GB, TB, PB, KiB, MiB, "
            f"GiB, TiB{', PiB and %' if shares else ' and PiB'}"
        )
    return _number(match[1]) * factor


def _number(text: str) -> float:
    return float(text.replace(",", "."))


def is_share(value: object) -> bool:
    """Is a budget given in per cent, so that it takes a profile to say how many bytes it is?"""
    return isinstance(value, str) and _SHARE.fullmatch(value) is not None


def format_bytes(amount_bytes: float) -> str:
    """Bytes with the binary unit that keeps one to three digits before the point.

    Raises:
        ValueError: not a number.
    """
    if not isinstance(amount_bytes, Real):
        raise ValueError(f"amount_bytes is {shown(amount_bytes)}; it must be a number of bytes")
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(amount_bytes) >= factor:
            return f"{amount_bytes / factor:.2f} {unit}"
    return f"{amount_bytes:.0f} B"


def shown(value: object) -> str:
    """A value as a message names it, on one line and short: a text or number itself, of anything else its kind."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if value is None or isinstance(value, str | Real):
        if isinstance(value, int) and value.bit_length() > _SHOWN:
            return f"an int of {value.bit_length()} bits"
        text = repr(value) if isinstance(value, str) else str(value)
        return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    kind = type(value).__name__
    return f"{'an' if kind[:1].lower() in 'aeiou' else 'a'} {kind}"
