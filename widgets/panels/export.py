"""The export panel: files to take away."""

from __future__ import annotations

import json

import ipywidgets

from explorer.analysis.tracing import chrome_trace
from explorer.harmless import in_html
from explorer.schedule import SCHEMA
from explorer.storage import storage_format
from widgets import text
from widgets.elements.downloads import Downloads
from widgets.panels.figures import figures
from widgets.panels.panel import PanelOwner
from widgets.scene.scene import EVERYTHING, Scene
from widgets.snippet import snippet

_TITLES = {
    "timeline": "Timeline",
    "trade_off": "Trade-off",
    "layers": "Layers",
    "implementations": "Implementations",
    "matrix": "Schedule matrix",
    "solver": "Solver",
}
_MISSING = {
    "implementations": "every operator of this model has one implementation",
    "solver": "nothing was solved yet",
}
_KINDS = ("png", "svg")


class ExportPanel:
    """Schedule, program, report, and pictures of the plots."""

    name = "export"
    title = "Export"
    question = "What can be taken away, and run elsewhere?"
    draws_from = EVERYTHING

    def __init__(self, owner: PanelOwner) -> None:
        """Nothing to save yet."""
        self._owner = owner
        self._scene: Scene | None = None
        files = [
            _button("schedule", "Schedule (JSON)", "Save the schedule as JSON"),
            _button("program", "Program (Python)", "Save the Python program that trains with the schedule"),
            _button("step", "Step (Python, torch alone)", "Save the step as one Python file that needs torch alone"),
            _button("report", "Report (HTML)", "Save a report that works without Python and without a network"),
            _button("animation", "Animation (HTML)", "Save a page that walks through the step by itself"),
            _button("trace", "Trace (Perfetto)", "Save the step as Chrome's trace events, which Perfetto opens"),
        ]
        pictures = [
            _button(f"{name}.{kind}", f"{title} {kind.upper()}", f"Save the plot {title} as {kind.upper()}")
            for name, title in _TITLES.items()
            for kind in _KINDS
        ]
        groups = [{"title": "Files", "buttons": files}, {"title": "Pictures of the plots", "buttons": pictures}]
        self.downloads = Downloads(groups, on_wanted=self.save)
        self.said = ipywidgets.HTML()
        self.box = ipywidgets.VBox([self.downloads, self.said])

    def show(self, scene: Scene) -> None:
        """Offer what is there."""
        self._scene = scene
        self.downloads.disabled = scene.solution is None or scene.solution.schedule is None

    def save(self, key: str) -> None:
        """Save what a button stands for; an error ends in the panel."""
        self.said.value = ""
        try:
            self._save(key)
        except Exception as error:  # noqa: BLE001 - the page has no other place for it
            self.said.value = f"<p role='alert'>{in_html(f'Could not save {key}: {text.failure(error)}')}</p>"

    def _save(self, key: str) -> None:
        scene = self._scene
        if scene is None or scene.solution is None or scene.solution.schedule is None:
            raise ValueError("there is no schedule yet; wait for the solver, or choose a larger budget")
        stem, bundled = self._owner.file_stem, self._owner.bundled
        file = f"{stem}.json"
        if key == "schedule":
            self.downloads.save(
                file, storage_format.text_of(scene.solution.schedule, schema=SCHEMA), "application/json"
            )
        elif key == "program":
            whole = scene.keep_all.peak_bytes
            program = snippet(scene.profile, scene.solution, file=file, bundled=bundled, of=whole)
            self.downloads.save(f"{stem}.py", program, "text/x-python")
        elif key == "report":
            self.downloads.save(f"{stem}.html", self._owner.to_html(), "text/html")
        elif key == "animation":
            self.downloads.save(f"{stem}-walk.html", self._owner.animation(), "text/html")
        elif key == "trace":
            trace = chrome_trace(scene.profile, scene.drawn, scene.measurement)
            self.downloads.save(f"{stem}-trace.json", json.dumps(trace), "application/json")
        elif key == "step":
            self._owner.write_step(lambda written: self.downloads.save(f"{stem}-step.py", written, "text/x-python"))
        else:
            name, _, kind = key.rpartition(".")
            drawn = figures(scene)
            if name not in drawn:
                raise ValueError(_MISSING[name])
            self.downloads.save_picture(f"{stem}-{name.replace('_', '-')}.{kind}", drawn[name].to_json(), kind)


def _button(key: str, label: str, name: str) -> dict[str, str]:
    return {"key": key, "label": label, "name": name}
