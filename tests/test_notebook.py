"""The notebooks run from top to bottom, as a newcomer would run them."""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"


def executed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[nbformat.NotebookNode, str]:
    """The notebook after a run in an environment of its own, and what it printed."""
    for variable in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(NOTEBOOKS.parent), os.environ.get("PYTHONPATH", "")]))
    notebook = nbformat.read(NOTEBOOKS / name, as_version=4)
    NotebookClient(notebook, timeout=240, resources={"metadata": {"path": str(tmp_path)}}).execute()
    printed = "".join(
        output["text"]
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if output["output_type"] == "stream"
    )
    return notebook, printed


def test_explore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook, printed = executed("explore.ipynb", tmp_path, monkeypatch)
    assert "measured peak" in printed
    assert "step 2: loss" in printed
    first = next(cell for cell in notebook.cells if cell.cell_type == "code")
    assert "application/vnd.jupyter.widget-view+json" in first.outputs[0].data


def test_compare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook, printed = executed("compare.ipynb", tmp_path, monkeypatch)
    assert "Checkmate-D, aware of workspace" in printed
    assert "share of the peak without recomputation" in printed
    assert any(
        "application/vnd.plotly.v1+json" in output.get("data", {})
        for cell in notebook.cells
        for output in cell.get("outputs", ())
    )


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda x: x.stem)
def test_stores_no_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert not cell.outputs
            assert cell.execution_count is None
    assert "widgets" not in notebook.metadata
