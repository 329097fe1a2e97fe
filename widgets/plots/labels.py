"""Names beside points, where there is room for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_CHARACTER, _LINE = 5.6, 13.0  # pixels of text of size 10
_RADIUS = 8.0  # of a point, with air
_BEYOND = 8.0  # pixels that a name may reach beyond the plot
_POINT = 5.0  # half a point's width
_SIDES = {
    f"{height} {side}": (down, across)
    for height, down in {"middle": 0, "top": -1, "bottom": 1}.items()
    for side, across in {"right": 1, "left": -1, "center": 0}.items()
    if (down, across) != (0, 0)
}
"""By plotly's name: down and across."""


@dataclass(frozen=True, slots=True)
class Named:
    """A point with a name; the first of several get the best places.

    Attributes:
        x: from the left edge of the plot, as a share of its width.
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

    @classmethod
    def around(cls, x: float, y: float) -> _Box:
        """A point's."""
        return cls(x - _POINT, y - _POINT, x + _POINT, y + _POINT)

    def overlap(self, other: _Box) -> float:
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.bottom, other.bottom) - max(self.top, other.top)
        return max(0.0, width) * max(0.0, height)

    @property
    def area(self) -> float:
        return (self.right - self.left) * (self.bottom - self.top)


def places(
    points: Sequence[Named], *, widths: Sequence[float], height: float, most_overlap: float = 0.08
) -> list[str | None]:
    """For each point the side, as plotly's ``textposition``, where its name covers the least; None without room.

    Args:
        points: of one plot, whose names must not cover one another.
        widths: of the plot in pixels, any of which it may have.
        height: likewise.
        most_overlap: share of a name that may be covered or stand outside.
    """
    drawn = [_Drawn(x, height, [_Box.around(y.x * x, y.y) for y in points]) for x in widths]
    found: list[str | None] = []
    for point in points:
        sides = {name: [x.box(point, *sides) for x in drawn] for name, sides in _SIDES.items()}
        covered = {
            name: max(x.covered(box) / box.area for x, box in zip(drawn, boxes, strict=True))
            for name, boxes in sides.items()
        }
        best = min(covered, key=covered.__getitem__)
        fits = covered[best] <= most_overlap
        found.append(best if fits else None)
        if fits:
            for x, box in zip(drawn, sides[best], strict=True):
                x.taken.append(box)
    return found


@dataclass(frozen=True, slots=True)
class _Drawn:
    """The plot at one width, and what is taken of it."""

    width: float
    height: float
    taken: list[_Box]

    def box(self, point: Named, down: int, across: int) -> _Box:
        wide, high = max(map(len, point.lines)) * _CHARACTER, len(point.lines) * _LINE
        x = point.x * self.width + across * (_RADIUS + wide / 2)
        y = point.y + down * (_RADIUS + high / 2)
        return _Box(x - wide / 2, y - high / 2, x + wide / 2, y + high / 2)

    def covered(self, box: _Box) -> float:
        plot = _Box(-_BEYOND, -_BEYOND, self.width + _BEYOND, self.height + _BEYOND)
        return box.area - box.overlap(plot) + sum(map(box.overlap, self.taken))
