"""Budgets as people write them."""

from __future__ import annotations

import pytest

from explorer import format_bytes, parse_bytes
from explorer.units import amount_of_bytes


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("8 GiB", 8 * 2**30),
        ("800 MB", 800 * 10**6),
        ("1.5gib", 3 * 2**29),
        ("512", None),
        (77, 77),
        ("1e3 B", 1000),
        ("10 PiB", 10 * 2**50),
    ],
)
def test_parse(text: str | int, amount: int | None) -> None:
    if amount is None:
        with pytest.raises(ValueError, match="not a number with a unit"):
            parse_bytes(text)
    else:
        assert parse_bytes(text) == amount


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("8 GiBi", "unknown unit 'GiBi'; allowed: B, KB"),
        ("-3 GiB", "must be positive"),
        (0, "must be positive"),
        (True, "must be an int"),
        (1.5, "must be an int"),
        ("", "not a number with a unit"),
        ("1,000 MiB", "can be read in two ways: write '1000 MiB', or '1 MiB'"),
    ],
)
def test_refusals(value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_bytes(value)  # type: ignore[arg-type]


def test_per_cent_are_offered_where_they_are_taken() -> None:
    for text in ("bar", "8 XB"):
        with pytest.raises(ValueError, match="%"):
            parse_bytes(text)
        with pytest.raises(ValueError, match=f"^buffer {text!r}[^%]*$"):
            amount_of_bytes(text, name="buffer")


def test_format() -> None:
    assert format_bytes(8 * 2**30) == "8.00 GiB"
    assert format_bytes(3 * 2**19) == "1.50 MiB"
    assert format_bytes(12) == "12 B"
