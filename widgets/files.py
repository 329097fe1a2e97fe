"""What is taken away: schedules, reports, pages; where they lie and what they are called."""

from __future__ import annotations

from pathlib import Path

from explorer.harmless import below_working_folder, check_replaceable, file_stem
from explorer.profiles.loading import bundled_model
from explorer.schedule import SCHEMA, Schedule
from explorer.solution import Solution
from explorer.storage import storage_format
from widgets import style
from widgets.animation import animation
from widgets.choices.subject import Subject
from widgets.display import Display
from widgets.elements.controls import Controls
from widgets.report import report
from widgets.scene.scene import Scene
from widgets.traits import Traits


class Files:
    """Files of what an explorer shows.

    Args:
        subject: has the name that they are called after.
        traits: have the answer.
        display: has the scene.
        controls: have the text box for a name, or the button of a page that saves.
    """

    def __init__(self, subject: Subject, *, traits: Traits, display: Display, controls: Controls) -> None:
        """Nothing is written."""
        self._subject, self._traits, self._display, self._controls = subject, traits, display, controls

    @property
    def stem(self) -> str:
        """What files for the schedule shown are called, without a suffix."""
        scene = self._display.scene
        return self.name(None if scene is None else scene.solution).removesuffix(".json")

    @property
    def bundled(self) -> str | None:
        """Name of the bundled model that is explored; None for anything of the user's own."""
        return None if self._subject.bundled is None else bundled_model(self._subject.bundled)

    def name(self, solution: Solution | None) -> str:
        """By the budget of the schedule that is shown: another one may be asked for already."""
        scene = self._display.scene
        of = None if scene is None else scene.keep_all.peak_bytes
        budget = "" if solution is None else "-" + style.format_memory(solution.budget_bytes, of=of).replace(" ", "")
        return file_stem(self._subject.name).lower() + budget + ".json"

    def save(self, path: str | Path | None) -> Path:
        """As ``Explorer.save``."""
        schedule = self._schedule()
        target = self._typed() if path is None else Path(path).expanduser().resolve()
        schedule.save(target)
        self._display.say(f"Saved the schedule to {target}", "good")
        return target

    def send(self) -> None:
        """Have the page save the schedule."""
        download = self._controls.download
        assert download is not None, "its button called"
        content = storage_format.text_of(self._schedule(), schema=SCHEMA)
        download.save(f"{self.stem}.json", content, "application/json")

    def report(self) -> str:
        """As ``Explorer.to_html``."""
        scene = self._scene()
        return report(scene, file=self.name(scene.solution), bundled=self.bundled)

    def animation(self) -> str:
        """As ``Explorer.animation``."""
        return animation(self._scene())

    def _scene(self) -> Scene:
        if self._display.scene is None:
            raise ValueError("nothing is open yet; wait until the first schedule is there")
        return self._display.scene

    def _schedule(self) -> Schedule:
        solution = self._traits.solution
        if solution is None or solution.schedule is None:
            raise ValueError("there is no schedule to save yet; wait for the solver, or choose a larger budget")
        return solution.schedule

    def _typed(self) -> Path:
        """The file of the text box."""
        if self._controls.file_name is None:
            raise ValueError(
                "this page is served to visitors, who write nothing here: press 'Save schedule' in it, or call "
                "save(path) from Python"
            )
        target = below_working_folder(self._controls.file_name.value.strip() or self.name(self._traits.solution))
        check_replaceable(target, kind="Schedule")
        return target
