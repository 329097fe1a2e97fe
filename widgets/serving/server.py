"""The explorer as a page for visitors: Voila with bounds. ``make app`` runs it.

A visitor takes a place: a kernel, and the process that solves for it. There are only so many; who finds none free is
told so at once. A place becomes free when its page is closed, was left alone, or was never opened in a browser.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager
from tornado.web import HTTPError
from traitlets import Bool, Integer
from voila.app import Voila
from voila.tornado.handler import TornadoVoilaHandler

from widgets.serving.visitors import VARIABLE

_TAKEN = 503
_TEMPLATE = Path(__file__).with_name("template")
_FULL = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Schedule explorer: no place is free</title></head>
<body><main><h1>No place is free</h1><p>All {most} places of this schedule explorer are taken. One becomes free when
somebody closes the page, or leaves it alone for {minutes} minutes: try again later.</p></main></body></html>
"""


class Places(AsyncMappingKernelManager):
    """At most so many kernels, each for as long as somebody uses it."""

    most = Integer(4, min=1, config=True, help="Visitors at a time; each takes about 1 GB of memory.")
    unused_s = Integer(1800, min=1, config=True, help="Seconds until a page that nobody touches gives up its place.")
    alone_s = Integer(60, min=1, config=True, help="Seconds until a kernel that no page is connected to is ended.")
    cull_interval = Integer(15, min=1, config=True, help="Seconds between two looks at which places can be freed.")
    # Neither a page that is merely open nor a cell that never ends holds a place for ever.
    cull_connected = Bool(default_value=True)
    cull_busy = Bool(default_value=True)

    def __init__(self, **kwargs: Any) -> None:
        """All places are free."""
        super().__init__(**kwargs)
        self.cull_idle_timeout = self.unused_s
        self._coming: set[str] = set()
        self._alone: dict[str, float] = {}  # since when no page is connected, as far as was seen

    async def start_kernel(self, **kwargs: Any) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Start a kernel, which is told that it is a visitor's.

        Raises:
            HTTPError: 503, no place is free.
        """
        if len(self._coming | set(self.list_kernel_ids())) >= self.most:
            raise HTTPError(_TAKEN)
        taken = str(uuid4())
        self._coming.add(taken)
        self._alone = {kernel: since for kernel, since in self._alone.items() if kernel in self}
        try:
            kwargs["env"] = {**kwargs.get("env", {}), VARIABLE: "1"}
            return await super().start_kernel(**kwargs, kernel_id=taken)
        finally:
            self._coming.discard(taken)

    async def cull_kernel_if_idle(self, kernel_id: str) -> None:
        """End it if its page does nothing, or if it has none: then also while it solves, maybe for hours."""
        if self.kernel_model(kernel_id)["connections"]:
            self._alone.pop(kernel_id, None)
            await super().cull_kernel_if_idle(kernel_id)
        elif time.monotonic() - self._alone.setdefault(kernel_id, time.monotonic()) > self.alone_s:
            self.log.warning("Kernel %s has no page: it is ended", kernel_id)
            await self.shutdown_kernel(kernel_id)


class Page(TornadoVoilaHandler):
    """The notebook as a page, or a page that says that no place is free."""

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """In words where somebody has to wait."""
        if status_code != _TAKEN:
            super().write_error(status_code, **kwargs)
            return
        places = cast("Places", self.kernel_manager)
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.set_header("Retry-After", str(places.alone_s))
        self.finish(_FULL.format(most=places.most, minutes=math.ceil(places.unused_s / 60)))


class Served(Voila):
    """Voila that answers to the names of this machine alone, shows one template, and has ``Places``."""

    classes = [*Voila.classes, Places]  # noqa: RUF012 - as traitlets has it

    def setup_template_dirs(self) -> None:
        """Voila's, below ours, which asks nobody else for anything."""
        super().setup_template_dirs()
        self.template_paths = [str(_TEMPLATE), *self.template_paths]

    def init_settings(self) -> dict[str, Any]:
        """Voila's, but for what any name may ask.

        A page from elsewhere whose name was made to lead here (DNS rebinding) says its own name as the host's.
        ``Voila.tornado_settings`` may name other hosts: ``{"local_hostnames": ["localhost", "explorer.example"]}``.
        """
        self.voila_configuration.multi_kernel_manager_class = Places
        # Else a request could name a template, which is a path.
        self.voila_configuration.allow_template_override = "NO"
        self.voila_configuration.allow_theme_override = "NO"
        settings: dict[str, Any] = super().init_settings()  # pyright: ignore[reportAssignmentType]
        return {**settings, "allow_remote_access": False}

    def init_handlers(self) -> list[Any]:
        """Voila's, with our page in place of its own."""
        handlers: list[Any] = super().init_handlers()  # pyright: ignore[reportAssignmentType]
        return [(path, Page if of is TornadoVoilaHandler else of, *more) for path, of, *more in handlers]
