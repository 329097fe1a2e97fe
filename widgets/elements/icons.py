"""Small pictures on tabs, of what is behind them."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

_PATHS = {
    "layers": "M2 14V9M6 14V3M10 14V6M14 14V11",
    "graph": "M2 4h4v4H2zM10 1h4v4h-4zM10 10h4v4h-4zM6 6l4-3M6 6l4 6",
    "implementations": "M3 12.5v.1M6 7v.1M10 9v.1M13 3.5v.1M1 15h14M1 15V1",
    "matrix": "M2 2h12v12H2zM6 2v12M10 2v12M2 6h12M2 10h12",
    "addresses": "M2 10h5v4H2zM7 10h7v4H7zM2 4h8v6H2z",
    "solver": "M2 3c4 0 5 4 12 4M2 14c4 0 5-5 12-5",
    "explain": "M5 6a3 3 0 1 1 4 3c-1 .5-1 1-1 2M8 14v.1",
    "compare": "M2 14V6l4-3 4 5 4-2M2 11l4-4 4 4 4-5",
    "export": "M8 2v8M5 7l3 3 3-3M2 12v2h12v-2",
}
"""Lines on 16 by 16 pixels, by the name of a panel."""


def icons(names: Sequence[str]) -> str:
    """A style that puts the picture of each panel on its tab; tabs stand in the order of ``names``."""
    rules = "".join(
        f".schedule-explorer .widget-tab > .lm-TabBar .lm-TabBar-tab:nth-child({place})::after "
        f"{{ -webkit-mask-image: {image}; mask-image: {image}; }}"
        for place, image in enumerate(map(_image, names), start=1)
    )
    return f"<style>{rules}</style>"


def _image(name: str) -> str:
    drawn = (
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16' fill='none' stroke='black' stroke-width='1.8' "
        f"stroke-linecap='round' stroke-linejoin='round'><path d='{_PATHS[name]}'/></svg>"
    )
    return f'url("data:image/svg+xml,{quote(drawn)}")'
