"""What several tests ask of an explorer and of its figures."""

from __future__ import annotations

import plotly.graph_objects as go

from explorer.solution import Status
from widgets import Explorer
from widgets.plots.figure import Figure

SOLVED = (Status.OPTIMAL, Status.FEASIBLE)


def checked(figure: Figure) -> go.Figure:
    """A figure as plotly's own classes see it: ValueError where they do not know an attribute, or not such a value."""
    return go.Figure(figure.to_dict())


def middle(opened: Explorer) -> int:
    """A budget between the smallest and the plain step's peak."""
    slider = opened._view.controls.slider
    return (slider.minimum_bytes + slider.maximum_bytes) // 2


def panel_of(explorer_: Explorer, name: str) -> object:
    """One of its panels, which shows what there is."""
    panel = explorer_._view.panels[name]
    assert explorer_._display.scene is not None
    panel.show(explorer_._display.scene)
    return panel
