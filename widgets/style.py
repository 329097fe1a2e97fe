"""Colours, marks and units. Okabe-Ito colours, told apart by dash, hatch or symbol as well."""

from __future__ import annotations

import numpy as np

from explorer.timeline import Category, Stage

GIB = 2**30

BLUE, SKY, GREEN, YELLOW = "#0072B2", "#56B4E9", "#009E73", "#F0E442"
ORANGE, VERMILLION, PURPLE = "#E69F00", "#D55E00", "#CC79A7"
LIGHT_VERMILLION = "#F0B090"
TEXT = "#777777"
"""Mid-grey: readable on JupyterLab's white and on its black."""
FAINT = "rgba(128, 128, 128, 0.22)"

CATEGORY_COLOUR = {
    Category.PARAMETERS: "#6B6B6B",
    Category.BUFFERS: "#8C8C8C",
    Category.INPUTS: "#ABABAB",
    Category.OPTIMIZER_STATE: "#C9C9C9",
    Category.PARAMETER_GRADIENTS: BLUE,
    Category.SAVED: ORANGE,
    Category.RECOMPUTED: VERMILLION,
    Category.TEMPORARIES: YELLOW,
    Category.ACTIVATION_GRADIENTS: SKY,
    Category.WORKSPACE: PURPLE,
}
CATEGORY_HATCH = {Category.RECOMPUTED: "/", Category.WORKSPACE: ".", Category.OPTIMIZER_STATE: "x"}
STAGE_SHADE = {
    Stage.FORWARD: "rgba(0, 158, 115, 0.16)",
    Stage.RECOMPUTE: "rgba(213, 94, 0, 0.30)",
    Stage.BACKWARD: "rgba(0, 114, 178, 0.16)",
    Stage.UPDATE: "rgba(204, 121, 167, 0.24)",
}
STAGE_HATCH = {Stage.FORWARD: "", Stage.RECOMPUTE: "/", Stage.BACKWARD: "", Stage.UPDATE: ""}


def to_gib(amount_bytes: float | np.ndarray) -> np.ndarray:
    """Bytes as GiB, float64, for an axis."""
    return np.asarray(amount_bytes, dtype=np.float64) / GIB


def format_gib(amount_bytes: float) -> str:
    """As ``"0.312 GiB"``, with three digits that count where the amount is small."""
    amount = amount_bytes / GIB
    return f"{amount:{'.3f' if abs(amount) >= 0.1 else '.3g'}} GiB"


def format_ms(time_ms: float) -> str:
    """Milliseconds with three digits where that helps: ``"812 ms"``, ``"8.12 ms"``."""
    digits = 0 if time_ms >= 100 else 1 if time_ms >= 10 else 2
    return f"{time_ms:,.{digits}f} ms"
