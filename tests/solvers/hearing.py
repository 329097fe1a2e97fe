"""What several tests ask of a session and of its worker."""

from __future__ import annotations

import os
import queue
import time
from pathlib import Path

from explorer import keep_all, simulate
from explorer.device_profile import Profile
from explorer.solvers import SolveEvent

PATIENCE_S = 120.0


class Heard:
    """Collects events; ``final`` waits for a request's last, ``restart`` for news of another worker."""

    def __init__(self) -> None:
        self.queue: queue.Queue[SolveEvent] = queue.Queue()
        self.events: list[SolveEvent] = []

    def next(self) -> SolveEvent:
        event = self.queue.get(timeout=PATIENCE_S)
        self.events.append(event)
        return event

    def final(self, request: int) -> SolveEvent:
        while not ((event := self.next()).final and event.request == request):
            pass
        return event

    def restart(self) -> SolveEvent:
        while not (event := self.next()).restart:
            assert not event.final
        return event


def between(profile: Profile, share: float) -> int:
    peak = simulate(profile, keep_all(profile.graph)).peak_bytes
    return round(profile.fixed_bytes + share * (peak - profile.fixed_bytes))


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
        # What was killed and not waited for is still in the table, until someone waits: maybe between these two lines.
        return Path(f"/proc/{process}/stat").read_text().split()[2] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def gone(process: int) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while alive(process) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not alive(process)
