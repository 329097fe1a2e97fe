"""Links of a built site that lead nowhere: files and places on pages; the network is not asked."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class _Page(HTMLParser):
    """What a page names, and what it links to."""

    def __init__(self) -> None:
        super().__init__()
        self.places: set[str] = set()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        self.places |= {x for key in ("id", "name") if (x := found.get(key))}
        key = {"a": "href", "link": "href", "img": "src", "script": "src"}.get(tag, "")
        if link := found.get(key):
            self.links.append(link)


@cache
def _page(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def broken(site: Path) -> list[str]:
    """Page and link of each that leads nowhere, or to a server for what the page needs."""
    return [found for path in sorted(site.rglob("*.html")) for found in _broken_on(path, site)]


def _broken_on(path: Path, site: Path) -> Iterator[str]:
    for link in dict.fromkeys(_page(path).links):
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        target = path if not parts.path else (path.parent / unquote(parts.path)).resolve()
        if not target.exists():
            yield f"{path.relative_to(site)}: {link}: there is no such file"
        elif parts.fragment and target.suffix == ".html" and unquote(parts.fragment) not in _page(target).places:
            yield f"{path.relative_to(site)}: {link}: there is no such place on that page"
