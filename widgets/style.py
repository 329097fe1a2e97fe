"""Colours, marks and units. Okabe-Ito colours, told apart by dash, hatch or symbol as well."""

from __future__ import annotations

import math

import numpy as np

from explorer.timeline import Category, Stage

GIB = 2**30
UNITS = {"GiB": GIB, "MiB": 2**20, "KiB": 2**10}

BLUE, SKY, GREEN, YELLOW = "#0072B2", "#56B4E9", "#009E73", "#F0E442"
ORANGE, VERMILLION, PURPLE = "#E69F00", "#D55E00", "#CC79A7"
LIGHT_VERMILLION = "#F0B090"
TEXT = "#777777"
"""Mid-grey: readable on JupyterLab's white and on its black."""
FAINT = "rgba(128, 128, 128, 0.22)"

CATEGORY_COLOUR = {
    Category.PARAMETERS: "#8A8A8A",
    Category.BUFFERS: "#6E6E6E",
    Category.INPUTS: "#ABABAB",
    Category.OPTIMIZER_STATE: "#C9C9C9",
    Category.PARAMETER_GRADIENTS: SKY,
    Category.SAVED: ORANGE,
    Category.RECOMPUTED: VERMILLION,
    Category.TEMPORARIES: YELLOW,
    Category.ACTIVATION_GRADIENTS: BLUE,
    Category.WORKSPACE: PURPLE,
}
"""Without a hatch, no two are alike in greyscale or to the colour-blind; a test computes it."""
CATEGORY_HATCH = {
    Category.BUFFERS: "|",
    Category.INPUTS: "-",
    Category.OPTIMIZER_STATE: "x",
    Category.PARAMETER_GRADIENTS: "\\",
    Category.RECOMPUTED: "/",
    Category.WORKSPACE: ".",
}
STAGE_SHADE = {
    Stage.FORWARD: "rgba(0, 158, 115, 0.16)",
    Stage.RECOMPUTE: "rgba(213, 94, 0, 0.30)",
    Stage.BACKWARD: "rgba(0, 114, 178, 0.16)",
    Stage.UPDATE: "rgba(204, 121, 167, 0.24)",
}
STAGE_HATCH = {Stage.FORWARD: "", Stage.RECOMPUTE: "/", Stage.BACKWARD: "", Stage.UPDATE: ""}


def in_unit(amount_bytes: float | np.ndarray, unit: str) -> np.ndarray:
    """Bytes as GiB, MiB or KiB, float64, for an axis."""
    return np.asarray(amount_bytes, dtype=np.float64) / UNITS[unit]


def unit_of(amount_bytes: float) -> str:
    """The unit that a view of so much memory has throughout: ``"GiB"``, ``"MiB"`` or ``"KiB"``."""
    return next((name for name, size in UNITS.items() if amount_bytes >= size), "KiB")


def format_memory(amount_bytes: float, *, of: float | None = None) -> str:
    """As ``"8.873 GiB"`` or ``"312.5 MiB"``, with at most four digits that count.

    Args:
        amount_bytes: how much.
        of: bytes whose unit is taken, so that what stands together has one; the amount's own if None.
    """
    unit = unit_of(abs(amount_bytes) if of is None else of)
    amount = amount_bytes / UNITS[unit]
    digits = max(0, min(3, 3 - math.floor(math.log10(abs(amount))))) if amount else 0
    return f"{amount:.{digits}f} {unit}"


def rounded(number: float, digits: int) -> float:
    """To so many digits after the point, without a sign where nothing is left."""
    return round(number, digits) + 0.0


def format_ms(time_ms: float) -> str:
    """Milliseconds with three digits where that helps: ``"812 ms"``, ``"8.12 ms"``."""
    digits = 0 if time_ms >= 100 else 1 if time_ms >= 10 else 2
    return f"{time_ms:,.{digits}f} ms"
