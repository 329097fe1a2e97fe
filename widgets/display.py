"""What a user sees: traits and widgets, brought in line with one another by whatever goes on."""

from __future__ import annotations

from dataclasses import replace
from threading import RLock
from typing import Any

from widgets.background import KINDS, OPENING, PLAYING, RUNNING, WRITING, Activity
from widgets.scene.scene import Scene
from widgets.traits import Traits
from widgets.view import View


class Display:
    """The latest scene, what is said, and what is offered; any thread may change them.

    Args:
        traits: where a script sees them.
        view: where a page does.
        activity: what goes on.

    Attributes:
        lock: held by whoever reads or changes several things shown that belong together.
        scene: the latest; None as long as not even the plain step is known.
        selected_runs: first and last run that were chosen in the page; None for none. Those of a schedule with another
            number of runs are others: the page forgets them, too.
        closed: is it over? Nothing is shown any more then.
    """

    def __init__(self, traits: Traits, *, view: View, activity: Activity) -> None:
        """Nothing is shown."""
        self._traits, self._view, self._activity = traits, view, activity
        self.lock = RLock()
        self.scene: Scene | None = None
        self.selected_runs: tuple[int, int] | None = None
        self.closed = False

    def show(self, scene: Scene) -> None:
        """Draw a scene; what is there to see is always the latest."""
        if self.scene is not None and len(self.scene.drawn.operators) != len(scene.drawn.operators):
            self.selected_runs = None
        self.scene = scene
        self._view.show(scene)

    def change(self, **parts: Any) -> None:
        """Draw the latest scene with these parts in place of its own."""
        self.show(replace(self.present, **parts))

    @property
    def present(self) -> Scene:
        """The latest scene, where there must be one."""
        assert self.scene is not None, "the plain step is drawn"
        return self.scene

    def say(self, message: str, tone: str, *, progress: float | None = None) -> None:
        """Say one sentence, to a page and to a script; ``tone`` and ``progress`` as ``Controls.say`` has them."""
        self._view.controls.say(message, tone, progress=progress)
        self._traits.set_trait("message", message)

    def say_on_page(self, message: str, tone: str) -> None:
        """Say one sentence to the page alone: what a script observes may be what failed."""
        self._view.controls.say(message, tone)

    @property
    def complains(self) -> bool:
        """Does the sentence shown say what went wrong?"""
        return self._view.controls.complains

    def set_range(self, smallest_bytes: int, plain_bytes: int) -> None:
        """Let budgets be chosen, from the smallest feasible one to a plain step's peak."""
        self._view.controls.slider.set_range(smallest_bytes, plain_bytes)
        self._view.controls.slider.disabled = False

    @property
    def smallest_bytes(self) -> int:
        """The smallest budget that can be chosen."""
        return self._view.controls.slider.minimum_bytes

    def offer(self) -> None:
        """Bring status and buttons in line with what goes on."""
        with self.lock:  # what another thread has ended since must not be said to go on
            if self.closed:
                return
            under_way = next((kind for kind in KINDS if kind in self._activity), None)
            self._view.controls.enable(
                under_way=under_way is not None,
                playing=PLAYING in self._activity,
                busy=under_way in (OPENING, RUNNING, WRITING),
                schedule=self._traits.schedule is not None,
            )
            solution = self._traits.solution
            settled = solution.status.value if solution is not None else "failed"
            self._traits.set_trait("status", under_way or settled)
