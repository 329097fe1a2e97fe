"""An explorer that has something to explain, compare and export."""

from __future__ import annotations

import pytest

from widgets import Explorer


@pytest.fixture
def tight(opened: Explorer) -> Explorer:
    """At a budget that needs recomputation."""
    assert opened._display.scene is not None
    low, high = opened._display.scene.known.instant[0].budget_bytes, opened._display.scene.keep_all.peak_bytes
    opened.budget_bytes = (low + high) // 2
    return opened.wait(60)
