"""One architecture through the whole flow: capture, profile, solve at several budgets, train, measure."""

from __future__ import annotations

import re
import time
import traceback
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import explorer
from benchmarks.timing_in_turns import median_times_ms
from benchmarks.zoo.comparing import bits, distance
from benchmarks.zoo.specimen import Specimen
from explorer.execution.checking import CheckFailedError
from explorer.execution.scheduled import StepPlan
from explorer.execution.steps import step_of, unchanged

SHARES = (0.1, 0.4, 0.75)
"""Budgets: shares of the way from the smallest feasible one to PyTorch's peak."""


@dataclass(frozen=True)
class Trial:
    """One schedule of one architecture.

    Attributes:
        mode: ``"keep all"``, ``"exact"`` or ``"joint"``.
        share: of the way from the smallest feasible budget to PyTorch's peak; None for keep-all.
        budget_bytes: what the schedule had to fit.
        status: the solver's; with its message where there is no schedule.
        solve_s: seconds that solving took.
        predicted_peak_bytes: by the simulator.
        measured_peak_bytes: of a real step.
        predicted_time: of a step, relative to eager mode.
        measured_time: the same, measured in turns with eager mode.
        difference: the first bit that differs (exact), or the first tensor beyond the tolerance (joint); None if none.
        off: joint only: the largest share of a gradient that the step is off by from double precision.
        off_eager: the same for eager mode.
        error: what was raised, where something was.
    """

    mode: str
    share: float | None
    budget_bytes: int | None = None
    status: str = ""
    solve_s: float = 0.0
    predicted_peak_bytes: int | None = None
    measured_peak_bytes: int | None = None
    predicted_time: float | None = None
    measured_time: float | None = None
    difference: str | None = None
    off: float | None = None
    off_eager: float | None = None
    error: str | None = None

    @property
    def peak_error(self) -> float | None:
        """Predicted over measured peak, less one."""
        if self.predicted_peak_bytes is None or self.measured_peak_bytes is None:
            return None
        return self.predicted_peak_bytes / self.measured_peak_bytes - 1

    @property
    def faults(self) -> list[str]:
        """What is wrong with it, in words; empty if nothing is."""
        found = [x for x in (self.error, self.difference) if x is not None]
        if not self.error and self.predicted_peak_bytes is None:
            found.append(f"no schedule: {self.status}")
        if self.peak_error is not None and abs(self.peak_error) > 0.001:
            found.append(f"peak error {self.peak_error:+.2%}")
        return found


@dataclass(frozen=True)
class Result:
    """One architecture.

    Attributes:
        name: of the specimen.
        refusal: the error by which it was not captured or profiled; None if it was.
        operators: of the captured step.
        capture_s: seconds for capture and profile.
        eager_peak_bytes: measured.
        eager_ms: duration of a step of eager mode, as profiled.
        smallest_bytes: smallest feasible budget by mode.
        trials: one for each schedule.
        seconds: in all.
    """

    name: str
    refusal: str | None = None
    operators: int = 0
    capture_s: float = 0.0
    eager_peak_bytes: int = 0
    eager_ms: float = 0.0
    smallest_bytes: dict[str, int] = field(default_factory=dict)
    trials: tuple[Trial, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True)
class Options:
    """How thoroughly to look.

    Attributes:
        shares: budgets, as ``SHARES``.
        steps: of training for each schedule.
        time_limit: seconds of each solve.
        rounds: turns of eager and scheduled steps for the times; 0 leaves times out.
    """

    shares: tuple[float, ...] = SHARES
    steps: int = 3
    time_limit: float = 0.5
    rounds: int = 5

    @classmethod
    def quick(cls) -> Options:
        """One budget, two steps, no times."""
        return cls(shares=(0.4,), steps=2, rounds=0)


def run(specimen: Specimen, options: Options) -> Result:
    """Everything about one architecture; errors are part of the result."""
    began = time.perf_counter()
    model, batch = specimen.model(), specimen.sample(0)
    try:
        with specimen.precision():
            profile = explorer.profile(model, batch, loss=specimen.loss)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what the user would see
        return Result(specimen.name, refusal=_told(error), seconds=time.perf_counter() - began)
    captured = time.perf_counter() - began
    bench = _Bench(specimen, options, profile)
    keep_all = explorer.keep_all(profile.graph)
    trials = [bench.tried("keep all", None, keep_all)]
    peak = explorer.simulate(profile, keep_all).peak_bytes
    smallest: dict[str, int] = {}
    for mode in ("exact", "joint") if bench.module is not None else ():
        try:
            least = smallest[mode] = bench.smallest(mode) or peak
        except Exception as error:  # noqa: BLE001 - as above
            trials.append(Trial(mode, 0.0, error=_told(error)))
            continue
        trials += [bench.solved(mode, share, int(least + share * (peak - least))) for share in options.shares]
    return Result(
        name=specimen.name,
        operators=len(profile.graph.operators),
        capture_s=captured,
        eager_peak_bytes=profile.eager_peak_bytes or 0,
        eager_ms=profile.eager_time_ms or 0.0,
        smallest_bytes=smallest,
        trials=tuple(trials),
        seconds=time.perf_counter() - began,
    )


