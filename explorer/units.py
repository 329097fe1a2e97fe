"""Bytes as people write them: ``"8 GiB"`` in, ``"7.45 GiB"`` out."""

from __future__ import annotations

import re

_FACTORS = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
}
_QUANTITY = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)


def parse_bytes(value: int | str) -> int:
    """Turn a budget into bytes.

    Args:
        value: a positive int (bytes) or a string with a unit: ``"8 GiB"``, ``"800 MB"``.

    Returns:
        Whole bytes, rounded down.

    Raises:
        ValueError: the unit is unknown, or the amount is not a positive number.
    """
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"budget {value!r} must be an int (bytes) or a string such as '8 GiB'")
    if isinstance(value, int):
        amount = value
    else:
        match = _QUANTITY.fullmatch(value)
        if match is None:
            raise ValueError(f"budget {value!r} is not a number with a unit, such as '8 GiB'")
        factor = _FACTORS.get(match[2].upper())
        if factor is None:
            raise ValueError(
                f"budget {value!r} has the unknown unit {match[2]!r}; allowed: B, KB, MB, GB, TB, KiB, MiB, GiB, TiB"
            )
        amount = int(float(match[1]) * factor)
    if amount <= 0:
        raise ValueError(f"budget {value!r} must be positive")
    return amount


def format_bytes(amount_bytes: float) -> str:
    """Bytes with the binary unit that keeps one to three digits before the point."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(amount_bytes) >= factor:
            return f"{amount_bytes / factor:.2f} {unit}"
    return f"{amount_bytes:.0f} B"
