"""Colours are told apart by everybody: computed in greyscale and for three kinds of colour blindness."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import widgets
from explorer.timeline import CATEGORIES
from widgets import style
from widgets.plots.addresses_plot import addresses_figure
from widgets.scene.addresses import AddressMap, Rectangle
from widgets.scene.module_graph import FATES

_CSS = (Path(widgets.__file__).parent / "elements" / "frontend" / "style.css").read_text()
_LIGHT, _DARK = "#ffffff", "#111111"
"""JupyterLab's backgrounds."""
_LINEAR = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
_WHITE = _LINEAR.sum(axis=1)
# Machado, Oliveira and Fernandes, 2009, at full severity.
_BLIND = {
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
_NORMAL = np.eye(3)


def linear(colour: str) -> np.ndarray:
    """Of ``#rrggbb``, as light."""
    values = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lab(light: np.ndarray) -> np.ndarray:
    """Lightness and two opponents, in which a difference of 2 is just seen."""
    x, y, z = (_LINEAR @ np.clip(light, 0, 1)) / _WHITE
    f: Callable[[float], float] = lambda t: t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116  # noqa: E731
    return np.array([116 * f(y) - 16, 500 * (f(x) - f(y)), 200 * (f(y) - f(z))])


def contrast(one: str, other: str) -> float:
    """As WCAG has it."""
    high, low = sorted((float(_LINEAR[1] @ linear(x)) for x in (one, other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def alike(found: Iterable[tuple[str, str, str]], seen: Callable[[str, str], bool]) -> list[tuple[str, str]]:
    """Names of those of one hatch that cannot be told apart."""
    pairs = combinations(list(found), 2)
    return [(a[0], b[0]) for a, b in pairs if a[2] == b[2] and not seen(a[1], b[1])]


_AREAS = [(x.value, style.CATEGORY_COLOUR[x], style.CATEGORY_HATCH.get(x, "")) for x in CATEGORIES]
_SETS = {"categories": _AREAS, "fates": [(name, colour, hatch) for name, _, colour, hatch in FATES]}


@pytest.mark.parametrize("of", _SETS)
def test_areas_are_distinct_in_greyscale(of: str) -> None:
    assert alike(_SETS[of], lambda a, b: abs(lab(linear(a))[0] - lab(linear(b))[0]) >= 8) == []


@pytest.mark.parametrize("kind", ["", *_BLIND])
@pytest.mark.parametrize("of", _SETS)
def test_areas_are_distinct_to_the_colour_blind(of: str, kind: str) -> None:
    matrix = np.array(_BLIND[kind]) if kind else _NORMAL

    def seen(a: str, b: str) -> bool:
        return float(np.linalg.norm(lab(matrix @ linear(a)) - lab(matrix @ linear(b)))) >= 10

    assert alike(_SETS[of], seen) == []


def variables(theme: str) -> dict[str, str]:
    """Colours that our style sets by name; in the dark theme, those that it has instead."""
    light = dict(re.findall(r"var\((--se-[a-z-]+), (#[0-9a-f]{6})\)", _CSS))
    block = re.search(r'body\[data-jp-theme-light="false"\] \.schedule-explorer \{(.*?)\}', _CSS, re.DOTALL)
    assert block is not None
    dark = dict(re.findall(r"(--se-[a-z-]+): (#[0-9a-f]{6})", block[1]))
    assert dark.keys() == light.keys()
    return dark if theme == _DARK else light


@pytest.mark.parametrize("theme", [_LIGHT, _DARK])
def test_texts_and_lines_have_the_contrast_of_wcag(theme: str) -> None:
    named = variables(theme)
    for name in ("--se-good", "--se-budget", "--se-accent"):
        assert contrast(named[name], theme) >= 4.5, name
    ink = "#212121" if theme == _LIGHT else "#ffffff"
    for name in ("--se-band", "--se-band-open", "--se-band-hover"):
        assert contrast(named[name], ink) >= 4.5, name
    for colour in (style.VERMILLION, style.BLUE, style.TEXT):
        assert contrast(colour, theme) >= 3.0, "marks and lines"


def test_what_is_more_than_the_reference_is_seen_over_every_area() -> None:
    """Dark lines with a light edge: one of them stands out from whatever is below."""
    picture = (Path(widgets.__file__).parent / "elements" / "frontend" / "step_picture.js").read_text()
    found = re.search(r'-more`, "transparent", "[^"]*", "(#\w{6})", "(#\w{6})"', picture)
    assert found is not None
    for category, colour in style.CATEGORY_COLOUR.items():
        assert max(contrast(colour, x) for x in found.groups()) >= 3.0, category


def test_each_curve_has_a_dash_of_its_own() -> None:
    from widgets.scene.curve import LOOKS

    assert len({dash for _, dash in LOOKS}) == len(LOOKS)


def test_names_are_read_on_the_colours_of_their_tensors() -> None:
    rectangles = tuple(Rectangle(i, "x", "", "", x, 0, 9, 100 * i, 100) for i, x in enumerate(CATEGORIES))
    figure = addresses_figure(AddressMap(rectangles, runs=10, load_bytes=1, bound_bytes=1))
    named = [x for x in figure.data if "insidetextfont" in x]
    assert len(named) == len(CATEGORIES)
    for trace in named:
        assert contrast(trace["insidetextfont"]["color"], trace["marker"]["color"]) >= 4.5, trace["name"]
