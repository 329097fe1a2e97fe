"""Figures that cells show by plotly's own means, not by a widget."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go
import plotly.io

NO_SHARING = {"showSendToCloud": False}
"""Nothing leaves the page: no button that uploads a plot."""


class ShownFigure(go.Figure):
    """plotly's figure without the button that uploads it, as the last value of a cell as well."""

    def show(self, *args: Any, **options: Any) -> None:
        """As plotly does."""
        super().show(*args, **{"config": NO_SHARING, **options})

    def _ipython_display_(self) -> None:
        if plotly.io.renderers.render_on_display:
            self.show()
        else:
            super()._ipython_display_()
