"""What visitors choose from."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from explorer.device_profile import Profile
from explorer.profiles.loading import bundled_profiles, load_profile
from tests.widgets.trained import Trained
from widgets.app import App, Look, _estimated

_PATIENCE_S = 300.0
_QUICK = ("gpt2-a100-80gb", "vgg16-a100-80gb", "vgg16-p100-16gb")  # of the others some take a minute
_ESTIMATED = [x for x in bundled_profiles() if "h200" not in x and "cpu" not in x]


@pytest.fixture
def app() -> Iterator[App]:
    made = App()
    yield made
    made.close()


def until(app: App, model: str) -> None:
    """Wait until an explorer of this model is shown."""
    deadline = time.monotonic() + _PATIENCE_S
    while model not in repr(app.opened):
        assert time.monotonic() < deadline, app.said.value
        time.sleep(0.05)


def test_a_model_a_device_and_a_batch_are_chosen(app: App) -> None:
    first = app.opened
    assert first is not None
    assert app.batch.disabled, "what was measured has the batch that it has"
    app.model.value = "mobilenet_v2"
    assert [label for label, _ in app.device.options] == ["a100-80gb", "h200", "p100-16gb"]
    app.device.value = "mobilenet_v2-p100-16gb"
    assert not app.batch.disabled
    app.batch.value = 2
    app.open.click()
    assert "Estimating mobilenet_v2-p100-16gb" in app.said.value
    assert "Below is still resnet50-small-cpu" in app.said.value
    until(app, "MobileNetV2")
    assert app.opened is not None
    assert first.status == "closed"
    profile = app.opened._subject.profile
    assert profile is not None
    assert profile.graph.batch[0].shape[0] == 2
    assert profile.device.estimated
    assert "P100" in profile.device.name


@pytest.mark.parametrize(
    "name", [x if x in _QUICK else pytest.param(x, marks=pytest.mark.thorough) for x in _ESTIMATED]
)
def test_an_estimate_at_the_bundled_batch_is_the_bundled_one(name: str) -> None:
    """Another batch is estimated in the same precision, then, which the device does not tell."""
    profile = load_profile(name)
    again = _estimated(name, profile.graph.batch[0].shape[0])
    assert again.graph == profile.graph
    assert again.costs == profile.costs


def test_every_bundled_estimate_is_among_those() -> None:
    assert [x for x in bundled_profiles() if load_profile(x).device.estimated] == _ESTIMATED


def test_a_profile_is_uploaded_and_what_is_none_is_told(app: App, trained: Trained, tmp_path: Path) -> None:
    trained.profile.save(tmp_path / "own.json")
    app._open_uploaded([{"name": "../own.json", "content": memoryview((tmp_path / "own.json").read_bytes())}])
    until(app, "ConvNet")
    app.open.click()
    until(app, "resnet50-small-cpu")
    uploaded = {"name": "own.json", "type": "", "size": 1, "last_modified": datetime.now(tz=UTC)}
    for _ in range(2):  # the same file, after something else
        app.upload.value = [{**uploaded, "content": memoryview((tmp_path / "own.json").read_bytes())}]
        until(app, "ConvNet")
        app.open.click()
        until(app, "resnet50-small-cpu")
    app.upload.value = [{**uploaded, "content": memoryview((tmp_path / "own.json").read_bytes())}]
    until(app, "ConvNet")
    app._open_uploaded([{"name": "own.json", "content": memoryview(b"{")}])
    deadline = time.monotonic() + _PATIENCE_S
    while "role='alert'" not in app.said.value:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert "own.json is not complete JSON" in app.said.value
    assert "tmp" not in app.said.value
    assert "ConvNet" in repr(app.opened)


def test_what_is_made_can_be_cancelled_and_ends_where_it_next_looks(app: App) -> None:
    first = app.opened
    made, asked, went_on = threading.Event(), threading.Event(), list[bool]()

    def make(look: Look) -> Profile:
        look(1, 3, "conv")
        made.set()
        assert asked.wait(60)
        look(2, 3, "relu")
        went_on.append(True)
        return load_profile("vgg16-p100-16gb")

    assert app.cancel.disabled
    app._wait_for(make, "Estimating something")
    assert made.wait(60)
    assert "Estimating something: conv (1 of 3)" in app.said.value
    assert not app.cancel.disabled
    worker = next(x for x in threading.enumerate() if x.name == "schedule-explorer-app")
    app.cancel.click()
    asked.set()
    worker.join(60)
    assert went_on == []
    assert "Cancelled" in app.said.value
    assert app.cancel.disabled
    assert app.opened is first
