"""The course's and the papers' notebooks run from top to bottom, at the same time as those of ``test_notebook``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_notebook import LESSONS, check_notebook


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_runs_from_top_to_bottom(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_notebook(path, tmp_path, monkeypatch)
