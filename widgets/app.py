"""What visitors of the app choose from: a model, a device, a batch, or a profile of their own."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ipywidgets

from explorer.device_profile import Profile
from explorer.harmless import in_html, one_line
from explorer.profiles.loading import PRECISIONS, bundled_model, bundled_profiles, load_profile
from widgets import text
from widgets.entry_point import explore
from widgets.explorer import Explorer

_FIRST = "resnet50-small-cpu"
_MOST_BYTES = 32 * 2**20
_MOST_SAMPLES = 4096
Look = Callable[[int, int, str], None]  # how many of how many are done, and what comes next; may raise to stop


class App:
    """A row of choices, and the explorer of what was chosen below it; one at a time.

    Attributes:
        box: to be displayed.
        opened: the explorer shown; None before the first.
    """

    def __init__(self, first: str = _FIRST) -> None:
        """Open a bundled profile."""
        self._lock = threading.RLock()
        self._asked = 0
        self._shown = first
        self.opened: Explorer | None = None
        names = list(bundled_profiles())
        self.model = _dropdown("Model", list(dict.fromkeys(map(bundled_model, names))))
        self.device = _dropdown("Device", [])
        self.batch = ipywidgets.BoundedIntText(
            description="Batch",
            tooltip="Samples in a batch; another one than was profiled is estimated, which takes some seconds",
            min=1,
            max=_MOST_SAMPLES,
            style={"description_width": "initial"},
            layout=ipywidgets.Layout(width="130px"),
        )
        self.open = ipywidgets.Button(description="Explore", button_style="primary", tooltip="Open what is chosen")
        self.cancel = ipywidgets.Button(description="Cancel", disabled=True, tooltip="What is shown stays")
        self.upload = ipywidgets.FileUpload(
            accept=".json,.gz", description="Profile of yours", tooltip="A file that Profile.save wrote"
        )
        self.said = ipywidgets.HTML()
        self._place = ipywidgets.VBox()
        row = [self.model, self.device, self.batch, self.open, self.cancel, self.upload]
        choices = ipywidgets.HBox(row, layout=ipywidgets.Layout(flex_flow="row wrap", align_items="center"))
        self.box = ipywidgets.VBox([choices, self.said, self._place])
        self.model.value = bundled_model(first)
        self._offer_devices()
        self.device.value = first
        self._offer_batch()
        self.model.observe(lambda _: self._offer_devices(), "value")
        self.device.observe(lambda _: self._offer_batch(), "value")
        self.open.on_click(lambda _: self._open_chosen())
        self.cancel.on_click(lambda _: self._leave())
        self.upload.observe(lambda change: self._open_uploaded(change["new"]), "value")
        self._show(first)

    def _ipython_display_(self) -> None:
        """Show it, without the words that stand for it in a terminal."""
        from IPython.display import display

        display(self.box)

    def close(self) -> None:
        """End the explorer, and remove everything from the page."""
        with self._lock:
            self._asked += 1
            if self.opened is not None:
                self.opened.close()
        self.box.close()

    def _offer_devices(self) -> None:
        named = [name for name in bundled_profiles() if bundled_model(name) == self.model.value]
        self.device.options = [(name.partition("-")[2], name) for name in named]

    def _offer_batch(self) -> None:
        """Only where another batch can be estimated."""
        if self.device.value is None:
            return
        profile = load_profile(self.device.value)
        self.batch.value = profile.graph.batch[0].shape[0]
        self.batch.disabled = not profile.device.estimated

    def _open_chosen(self) -> None:
        name, samples = str(self.device.value), int(self.batch.value)
        if samples == load_profile(name).graph.batch[0].shape[0]:
            self._show(name)
            return
        self._wait_for(lambda look: _estimated(name, samples, look), f"Estimating {name} with a batch of {samples}")

    def _open_uploaded(self, files: Any) -> None:
        if files:
            file, self.upload.value = files[0], ()  # so that the same one can be chosen again
            self._wait_for(lambda _: _uploaded(file), f"Reading {file['name']}")

    def _wait_for(self, make: Callable[[Look], Profile], told: str) -> None:
        """Show what takes a while to make, unless it is cancelled or something else is asked for meanwhile."""
        with self._lock:
            self._asked += 1
            asked = self._asked
            self.cancel.disabled = False
            self._say(f"{told} … Below is still {self._shown}.")

        def look(done: int, total: int, label: str) -> None:
            with self._lock:
                if asked != self._asked:
                    raise _LeftError
                self._say(f"{told}: {label} ({done} of {total}). Below is still {self._shown}.")

        def work() -> None:
            profile, failure = None, ""
            try:
                profile = make(look)
            except _LeftError:
                return
            except (ValueError, OSError, MemoryError) as error:
                failure = f"{text.failure(error)}."
            with self._lock:
                if asked != self._asked:
                    return
                if profile is not None:
                    self._show(profile)
                else:
                    self.cancel.disabled = True
                    self._say(failure, role="alert")

        threading.Thread(target=work, name="schedule-explorer-app", daemon=True).start()

    def _leave(self) -> None:
        """Whatever is made is for nobody; it ends where it next looks."""
        with self._lock:
            self._asked += 1
            self.cancel.disabled = True
            self._say("Cancelled.")

    def _show(self, what: str | Profile) -> None:
        with self._lock:
            self._asked += 1
            self.cancel.disabled = True
            self._say("")
            self._shown = what if isinstance(what, str) else what.graph.model
            before, opened = self.opened, explore(what)
            self._place.children = (opened.page,)
            if before is not None:
                before.close()
            self.opened = opened

    def _say(self, words: str, *, role: str = "status") -> None:
        self.said.value = f"<p role='{role}'>{in_html(words)}</p>" if words else ""


class _LeftError(Exception):
    """Nobody waits for it any more."""


def _estimated(name: str, samples: int, look: Look | None = None) -> Profile:
    """A bundled profile's model with another batch, for the same device; neither takes memory."""
    import torch

    from explorer import estimate, model_source

    like = load_profile(name)
    dtype = model_source.dtype_of(like.graph.parameters)
    with torch.device("meta"):
        model, batch, loss = model_source.bundled(
            bundled_model(name), like=like.graph.batch, dtype=dtype, batch_size=samples
        )
    precision = dtype or PRECISIONS[name.partition("-")[2]]
    return estimate(model, batch, loss=loss, device=like.device.name, precision=precision, progress=look)


def _uploaded(file: Any) -> Profile:
    """A visitor's file.

    Raises:
        ValueError: it is no profile, or too large.
    """
    if len(file["content"]) > _MOST_BYTES:
        raise ValueError(f"the file has {len(file['content'])} bytes; allowed: up to {_MOST_BYTES}")
    with tempfile.TemporaryDirectory() as folder:
        # Of the name only whether it is compressed: it may be anything.
        path = Path(folder, "profile.json.gz" if file["name"].endswith(".gz") else "profile.json")
        path.write_bytes(bytes(file["content"]))
        try:
            return load_profile(path)
        except ValueError as error:  # which names a folder that says nothing to anybody
            raise ValueError(str(error).replace(str(path), one_line(file["name"]))) from error


def _dropdown(label: str, options: list[Any]) -> ipywidgets.Dropdown:
    return ipywidgets.Dropdown(
        description=label,
        options=options,
        style={"description_width": "initial"},
        layout=ipywidgets.Layout(width="230px"),
    )
