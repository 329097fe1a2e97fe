"""A first few plans: by the interpreter, before the kernel is compiled or loaded."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np

from explorer.solvers.search.arrays import PlanArrays
from explorer.solvers.search.kernel import decode, judge
from explorer.solvers.search.simple_plans import FIRST_SEGMENTS, SEGMENTS, starting_plans
from explorer.solvers.search.trace import UNKNOWN, PlanMemory

_OTHERS = 20  # plans of every rule
_FREE = 1000  # forward operators of plans that are tried without time: about 0.1 s

Evaluate = Callable[[np.ndarray], tuple[float, int]]
"""Genes to a peak, and how many entries of ``work.trial.order`` are its runs; −1 where the plan cannot run."""


def sketches(arrays: PlanArrays, evaluate: Evaluate, *, budget_bytes: int, until: float) -> Iterator[int]:
    """How many runs each of a few plans has that can run and was just evaluated; they need not fit.

    First those that drop most with little to recompute: segments, about as many as there are activations in each. One
    of these is sought without time too. Then, in no order, plans of every rule.

    Args:
        arrays: the problem.
        evaluate: a plan.
        budget_bytes: the peak allowed.
        until: by the monotonic clock, when no other plan is begun with.
    """
    plans = list(starting_plans(arrays))
    root = int(np.sqrt(arrays.choices.size))
    segments = [min(max(number, SEGMENTS.start), SEGMENTS.stop - 1) for number in (root, root // 2, 2 * root)]
    first = [FIRST_SEGMENTS + number - SEGMENTS.start for number in segments]
    others = np.random.default_rng(0).permutation(np.arange(0, len(plans), max(1, len(plans) // _OTHERS))).tolist()
    found, free = False, max(len(first), _FREE // arrays.forward_count)
    for tried, number in enumerate(dict.fromkeys([*first, *others])):
        if time.monotonic() >= until and (found or tried >= free):
            return
        peak, runs = evaluate(plans[number])
        found |= peak <= budget_bytes
        if runs >= 0:
            yield runs


def interpreted(arrays: PlanArrays, genes: np.ndarray, work: PlanMemory, budget_bytes: float) -> tuple[float, int]:
    """Evaluate a plan as ``Evaluate`` says, without the kernel."""
    count, quickest_ms = decode.py_func(arrays, genes, work, UNKNOWN, np.inf)
    if count < 0:
        return np.inf, -1
    peak, time_ms, _ = judge.py_func(arrays, work, quickest_ms, budget_bytes, 0.0, np.inf)
    return (float(peak), int(count)) if np.isfinite(time_ms) else (np.inf, -1)
