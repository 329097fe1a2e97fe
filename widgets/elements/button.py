"""Buttons that look alike."""

from __future__ import annotations

import ipywidgets


def button(text: str, icon: str, tooltip: str) -> ipywidgets.Button:
    """A button as wide as its text, disabled."""
    layout = ipywidgets.Layout(width="auto")
    return ipywidgets.Button(description=text, icon=icon, tooltip=tooltip, disabled=True, layout=layout)
