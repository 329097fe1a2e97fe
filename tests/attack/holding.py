"""What must hold of everything that comes out: pages, plots, sentences, commands."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

from typer.testing import CliRunner

from explorer import harmless
from explorer.command_line import commands

_TAGS = re.compile(r"</?(?:b|br|extra)>")
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u2028-\u202e\ufeff\ud800-\udfff]")
_SHOWN = {"text", "hovertext", "hovertemplate", "ticktext", "name", "title", "legendgroup"}


class Parsed(HTMLParser):
    """Elements and attributes as a browser finds them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.scripts: list[tuple[str, str]] = []
        self.tags: set[str] = set()
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Nothing that runs."""
        self.tags.add(tag)
        for name, value in attrs:
            assert not name.startswith("on"), (tag, name, value)
            assert "javascript:" not in (value or "").lower() or name in {"aria-label", "title"}, (tag, name, value)
        if tag == "script":
            self.scripts.append((dict(attrs).get("type") or "", ""))

    def handle_data(self, data: str) -> None:
        """The text of a script belongs to it."""
        if self.cdata_elem == "script":
            kind, before = self.scripts.pop()
            self.scripts.append((kind, before + data))


def check_html(page: str, *, scripts: int) -> Parsed:
    """A page of ours has its own elements alone."""
    found = Parsed(page)
    assert len(found.scripts) == scripts, [x[:80] for _, x in found.scripts]
    assert not found.tags & {"a", "img", "iframe", "object", "embed", "form", "base"}, found.tags
    own = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert not CONTROL.search(own), CONTROL.search(own)
    return found


def check_figure(figure: Any, *, under: str = "") -> None:
    """Where plotly takes a text for HTML, ours is all that there is."""
    if isinstance(figure, dict):
        for key, value in figure.items():
            if key != "meta":
                # Categories of a bar plot are written along its axis.
                shown = key in _SHOWN or (key in "xy" and isinstance(value, list)) or (key == "text" == under)
                check_figure(value, under=key if shown else "")
    elif isinstance(figure, list):
        for value in figure:
            check_figure(value, under=under)
    elif isinstance(figure, str) and under:
        left = _TAGS.sub("", figure)
        assert "<" not in left, (under, figure[:200])
        assert not CONTROL.search(figure), (under, figure[:200])
        if under != "hovertemplate":
            assert "%{" not in figure, (under, figure[:200])


def refused(said: str) -> str:
    """A sentence, with nothing in it that steers a terminal once it is printed there."""
    shown = harmless.in_terminal(said)
    assert shown.strip()
    assert not CONTROL.search(shown)
    return f"refused: {shown[:200]}"


def call(*arguments: str) -> str:
    """A command, by its exit code: held, or refused with a sentence."""
    result = CliRunner().invoke(commands.app, list(arguments))
    said = result.output
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    assert result.exit_code in {0, 1, 2}, (result.exit_code, said)
    assert "Traceback" not in said, said
    assert not CONTROL.search(said), said[:500]
    return "held" if result.exit_code == 0 else refused(said)
