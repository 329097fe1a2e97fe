"""MONeT's problem for ``torch.compile``: of a compiled step, which results the forward pass saves.

A schedule that the compiler's partitioner can run is a set of saved results. Sets come from MONeT's plan search on the
same graph, as far as it goes without such bounds, and from a search of their own: results are let go for the least time
for a byte at the peak until the budget is kept, then put in and out at random, and what is better stays (annealing). Of
few results every set is judged.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

from explorer.device_profile import Profile
from explorer.saved_results import CompiledStep, Figures, saved_by
from explorer.solution import Solution
from explorer.solvers.methods.answers import best_of, unsuited
from explorer.solvers.methods.monet import monet_checkpointing
from explorer.solvers.options import Options

_SHARE = 0.35  # of the time, for MONeT's own search
_TRIED = 24
_FEW = 10  # results, of which every set is judged
_TEMPERATURE = 0.004


def monet_compiled(profile: Profile, budgets_bytes: Sequence[int], *, options: Options) -> tuple[Solution, ...]:
    """The quickest set of saved results whose compiled step fits, for each budget.

    Time and peak are those of the graph of ``profile_compiled``; other profiles are not for this method.
    """
    if not profile.graph.compiled:
        return unsuited(
            budgets_bytes,
            "'monet-compiled' plans steps of torch.compile: it needs explorer.profile_compiled(model, batch), as no "
            "other profile knows what the compiler makes of a model",
        )
    step = CompiledStep(profile)
    known: dict[frozenset[int], Figures] = {}
    for number, budget_bytes in enumerate(budgets_bytes):
        _Search(step, budget_bytes, known, options, number).run()
    schedules = [step.schedule(x, method=options.method) for x in _useful(known, budgets_bytes)]
    every = len(step.choices) <= _FEW
    return best_of(profile, schedules, budgets_bytes, method=options.method, every=every)


def _useful(known: dict[frozenset[int], Figures], budgets_bytes: Sequence[int]) -> list[frozenset[int]]:
    """For each budget the quickest that fits, and the smallest of all."""
    found = {min(known, key=lambda x: known[x].peak_bytes)}
    for budget_bytes in budgets_bytes:
        fitting = [x for x in known if known[x].peak_bytes <= budget_bytes]
        found |= {min(fitting, key=lambda x: known[x].time_ms)} if fitting else set()
    return list(found)


class _Search:
    def __init__(
        self,
        step: CompiledStep,
        budget_bytes: int,
        known: dict[frozenset[int], Figures],
        options: Options,
        number: int,
    ) -> None:
        self.step = step
        self.budget_bytes = budget_bytes
        self.known = known
        self.options = options
        self.chance = random.Random(options.seed + number)
        self.ends = time.monotonic() + options.time_limit

    def run(self) -> None:
        choices = self.step.choices
        if len(choices) <= _FEW:
            for count in range(len(choices) + 1):
                for some in combinations(choices, count):
                    self._judged(frozenset(some))
            return
        everything = frozenset(self.step.choices) & self.step.read
        for start in (self._let_go(everything), self._of_monet()):
            self._judged(start)
        self._anneal(min(self.known, key=self._score))

    def _judged(self, saved: frozenset[int]) -> Figures:
        if saved not in self.known:
            self.known[saved] = self.step.judge(saved)
        return self.known[saved]

    def _score(self, saved: frozenset[int]) -> float:
        """Time, made longer by what is above the budget."""
        figures = self._judged(saved)
        above = max(0.0, figures.peak_bytes / self.budget_bytes - 1.0)
        return figures.time_ms * (1.0 + 20.0 * above)

    def _of_monet(self) -> frozenset[int]:
        options = replace(self.options, method="monet-checkpointing", time_limit=_SHARE * self.options.time_limit)
        found = monet_checkpointing(self.step.profile, self.budget_bytes, options=options)
        if found.schedule is None:
            return frozenset()
        return self._let_go(saved_by(self.step.graph, found.schedule) & frozenset(self.step.choices))

    def _let_go(self, saved: frozenset[int]) -> frozenset[int]:
        """Until the budget is kept, or nothing helps."""
        while self._judged(saved).peak_bytes > self.budget_bytes and time.monotonic() < self.ends:
            figures = self._judged(saved)
            there = sorted(figures.at_peak & saved, key=lambda x: -self.step.bytes[x])[:_TRIED]
            tried = {x: self._judged(saved - {x}) for x in there}
            gains = {
                x: (figures.peak_bytes - y.peak_bytes) / (1e-6 + max(0.0, y.time_ms - figures.time_ms))
                for x, y in tried.items()
            }
            if not gains or max(gains.values()) <= 0:
                # The peak stays for one alone: what is cheapest goes, for its bytes.
                if not there:
                    break
                cheapest = min(there, key=lambda x: (tried[x].time_ms - figures.time_ms) / max(1, self.step.bytes[x]))
                saved -= {cheapest}
                continue
            saved -= {max(gains, key=gains.__getitem__)}
        return saved

    def _anneal(self, saved: frozenset[int]) -> None:
        choices = self.step.choices
        now = self._score(saved)
        began = time.monotonic()
        while (moment := time.monotonic()) < self.ends:
            heat = _TEMPERATURE * (self.ends - moment) / max(1e-9, self.ends - began)
            other = self._changed(saved, choices)
            score = self._score(other)
            if score < now or self.chance.random() < math.exp(-(score / now - 1.0) / max(1e-9, heat)):
                saved, now = other, score

    def _changed(self, saved: frozenset[int], choices: Sequence[int]) -> frozenset[int]:
        """One in or out, one for another, or some in a row."""
        kind = self.chance.random()
        at = self.chance.randrange(len(choices))
        if kind < 0.5:
            return saved ^ {choices[at]}
        if kind < 0.85 and saved and len(saved) < len(choices):
            out = self.chance.choice(sorted(saved))
            return saved - {out} | {self.chance.choice([x for x in choices if x not in saved])}
        row = choices[at : at + self.chance.randint(2, 5)]
        return saved - set(row) if self.chance.random() < 0.5 else saved | set(row)
