"""The panels that an explorer can show. To add one, write a class as ``panel.Panel`` says, and name it here."""

from __future__ import annotations

from collections.abc import Iterable

from explorer.arguments import several
from explorer.units import shown
from widgets.panels.addresses import AddressesPanel
from widgets.panels.compare import ComparePanel
from widgets.panels.explain import ExplainPanel
from widgets.panels.export import ExportPanel
from widgets.panels.graph import GraphPanel
from widgets.panels.implementations import ImplementationsPanel
from widgets.panels.layers import LayersPanel
from widgets.panels.matrix import MatrixPanel
from widgets.panels.panel import PanelMaker
from widgets.panels.solver import SolverPanel
from widgets.panels.timeline import TimelinePanel
from widgets.panels.trade_off import TradeOffPanel

MAIN: dict[str, PanelMaker] = {panel.name: panel for panel in (TimelinePanel, TradeOffPanel)}
"""Always in sight."""
TABS: dict[str, PanelMaker] = {
    panel.name: panel
    for panel in (
        LayersPanel,
        GraphPanel,
        ImplementationsPanel,
        MatrixPanel,
        AddressesPanel,
        SolverPanel,
        ExplainPanel,
        ComparePanel,
        ExportPanel,
    )
}
"""Behind tabs, in this order."""
PANELS = (*MAIN, *TABS)


def parse_panels(names: Iterable[str] | None) -> tuple[str, ...]:
    """Names of panels as a tuple, in the order in which they are shown; all for None.

    Raises:
        ValueError: a name is unknown; says which there are.
    """
    if names is None:
        return PANELS
    chosen = several(names, "panels", such_as="['timeline']")
    if unknown := [name for name in chosen if name not in PANELS]:
        raise ValueError(f"panels has {shown(unknown[0])}; allowed: {', '.join(map(repr, PANELS))}")
    return tuple(name for name in PANELS if name in chosen)
