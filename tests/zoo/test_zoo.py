"""Every schedule that comes with the package is of its profile, fits its budget and does what the table says."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F
from typer.testing import CliRunner

import explorer
from explorer import model_source
from explorer.command_line.commands import app
from explorer.profiles.loading import bundled_profiles
from explorer.solvers.options import Options
from explorer.solvers.service.cache import problem_key
from explorer.zoo import entries, loading
from explorer.zoo.entries import SHARES, SMALLEST, Entry, zoo

SMALL = "resnet50-small-cpu"


def entries_of(profile: str) -> dict[str, Entry]:
    return {x.share: x for x in zoo() if x.profile == profile}


def test_every_profile_has_every_share():
    assert {x.name for x in zoo()} == {f"{x}@{share}" for x in bundled_profiles() for share in (*SHARES, SMALLEST)}
    named = {x.path for x in zoo() if x.peak_bytes is not None} | {entries.FOLDER / "zoo.json.gz"}
    assert set(entries.FOLDER.glob("*.json.gz")) == named


def test_it_is_small():
    assert sum(x.stat().st_size for x in entries.FOLDER.glob("*.json.gz")) < 4 * 2**20


@pytest.mark.parametrize("name", bundled_profiles())
def test_schedules_are_what_the_table_says(name):
    """Whoever makes a profile anew must run benchmarks/schedule_zoo.py again."""
    profile = explorer.load_profile(name)
    plain = explorer.simulate(profile, explorer.keep_all(profile.graph))
    for share, entry in entries_of(name).items():
        assert not entry.is_older_than_profile
        assert entry.problem == problem_key(profile, Options())
        assert (entry.plain_peak_bytes, entry.plain_time_ms) == (plain.peak_bytes, pytest.approx(plain.time_ms))
        assert entry.budget_bytes == (
            entry.smallest_bytes if share == SMALLEST else int(float(share) * plain.peak_bytes)
        )
        if entry.peak_bytes is None:
            assert entry.smallest_bytes > entry.budget_bytes
            continue
        schedule = explorer.load_schedule(entry.name)
        line = explorer.simulate(profile, schedule)
        assert (line.peak_bytes, line.time_ms) == (entry.peak_bytes, pytest.approx(entry.time_ms))
        assert line.peak_bytes <= entry.budget_bytes
        assert entry.bound_ms is None or entry.bound_ms <= line.time_ms * (1 + 1e-6)


@pytest.mark.parametrize("name", bundled_profiles())
def test_none_is_slower_than_another_that_fits_its_budget(name):
    having = [x for x in entries_of(name).values() if x.time_ms is not None]
    for entry in having:
        assert entry.time_ms == min(x.time_ms for x in having if x.peak_bytes <= entry.budget_bytes)


def test_one_trains_with_the_peak_that_it_says():
    entry = entries_of(SMALL)["0.8"]
    schedule = explorer.load_schedule(entry.name)
    model, batch, loss = model_source.bundled("resnet50", like=schedule.identity.batch)
    assert loss is F.cross_entropy
    scheduled = explorer.apply(model, schedule, batch, loss=loss)
    measured = explorer.measure(scheduled, batch, steps=1)
    assert measured.peak_bytes == pytest.approx(entry.peak_bytes, rel=0.01)
    assert torch.isfinite(scheduled(*batch))


def test_names():
    assert explorer.load_schedule("gpt2@0.50") == explorer.load_schedule("gpt2-a100-80gb@0.5")
    with pytest.raises(ValueError, match=r"'gpt2-a100-80gb@0.7'; shares of PyTorch's peak: 0.8, 0.6, 0.5, 0.4 and sm"):
        explorer.load_schedule("gpt2@0.7")
    with pytest.raises(ValueError, match=r"'gpt2-a100-80gb@half'; shares"):
        explorer.load_schedule("gpt2@half")
    with pytest.raises(ValueError, match=r"no bundled profile 'gpt3'; bundled: "):
        explorer.load_schedule("gpt3@0.5")
    for meant in ("resnet50", "resnet50@50%", "resnet50@0.5@0.5", "resnet50@"):
        with pytest.raises(
            ValueError, match=r"no file; a bundled schedule has a name such as 'resnet50-a100-80gb@0.5'"
        ):
            explorer.load_schedule(meant)
    with pytest.raises(ValueError, match=r"known to fit 0.4 of PyTorch's peak, \d+ bytes: the smallest takes \d+, and"):
        explorer.load_schedule(f"{SMALL}@0.4")


def test_a_file_of_such_a_name_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mine = explorer.keep_all(explorer.load_profile("gpt2").graph)
    mine.save("gpt2@0.5")
    assert explorer.load_schedule("gpt2@0.5") == mine
    with pytest.raises(ValueError, match=r"cannot read gpt2@0\.5\.json"):
        explorer.load_schedule("gpt2@0.5.json")


def test_what_is_older_than_its_profile_is_refused(tmp_path, monkeypatch):
    """With what has changed: only costs, the graph, or that there is none any more."""
    good = entries_of(SMALL)["0.8"]
    changed = replace(good, profile_sha256="0" * 64)
    other = replace(changed, profile="gpt2-a100-80gb")
    gone = replace(changed, profile="gone-a100-80gb")
    monkeypatch.setattr(entries, "FOLDER", tmp_path)
    for entry in (changed, other, gone):
        shutil.copy(loading.__file__.replace("loading.py", f"{good.name}.json.gz"), entry.path)
        assert entry.is_older_than_profile
    monkeypatch.setattr(loading, "zoo", lambda: (changed, other))
    with pytest.raises(ValueError, match=r"is older than its profile: its times and bytes were made anew, of the same"):
        explorer.load_schedule(changed.name)
    with pytest.raises(ValueError, match=r"gpt2-a100-80gb@0.8' is older than its profile: the model differs: .*anew$"):
        explorer.load_schedule(other.name)
    assert loading._change(gone, explorer.load_schedule(str(gone.path))) == "there is none of that name any more"


def test_command():
    listed = CliRunner().invoke(app, ["zoo", "gpt2", "a100", "--fits", "6 GiB"])
    assert listed.exit_code == 0
    assert "gpt2-a100-80gb@0.6" in listed.stdout
    assert "gpt2-a100-80gb@0.8" not in listed.stdout
    assert "gpt2-h200" not in listed.stdout
    assert "none fits" in CliRunner().invoke(app, ["zoo", f"{SMALL}@0.4"]).stdout
    simulated = CliRunner().invoke(app, ["simulate", "gpt2", "gpt2@0.5"])
    assert simulated.exit_code == 0
    assert "Peak at run" in simulated.stdout
    assert CliRunner().invoke(app, ["zoo", "gpt5"]).exit_code == 2
