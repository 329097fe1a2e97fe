"""All curves at once: every method at every budget, in parallel, as a table."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

from explorer.device_profile import Profile
from explorer.schedule import keep_all
from explorer.simulation import simulate
from explorer.solution import Solution, Status
from explorer.solvers.methods.table import METHODS, Answers, method_named
from explorer.solvers.options import Options
from explorer.units import format_bytes

_POLL_S = 0.1


@dataclass(frozen=True)
class Curve:
    """One method's answers.

    Attributes:
        method: its name.
        solutions: one for each budget, budgets increasing.
    """

    method: str
    solutions: tuple[Solution, ...]

    @property
    def title(self) -> str:
        """For tables and plots."""
        return METHODS[self.method].title


@dataclass(frozen=True)
class Comparison:
    """Methods at budgets.

    Attributes:
        profile: what was solved.
        budgets_bytes: increasing.
        curves: one for each method.
    """

    profile: Profile
    budgets_bytes: tuple[int, ...]
    curves: tuple[Curve, ...]

    @cached_property
    def plain_ms(self) -> float:
        """A step without recomputation, by the profile: what overheads are relative to."""
        return simulate(self.profile, keep_all(self.profile.graph)).time_ms

    @cached_property
    def plain_bytes(self) -> int:
        """The peak of that step."""
        return simulate(self.profile, keep_all(self.profile.graph)).peak_bytes

    def overhead(self, solution: Solution) -> float | None:
        """By how much slower than a step without recomputation, 0.1 for 10 %; None without a schedule."""
        return None if solution.time_ms is None else solution.time_ms / self.plain_ms - 1

    def rows(self) -> list[dict[str, str | int | float | None]]:
        """One row for each method and budget, plain values: for pandas, CSV or JSON."""
        return [
            {
                "method": curve.method,
                "budget_bytes": solution.budget_bytes,
                "status": solution.status.value,
                "time_ms": solution.time_ms,
                "overhead": self.overhead(solution),
                "peak_bytes": solution.peak_bytes,
                "elapsed_s": solution.elapsed_s,
                "message": solution.message,
            }
            for curve in self.curves
            for solution in curve.solutions
        ]

    def table(self) -> str:
        """Overheads as text: a line for each method, a column for each budget.

        A dash stands where a method has no schedule, a question mark where none was found in time.
        """
        heads = [format_bytes(x) for x in self.budgets_bytes]
        shares = [f"{x / self.plain_bytes:.2f}" for x in self.budgets_bytes]
        lines = [["budget", *heads], ["share of the peak without recomputation", *shares]]
        lines += [[curve.title, *map(self._cell, curve.solutions)] for curve in self.curves]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join([line[0].ljust(widths[0]), *(x.rjust(w) for x, w in zip(line[1:], widths[1:], strict=True))])
            for line in lines
        )

    def _cell(self, solution: Solution) -> str:
        overhead = self.overhead(solution)
        if overhead is None:
            return "–" if solution.status in (Status.INFEASIBLE, Status.UNSUITED) else "?"
        return f"{100 * overhead:+.1f} %"


def compare(
    profile: Profile,
    methods: Sequence[str],
    budgets_bytes: Sequence[int],
    *,
    options: Options,
    executor: Executor | None = None,
    on_progress: Callable[[int, int, str], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> Comparison:
    """Answer every budget by every method.

    Args:
        profile: graph and costs.
        methods: names of ``METHODS``.
        budgets_bytes: peak allowed, each.
        options: of every method; ``method`` is replaced.
        executor: where to solve; a pool of processes, one for each core, if not given. What it runs gets and returns
            picklable values, so that it may be elsewhere: a Dask client's ``get_executor()`` will do.
        on_progress: called in this thread with how many tasks are done, how many there are, and the method's name.
        should_stop: polled; true cancels what has not begun, whose solutions are then ``Status.CANCELLED``.

    Raises:
        ValueError: a method is unknown, or a budget or method is missing.
    """
    if not methods or not budgets_bytes:
        raise ValueError(
            f"methods is {list(methods)} and budgets is {list(budgets_bytes)}; each needs one entry or more"
        )
    budgets = tuple(sorted(dict.fromkeys(budgets_bytes)))
    chosen = [replace(options, method=method_named(name).name) for name in dict.fromkeys(methods)]
    tasks = [(x, part) for x in chosen for part in _parts(x.method, budgets)]
    answers: dict[tuple[str, int], Solution] = {}
    with _pool(executor) as pool:
        futures = {pool.submit(_solve, profile, part, x): (x.method, part) for x, part in tasks}
        for done, (future, (method, part)) in enumerate(_as_completed(futures, should_stop), 1):
            for budget, solution in zip(part, _result(future, part), strict=True):
                answers[method, budget] = solution
            if on_progress is not None:
                on_progress(done, len(tasks), method)
    curves = (Curve(x.method, _carried([answers[x.method, budget] for budget in budgets])) for x in chosen)
    return Comparison(profile, budgets, tuple(curves))


def _carried(solutions: Sequence[Solution]) -> tuple[Solution, ...]:
    """A method's answers, none slower than one for a smaller budget: what fits there fits here."""
    found: list[Solution] = []
    best: Solution | None = None
    for own in solutions:
        solution = own
        if best is not None and best.time_ms is not None and own.status not in (Status.CANCELLED, Status.FAILED):
            schedule, time_ms = best.schedule, best.time_ms
            if schedule is not None and (own.time_ms is None or time_ms < own.time_ms):
                solution = replace(
                    own,
                    status=Status.FEASIBLE,
                    schedule=replace(schedule, budget_bytes=own.budget_bytes),
                    time_ms=time_ms,
                    peak_bytes=best.peak_bytes,
                    minimum=None,
                    message=f"found for {format_bytes(best.budget_bytes)}",
                )
        if solution.time_ms is not None and (best is None or solution is own):
            best = solution
        found.append(solution)
    return tuple(found)


def _parts(method: str, budgets: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The tasks of a method: all budgets at once where it answers curves."""
    return [budgets] if METHODS[method].answers is Answers.CURVE else [(budget,) for budget in budgets]


def _solve(profile: Profile, budgets_bytes: tuple[int, ...], options: Options) -> tuple[Solution, ...]:
    """One task, wherever the executor runs it."""
    return METHODS[options.method].solve(profile, budgets_bytes, options=options)


@contextmanager
def _pool(executor: Executor | None) -> Iterator[Executor]:
    if executor is not None:
        yield executor
        return
    # Not forked: this process may have threads that hold locks. The workers import no torch.
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        yield pool


def _as_completed(
    futures: dict[Future, tuple[str, tuple[int, ...]]], should_stop: Callable[[], bool] | None
) -> Iterator[tuple[Future, tuple[str, tuple[int, ...]]]]:
    pending = set(futures)
    stopped = False
    while pending:
        done, pending = wait(pending, _POLL_S, FIRST_COMPLETED)
        for future in done:
            yield future, futures[future]
        if should_stop is not None and not stopped and should_stop():
            stopped = True
            for future in pending:
                future.cancel()


def _result(future: Future, budgets_bytes: tuple[int, ...]) -> tuple[Solution, ...]:
    if future.cancelled():
        return tuple(Solution(Status.CANCELLED, x, message="cancelled before it began") for x in budgets_bytes)
    error = future.exception()
    if error is not None:
        # One method that fails does not take the others' answers with it.
        message = f"the method failed: {type(error).__name__}: {error}"
        return tuple(Solution(Status.FAILED, x, message=message) for x in budgets_bytes)
    return future.result()
