"""What becomes of one program: captured, scheduled at random, run, compared."""

from __future__ import annotations

import copy
import gc
import random
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from enum import StrEnum
from types import ModuleType
from typing import Any
from unittest import mock

import torch
from torch import nn

import explorer
from explorer.capture import Capture, capture
from explorer.execution.checking import CheckFailedError
from explorer.execution.measuring import measure
from explorer.execution.returning import made_by_step
from explorer.exporting.python import python_text
from explorer.graph import Implementation, Optimization
from explorer.operators.fusing import one_by_one
from explorer.schedule import Schedule
from tests.fuzz.comparing import close, difference, same_bits, train
from tests.fuzz.program import Loaded, default_dtype
from tests.schedules import random_schedule

_SAID_BY_FILES = ("gradients came for", "beside a loss only", "this step cannot run by its schedule")
_NO_GRADIENT = "a gradient arrived at an output that has none"


class Outcome(StrEnum):
    """How a program ended; what is not among the first four is a find."""

    SAME = "same"
    TOLD = "told"  # last bits differ, and ``apply`` warns of it
    REFUSED = "refused"
    EAGER = "eager mode fails"
    DIFFERENT = "different"
    CRASHED = "crashed"
    IDENTITY = "identity"
    PEAK = "peak"

    @property
    def fine(self) -> bool:
        return self in (Outcome.SAME, Outcome.TOLD, Outcome.REFUSED, Outcome.EAGER)


@dataclass(frozen=True)
class Verdict:
    """An outcome and what there is to say about it."""

    outcome: Outcome
    text: str = ""


@dataclass(frozen=True)
class Effort:
    """What is tried of one program.

    Attributes:
        schedules: random ones, beside the two that keep everything.
        twice: capture twice, which takes as long as all the rest.
        peak: compare predicted and measured memory too.
        solve: also run what the solver makes of a tight budget; only with ``peak``.
        fuse: join chains of calls, short ones too, whose kernels make the calls one by one: the same bits, so that
            whatever goes wrong in joining shows.
        export: train by each schedule's file on torch alone, too.
    """

    schedules: int = 2
    twice: bool = True
    peak: bool = False
    solve: bool = False
    fuse: bool = False
    export: bool = False


def check(program: Loaded, effort: Effort) -> Verdict:
    """Train the program in eager mode and by schedules."""
    with default_dtype(program.dtype), torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = program.build()
            expected = train(copy.deepcopy(model), program)
            places = _places(model)
        except Exception as error:  # noqa: BLE001  (whatever it is, it is eager mode's)
            return Verdict(Outcome.EAGER, f"{type(error).__name__}: {error}")
        try:
            with chains_joined() if effort.fuse else nullcontext():
                return _Check(program, effort, model, expected).verdict()
        except ValueError as error:
            left = "" if _places(model) == places else "; the model has other tensors now"
            return Verdict(Outcome.DIFFERENT if left else Outcome.REFUSED, f"{error}{left}")
        except Exception as error:  # noqa: BLE001  (an error that no user should see)
            return Verdict(Outcome.CRASHED, _located(error))


def _places(model: nn.Module) -> dict[str, int]:
    """Where which tensor of a model is."""
    named = (*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False))
    return {name: id(x) for name, x in named}


@contextmanager
def chains_joined() -> Iterator[None]:
    """While open, chains of calls are joined, short ones too, and kernels for them make the calls one by one."""
    with (
        mock.patch("explorer.capture.chains.LEAST_NUMBERS", 1),
        mock.patch("explorer.capture.batch_norm.LEAST_NUMBERS", 1),
        mock.patch("explorer.operators.fusing.compiled", lambda group, _: one_by_one(group)),
        mock.patch.dict("explorer.operators.fusing._COMPILED", clear=True),
    ):
        yield


def _as_exact(implementation: Implementation) -> bool:
    """Of kernels, those that stand for the same calls: a normalisation made of its statistics rounds otherwise."""
    fused = implementation.optimization is Optimization.FUSED and "from statistics" not in implementation.name
    return implementation.exact or fused


