"""The smallest peak of a small problem, by trying every set of activations in memory at every point."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from explorer.schedule import Schedule
from explorer.solvers.problem.problem import Form, Problem
from explorer.solvers.problem.schedules import schedule_of

_MOST_TOGETHER = 18  # activations that can be of use at one point
_WORK = 40_000_000  # sets looked at: about a second


def exact_minimum(problem: Problem, *, until: float = np.inf) -> Schedule | None:
    """A schedule with the smallest peak that any has; its budget is that peak.

    Args:
        problem: graph, costs, and what may be chosen.
        until: by the monotonic clock, when there is no more time.

    Returns:
        None where there are too many sets of activations to try them all, and with pins.
    """
    found = _swept(problem, until)
    if found is None:
        return None
    sweep, peak_bytes = found
    return schedule_of(problem, sweep.order(peak_bytes), method="exhaustion", budget_bytes=peak_bytes)


def smallest_peak(problem: Problem, *, until: float = np.inf) -> int | None:
    """The smallest peak of a problem for bounds, in bytes; None as in ``exact_minimum``."""
    found = _swept(problem, until)
    return None if found is None else found[1]


def _swept(problem: Problem, until: float) -> tuple[_Sweep, int] | None:
    if problem.pins:
        return None
    sweep = _Sweep(problem, until)
    try:
        return sweep, sweep.run()
    except _TooManyError:
        return None


class _TooManyError(Exception):
    """There are more sets than can be tried, or than there is time for."""


@dataclass(frozen=True, eq=False)
class _Step:
    """A point at which an operator runs, or may run.

    Attributes:
        operator: its id in the graph.
        forms: its ways.
        there_bytes: in memory besides activations that can be dropped.
        may_skip: it need not run.
        again: it is a recomputation.
        axes: what sets before it may contain.
        peaks: by those sets, the smallest peak until then.
    """

    operator: int
    forms: tuple[Form, ...]
    there_bytes: int
    may_skip: bool
    again: bool
    axes: tuple[int, ...]
    peaks: np.ndarray

    def peak(self, members: set[int]) -> float:
        """The smallest peak until these are in memory; infinite if they cannot be."""
        if not members <= set(self.axes):
            return float("inf")
        return float(self.peaks[tuple(int(x in members) for x in self.axes)])


class _Sweep:
    """For every set of activations that can be in memory at a point of the step, the smallest peak until then.

    What is in memory can be dropped at any time, so the peak of a set is never less than that of a part of it. Sets are
    the indices of an array with one axis, of length 2, for each activation that can still be of use; what is held is in
    none of them, but always in memory.
    """

    def __init__(self, problem: Problem, until: float) -> None:
        self.problem, self.until = problem, until
        self.activations = problem.activations
        self.held = {x for x, activation in enumerate(problem.activations) if activation.held}
        self.base_bytes = problem.fixed_bytes
        self.axes: list[int] = []
        self.peaks = np.full((), float(problem.fixed_bytes))
        self.sizes = np.zeros(())
        self.work = 0
        self.steps: list[_Step] = []

    def run(self) -> int:
        """The smallest peak of the whole step."""
        forward, backward = self.problem.forward, self.problem.backward
        useful = self._useful()
        for i, operator in enumerate(forward):
            made = {x for form in operator.first for x in form.writes}
            self.base_bytes += self._bytes(made & self.held)
            self._enter(made - self.held)
            self._step(i, operator.first, may_skip=operator.optional)
            still = {x for later in forward[i + 1 :] for form in later.first for x in form.reads}
            self._forget(still | useful[0])
        for t, operator in enumerate(backward):
            if t:
                self._recompute(operator.idle_bytes, useful[t])
            if operator.forms:
                self._step(len(forward) + t, operator.forms, more_bytes=operator.idle_bytes + operator.made_bytes)
            self._forget(useful[t + 1])
        return int(self.peaks.min())

    def order(self, peak_bytes: int) -> list[tuple[int, int]]:
        """Which operators run, by which of their forms, where nothing takes more than ``peak_bytes``."""
        found: list[tuple[int, int]] = []
        members: set[int] = set()
        for step in reversed(self.steps):
            if step.may_skip and step.peak(members) <= peak_bytes:
                continue
            number, members = next(self._ways_back(step, members, peak_bytes))
            found.append((step.operator, number))
        return found[::-1]

    def _ways_back(self, step: _Step, members: set[int], peak_bytes: int) -> Iterator[tuple[int, set[int]]]:
        """Forms after which ``members`` are in memory, and what must be in memory before them."""
        for number, form in enumerate(step.forms):
            before = (members - set(form.writes)) | (set(form.reads) - self.held)
            for option in form.options:
                used = self._bytes(before) + self._more_bytes(step, form) + option.extra_bytes(self.activations)
                if option.overwrites not in members and max(step.peak(before), used) <= peak_bytes:
                    yield number, before

    def _recompute(self, idle_bytes: int, useful: set[int]) -> None:
        """Run forward operators again, in order, and once more as long as that makes a difference."""
        self._enter(useful - self.held - set(self.axes))
        before = None
        while before is None or not np.array_equal(before, self.peaks):
            before = self.peaks
            for i, operator in enumerate(self.problem.forward):
                if any(set(form.writes) & useful for form in operator.again):
                    self._step(i, operator.again, more_bytes=idle_bytes, may_skip=True, again=True)

    def _useful(self) -> list[set[int]]:
        """Before each backward operator, and after the last: what can be of use to it and to later ones."""
        found: list[set[int]] = [set()]
        for operator in reversed(self.problem.backward):
            wanted = found[-1] | {x for form in operator.forms for x in form.reads}
            for maker in reversed(self.problem.forward):
                for form in maker.again:
                    if wanted & set(form.writes):
                        wanted |= set(form.reads)
            found.append(wanted)
        return found[::-1]

    def _enter(self, made: set[int]) -> None:
        """Let sets contain these too; none does yet."""
        if len(self.axes) + len(made) > _MOST_TOGETHER:
            raise _TooManyError
        for x in sorted(made):
            self.axes.append(x)
            self.peaks = np.stack([self.peaks, np.full_like(self.peaks, np.inf)], axis=-1)
            self.sizes = np.stack([self.sizes, self.sizes + self.activations[x].bytes], axis=-1)

    def _forget(self, useful: set[int]) -> None:
        """Drop what is of no more use, from every set."""
        gone = self._where({x: 0 for x in self.axes if x not in useful})
        self.peaks, self.sizes = np.asarray(self.peaks[gone]), np.asarray(self.sizes[gone])
        self.axes = [x for x in self.axes if x in useful]

    def _step(
        self,
        operator: int,
        forms: tuple[Form, ...],
        *,
        more_bytes: int = 0,
        may_skip: bool = False,
        again: bool = False,
    ) -> None:
        """Run an operator in any of its ways, from every set that has what that reads."""
        step = _Step(operator, forms, self.base_bytes + more_bytes, may_skip, again, tuple(self.axes), self.peaks)
        self.steps.append(step)
        after = self.peaks.copy() if may_skip else np.full_like(self.peaks, np.inf)
        touched: set[int] = set()
        for form in forms:
            reads, writes = set(form.reads) - self.held, set(form.writes) - self.held
            touched |= reads | writes
            before = self._where(dict.fromkeys(writes, 0) | dict.fromkeys(reads, 1))
            for option in form.options:
                more = self._more_bytes(step, form) + option.extra_bytes(self.activations)
                peaks = np.maximum(self.peaks[before], self.sizes[before] + more)
                over = {} if option.overwrites is None else {option.overwrites: 0}
                at = self._where(dict.fromkeys(reads | writes, 1) | over)
                after[at] = np.minimum(after[at], peaks)
                self.work += peaks.size
        for x in touched:
            without, having = self._where({x: 0}), self._where({x: 1})
            after[without] = np.minimum(after[without], after[having])
        self.peaks = after
        self.work += after.size * (1 + len(touched))
        if self.work > _WORK or time.monotonic() > self.until:
            raise _TooManyError

    def _more_bytes(self, step: _Step, form: Form) -> int:
        """In memory while it runs, beside the set before it and what its option adds."""
        new = set(form.writes) - set(form.reads) - self.held
        # What it makes though it is there is there twice.
        twice = {x for x in form.writes if step.again and (x in self.held or x in form.reads)}
        return step.there_bytes + self._bytes(new) + self._bytes(twice)

    def _where(self, members: dict[int, int]) -> tuple[int | slice, ...]:
        """The sets that have (1), or have not (0), these activations."""
        return tuple(members.get(x, slice(None)) for x in self.axes)

    def _bytes(self, activations: Iterable[int]) -> int:
        return sum(self.activations[x].bytes for x in activations)
