"""What is explored: a profile, or a model with a batch, from which each can get the other where that is possible."""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from threading import Lock
from typing import TYPE_CHECKING, Any

from explorer import model_source
from explorer.arguments import a_flag, a_loss, a_path
from explorer.autocast import Autocast
from explorer.device_profile import Profile
from explorer.kinds import a_profile
from explorer.measurement import Measurement
from explorer.profiles.loading import bundled_model, load_profile
from explorer.schedule import Schedule
from explorer.units import shown

if TYPE_CHECKING:  # torch takes seconds to import
    from widgets.choices.apart import Example

USUAL = {"optimizer": None, "update": "end", "accumulate": False, "distributed": None}
"""What an iteration is if nothing is said of it."""
# PyTorch traces with patches that hold for all threads, and steps measured side by side slow each other down.
TORCH = Lock()
_AMD_DRIVER = Path("/dev/kfd")


@dataclass
class Subject:
    """A profile to solve for and, where there is one, a model to run.

    Attributes:
        name: for titles and file names.
        profile: None until it was read, or a model was profiled.
        source: name or path that the profile is read from; None for a profile or a model in memory.
        model: None where only a profile is known.
        batch: the model's sample batch.
        loss: as in ``explorer.profile``.
        device: as in ``explorer.profile``.
        autocast: what a model is captured under, as it was where ``explore`` was called.
        fuse: as in ``explorer.profile``.
        iteration: ``optimizer``, ``update``, ``accumulate`` and ``distributed`` as in ``explorer.profile``.
        bundled: name of the bundled profile whose model can stand in for ``model``.
        own: copies of model, batch, loss and optimizer, until these were profiled.
    """

    name: str
    profile: Profile | None = None
    source: str | None = None
    model: Any = None
    batch: Any = None
    loss: Any = None
    device: str | None = None
    autocast: Autocast | None = None
    fuse: bool = False
    iteration: Mapping[str, Any] = field(default_factory=dict)
    bundled: str | None = None
    own: Example | None = None
    _failure: Exception | None = None

    def profile_shared(self) -> str:
        """Profile a model that cannot be copied here and now: the user's next cell may use it.

        Returns:
            Why it cannot be; empty where there is a copy for another thread, or a profile already.
        """
        if self.own is None or not self.own.why_shared:
            return ""
        why = self.own.why_shared
        try:
            self.profiled(lambda *_: None)
        except Exception as error:  # noqa: BLE001 - as in the other thread, which says it
            self._failure = error
        return why

    def profiled(self, progress: Callable[[int, int, str], None]) -> Profile:
        """The profile, read or measured now where there is none yet.

        Raises:
            ValueError: it cannot be read, or the model cannot be captured.
        """
        if self.profile is None and self.source is not None:
            self.profile = load_profile(self.source)
            self.name = self.bundled or self.profile.graph.model
        if self._failure is not None:
            raise self._failure
        if self.profile is None:
            from explorer.profiling import profile

            assert self.own is not None, "there is a model"
            with TORCH:
                self.profile = profile(
                    self.own.model,
                    self.own.batch,
                    loss=self.own.loss,
                    device=self.device,
                    autocast=self.autocast,
                    fuse=self.fuse,
                    progress=progress,
                    **{**self.iteration, "optimizer": self.own.optimizer},
                )
            self.own = None
        return self.profile

    def example(self) -> Example | None:
        """A copy of what a step is made of, to run it in another thread; None for a bundled model, which is made there.

        To be called where the user's own code runs: it goes on with the model as soon as this returns.
        """
        if self.model is None:
            return None
        from widgets.choices.apart import apart

        return apart(self.model, self.batch, self.loss, self.iteration.get("optimizer"))

    def measured(
        self,
        schedule: Schedule,
        example: Example | None,
        *,
        steps: int,
        plain: bool,
        stage: Callable[[str, float], None],
    ) -> tuple[Measurement, float | None]:
        """Run a schedule for real, and plain steps beside it to compare the machine with.

        Args:
            schedule: for this model and batch.
            example: as ``example`` gave it.
            steps: training steps to time.
            plain: may plain steps run? They take the memory that the schedule is there to save.
            stage: called with what comes next and the fraction done; may raise to stop.

        Returns:
            The measurement, and the duration of a plain step in ms, None if there was none.

        Raises:
            ValueError: there is only a profile, and no bundled model belongs to it; or the schedule does not fit.
        """
        from explorer.execution import apply, measure
        from explorer.execution.measuring import step_time_ms

        def steps_from(label: str, start: float, end: float) -> Callable[[int, int], None]:
            return lambda done, total: stage(f"{label} ({done + 1} of {total})", start + (end - start) * done / total)

        with TORCH:
            stage("Building the model", 0.0)
            found = example or self._made()
            model, batch, loss = found.model, found.batch, found.loss
            stage("Applying the schedule to the model", 0.1)
            module = apply(model, schedule, batch, loss=loss)
            itself = ", of the model itself: leave it alone meanwhile" if found.why_shared else ""
            told = steps_from(f"Running and measuring training steps{itself}", 0.3, 0.7 if plain else 1.0)
            optimizer = found.optimizer or (self.profile and self.profile.optimizer)
            around = {"optimizer": optimizer, "accumulate": schedule.identity.iteration.accumulate}
            measurement = measure(module, batch, steps=1 if plain else steps, progress=told, **around)
            if not plain:
                return measurement, None
            # In turns: what else the machine does meanwhile comes and goes.
            own_ms, plain_ms, casts = list[float](), list[float](), schedule.identity.autocast
            for turn in range(steps):
                stage(
                    f"Timing plain steps in turns with the schedule's ({turn + 1} of {steps})", 0.7 + 0.3 * turn / steps
                )
                own_ms.append(step_time_ms(module, batch, steps=1, **around))
                plain_ms.append(step_time_ms(model, batch, loss=loss, autocast=casts, steps=1, **around))
            return replace(measurement, step_time_ms=median(own_ms)), median(plain_ms)

    def exported(self, schedule: Schedule, example: Example | None, *, stage: Callable[[str, float], None]) -> str:
        """The text of a Python file that runs a schedule with torch alone: see ``explorer.export``.

        Args:
            schedule: for this model and batch.
            example: as ``example`` gave it.
            stage: as in ``measured``.

        Raises:
            ValueError: as in ``measured``; or the step cannot be written down.
        """
        from explorer.exporting import export

        with TORCH, tempfile.TemporaryDirectory() as folder:
            stage("Building the model", 0.0)
            found = example or self._made()
            stage("Writing the step as a Python file", 0.2)
            path = Path(folder, "step.py")
            return export(found.model, schedule, found.batch, path=path, loss=found.loss).read_text(encoding="utf-8")

    def check_runnable(self) -> None:
        """Raise ValueError where no schedule can run here: there is only a profile, or no such device."""
        if self.model is None and self.bundled is None:
            raise ValueError(
                "only a profile is open, so there is no model to run; open the model itself with "
                "explore(model, batch), or apply the saved schedule with explorer.apply"
            )
        if self.model is None and self.profile is not None:
            _device_for(self.profile)

    def _made(self) -> Example:
        """The bundled model, with random weights."""
        self.check_runnable()
        assert self.bundled is not None, "checked"
        from widgets.choices.apart import Example

        profile = self.profiled(lambda *_: None)
        device = _device_for(profile)
        dtype = model_source.dtype_of(profile.graph.parameters)
        made = model_source.bundled(bundled_model(self.bundled), like=profile.graph.batch, dtype=dtype)
        return Example(*model_source.moved(made, device))