def _scratch(profile: explorer.Profile) -> int:
    """What a library may keep from one call to the next: oneDNN asks for no scratch memory that it has from before."""
    convolutions = [x for x in profile.graph.operators if x.target.startswith("aten.convolution")]
    return max((profile.costs[y.cost].workspace_bytes for x in convolutions for y in x.implementations), default=0)


def _located(error: BaseException) -> str:
    import traceback

    ours = [x for x in traceback.extract_tb(error.__traceback__) if "/explorer/" in x.filename]
    place = f" in {ours[-1].filename.split('/explorer/')[-1]}:{ours[-1].lineno}" if ours else ""
    return f"{type(error).__name__}{place}: {error}"


class _Check:
    def __init__(self, program: Loaded, effort: Effort, model: nn.Module, expected: list[Any]) -> None:
        self.program = program
        self.effort = effort
        self.model = model
        self.expected = expected
        self.batch = program.batch(0)

    def verdict(self) -> Verdict:
        before, places = {key: x.clone() for key, x in self.model.state_dict().items()}, _places(self.model)
        captured = capture(self.model, self.batch, loss=self.program.loss, fuse=self.effort.fuse)
        after = self.model.state_dict()
        if changed := [key for key in before if not same_bits(before[key], after[key])]:
            return Verdict(Outcome.DIFFERENT, f"capture changed {changed}")
        if _places(self.model) != places:
            return Verdict(Outcome.DIFFERENT, "the model has other tensors now")
        if self.effort.twice:
            again = capture(self.model, self.batch, loss=self.program.loss, fuse=self.effort.fuse)
            if said := captured.graph.identity.difference(again.graph.identity):
                return Verdict(Outcome.IDENTITY, said)
        for name, schedule, exact in self.schedules(captured):
            found = self.trained(captured, schedule, name, exact=exact)
            if found.outcome is Outcome.SAME and self.effort.export:
                found = self.by_file(captured, schedule, name, exact=exact)
            if found.outcome is not Outcome.SAME:
                return found
        return self.peaks(captured) if self.effort.peak else Verdict(Outcome.SAME)

    def trained(self, captured: Capture, schedule: Schedule, name: str, *, exact: bool) -> Verdict:
        """Train by a schedule, and compare."""
        made = self.applied(captured, schedule, copy.deepcopy(self.model))
        said_aloud: list[str] = []
        try:
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                found = train(made, self.program)
            said_aloud = [str(x.message) for x in seen]
        except ValueError as error:
            return Verdict(Outcome.REFUSED, f"{name}: {error}")
        except Exception as error:  # noqa: BLE001  (whatever it is: eager mode trained)
            if _NO_GRADIENT in str(error):
                return Verdict(Outcome.REFUSED, str(error))
            return Verdict(Outcome.CRASHED, f"{name}: {_located(error)}")
        said = difference(found, self.expected, same_bits if exact else close)
        if said is None:
            return Verdict(Outcome.SAME)
        told = exact and (any("in the last bits" in x for x in said_aloud) or self.told(captured, schedule))
        return Verdict(Outcome.TOLD if told else Outcome.DIFFERENT, f"{name}: {said}")

    def by_file(self, captured: Capture, schedule: Schedule, name: str, *, exact: bool) -> Verdict:
        """Train by the file that a schedule is exported as, and compare; the same where it cannot be one."""
        try:
            with mock.patch("explorer.exporting.python.capture_for", return_value=captured):
                source = python_text(self.model, schedule, self.batch, loss=self.program.loss, check=False)
        except ValueError:
            return Verdict(Outcome.SAME)
        file: dict[str, Any] = {"__name__": "exported"}
        sys.modules.setdefault("exported", ModuleType("exported"))  # where dataclasses look for types
        try:
            exec(compile(source, "<exported>", "exec"), file)  # noqa: S102 - our own text
            found = train(file["scheduled"](copy.deepcopy(self.model)), self.program)
        except Exception as error:  # noqa: BLE001  (whatever it is: eager mode trained)
            refused = any(x in str(error) for x in _SAID_BY_FILES)
            return Verdict(Outcome.REFUSED if refused else Outcome.CRASHED, f"file of {name}: {_located(error)}")
        said = difference(found, self.expected, same_bits if exact else close)
        return Verdict(Outcome.SAME) if said is None else Verdict(Outcome.DIFFERENT, f"file of {name}: {said}")

    def told(self, captured: Capture, schedule: Schedule) -> bool:
        """Does ``apply`` warn that last bits differ?"""
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            try:
                self.applied(captured, schedule, copy.deepcopy(self.model), check=True)
            except CheckFailedError:
                return False
        return any("in the last bits" in str(x.message) for x in seen)

    def applied(
        self, captured: Capture, schedule: Schedule, model: nn.Module, *, check: bool = False
    ) -> explorer.ScheduledModule:
        """``apply`` without another capture, which takes most of the time."""
        with mock.patch("explorer.execution.applying.capture", return_value=captured):
            return explorer.apply(model, schedule, self.batch, loss=self.program.loss, check=check)

    def schedules(self, captured: Capture) -> Iterator[tuple[str, Schedule, bool]]:
        """Name, schedule, and whether its bits must be eager mode's."""
        graph, seed = captured.graph, self.program.seed
        rng = random.Random(seed)
        allowed = _as_exact if self.effort.fuse else (lambda x: x.exact)
        yield "keep all", explorer.keep_all(graph), True
        yield (
            "keep all, in place",
            random_schedule(graph, seed, keep=1.0, allowed=allowed, in_place=1.0),
            True,
        )
        for number in range(self.effort.schedules):
            keep = rng.choice((0.0, 0.3, 0.7, 0.95))
            # In single precision another order of a sum may turn the comparison of a later line around.
            exact = self.program.dtype == "float32" or number % 2 == 0
            yield (
                f"random schedule {number}, keep {keep}{'' if exact else ', inexact'}",
                random_schedule(
                    graph,
                    seed + number,
                    keep=keep,
                    allowed=allowed if exact else (lambda _: True),
                    in_place=rng.choice((0.5, 1.0)),
                ),
                exact,
            )

    def peaks(self, captured: Capture) -> Verdict:
        """Predicted against measured memory."""
        if len(made_by_step(captured)) < len(captured.traced.outputs):
            return Verdict(Outcome.SAME)  # gradients of views, and of what was given, are the caller's memory
        batch, loss = self.batch, self.program.loss
        gc.collect()
        profile = explorer.profile(self.model, batch, loss=loss, fuse=self.effort.fuse)
        kept = explorer.simulate(profile, explorer.keep_all(profile.graph)).peak_bytes
        assert profile.eager_peak_bytes is not None
        # A few small tensors more are a thousandth of a real model, and a tenth of these.
        if kept > 1.001 * profile.eager_peak_bytes + 1024:
            return Verdict(Outcome.PEAK, f"keep all predicts {kept} B, eager mode takes {profile.eager_peak_bytes} B")
        chosen = [(name, x) for name, x, _ in self.schedules(captured)]
        if self.effort.solve:
            solution = explorer.solve(profile, budget=int(0.9 * kept), time_limit=1)
            if solution.schedule is not None:
                chosen.append(("solved", solution.schedule))
        for name, schedule in chosen:
            predicted = explorer.simulate(profile, schedule).peak_bytes
            made = self.applied(captured, schedule, self.model)
            gc.collect()  # what is freed while it is measured would count
            measured = measure(made, batch, steps=1).peak_bytes
            if not 0 <= predicted - measured <= _scratch(profile):
                return Verdict(Outcome.PEAK, f"{name}: predicted {predicted} B, measured {measured} B")
        return Verdict(Outcome.SAME)
