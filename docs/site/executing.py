"""Notebooks executed, and their outputs as a page shows them without a kernel and without a network."""

from __future__ import annotations

import os
import re
from pathlib import Path

import nbformat
import plotly.io
from nbclient import NotebookClient

FIGURE = "application/vnd.plotly.v1+json"
WIDGET = "application/vnd.jupyter.widget-view+json"
_NO_WIDGET = "<p><em>Here the notebook shows a widget; run it to play.</em></p>"
_TIMEOUT_S = 600


def executed(path: Path, *, root: Path) -> nbformat.NotebookNode:
    """Run from top to bottom where it lies.

    Args:
        path: of the notebook.
        root: of the clone, which the kernel finds modules in.
    """
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=_TIMEOUT_S, resources={"metadata": {"path": str(path.parent)}}).execute()
    return notebook


def still(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The same with outputs for a page."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [_still(x) for x in cell.outputs if not _is_noise(x)]
    notebook.metadata.pop("widgets", None)
    return notebook


def _is_noise(output: nbformat.NotebookNode) -> bool:
    """Bars of progress and warnings of the machine are of no use on a page."""
    return output.output_type == "stream" and output.name == "stderr"


def _still(output: nbformat.NotebookNode) -> nbformat.NotebookNode:
    data = output.get("data", {})
    if FIGURE in data:
        figure = data.pop(FIGURE)
        shown = {"data": figure["data"], "layout": figure["layout"]}
        if "frames" in figure:
            shown["frames"] = figure["frames"]
        looks = {"include_plotlyjs": False, "full_html": False, "auto_play": False}
        html = plotly.io.to_html(shown, **looks, validate=False, config={"showSendToCloud": False})
        data["text/html"] = _when_loaded(html)
    if WIDGET in data:
        del data[WIDGET]
        data.setdefault("text/html", _NO_WIDGET)
    return output


def _when_loaded(html: str) -> str:
    """Draw once the page is there: its scripts, plotly's among them, come last."""
    parts = re.fullmatch(r"(.*<script[^>]*>)(.*)(</script>.*)", html, re.DOTALL)
    assert parts is not None, "plotly's HTML ends with a script"
    before, code, after = parts.groups()
    return f'{before}document.addEventListener("DOMContentLoaded", () => {{{code}}});{after}'
