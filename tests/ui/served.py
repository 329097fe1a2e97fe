"""A server of our own for the app, started as ``make app`` does."""

from __future__ import annotations

import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.ui.lab import REPOSITORY, _arguments, _environment, _free_port

_START_S = 90


@dataclass(frozen=True)
class Served:
    """A running server.

    Attributes:
        port: where.
        process: it.
        log: what it says.
    """

    port: int
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def url(self) -> str:
        """Of the page."""
        return f"http://127.0.0.1:{self.port}/"

    def processes(self, word: str) -> list[psutil.Process]:
        """What runs below the server with ``word`` among its arguments.

        A child that was forked and is about to become another program has its parent's arguments still: it is not one
        more of these.
        """
        below = psutil.Process(self.process.pid).children(recursive=True)
        said = {process.pid: _arguments(process) for process in below}
        asked_for = [process for process in below if word in said[process.pid]]
        return [process for process in asked_for if said[process.pid] != said.get(_parent(process))]


@contextmanager
def served(home: Path, *options: str) -> Iterator[Served]:
    """The app that the Makefile names, with its settings and some more, until the end of the block."""
    makefile = (REPOSITORY / "Makefile").read_text()
    assert re.search(r"-m widgets\.serving \$\(APP\)", makefile)
    notebook = re.search(r"^APP := (\S+)", makefile, re.MULTILINE)
    assert notebook is not None
    port, said = _free_port(), home / "voila.log"
    command = [sys.executable, "-m", "widgets.serving", str(REPOSITORY / notebook[1]), f"--port={port}"]
    with said.open("w") as log:
        process = subprocess.Popen(
            [*command, "--Voila.ip=127.0.0.1", "--no-browser", *options],
            env=_environment(home),
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            _wait(f"http://127.0.0.1:{port}/voila/static/voila.js", process, said)
            yield Served(port, process, said)
        finally:
            process.terminate()
            process.wait(30)


def _parent(process: psutil.Process) -> int:
    """Its process id; its own where it has just ended, for whom the system then has none."""
    try:
        return process.ppid()
    except psutil.NoSuchProcess:
        return process.pid


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except urllib.error.HTTPError as error:
            error.close()
            return  # it answers, whatever it thinks of that path
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise TimeoutError(log.read_text())
