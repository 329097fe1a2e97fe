"""A schedule as a file that runs without this package, in one of several forms."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from torch import nn

from explorer.arguments import a_flag, a_path
from explorer.capture import Batch, Loss
from explorer.capture.batch import uncompiled
from explorer.compiling import Compiled, compiled
from explorer.device_profile import Profile
from explorer.exporting import compiled_file, python, selective_file
from explorer.exporting.selective import selective
from explorer.kinds import a_profile, a_schedule
from explorer.schedule import Schedule
from explorer.simulation import simulate
from explorer.torch_arguments import a_module
from explorer.units import shown

FORMS = {
    "python": python.FIRST_WORDS,
    "selective": selective_file.FIRST_WORDS,
    "compile": compiled_file.FIRST_WORDS,
}
"""With what a file of each begins."""


def export(
    model: nn.Module,
    schedule: Schedule | Compiled,
    batch: Batch,
    *,
    path: str | Path,
    loss: Loss | None = None,
    form: str = "python",
    profile: Profile | None = None,
    check: bool = True,
) -> Path:
    """Write a schedule as one Python file that runs with torch alone, and can be read.

    In it are the forward and the backward pass as straight calls of PyTorch's operators, each with its layer, a ``del``
    where memory is freed, the ways to run operators that the schedule uses as small functions, and
    ``scheduled(model)``, which gives the model by that schedule: in any loop, with the model's own parameters, the same
    bits and the same bytes as ``apply``'s.

    ``form="selective"`` writes selective activation checkpointing instead: a policy for each of the model's repeated
    blocks, for ``torch.utils.checkpoint``. It is coarser, and says so in the file: how far its simulated peak is from
    the schedule's, and what of the schedule it cannot say.

    ``form="compile"`` writes what ``torch.compile`` is to save: tags for its partitioner, with the predicted peak. It
    takes what ``compiled`` takes, and runs by the compiler's own kernels.

    Args:
        model: the schedule's, in training mode.
        schedule: as for ``apply``, or for ``compiled`` with that form, which also takes what ``compiled`` and
            ``compiled_within`` return, with all that was decided there.
        batch: likewise.
        path: of the file.
        loss: likewise; a module with parameters cannot be written down. A file of the compile form is given it again.
        form: ``"python"``, ``"selective"`` or ``"compile"``.
        profile: the schedule's, for the figures that a file of the selective or the compile form has; without it they
            are of tensors alone.
        check: for form ``"python"``: before, run one step by the schedule and one of the model and compare, as
            ``apply`` does; passed once, for either, they are not run again.

    Returns:
        ``path``.

    Raises:
        ValueError: the schedule belongs to another model, batch or loss, or has what such a file cannot say (names
            it), or the file cannot be written.
        CheckFailedError: a step by the schedule does not compute what the model does.
    """
    path = a_path(path)
    a_flag(check, "check")
    _first_words(form)
    if profile is not None and form == "python":
        raise ValueError(
            f"profile is {shown(profile)}; it is for form='selective' and form='compile', whose files have its figures"
        )
    model = uncompiled(a_module(model))
    if form == "compile":
        made = _compiled(model, schedule, batch, loss, profile)
        text = compiled_file.compiled_text(made, with_loss=loss is not None)
    elif isinstance(schedule, Compiled):
        raise ValueError(f"schedule is of a compiled step: form='compile' writes it, and not form={form!r}")
    elif form == "selective":
        text = _selective(model, schedule, batch, loss, profile)
    else:
        text = python.python_text(model, schedule, batch, loss=loss, check=check)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ValueError(f"cannot write {path}: {error.strerror}") from error
    return path


def is_exported(path: Path, *, form: str) -> bool:
    """Does a file begin as one of that form that ``export`` wrote?

    Raises:
        ValueError: there is no such form.
    """
    head = f'"""{_first_words(form)}'.encode()
    with path.open("rb") as file:
        return file.read(len(head)) == head


def _first_words(form: str) -> str:
    if not isinstance(form, str) or form not in FORMS:
        raise ValueError(f"form is {shown(form)}; allowed: {', '.join(map(repr, FORMS))}")
    return FORMS[form]


def _compiled(
    model: nn.Module, schedule: Schedule | Compiled, batch: Batch, loss: Loss | None, profile: Profile | None
) -> Compiled:
    if not isinstance(schedule, Compiled):
        return compiled(model, schedule, batch, loss=loss, profile=profile)
    asked = replace(schedule.schedule, budget_bytes=None)  # what the step takes was told when it was made
    of_this = compiled(model, asked, batch, loss=loss, profile=profile).choice  # refuses another's
    if of_this.graph != schedule.choice.graph:
        raise ValueError("schedule is of another compiled step; give the model, batch and loss that it was made with")
    return schedule


def _selective(model: nn.Module, schedule: Schedule, batch: Batch, loss: Loss | None, profile: Profile | None) -> str:
    if profile is not None:
        simulate(a_profile(profile), a_schedule(schedule))  # refuses another's
    found = selective(model, schedule, batch, loss=loss)
    return selective_file.text_of(found, schedule, profile=profile)