def _device_for(profile: Profile) -> str:
    """Where a profile's schedules run.

    Raises:
        ValueError: that is a GPU, and there is none here.
    """
    if profile.device.kind == "cuda" and not _cuda_available():
        how = "estimated for" if profile.device.estimated else "measured on"
        raise ValueError(
            f"this profile was {how} {profile.device.name}, and its schedules run on a CUDA device; there is none "
            "here. To run schedules on this machine explore a model of your own, or 'resnet50-small-cpu'"
        )
    return profile.device.kind


def _cuda_available() -> bool:
    """As PyTorch says it, which takes seconds to import; without a driver there is no need to ask."""
    if not _AMD_DRIVER.exists():
        try:
            ctypes.CDLL("libcuda.so.1")
        except OSError:
            return False
    import torch

    return torch.cuda.is_available()


def subject(
    what: Any,
    batch: Any,
    *,
    loss: Any,
    profile: Profile | None = None,
    device: str | None,
    autocast: Any,
    fuse: bool = False,
    iteration: Mapping[str, Any],
) -> Subject:
    """Recognise what ``explore`` was given; a name or path is not looked at yet.

    Raises:
        ValueError: it is neither a model with a batch, nor a profile, nor a text; or the profile is another model's.
    """
    a_flag(fuse, "fuse")
    known = None if profile is None else a_profile(profile)
    set_by_profile = device is not None or autocast is not None or fuse or dict(iteration) != USUAL
    if isinstance(what, Profile | str | Path):
        if any(x is not None for x in (batch, loss, known)) or set_by_profile:
            raise ValueError(
                "a profile already has its batch, loss, device, autocast, kernels and optimizer; "
                "give those with a model only"
            )
        if isinstance(what, Profile):
            return Subject(what.graph.model, what)
        what = str(a_path(what, instead=", or the name of a bundled profile"))
        # As load_profile reads it: a name without a suffix that is no file is a bundled one.
        bundled = what if not Path(what).suffix and not Path(what).exists() else None
        return Subject(bundled or Path(what).name, source=what, bundled=bundled)
    if not (callable(what) and hasattr(what, "named_parameters")):
        raise ValueError(
            "explore needs a torch.nn.Module with a batch, a Profile, or the name or path of a profile; got "
            + shown(what)
        )
    from explorer.capture.ambient import an_autocast  # here because torch takes seconds to import
    from explorer.capture.batch import call_arguments
    from explorer.torch_arguments import a_batch, a_device, a_model

    model = a_model(what)
    a_device(device, model)
    if batch is None:
        raise ValueError("explore(model) needs a sample batch as well: explore(model, batch)")
    a_batch(batch, model)
    call_arguments(batch, loss=a_loss(loss))
    if known is not None:
        if set_by_profile:
            raise ValueError("a profile already has its device, autocast, kernels and optimizer: leave those out")
        _check_profiled(known, model, batch, loss=loss)
        return Subject(type(what).__name__, known, model=what, batch=batch, loss=loss)
    # Another thread profiles, where nothing is active.
    casts = an_autocast(autocast, next(model.parameters()).device.type)
    from explorer.profiling.profiling import planned

    planned(model, loss, **iteration)  # what is wrong with it is said at once
    found = Subject(
        type(what).__name__,
        model=what,
        batch=batch,
        loss=loss,
        device=device,
        autocast=casts,
        fuse=fuse,
        iteration=iteration,
    )
    found.own = found.example()
    return found


