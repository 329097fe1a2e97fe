"""How values show themselves: a line or two in a console, a small table in a notebook, however large they are."""

from __future__ import annotations

from collections.abc import Iterator

from explorer.harmless import in_html, one_line

Fact = tuple[str, str]
"""A name and what is to be said under it; without a name, a word on the whole."""


class Summarised:
    """A value that shows some facts instead of all its fields."""

    __slots__ = ()

    def facts(self) -> Iterator[Fact]:
        """What is shown, the most telling first."""
        raise NotImplementedError

    def __repr__(self) -> str:
        """On one line."""
        told = ", ".join(f"{name} {value}" if name else value for name, value in self.facts())
        return f"<{type(self).__name__}: {one_line(told)}>"

    def _repr_html_(self) -> str:
        """As a table, for notebooks."""
        left = 'style="text-align: left"'
        facts = [("", type(self).__name__), *self.facts()]
        rows = (f"<tr><th {left}>{in_html(name)}</th><td {left}>{in_html(value)}</td></tr>" for name, value in facts)
        return f"<table>{''.join(rows)}</table>"


def milliseconds(time_ms: float) -> str:
    """Three digits or more, and the unit."""
    return f"{time_ms:.3g} ms" if time_ms < 100 else f"{time_ms:.0f} ms"
