"""A session that is used hard: slider positions in random order, then workers killed at random moments.

    python -m benchmarks.solver.soak [PROFILE] [--tier quick] [--positions 200] [--kills 50]

Every answer is judged by the simulator and must fit its budget, be no slower than what a smaller budget got before,
and come from the only worker alive. Prints how long first answers took, and the memory of the worker and of this
process after one whole solve (what is needed is loaded then) and after the last position; fails where that is more than
a tenth above. A worker that is killed while it solves must be reported, and another answer the same request.
"""

from __future__ import annotations

import argparse
import os
import queue
import random
import signal
import statistics
import time
from bisect import bisect_right

import psutil

from benchmarks.cases import Tier, add_tier
from benchmarks.provenance import record
from explorer import format_bytes, keep_all, load_profile, simulate, trade_off
from explorer.device_profile import Profile
from explorer.solution import Status
from explorer.solvers import SolveEvent, SolveSession

_PATIENCE_S = 60.0
_WHOLE_S = 10.0  # a solve
_MOST_GROWTH = 1.1
_LONGEST_LIFE_S = 4.0  # of a worker from its request to its death: it loads, searches, or is inside SCIP by then


def main() -> None:
    """Print one line for each part; raises where an answer is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profile", nargs="?", default="resnet50", help="path or bundled name (default: resnet50)")
    add_tier(parser)
    parser.add_argument("--positions", type=int, help="default: 200, or 20 if quick")
    parser.add_argument("--kills", type=int, help="default: 50, or 3 if quick")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    record(arguments, seeds=(arguments.seed,))
    positions, kills = (20, 3) if arguments.tier is Tier.QUICK else (200, 50)
    profile = load_profile(arguments.profile)
    Soak(profile, seed=arguments.seed).run(
        positions if arguments.positions is None else arguments.positions,
        kills if arguments.kills is None else arguments.kills,
    )


def memory_bytes(session: SolveSession) -> tuple[int, int]:
    """Resident memory of the worker and of this process."""
    assert session.worker_id is not None
    return psutil.Process(session.worker_id).memory_info().rss, psutil.Process().memory_info().rss


class Soak:
    """One session and what it said.

    Args:
        profile: what to solve.
        seed: of positions and moments.
    """

    def __init__(self, profile: Profile, *, seed: int) -> None:
        """Asks nothing yet."""
        self.profile = profile
        self.random = random.Random(seed)
        peak = simulate(profile, keep_all(profile.graph)).peak_bytes
        began = time.perf_counter()
        curve = trade_off(profile)
        print(f"the whole curve: {len(curve)} schedules in {time.perf_counter() - began:.2f} s")
        self.curve = curve
        self.range = (curve[0].budget_bytes, peak)
        self.heard: queue.Queue[tuple[float, SolveEvent]] = queue.Queue()
        self.shown: list[tuple[int, float]] = []  # budgets and times of all answers, by budget

    def run(self, positions: int, kills: int) -> None:
        """Both parts, one after the other."""
        with SolveSession(self.profile, on_event=self.note, time_limit=_WHOLE_S, remember=False) as session:
            opened = self.ask(session, whole=True)
            before = memory_bytes(session)
            waits = [self.ask(session) for _ in range(positions)]
            half, most, after = statistics.median(waits), max(waits), memory_bytes(session)
            print(f"opened: first answer in {opened:.2f} s")
            print(f"{positions} positions: first answers in {half:.2f} s (median), {most:.2f} s (longest)")
            for name, old, new in zip(("worker", "this process"), before, after, strict=True):
                print(f"  {name}: {format_bytes(old)} before, {format_bytes(new)} after (x {new / old:.2f})")
                assert new <= _MOST_GROWTH * old, name
            went_on = sum(self.kill(session) for _ in range(kills))
            print(
                f"{kills} kills: {went_on} in the middle of a solve, reported, and the same request answered after it"
            )
        print(f"{len(self.shown)} answers: all valid, within budget, and none slower than for a smaller budget before")

    def note(self, event: SolveEvent) -> None:
        """From the session's thread."""
        self.heard.put((time.perf_counter(), event))

    def ask(self, session: SolveSession, *, whole: bool = False) -> float:
        """One slider position; how long its first schedule took, in s. ``whole``: wait for the end of the solve."""
        began = time.perf_counter()
        return self.answered(session, self.request(session), whole=whole) - began

    def request(self, session: SolveSession) -> int:
        """Ask for some budget, as the widget does: with what its curve has for that."""
        budget = self.random.randint(*self.range)
        return session.request(budget, known=[x for x in self.curve if x.budget_bytes <= budget][-1])

    def answered(self, session: SolveSession, request: int, *, whole: bool = False) -> float:
        """When the worker of now had its first schedule for a request."""
        first: float | None = None
        while True:
            at, event = self.heard.get(timeout=_PATIENCE_S)
            if event.request == request and event.solution.schedule is not None and not event.restart:
                assert event.solution.status is not Status.FAILED, event.solution.message
                self.check(event)
                first = at if first is None else first
                if whole and not event.final:
                    continue
                workers = [x for x in psutil.Process().children() if x.status() != psutil.STATUS_ZOMBIE]
                assert [x.pid for x in workers] == [session.worker_id], workers
                return first

    def check(self, event: SolveEvent) -> None:
        """Judge an answer."""
        found = event.solution
        assert found.schedule is not None
        timeline = simulate(self.profile, found.schedule)
        assert timeline.peak_bytes <= found.budget_bytes
        at = bisect_right(self.shown, (found.budget_bytes, float("inf")))
        assert all(timeline.time_ms <= time_ms + 1e-6 for _, time_ms in self.shown[:at])
        self.shown.insert(at, (found.budget_bytes, timeline.time_ms))

    def kill(self, session: SolveSession) -> bool:
        """Kill the worker some time after a request; whether that was still being solved. Then an answer must come."""
        worker = session.worker_id
        assert worker is not None
        request = self.request(session)
        time.sleep(self.random.uniform(0.0, _LONGEST_LIFE_S))
        os.kill(worker, signal.SIGKILL)
        deadline = time.perf_counter() + _PATIENCE_S
        while session.worker_id == worker and time.perf_counter() < deadline:
            time.sleep(0.01)
        if session.worker_id is None:
            self.ask(session)
            return False
        while not self.heard.get(timeout=_PATIENCE_S)[1].restart:
            pass
        self.answered(session, request)
        return True


if __name__ == "__main__":
    main()
