"""Random numbers that a step may not draw or set: what one trace has of them would hold for every step."""

from __future__ import annotations

import contextlib
import pickle
import random
import threading
from collections.abc import Callable, Iterator
from types import CellType, FunctionType
from typing import Any

import numpy as np
import torch

from explorer.capture.batch import TrainingStep
from explorer.capture.mentions import globals_read, mentioned, mentioned_by, methods_run

_CHANCES = ("Python's random", "NumPy's")
_NOBODYS_SEED = 0x5EED_0F_A_57E9


@contextlib.contextmanager
def without_chance(step: TrainingStep) -> Iterator[None]:
    """While open, nothing may be drawn from random numbers that are not PyTorch's: no step would draw them again.

    Other threads may draw, too (a worker of Dask's does): where there are any, the step's code has to mention it.

    Raises:
        ValueError: something was.
    """
    generators = [(x, pickle.dumps(x)) for x in _generators(step)]
    with _drawn(step) as drawn:
        yield
    if used := [x for x, state in generators if pickle.dumps(x) != state]:
        raise ValueError(
            f"the forward pass draws from a {type(used[0]).__module__}.{type(used[0]).__name__}, and what was drawn in "
            "the capture would hold in every step: draw with torch, outside of conditions, or draw before and give it "
            "as an argument"
        )
    if drawn:
        raise ValueError(
            f"the forward pass draws from {' and '.join(drawn)} numbers, and what was drawn in the capture would "
            "hold in every step: draw with torch, outside of conditions, or draw before and give it as an argument"
        )


@contextlib.contextmanager
def _drawn(step: TrainingStep) -> Iterator[list[str]]:
    """While open, the state of Python's and of NumPy's random numbers is watched; what the step did to it is undone.

    What is drawn after a seed of the step's own (BigBird does so) is the same in every step. Where there are other
    threads, what is drawn is theirs, unless the step's code mentions chance.

    Yields:
        A list, afterwards of those that the step draws from.
    """
    before: tuple[Any, ...] = random.getstate(), np.random.get_state()  # noqa: NPY002 - what models draw from
    alone = threading.active_count() == 1
    if alone:  # so that one who sets the state that was is seen
        random.seed(_NOBODYS_SEED)
        np.random.seed(_NOBODYS_SEED % 2**32)  # noqa: NPY002
    watched, drawn, seeded = _states(), list[str](), set[int]()
    try:
        with _seeding(random, 0, watched, seeded), _seeding(np.random, 1, watched, seeded):
            yield drawn
        now = _states()
        changed = [x for n, x in enumerate(_CHANCES) if watched[n] != now[n] and n not in seeded]
        drawn += changed if alone or _mentions_chance(step) else []
    finally:
        if alone or drawn or seeded:
            random.setstate(before[0])
            np.random.set_state(before[1])  # noqa: NPY002


@contextlib.contextmanager
def _seeding(module: Any, number: int, watched: tuple[Any, ...], seeded: set[int]) -> Iterator[None]:
    """While open, a seed that this thread sets before anything was drawn is noted."""
    setting, thread = module.seed, threading.get_ident()

    def seed(*args: Any, **kwargs: Any) -> None:
        chosen = [x for x in (*args, *kwargs.values()) if x is not None]
        if threading.get_ident() == thread:
            if chosen and _states()[number] == watched[number]:
                seeded.add(number)
            elif not chosen:  # by the clock
                seeded.discard(number)
        setting(*args, **kwargs)

    module.seed = seed
    try:
        yield
    finally:
        module.seed = setting


def _states() -> tuple[object, bytes]:
    return random.getstate(), pickle.dumps(np.random.get_state())  # noqa: NPY002


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
def own_chance_only() -> Iterator[None]:
    """While open, the step may not set the state of PyTorch's generator: runs that are repeated set it back.

    Other threads may, where there are any.

    Raises:
        ValueError: it did (``torch.manual_seed``, ``torch.random.fork_rng``), which nothing drawn here does: there are
            no values.
    """
    generator, alone = torch.default_generator, threading.active_count() == 1
    state, noted = generator.get_state(), list[str]()
    if alone:  # so that a seed set otherwise than by these two is seen
        generator.manual_seed(_NOBODYS_SEED)
    try:
        with _noted(noted):
            yield
        is_set = bool(noted) or (alone and generator.initial_seed() != _NOBODYS_SEED)
    finally:
        if alone:
            generator.set_state(state)
    if is_set:
        raise ValueError(
            "the forward pass sets the state of PyTorch's random generator (torch.manual_seed, fork_rng), which a "
            "scheduled step does not: draw before, and give the numbers as an argument, or keep them in a buffer"
        )


@contextlib.contextmanager
def _noted(notes: list[str]) -> Iterator[None]:
    """While open, what this thread sets the state of PyTorch's generator by is noted, and not done."""
    thread = threading.get_ident()

    def noting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != thread:
                return function(*args, **kwargs)
            notes.append(name)
            return torch.default_generator

        return run

    # The last is what fork_rng ends with.
    places = ((torch, "manual_seed"), (torch.random, "manual_seed"), (torch, "set_rng_state"))
    functions = [getattr(module, name) for module, name in places]
    try:
        for (module, name), function in zip(places, functions, strict=True):
            setattr(module, name, noting(name, function))
        yield
    finally:
        for (module, name), function in zip(places, functions, strict=True):
            setattr(module, name, function)
