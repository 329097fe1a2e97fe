"""What the workers of a sweep do: estimate a step, answer a cell. Everything that comes and goes can be pickled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from explorer.budgets import a_budget
from explorer.device_profile import Profile
from explorer.schedule import Schedule, keep_all
from explorer.simulation import simulate
from explorer.solution import Status
from explorer.sweeping.cells import CONTEXT_BYTES, DEVICE, Cell, Step
from explorer.sweeping.sources import import_as_asked
from explorer.sweeping.table import Row


@dataclass(frozen=True, slots=True)
class Answer:
    """A cell's row, and its schedule, if there is one."""

    row: Row
    schedule: Schedule | None = None


def estimated(step: Step) -> Profile:
    """The step's profile for its device; bundled models take no memory.

    Raises:
        ValueError: the model cannot be made or captured, or not in this batch, or its code is another here.
    """
    import torch

    from explorer import model_source
    from explorer.profiling import estimate

    sizes: dict[str, Any] = {} if step.batch_size is None else {"batch_size": step.batch_size}
    if ":" in step.model:
        import_as_asked(step.model, step.code)
        model, batch, loss = model_source.factory(step.model, **sizes)
    else:
        with torch.device("meta"):
            model, batch, loss = model_source.bundled(step.model, **sizes)
    return estimate(model, batch, loss=loss, device=step.figures, precision=step.precision, optimizer=step.optimizer)


def answered(profile: Profile, cell: Cell) -> Answer:
    """A cell's answer, judged by the simulator."""
    from explorer.solvers import solve
    from explorer.solvers.methods.batch_size import samples_of

    plain = simulate(profile, keep_all(profile.graph))
    budget_bytes = budget_of(profile, cell.budget)
    found = solve(profile, budget=budget_bytes, method=cell.method, time_limit=cell.time_limit, remember=False)
    samples = cell.step.batch_size or samples_of(profile.graph.batch)
    row = row_of(
        cell,
        found.status,
        found.message,
        samples=samples,
        budget_bytes=budget_bytes,
        plain_peak_bytes=plain.peak_bytes,
        plain_time_ms=plain.time_ms,
        peak_bytes=found.peak_bytes,
        time_ms=found.time_ms,
        samples_per_s=None if samples is None or not found.time_ms else 1000 * samples / found.time_ms,
        bound_ms=found.bound_ms(),
        elapsed_s=found.elapsed_s,
        device_bytes=device_bytes(profile),
    )
    return Answer(row, found.schedule)


def budget_of(profile: Profile, budget: str) -> int:
    """In bytes.

    Raises:
        ValueError: it is the device's memory, of a device with none to speak of.
    """
    if budget != DEVICE:
        return a_budget(budget, profile)
    memory_bytes = device_bytes(profile)
    if memory_bytes <= 0:
        raise ValueError(f"the memory of {profile.device.label} leaves nothing beside its context")
    return memory_bytes


def device_bytes(profile: Profile) -> int:
    """What a step may take of the device's memory."""
    return max(0, (profile.device.memory_bytes or 0) - CONTEXT_BYTES)


def row_of(cell: Cell, status: Status, message: str, *, samples: int | None = None, **found: float | None) -> Row:
    """A cell as the table has it, with what was found for it."""
    step = cell.step
    return Row(
        key=cell.key,
        model=step.model,
        device=step.device,
        batch_size=step.batch_size,
        samples=samples,
        precision=step.precision,
        optimizer=step.optimizer,
        budget=cell.budget,
        method=cell.method,
        time_limit=cell.time_limit,
        status=status,
        message=message,
        **found,  # pyright: ignore[reportArgumentType] - bytes are whole numbers
    )
