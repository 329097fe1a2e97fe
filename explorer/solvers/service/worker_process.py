"""The process that solves, as the notebook's side sees it.

It is this interpreter running ``explorer.solvers.service.worker``, started as a program, not forked and not through
``multiprocessing``: it imports neither torch nor the user's script.
"""

from __future__ import annotations

import os
import pickle
import queue
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import IO

from explorer.solvers.service.messages import Setup, SolveEvent

_STDERR_LINES = 3
_EXIT_S = 1.0
_LOG_BYTES = 1 << 16
_LOG_VARIABLE = "SCHEDULE_EXPLORER_SCIP_LOG"  # as explorer.solvers.programs.scip has it, which imports SCIP


class WorkerProcess:
    """A running worker process and the three threads that write to it, read from it and read its errors.

    Args:
        setup: what to solve.
        on_event: called with what it says, from one of the threads.
        on_death: called likewise, last, with what it died of, unless it was closed.
        held: nothing is called before ``hear``.
    """

    def __init__(
        self,
        setup: Setup,
        on_event: Callable[[SolveEvent], None],
        on_death: Callable[[WorkerProcess, str], None],
        *,
        held: bool = False,
    ) -> None:
        """Starts it."""
        self.on_event, self.on_death = on_event, on_death
        root = str(Path(__file__).resolve().parents[3])  # of the very package that asks
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        self.log = tempfile.NamedTemporaryFile(prefix="schedule-explorer-", suffix=".log")  # noqa: SIM115 - until closed
        self.log_start = 0
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "explorer.solvers.service.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), _LOG_VARIABLE: self.log.name},
            # An interrupt of the notebook's cell is not meant for the solver: a process group of its own. Not a session
            # of its own, which Linux would give as much of the processor as all of the notebook, however nice it is.
            process_group=0,
        )
        self.closing = False
        self.heard = threading.Event()
        if not held:
            self.hear()
        self.errors: deque[str] = deque(maxlen=_STDERR_LINES)
        self.outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.send(setup)
        self.threads = [
            threading.Thread(target=target, name=f"solver {name}", daemon=True)
            for name, target in (
                ("requests", self._write),
                ("errors", self._read_errors),
                ("events", self._read),
            )
        ]
        try:
            for thread in self.threads:
                thread.start()
        except RuntimeError:  # no more threads
            self.process.kill()
            raise

    def hear(self) -> None:
        """Call ``on_event`` and ``on_death`` from now on."""
        self.heard.set()

    def send(self, message: object) -> None:
        """Queue a message; the caller never waits for the pipe."""
        # Pickled here: what it holds may gain cached values while another thread would pickle it.
        self.outbox.put(pickle.dumps(message))

    def forget_log(self) -> None:
        """Leave what SCIP said so far out of ``read_log``."""
        self.log_start = os.fstat(self.log.fileno()).st_size

    def read_log(self) -> str:
        """What SCIP said since, whole lines, at most about ``_LOG_BYTES`` from the end."""
        end = os.fstat(self.log.fileno()).st_size
        start = max(self.log_start, end - _LOG_BYTES)
        text = os.pread(self.log.fileno(), end - start, start).decode(errors="replace")
        return text if start == self.log_start else text.partition("\n")[2]

    def close(self) -> None:
        """End the process and wait for the threads."""
        self.closing = True
        self.outbox.put(None)
        self.hear()
        try:
            self.process.wait(_EXIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for thread in self.threads:
            if thread is not threading.current_thread():
                thread.join(_EXIT_S)
        self.log.close()

    def _write(self) -> None:
        stream = _pipe(self.process.stdin)
        # Closing the pipe is what tells the worker to exit.
        try:
            with stream:
                while (message := self.outbox.get()) is not None:
                    stream.write(message)
                    stream.flush()
        except OSError:
            pass  # it died; the reader of its events says so

    def _read_errors(self) -> None:
        stream = _pipe(self.process.stderr)
        with stream:
            for line in stream:
                self.errors.append(line.decode(errors="replace").strip())

    def _read(self) -> None:
        stream = _pipe(self.process.stdout)
        self.heard.wait()
        with stream:
            while True:
                try:
                    event = pickle.load(stream)  # noqa: S301 - from our own process
                except (EOFError, pickle.UnpicklingError, OSError):
                    break
                self.on_event(event)
        self.outbox.put(None)
        code = self.process.wait()
        self.threads[1].join(_EXIT_S)
        if not self.closing:
            reason = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
            said = "; ".join(filter(None, self.errors))
            self.on_death(self, f"{reason}: {said}" if said else reason)


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None, "every stream of the worker is a pipe"
    return stream
