"""What the options of commands say: models, sizes of their batches, pins."""

from __future__ import annotations

from typing import Any

import typer

from explorer.schedule import Schedule

PROFILE = typer.Argument(metavar="PROFILE", help="A file that 'profile' wrote, or a bundled name.")
SCHEDULE = typer.Argument(metavar="SCHEDULE", help="A file that 'solve' wrote, or a name of the zoo.")


def model_of(
    name: str, sizes: dict[str, Any], *, like: tuple[Any, ...] = (), device: str | None = None
) -> tuple[Any, Any, Any]:
    """Model, batch and loss of a bundled name or a factory, on ``device``."""
    from explorer import model_source

    if ":" not in name:
        made = model_source.bundled(name, like=like, **sizes)
    elif sizes:
        verb = "is" if len(sizes) == 1 else "are"
        raise ValueError(f"{', '.join(sizes)} {verb} for bundled models; {name} makes its own batch")
    else:
        made = model_source.factory(name)
    return made if device is None else model_source.moved(made, device)


def pin_of(text: str) -> tuple[str, str]:
    """``"relu_3=recompute"``."""
    name, equals, choice = (part.strip() for part in text.partition("="))
    if not (name and equals and choice):
        raise ValueError(f"pin {text!r} must be TENSOR=keep, TENSOR=recompute or OPERATOR=IMPLEMENTATION")
    return name, choice


def sizes_of(
    batch_size: int | None, image_size: str | None, volume_size: str | None, sequence_length: int | None
) -> dict[str, Any]:
    """Those of a bundled model's batch that were given."""
    given = {
        "batch_size": batch_size,
        "image_size": _sides(image_size),
        "volume_size": _sides(volume_size),
        "sequence_length": sequence_length,
    }
    return {name: size for name, size in given.items() if size is not None}


def _sides(size: str | None) -> tuple[int, ...] | int | None:
    """``"112"`` or ``"416x608"``."""
    if size is None:
        return None
    parts = size.lower().split("x")
    if not all(part.isdigit() and int(part) > 0 for part in parts):
        raise ValueError(f"size {size!r} must be a positive number, or several with x between them: 416x608")
    sides = tuple(int(part) for part in parts)
    return sides[0] if len(sides) == 1 else sides


def optimizer_of(schedule: Schedule) -> str | None:
    """The name of the optimizer that a schedule was planned with, if it was planned with one.

    Raises:
        ValueError: no name stands for it.
    """
    from explorer.execution.optimizers import name_of

    label = schedule.identity.iteration.optimizer
    name = None if label is None else name_of(label)
    if label is not None and name is None:
        raise ValueError(
            f"the schedule was planned with {label}, which no name stands for: explorer.measure(…, optimizer=…) in "
            "Python takes the optimizer itself"
        )
    return name
