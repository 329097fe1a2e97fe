"""Names beside points, where there is room for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_CHARACTER, _LINE = 5.6, 13.0  # pixels of text of size 10
_RADIUS = 8.0  # of a point, with air
_BEYOND = 14.0  # pixels that a name may reach beyond the plot
_SIDES = {"right": 1, "left": -1, "center": 0}
_HEIGHTS = {"middle": 0, "top": -1, "bottom": 1}


@dataclass(frozen=True, slots=True)
class Named:
    """A point with a name; the first of several get the best places.

    Attributes:
        x: pixels from the left edge of the plot.
        y: pixels from its upper edge.
        lines: of the name.
    """

    x: float
    y: float
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Box:
    left: float
    top: float
    right: float
    bottom: float

    def overlap(self, other: _Box) -> float:
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.bottom, other.bottom) - max(self.top, other.top)
        return max(0.0, width) * max(0.0, height)

    @property
    def area(self) -> float:
        return (self.right - self.left) * (self.bottom - self.top)


def places(points: Sequence[Named], *, width: float, height: float, most_overlap: float = 0.08) -> list[str | None]:
    """For each point the side, as plotly's ``textposition``, where its name covers the least; None without room.

    Args:
        points: of one plot, whose names must not cover one another.
        width: of the plot in pixels.
        height: likewise.
        most_overlap: share of a name that may be covered or stand outside.
    """
    plot = _Box(-_BEYOND, -_BEYOND, width + _BEYOND, height + _BEYOND)
    taken = [_Box(x.x - 5, x.y - 5, x.x + 5, x.y + 5) for x in points]
    found: list[str | None] = []
    for point in points:
        best, box, covered = min(
            ((side, box, _covered(box, plot, taken)) for side, box in _boxes(point)), key=lambda x: x[2]
        )
        fits = covered <= most_overlap * box.area
        found.append(best if fits else None)
        if fits:
            taken.append(box)
    return found


def _covered(box: _Box, plot: _Box, taken: Sequence[_Box]) -> float:
    return box.area - box.overlap(plot) + sum(map(box.overlap, taken))


def _boxes(point: Named) -> Iterator[tuple[str, _Box]]:
    wide, high = max(map(len, point.lines)) * _CHARACTER, len(point.lines) * _LINE
    for height, down in _HEIGHTS.items():
        for side, across in _SIDES.items():
            if (down, across) != (0, 0):
                x = point.x + across * (_RADIUS + wide / 2)
                y = point.y + down * (_RADIUS + high / 2)
                yield f"{height} {side}", _Box(x - wide / 2, y - high / 2, x + wide / 2, y + high / 2)