def _check_profiled(profile: Profile, model: Any, batch: Any, *, loss: Any) -> None:
    """Raise ValueError for a profile that is, as far as can be told without a capture, another model's."""
    from explorer.capture.batch import BatchLayout, call_arguments, flatten, parameter_specs
    from explorer.execution.device import describe_device, device_of

    own = describe_device(device_of(model))
    elsewhere = own.kind == "cuda" and profile.device.name != own.name
    if profile.device.kind != own.kind or profile.device.estimated or elsewhere:
        how = "estimated" if profile.device.estimated else "measured"
        raise ValueError(
            f"the profile was {how} for {profile.device.name} ({profile.device.kind}), and the model is on "
            f"{own.kind!r} ({own.name}), where it would be run: explore(profile) shows a profile by itself"
        )
    here, there = ({x.name: x for x in specs} for specs in (parameter_specs(model), profile.graph.parameters))
    for name in dict.fromkeys([*here, *there]):
        if here.get(name) != there.get(name):
            raise ValueError(f"the profile is of another model ({profile.graph.model}): they differ in {name!r}")
    specs = BatchLayout.of(flatten(*call_arguments(batch, loss=loss))).specs
    if specs != profile.graph.batch:
        told = [", ".join(map(str, x)) for x in (specs, profile.graph.batch)]
        raise ValueError(f"the profile is for another batch: {told[0]} here, {told[1]} there")
