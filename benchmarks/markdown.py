"""Tables for pages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

MIB = 2**20
Rows = list[dict[str, Any]]

_NOTHING = re.compile(r"-0\.0+%")
"""A difference that rounds to none, which has no sign to tell."""


def head(*names: str) -> Sequence[str]:
    """The first two lines of a table."""
    return (line(*names), line(*("---" for _ in names)))


def line(*cells: str) -> str:
    """A row."""
    return f"| {' | '.join('+' + x[1:] if _NOTHING.fullmatch(x) else x for x in cells)} |"
