"""A JupyterLab of our own, and what a test does in it."""

from __future__ import annotations

import ast
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from playwright.sync_api import BrowserContext, Locator, Page, expect

REPOSITORY = Path(__file__).parents[2]
_START_S = 90
_ANSWER_S = 240
_GIVEN_UP = "[anywidget] Failed to initialize model."
_IDLE = """() => {
  const session = window.jupyterapp?.shell.currentWidget?.sessionContext;
  return session?.isReady && session.session?.kernel?.status === "idle";
}"""

# The answer is part of the reply. What a kernel prints is not: on a busy machine that comes as if printed by what is
# asked next, and was read as the answer to that.
_ASK = """async (expression) => {
  const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
  const future = kernel.requestExecute({ code: "", store_history: false, user_expressions: { answer: expression } });
  const late = new Promise((_, no) => setTimeout(() => no(new Error(`no answer to ${expression}`)), 240_000));
  const { content } = await Promise.race([future.done, late]);
  const answer = content.user_expressions?.answer;
  if (answer?.status !== "ok") throw new Error(answer?.evalue ?? `no answer to ${expression}: ${content.status}`);
  return answer.data["text/plain"];
}"""


_THREADS = """'\\n'.join(
    ''.join(__import__('traceback').format_stack(frame)) for frame in __import__('sys')._current_frames().values()
)"""


class Lab:
    """A server with private settings, on a free port, showing ``root``."""

    def __init__(self, root: Path, home: Path) -> None:
        self.root = root
        self._log = (home / "lab.log").open("w")
        _settle(home)
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1"),
                *(f"--port={self.port}", "--ServerApp.port_retries=0", f"--ServerApp.root_dir={root}"),
                *("--IdentityProvider.token=", "--ServerApp.password=", "--LabApp.expose_app_in_browser=True"),
            ],
            env=_environment(home),
            cwd=root,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        try:
            self._wait()
        except Exception:
            self.stop()
            raise

    def stop(self) -> None:
        """End the server and its kernels."""
        self._process.terminate()
        self._process.wait(30)
        self._log.close()

    def open(self, page: Page, notebook: str, *, fresh: bool = True) -> None:
        """Show a notebook and wait for its kernel; ``fresh`` forgets the layout of an earlier page."""
        page.goto(f"{self.url}/lab/tree/{notebook}{'?reset' if fresh else ''}")
        page.wait_for_function(_IDLE, timeout=_START_S * 1000)

    def come_back(self, page: Page, notebook: str, shown: Locator) -> None:
        """Show a notebook again, and once more for as long as its kernel is too busy to tell JupyterLab of its widgets.

        JupyterLab says "model not found" after two seconds and leaves it at that; a person would reload the page.
        """
        deadline = time.monotonic() + _ANSWER_S
        while True:
            self.open(page, notebook, fresh=False)
            given_up = page.get_by_text("model not found")
            expect(shown.or_(given_up).first).to_be_visible(timeout=_ANSWER_S * 1000)
            if shown.is_visible():
                return
            assert time.monotonic() < deadline, f"the kernel never told of its widgets\n{self.threads(page)}"

    def run_all(self, page: Page) -> None:
        """Run all cells; returns when the last has ended."""
        page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-all-cells')")

    def ask(self, page: Page, expression: str) -> str:
        """What the kernel of the notebook shown has for an expression, as ``str``."""
        return ast.literal_eval(page.evaluate(_ASK, f"str({expression})")).strip()

    def ask_until(self, page: Page, expression: str, wanted: str) -> None:
        """Wait for an answer of the kernel: what a page says of a solve may be of the one before."""
        deadline = time.monotonic() + _ANSWER_S
        while (answer := self.ask(page, expression)) != wanted:
            assert time.monotonic() < deadline, f"{expression} is {answer}, not {wanted}\n{self.threads(page)}"
            page.wait_for_timeout(200)

    def threads(self, page: Page) -> str:
        """Where the threads of the kernel of the notebook shown are, for those who wonder what it waits for."""
        return self.ask(page, _THREADS)

    def processes(self, word: str) -> list[psutil.Process]:
        """What runs below the server with ``word`` among its arguments."""
        below = psutil.Process(self._process.pid).children(recursive=True)
        return [process for process in below if word in _arguments(process)]

    def _wait(self) -> None:
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            assert self._process.poll() is None, f"JupyterLab ended: {Path(self._log.name).read_text()}"
            try:
                with urllib.request.urlopen(f"{self.url}/api/status", timeout=2) as answer:
                    json.load(answer)
            except (urllib.error.URLError, OSError):
                time.sleep(0.2)
            else:
                return
        raise TimeoutError(f"JupyterLab did not answer: {Path(self._log.name).read_text()}")


def complaints(page: Page) -> list[str]:
    """What a page complains about from now on: it grows.

    anywidget gives a script up that is not there within two seconds, as on a busy machine, and says so for each message
    of the kernel that it drops; our widgets hear again once it is there (tests/ui/test_late.py).
    """
    found: list[str] = []
    page.on("pageerror", lambda error: None if _GIVEN_UP in str(error) else found.append(str(error)))
    return found


@contextmanager
def fresh_page(context: BrowserContext) -> Iterator[Page]:
    """A page; what it started in the lab ends with it."""
    opened = context.new_page()
    yield opened
    opened.evaluate("() => window.jupyterapp?.serviceManager.sessions.shutdownAll()")
    opened.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _environment(home: Path) -> dict[str, str]:
    """Nothing of the user's own Jupyter is read or written."""
    folders = {
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_DATA_DIR": "data",
        "JUPYTER_RUNTIME_DIR": "runtime",
        "JUPYTERLAB_SETTINGS_DIR": "settings",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
        "IPYTHONDIR": "ipython",
    }
    private = {name: str(home / folder) for name, folder in folders.items()}
    path = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
    return {**os.environ, **private, "PYTHONPATH": path, "OMP_WAIT_POLICY": "passive"}


def _settle(home: Path) -> None:
    """No pop-ups about news, no side bar over the notebook."""
    settings = home / "settings" / "@jupyterlab"
    for name, content in {
        "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False, "doNotDisturbMode": True},
    }.items():
        path = settings / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))


def _arguments(process: psutil.Process) -> list[str]:
    """Of a process that may have ended just now: none then."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []
