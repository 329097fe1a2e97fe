"""Random numbers that a step may not draw or set: what one trace has of them would hold for every step."""

from __future__ import annotations

import contextlib
import pickle
import random
import threading
from collections.abc import Callable, Iterator
from types import CellType, FunctionType, ModuleType
from typing import Any

import numpy as np
import torch

from explorer.capture.batch import TrainingStep
from explorer.capture.mentions import globals_read, mentioned, mentioned_by, methods_run

SETS_CHANCE = (
    "the forward pass sets the state of PyTorch's random generator (torch.manual_seed, or fork_rng around what is "
    "drawn), which a scheduled step does not: draw before, and give the numbers as an argument, or keep them in a "
    "buffer"
)


@contextlib.contextmanager
def without_chance(step: TrainingStep) -> Iterator[None]:
    """While open, nothing may be drawn from random numbers that are not PyTorch's: no step would draw them again.

    Other threads may draw, too (a worker of Dask's does): where there are any, this one has to call one of the
    modules' functions, or the step's code has to mention them.

    Raises:
        ValueError: something was.
    """
    before, known = _states(), [(x, pickle.dumps(x)) for x in _generators(step)]
    with _noted(_functions_of_chance(), doing=True) as noted:
        yield
    if used := [x for x, state in known if pickle.dumps(x) != state]:
        raise ValueError(
            f"the forward pass draws from a {type(used[0]).__module__}.{type(used[0]).__name__}, and what was drawn in "
            "the capture would hold in every step: draw with torch, outside of conditions, or draw before and give it "
            "as an argument"
        )
    now, whose = _states(), ("Python's random", "NumPy's")
    drawn = [x for x, a, b in zip(whose, before, now, strict=True) if pickle.dumps(a) != pickle.dumps(b)]
    if drawn and (threading.active_count() == 1 or noted or _mentions_chance(step)):
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002 - what models draw from
        raise ValueError(
            f"the forward pass draws from {' and '.join(drawn)} numbers, and what was drawn in the capture would "
            "hold in every step: draw with torch, outside of conditions, or draw before and give it as an argument"
        )


def _functions_of_chance() -> list[tuple[ModuleType, str]]:
    """Functions of ``random`` and ``numpy.random`` that draw from these modules' own generators."""
    whose = ((random, vars(random)["_inst"]), (np.random, vars(np.random.mtrand)["_rand"]))
    return [
        (module, name)
        for module, generator in whose
        for name, value in vars(module).items()
        if not name.startswith("_") and "state" not in name and getattr(value, "__self__", None) is generator
    ]


def _states() -> tuple[Any, Any]:
    return random.getstate(), np.random.get_state()  # noqa: NPY002


def _generators(step: TrainingStep) -> list[Any]:
    """Random generators that modules hold, or that are around their methods or the loss."""
    held = [y for x in step.modules() for y in vars(x).values()]
    functions = {y.function for x in step.modules() for y in methods_run(type(x))}
    for function in functions | ({step.loss} if isinstance(step.loss, FunctionType) else set()):
        held += [function.__globals__.get(x) for x in globals_read(function)]
        held += [x.cell_contents for x in function.__closure__ or () if x != CellType()]
    kinds = (random.Random, np.random.Generator, np.random.RandomState)
    known = [x for x in held if isinstance(x, kinds) and not isinstance(x, random.SystemRandom)]  # which has no state
    return list({id(x): x for x in known}.values())


def _mentions_chance(step: TrainingStep) -> bool:
    """Is ``random``, Python's or NumPy's, in the text of a forward method, or of the loss?"""
    functions = [type(x).forward for x in step.modules() if not type(x).__module__.startswith("torch.")]
    return any("random" in mentioned(x) for x in (*functions, step.loss) if isinstance(x, FunctionType)) or any(
        "random" in mentioned_by(type(x)) for x in step.modules()
    )


@contextlib.contextmanager
def own_chance_only() -> Iterator[list[str]]:
    """While open, what this thread sets the state of PyTorch's generator by is noted, and not done.

    Yields:
        A list of it: there are no values, so that nothing that is drawn has changed the state.

    Raises:
        ValueError: it is seeded. That a state is set back, as ``torch.random.fork_rng`` does, matters only where
            something is drawn.
    """
    places = [(module, name) for module in (torch, torch.random) for name in ("manual_seed", "set_rng_state")]
    seed, alone = torch.initial_seed(), threading.active_count() == 1
    with _noted(places, doing=False) as notes:
        yield notes
    # From torch import manual_seed is not noted.
    if "manual_seed" in notes or (alone and torch.initial_seed() != seed):
        raise ValueError(SETS_CHANCE)


@contextlib.contextmanager
def _noted(places: list[tuple[ModuleType, str]], *, doing: bool) -> Iterator[list[str]]:
    """While open, calls of functions by this thread are noted by their names, and done or not."""
    notes, thread = list[str](), threading.get_ident()

    def noting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            own = threading.get_ident() == thread
            if own:
                notes.append(name)
            return torch.default_generator if own and not doing else function(*args, **kwargs)

        return run

    functions = [getattr(module, name) for module, name in places]
    try:
        for (module, name), function in zip(places, functions, strict=True):
            setattr(module, name, noting(name, function))
        yield notes
    finally:
        for (module, name), function in zip(places, functions, strict=True):
            setattr(module, name, function)
