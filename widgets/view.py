"""The widgets of one explorer, and how they are redrawn. Called from several threads, one at a time."""

from __future__ import annotations

from collections.abc import Iterable
from threading import RLock

import ipywidgets

from explorer.harmless import in_html
from widgets import text
from widgets.elements.controls import Controls
from widgets.elements.icons import icons
from widgets.elements.plot import Library
from widgets.notebook.picture import hiding
from widgets.panels.catalogue import MAIN, TABS
from widgets.panels.panel import Panel, PanelOwner
from widgets.scene.curve import headline_table
from widgets.scene.layers import module_paths
from widgets.scene.packed import packed_json
from widgets.scene.scene import Scene

_WAITING = "schedule-explorer-waiting"
"""Class of a panel that could be drawn and never was: the page says so where the kernel, busy with a cell, does not."""


class View:
    """Controls above the panels: some always in sight, the others behind tabs.

    Args:
        owner: whom the panels serve.
        controls: above them.
        title: shown until a profile is there.
        panels: their names.
        mark: of what is hidden while this is on the page, see ``notebook.picture``.
    """

    def __init__(self, owner: PanelOwner, *, controls: Controls, title: str, panels: Iterable[str], mark: str) -> None:
        """Nothing is drawn yet."""
        self.controls = controls
        controls.status.on_msg(lambda *_: self._tell_again())
        self.panels: dict[str, Panel] = {name: (MAIN | TABS)[name](owner) for name in panels}
        self._lock = RLock()
        self._scene: Scene | None = None
        self._drawn: dict[str, Scene] = {}
        self._tabbed = [name for name in self.panels if name in TABS]
        self._hiding = hiding(mark) + icons(self._tabbed)
        self._heading = ipywidgets.HTML(self._hiding + in_html(title))
        self._heading.add_class("schedule-explorer-heading")
        tabs = [self.panels[name] for name in self._tabbed]
        self._behind = {x.name: _behind(x) for x in tabs}
        self._tabs = ipywidgets.Tab([*self._behind.values()], titles=[x.title for x in tabs])
        self._tabs.observe(lambda _: self._draw(self._in_sight()), "selected_index")
        main = ipywidgets.Box([x.box for name, x in self.panels.items() if name in MAIN])
        main.add_class("schedule-explorer-main")
        below = [main, self.controls.figures, *([self._tabs] if tabs else [])]
        self.box = ipywidgets.VBox([self._heading, self.controls.box, *below, Library()])
        self.box.add_class("schedule-explorer")

    def show(self, scene: Scene) -> None:
        """Draw a scene; a panel behind a tab once that is opened."""
        with self._lock:
            if self._scene is None or self._scene.profile is not scene.profile:
                self._heading.value = self._hiding + in_html(text.heading(scene.profile))
                self.controls.layer.options = [("none", ""), *((x, x) for x in module_paths(scene.profile.graph))]
                self.mark(scene.selection)
            figures = text.figures(scene)
            if scene.residual is not None:
                told = text.residual(scene.profile, scene.drawn, scene.residual)
                figures += f"<p class='residual'>{in_html(told)}</p>"
            self.controls.figures.value = figures
            self.controls.headline.tell(*text.headline(scene), known=packed_json(headline_table(scene)))
            if self._scene is None:
                for box in self._behind.values():
                    box.add_class(_WAITING)
            self._scene = scene
            self._draw(self._in_sight())

    def mark(self, layer: str) -> None:
        """Bring the list of layers in line. Not with each scene: an older one would undo what was just chosen there."""
        with self._lock:
            if layer in dict(self.controls.layer.options).values():
                self.controls.layer.value = layer

    def close(self) -> None:
        """Remove everything from the page and free it."""
        with self._lock:
            self._scene = None
            for widget in _all(self.box):
                widget.close()

    def _tell_again(self) -> None:
        """Send what all widgets are, to a page that was built from earlier states and may have missed what followed."""
        with self._lock:
            for widget in _tree(self.box):
                # The library never changes, and is the largest by far.
                if widget is not self.controls.status and not isinstance(widget, Library):
                    widget.send_state()
        self.controls.say_again()

    def _in_sight(self) -> set[str]:
        hidden = set(self._tabbed)
        if self._tabs.selected_index is not None:
            hidden.discard(self._tabbed[self._tabs.selected_index])
        return set(self.panels) - hidden

    def _draw(self, names: set[str]) -> None:
        with self._lock:
            if self._scene is None:
                return
            for name in [name for name in self.panels if name in names]:
                if self._outdated(name, self._scene):
                    self.panels[name].show(self._scene)
                    self._drawn[name] = self._scene
                    if name in self._behind:
                        self._behind[name].remove_class(_WAITING)

    def _outdated(self, name: str, scene: Scene) -> bool:
        """Is anything new that a panel draws from?"""
        before = self._drawn.get(name)
        parts = self.panels[name].draws_from
        return before is None or not all(_same(getattr(before, part), getattr(scene, part)) for part in parts)


def _behind(panel: Panel) -> ipywidgets.VBox:
    """A panel below the question that it answers."""
    question = ipywidgets.HTML(in_html(panel.question))
    question.add_class("schedule-explorer-question")
    return ipywidgets.VBox([question, panel.box])


def _same(before: object, after: object) -> bool:
    """Are two parts of scenes the same object, or equal where that is quick to say?"""
    return before is after or (isinstance(before, int | str) and before == after)


def _all(box: ipywidgets.Widget) -> list[ipywidgets.Widget]:
    """A widget, those in it, and what came with them."""
    looks = [getattr(widget, name, None) for widget in _tree(box) for name in ("layout", "style")]
    return [*(look for look in looks if isinstance(look, ipywidgets.Widget)), *_tree(box)]


def _tree(box: ipywidgets.Widget) -> list[ipywidgets.Widget]:
    """A widget and those in it, the lowest first."""
    return [*(found for child in getattr(box, "children", ()) for found in _tree(child)), box]