def _told(error: BaseException) -> str:
    """An error as a user reads it, with where it was raised if it is not meant for users."""
    said = re.sub(r"(?:/[^\s:/]+)+/(?=[^\s:/]+\.py:)", "", f"{type(error).__name__}: {error}")
    if isinstance(error, ValueError):
        return said
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{said} [{last.filename.rsplit('/', 2)[-1]}:{last.lineno} {last.name}]"


class _Bench:
    """What all schedules of one architecture have in common."""

    def __init__(self, specimen: Specimen, options: Options, profile: explorer.Profile) -> None:
        self.specimen = specimen
        self.options = options
        self.profile = profile
        self.batch = specimen.sample(0)
        self.start = specimen.model().state_dict()
        self.module: explorer.ScheduledModule | None = None

    def solution(self, mode: str, budget: int) -> explorer.Solution:
        """In the time given; where nothing was found in it, by a search that takes what it takes."""
        solve = partial(explorer.solve, self.profile, budget=budget, exact=mode == "exact", remember=False)
        found = solve(time_limit=self.options.time_limit)
        return found if found.schedule is not None else solve(steps=1)

    def smallest(self, mode: str) -> int | None:
        """The smallest budget that is known to be feasible: what the refusal of one byte names."""
        refused = explorer.solve(self.profile, budget=1, exact=mode == "exact", steps=1, remember=False)
        return None if refused.minimum is None else refused.minimum.budget_bytes

    def solved(self, mode: str, share: float, budget: int) -> Trial:
        """Solve for a budget and try what was found."""
        start = time.perf_counter()
        try:
            solution = self.solution(mode, budget)
        except Exception as error:  # noqa: BLE001 - as in run
            return Trial(mode, share, budget, error=_told(error))
        took = time.perf_counter() - start
        if solution.schedule is None:
            return Trial(mode, share, budget, status=f"{solution.status.value}: {solution.message}", solve_s=took)
        trial = self.tried(mode, share, solution.schedule)
        return replace(trial, budget_bytes=budget, status=solution.status.value, solve_s=took)

    def tried(self, mode: str, share: float | None, schedule: explorer.Schedule) -> Trial:
        """Train and measure by a schedule."""
        timeline = explorer.simulate(self.profile, schedule)
        found: dict[str, Any] = {"mode": mode, "share": share, "predicted_peak_bytes": timeline.peak_bytes}
        try:
            if self.module is None:
                self.module, found["error"] = self.applied(schedule)
            else:
                # Captured once for all schedules of the architecture.
                kind = type(self.module)
                kind.plans[0] = StepPlan.of(kind.plans[0].capture, schedule)
                with self.specimen.precision():
                    kind.plans[0].bind(self.module)
            self.module.load_state_dict(self.start)
            found |= self.measured(self.module, timeline.time_ms)
            self.module.load_state_dict(self.start)
            found |= self.compared(mode, self.module)
        except Exception as error:  # noqa: BLE001 - as in run
            found["error"] = _told(error)
        return Trial(**found)

    def applied(self, schedule: explorer.Schedule) -> tuple[explorer.ScheduledModule, str | None]:
        """As a user does; if its own check fails, without the check, and what it said."""
        sample = (self.specimen.model(), schedule, self.batch)
        with self.specimen.precision():
            try:
                return explorer.apply(*sample, loss=self.specimen.loss), None
            except CheckFailedError as failed:
                return explorer.apply(*sample, loss=self.specimen.loss, check=False), _told(failed)

    def compared(self, mode: str, scheduled: explorer.ScheduledModule) -> dict[str, Any]:
        """Bits, or distances; trains the module."""
        plain = self.specimen.model()
        if mode != "joint":
            return {"difference": bits(self.specimen, scheduled, plain, steps=self.options.steps)}
        far = distance(self.specimen, scheduled, plain, steps=self.options.steps)
        return {"difference": far.beyond, "off": far.scheduled, "off_eager": far.eager}

    def measured(self, scheduled: explorer.ScheduledModule, predicted_ms: float) -> dict[str, Any]:
        """Peak and time; times relative to a plain step, taken in turns."""
        specimen, batch = self.specimen, self.batch
        with specimen.precision():
            found: dict[str, Any] = {"measured_peak_bytes": explorer.measure(scheduled, batch, steps=1).peak_bytes}
            if not self.options.rounds:
                return found
            plain = specimen.model()
            runs = {"scheduled": step_of(scheduled, batch), "plain": step_of(plain, batch, loss=specimen.loss)}
            with unchanged(scheduled), unchanged(plain):
                for once in runs.values():
                    once()
                times_ms = median_times_ms(runs, rounds=self.options.rounds)
        found["predicted_time"] = predicted_ms / self.profile.eager_time_ms if self.profile.eager_time_ms else None
        found["measured_time"] = times_ms["scheduled"] / times_ms["plain"]
        return found
