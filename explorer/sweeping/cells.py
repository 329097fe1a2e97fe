"""What a sweep asks: the cells of models × devices × batches × budgets × methods."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from typing import Any

from explorer.arguments import a_number, a_whole_number, several
from explorer.execution.optimizers import NAMES
from explorer.profiling.devices import PRECISIONS, DeviceSpec, device_spec
from explorer.solvers.methods.table import method_named
from explorer.sweeping.sources import source_digest
from explorer.units import is_share, parse_bytes, shown

DEVICE = "device"
"""A budget: all that the device has, but for what its context takes."""
CONTEXT_BYTES = 2**30
"""Of a device's memory, what is left to CUDA's context, its libraries, and what the allocator cannot use."""

_OF_A_COMPILED_STEP = ("monet-compiled",)


@dataclass(frozen=True, slots=True)
class Step:
    """A training step on a device: what is estimated once for all budgets and methods.

    Attributes:
        model: a bundled model's name, or ``package.module:function``.
        device: a name of the table of devices, or a YAML file.
        batch_size: samples; None for the model's own.
        precision: as for ``estimate``.
        optimizer: as for ``estimate``.
        state: stands for what else its estimate depends on, as it was when the sweep was asked for: the model's code,
            the device's figures, the versions of PyTorch and of this package.
        code: the digest of the model's code that is in ``state``: workers must have the same.
        figures: the device's, which are in ``state``: workers need not have its file.
    """

    model: str
    device: str
    batch_size: int | None
    precision: str | None
    optimizer: str | None
    state: str
    code: str = field(compare=False, repr=False)
    figures: DeviceSpec = field(compare=False, repr=False)

    @property
    def key(self) -> str:
        """Equal for equal steps, in every process."""
        return _hash((self.model, self.device, self.batch_size, self.precision, self.optimizer, self.state))

    def __str__(self) -> str:
        """For people."""
        return f"{self.model}{'' if self.batch_size is None else f', batch {self.batch_size}'}, {self.device}"


@dataclass(frozen=True, slots=True)
class Cell:
    """A step, a budget, a method: what is solved once.

    Attributes:
        step: what is estimated for it.
        budget: as for ``solve``, or ``"device"``.
        method: a name of ``METHODS``.
        time_limit: seconds.
    """

    step: Step
    budget: str
    method: str
    time_limit: float

    @property
    def key(self) -> str:
        """Equal for equal cells, in every process; names the files of what was found."""
        return _hash((self.step.key, self.budget, self.method, self.time_limit))

    def __str__(self) -> str:
        """For people."""
        return f"{self.step}, {self.budget}, {self.method}"


def cells_of(
    *,
    models: Iterable[str],
    devices: Iterable[str],
    batches: Iterable[int | None],
    budgets: Iterable[int | str],
    methods: Iterable[str],
    precision: str | None,
    optimizer: str | None,
    time_limit: float,
) -> tuple[Cell, ...]:
    """Every combination once, in order: the budgets and methods of a step beside each other.

    Raises:
        ValueError: an axis is empty or has something that can be known to be none of its kind before any work begins.
    """
    if precision is not None and precision not in PRECISIONS:
        raise ValueError(f"precision is {shown(precision)}; allowed: {', '.join(PRECISIONS)}, or None")
    seconds = a_number(time_limit, "time_limit", least=0.1, what="a number of seconds, 0.1 or more")
    axes = (
        [_model(x) for x in _axis(models, "models", such_as="['resnet50', 'package.module:function']")],
        [_device(x) for x in _axis(devices, "devices", such_as="['A100-80GB', 'H100']")],
        [_batch(x) for x in _axis(batches, "batches", such_as="[16, 32], or [None] for each model's own")],
        [_budget(x) for x in _axis(budgets, "budgets", such_as="['device', '16 GiB', '50 %']")],
        [_method(x) for x in _axis(methods, "methods", such_as="['monet', 'checkpoint-blocks']")],
    )
    if optimizer is not None and (not isinstance(optimizer, str) or optimizer.lower() not in NAMES):
        raise ValueError(f"optimizer is {shown(optimizer)}; in a sweep it must be one of {', '.join(NAMES)}, or None")
    codes = {x: source_digest(x) for x in axes[0]}
    figures = {x: device_spec(x) for x in axes[1]}
    versions = tuple(_versions())
    found = (
        Cell(
            Step(
                model=model,
                device=device,
                batch_size=batch,
                precision=precision,
                optimizer=optimizer,
                state=_hash((codes[model], repr(figures[device]), *versions)),
                code=codes[model],
                figures=figures[device],
            ),
            budget,
            method,
            seconds,
        )
        for model, device, batch, budget, method in product(*axes)
    )
    return tuple(dict.fromkeys(found))


def _axis(values: Any, name: str, *, such_as: str) -> list[Any]:
    found = several(values, name, such_as=such_as)
    if not found:
        raise ValueError(f"{name} is empty; give some, such as {such_as}")
    return found


def _method(value: Any) -> str:
    name = method_named(value).name
    if name in _OF_A_COMPILED_STEP:
        raise ValueError(
            f"methods has {name!r}, which plans a step that was compiled and measured (explorer.profile_compiled), and "
            "a sweep estimates; explorer.compiled_within plans for this machine"
        )
    return name


def _model(value: Any) -> str:
    from explorer.models import model_spec

    if not isinstance(value, str):
        raise ValueError(
            f"models has {shown(value)}; each must be a name, of a bundled model or as 'package.module:function', so "
            "that every worker can make it"
        )
    return value if ":" in value else model_spec(value).name


def _device(value: Any) -> str:
    device_spec(value)
    return str(value)


def _batch(value: Any) -> int | None:
    return None if value is None else a_whole_number(value, "a batch", least=1)


def _budget(value: Any) -> str:
    if value == DEVICE:
        return DEVICE
    parse_bytes(value, whole=1000 if is_share(value) else None)
    return str(value) if isinstance(value, str) else f"{int(value)} B"


def _versions() -> Iterator[str]:
    for package in ("schedule-explorer", "torch"):
        with suppress(PackageNotFoundError):  # run from its files
            yield version(package)


def _hash(parts: tuple[Any, ...]) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:20]
