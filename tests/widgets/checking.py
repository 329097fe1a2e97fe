"""Figures as plotly's own classes see them."""

from __future__ import annotations

import plotly.graph_objects as go

from widgets.figures import Figure


def checked(figure: Figure) -> go.Figure:
    """The same; plotly raises ValueError where it does not know an attribute, or not such a value."""
    return go.Figure(figure.to_dict())
