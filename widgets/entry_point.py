"""The one call that opens the widget."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

from explorer.device_profile import Profile
from explorer.solvers.options import parse_optimizations
from explorer.solvers.problem.pins import PinsLike, parse_pins
from explorer.units import parse_bytes
from widgets.choices.choice import Choice
from widgets.choices.subject import subject
from widgets.explorer import Explorer
from widgets.panels.catalogue import parse_panels

_ANY_PEAK_BYTES = 2**40


def explore(  # noqa: PLR0913 - one for each thing that users may want to say
    model_or_profile_or_name: Any | Profile | str,
    batch: Any = None,
    *,
    loss: Any = None,
    profile: Profile | None = None,
    budget: int | str | None = None,
    device: str | None = None,
    autocast: Any = None,
    fuse: bool = False,
    optimizer: Any = None,
    update: str = "end",
    accumulate: bool = False,
    distributed: str | None = None,
    optimizations: str | Iterable[str] = "all",
    exact: bool = False,
    time_limit: float = 10.0,
    pins: PinsLike | None = None,
    order: bool = False,
    panels: Iterable[str] | None = None,
) -> Explorer:
    """Explore the schedules of a model: choose a memory budget and see what fits it.

    Returns at once: profiling and solving go on in the background, and the widget shows how far they are. They have a
    copy of the model and the batch, and so has what is measured later: the next cell may train. What it takes of the
    processor makes the times that are measured longer, random numbers are drawn from the same generators, and on a GPU
    its memory would be counted: there, and for good times, call ``wait`` first. A model that cannot be copied (its loss
    has it in its text, or it takes more than an eighth of the free memory) is profiled before this returns, which a
    warning says.

    Args:
        model_or_profile_or_name: a ``torch.nn.Module``, a profile, the name of a bundled one (``"resnet50"``, estimated
            for an A100; ``schedule-explorer profiles`` lists all), or the path of a file.
        batch: the model's sample batch, as in ``explorer.profile``; only with a model.
        loss: as in ``explorer.profile``; only with a model.
        profile: of this model and batch, so that it is not profiled once more; only with a model. Device, autocast,
            kernels, optimizer and the like are the profile's then.
        budget: to solve for first: bytes, ``"8 GiB"``, or ``"80 %"`` of PyTorch's peak. None: the middle of the slider.
        device: as in ``explorer.profile``; only with a model.
        autocast: as in ``explorer.profile``; only with a model.
        fuse: as in ``explorer.profile``; only with a model.
        optimizer: likewise, and so ``update``, ``accumulate`` and ``distributed``.
        update: when the optimizer updates parameters.
        accumulate: gradients are added to those of earlier microbatches.
        distributed: the module will be in a ``DistributedDataParallel``.
        optimizations: as in ``explorer.solve``.
        exact: as in ``explorer.solve``.
        time_limit: as in ``explorer.solve``.
        pins: as in ``explorer.solve``.
        order: as in ``explorer.solve``: other orders of operators are looked at too.
        panels: which to show, by name; all if None.

    Returns:
        An object that displays itself, and does by script all that its controls do. ``close`` frees it; so does its
        cell in a notebook when it runs again and shows another, unless a variable or another cell still has this one.

    Raises:
        ValueError: an argument is not as described. That a profile cannot be read, or a model not captured, is said by
            the widget, and raised by its ``wait``.
    """
    if budget is not None:  # per cent of a peak that is not known yet: of any, to see whether they are well written
        parse_bytes(budget, whole=_ANY_PEAK_BYTES)
    choice = Choice(parse_optimizations(optimizations), exact, time_limit, parse_pins(pins), order=order)
    shown = parse_panels(panels)
    iteration = {"optimizer": optimizer, "update": update, "accumulate": accumulate, "distributed": distributed}
    what = model_or_profile_or_name
    found = subject(
        what, batch, loss=loss, profile=profile, device=device, autocast=autocast, fuse=fuse, iteration=iteration
    )
    choice.check(found.profile)
    if why := found.profile_shared():
        told = f"{why}, so that it was profiled before explore returned; leave it alone while it is measured"
        warnings.warn(told, UserWarning, stacklevel=2)
    return Explorer(found, budget=budget, choice=choice, panels=shown)
