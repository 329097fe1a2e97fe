"""Processes killed at random moments: no child outlives them, no answer is lost, and the next solve answers."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import patch

import psutil

import explorer
from explorer.solvers.service.cache import AnswerCache
from explorer.storage.cache_folder import VARIABLE
from tests.attack.files import FOUND
from tests.solvers.graphs import chain
from tests.solvers.hearing import between

SESSION = """
import sys, time
from explorer.solvers import SolveSession
from explorer.solvers.service.cache import AnswerCache
from tests.solvers.graphs import chain
from tests.solvers.hearing import between

if __name__ == "__main__":
    profile, number = chain(40), 0
    session = SolveSession(profile, on_event=lambda event: None, time_limit=0.3)
    while True:
        number += 1
        session.request(between(profile, 0.3 + 0.02 * number))
        print(session.worker_id, flush=True)
        time.sleep(0.5)
"""
_GONE_S = 120.0
_ROOT = Path(__file__).parents[2]


def attack(seed: int, folder: Path) -> str:
    """Kill a notebook's process, or its worker, at a random moment; ``folder`` holds the memory of solves."""
    draw = random.Random(seed)
    surroundings = {**os.environ, VARIABLE: str(folder), "PYTHONPATH": str(_ROOT)}
    memory = AnswerCache(folder)
    parent = subprocess.Popen([sys.executable, "-c", SESSION], env=surroundings, stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        family = psutil.Process(parent.pid).children(recursive=True)
        time.sleep(draw.uniform(0.0, 4.0))
        known = sum(x.answers for x in memory.contents())
        if draw.random() < 0.5:
            os.kill(worker, 9)
            if int(parent.stdout.readline()) < 0 or parent.poll() is not None:
                return f"{FOUND} the parent did not outlive its worker"
    except (ValueError, ProcessLookupError) as error:
        return f"{FOUND} {type(error).__name__}: {error}"
    finally:
        parent.kill()
        parent.communicate()
    until = time.monotonic() + _GONE_S
    while time.monotonic() < until and any(_alive(x) for x in family):
        time.sleep(0.05)
    if orphans := [x.pid for x in family if _alive(x)]:
        return f"{FOUND} {len(orphans)} orphans"
    if sum(x.answers for x in memory.contents()) < known:
        return f"{FOUND} an answer was lost"
    profile = chain(40)
    with patch.dict(os.environ, {VARIABLE: str(folder)}):
        after = explorer.solve(profile, budget=between(profile, 0.5), time_limit=0.2)
    return "held" if after.schedule is not None else f"{FOUND} the next solve: {after.message}"


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
