"""Every notebook runs from top to bottom, as a newcomer would run it."""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").rglob("*.ipynb"))
COURSE = (
    *("1-memory-of-a-step", "2-recompute-by-hand", "3-grouping-merging-bounds", "4-annealing-and-branch-and-bound"),
    *("5-implementations", "6-addresses-and-fragmentation", "7-whole-iterations"),
)
PAPERS = ("checkmate", "model", "monet", "rotor")
LESSONS = [x for x in NOTEBOOKS if x.stem in (*COURSE, *PAPERS, "teach-checkpointing")]
"""Run by ``test_notebook_lessons``, beside the others."""
PRINTED = {
    **dict.fromkeys(COURSE, "answers hold"),
    **dict.fromkeys(PAPERS, ""),  # tests/test_papers.py knows what they show
    "compare": "share of the peak without recomputation",
    "convolutions": "with a choice",
    "language-models": "tokens within",
    "sweep": "samples/s",
    "teach-checkpointing": "answers hold",
    "train": "measured peak",
    "your-model": "measured peak",
}
IN_A_BROWSER = {"app", "explore"}
"""What the tests of the widget in a browser run from top to bottom (``test_app``, ``test_explore``)."""
WIDGET = "application/vnd.jupyter.widget-view+json"
PLOT = "application/vnd.plotly.v1+json"
DRAWN = {
    **dict.fromkeys((*COURSE, *PAPERS, "compare", "sweep", "teach-checkpointing"), PLOT),
    "2-recompute-by-hand": WIDGET,
    "5-implementations": "",
    "7-whole-iterations": "",
    "train": WIDGET,
    "3-grouping-merging-bounds": "",
}
"""What a notebook draws, if not an explorer."""
FOR_TESTS_ALONE = (
    *("accelerate", "build", "hypothesis", "lightning", "PIL", "playwright", "pyright", "pytest", "transformers"),
    *("pytest_timeout", "ruff", "xdist"),
)
"""What ``make explore`` does not install: no notebook may need it."""
_SENTENCE = 40
"""Characters of what is long enough to be a sentence of its own."""
QUICK = {
    "4-annealing-and-branch-and-bound": "SECONDS = 2.0",
    "compare": "SECONDS = 1.0",
    "language-models": "SECONDS, LONGEST = 0.3, 8192",
    "sweep": "BATCHES, SECONDS = [8], 0.5",
    "train": "ITERATIONS = 11",
}
"""What follows a notebook's cell with the tag ``parameters``, as by Papermill: all run in less than five minutes."""


def test_each_has_a_test():
    assert {path.stem for path in NOTEBOOKS} == PRINTED.keys() | IN_A_BROWSER


@pytest.mark.parametrize(
    "path", [x for x in NOTEBOOKS if x not in LESSONS and x.stem not in IN_A_BROWSER], ids=lambda path: path.stem
)
def test_runs_from_top_to_bottom(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_notebook(path, tmp_path, monkeypatch)


def check_notebook(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs, quickly where it may, and shows what it is about."""
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    notebook = nbformat.read(path, as_version=4)
    without = f"import sys; sys.modules |= dict.fromkeys({FOR_TESTS_ALONE})"
    if path.stem in QUICK:
        (place,) = (n for n, x in enumerate(notebook.cells) if "parameters" in x.metadata.get("tags", ()))
        notebook.cells.insert(place + 1, nbformat.v4.new_code_cell(QUICK[path.stem]))
    notebook.cells.insert(0, nbformat.v4.new_code_cell(without))
    NotebookClient(notebook, timeout=500, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    printed = "".join(output["text"] for output in outputs if output["output_type"] == "stream")
    assert PRINTED[path.stem] in printed
    shown = [output.data for output in outputs if output["output_type"] in ("execute_result", "display_data")]
    drawn = DRAWN.get(path.stem, WIDGET)
    # What GitHub and nbviewer show of an explorer is its picture, in an output of its own.
    if path.stem not in DRAWN:
        assert any("<svg" in bundle.get("text/html", "") for bundle in shown)
    assert not drawn or any(drawn in bundle for bundle in shown)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stores_no_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert not cell.outputs
            assert cell.execution_count is None
    assert "widgets" not in notebook.metadata


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_says_nothing_twice(path: Path) -> None:
    cells = [x.source for x in nbformat.read(path, as_version=4).cells if x.cell_type == "markdown"]
    headings = [x for cell in cells for x in cell.splitlines() if x.startswith("#")]
    assert len(headings) == len(set(headings))
    sentences = [x for cell in cells for x in cell.replace("\n", " ").split(". ") if len(x) > _SENTENCE]
    assert len(sentences) == len(set(sentences))
