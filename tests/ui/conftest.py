"""One JupyterLab and one browser for all tests here."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.ui.alone import empty_page
from tests.ui.lab import REPOSITORY, Lab, fresh_page
from tests.widgets.trained import Trained, train

_PATIENCE_MS = 60_000  # other tests run beside these, and solvers in them
_ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A running JupyterLab."""
    server = Lab(tmp_path_factory.mktemp("notebooks"), tmp_path_factory.mktemp("home"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium: what CHROMIUM names, else the one on the path, else playwright's own."""
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, headless=True, args=_ARGUMENTS)
        yield started
        started.close()


@pytest.fixture(scope="module")
def alone(browser: Browser) -> Iterator[Page]:
    """An empty page, for widgets by themselves."""
    page = browser.new_page()
    empty_page(page)
    yield page
    page.close()


@pytest.fixture(scope="session")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """Windows of a laptop's size; they share what they loaded, as a person's do."""
    made = browser.new_context(viewport={"width": 1440, "height": 1000})
    made.set_default_timeout(_PATIENCE_MS)
    expect.set_options(timeout=_PATIENCE_MS)
    yield made
    made.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """A fresh page."""
    with fresh_page(context) as opened:
        yield opened


@pytest.fixture(scope="session")
def shots() -> Path:
    """Where screenshots go; git does not see it."""
    folder = REPOSITORY / "test-output"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def trained() -> Trained:
    """A small model's profile."""
    return train()
