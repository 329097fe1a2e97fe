"""A JupyterLab with private settings and a browser beside it, for what is seen in a page."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from playwright.sync_api import Browser, sync_playwright

from explorer.storage.cache_folder import VARIABLE
from tests.ui.lab import Lab


@contextmanager
def lab_and_browser() -> Iterator[tuple[Lab, Browser]]:
    """Both, ended afterwards; the notebooks are in a folder that goes with them."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        root, home = Path(folder, "notebooks"), Path(folder, "home")
        root.mkdir()
        home.mkdir()
        with patch.dict(os.environ, {VARIABLE: str(home / "solves")}):  # a budget never asked for is one indeed
            lab = Lab(root, home)
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        )
        try:
            yield lab, browser
        finally:
            browser.close()
            lab.stop()
