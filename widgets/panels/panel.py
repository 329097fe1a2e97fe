"""What a panel is, and what it may do with the explorer that it belongs to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import ipywidgets

from explorer.solvers.problem.pins import PinsLike
from widgets.choices.choice import Choice
from widgets.scene.scene import Scene


class PanelOwner(Protocol):
    """What panels may do with their explorer: look, choose, and hear of what is chosen elsewhere.

    All of it is as ``Explorer`` and its ``Traits`` have it.
    """

    @property
    def choice(self) -> Choice:
        """What the solver is asked for."""
        ...

    @property
    def curves(self) -> list[str]:
        """The curves beside the present one."""
        ...

    @property
    def status(self) -> str:
        """What goes on, or how the last solve ended."""
        ...

    @property
    def file_stem(self) -> str:
        """What files for the schedule shown are called."""
        ...

    @property
    def bundled(self) -> str | None:
        """The bundled model that is explored."""
        ...

    def to_html(self) -> str:
        """A report of what is shown."""
        ...

    def animation(self) -> str:
        """A page that walks through the step."""
        ...

    def write_step(self, take: Callable[[str], None]) -> None:
        """Have the step written as one Python file, and taken once it is."""
        ...

    def select(self, layer: str) -> None:
        """Mark a layer, or none."""
        ...

    def walk(self, run: int | None, stretch: list[int] | None) -> None:
        """Hear where the playhead is, or which stretch of runs was chosen."""
        ...

    def hold(self) -> None:
        """Compare the next schedules with the one shown."""
        ...

    def release(self) -> None:
        """Compare with plain PyTorch again."""
        ...

    def pin(self, pins: PinsLike) -> None:
        """Decide these things instead of the solver."""
        ...

    def ask(self, **changes: Any) -> None:
        """Ask the solver for something else."""
        ...

    def cancel(self) -> None:
        """Stop what goes on."""
        ...

    def set_trait(self, name: str, value: Any) -> None:
        """Choose a budget or curves."""
        ...

    def observe(self, handler: Callable[[Any], Any], names: str) -> None:
        """Hear of a trait that changes."""
        ...


class Panel(Protocol):
    """One part of the explorer: made from the explorer it belongs to, drawn again for every new scene.

    A panel changes nothing itself: what is clicked in it sets a trait of the explorer (``selection``, ``budget_bytes``)
    or calls one of its methods, and the next scene shows the effect. ``show`` may be called from any thread, by one at
    a time; it raises nothing for a scene without a schedule.

    A panel with a plot gives it as ``figure(scene)``, None where there is nothing to plot. What nobody has to click for
    is a static method of the class: reports and files show the same, through ``panels.figures``.

    Attributes:
        name: what ``explore(panels=[…])`` calls it.
        title: on its tab, and for those who cannot see it.
        question: that it answers, in a sentence.
    """

    name: str
    title: str
    question: str

    @property
    def draws_from(self) -> tuple[str, ...]:
        """The attributes of a scene that it looks at; where none of them is new, ``show`` is not called."""
        ...

    @property
    def box(self) -> ipywidgets.Widget:
        """Its widget; closed with the explorer."""
        ...

    def show(self, scene: Scene) -> None:
        """Draw a scene."""
        ...


PanelMaker = Callable[[PanelOwner], Panel]
