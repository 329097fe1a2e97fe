"""Workers that were there before the sweep: they are elsewhere, and have imported what has changed since."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import LocalCluster

import explorer
from explorer.solution import Status
from explorer.sweeping.sources import import_as_asked, source_digest
from explorer.sweeping.table import Row

NET = """
import torch
from torch import nn
from torch.nn import functional as F

WIDTH = {}


def make(batch_size=64):
    model = nn.Sequential(nn.Linear(32, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 8))
    return model, (torch.randn(batch_size, 32), torch.randn(batch_size, 8)), F.mse_loss
"""
DEVICE = "memory_gib: {}\nbandwidth_gb_s: 448\nvector_tflops: 12.7\nsource: x\n"


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A scheduler whose worker is in the folder ``there``; whoever sweeps is in ``here``, and both see ``both``."""
    for name in ("there", "here", "both"):
        (tmp_path / name).mkdir()
    monkeypatch.syspath_prepend(tmp_path / "both")
    monkeypatch.chdir(tmp_path / "there")
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster:
        monkeypatch.chdir(tmp_path / "here")
        yield cluster.scheduler_address


def answer(model: str, address: str | None, **changes: Any) -> Row:
    axes: dict[str, Any] = {"devices": ["T4"], "budgets": ["100 %"], "methods": ["eager"], "time_limit": 1.0}
    (found,) = explorer.sweep([model], **{**axes, "folder": "sweep", "scheduler": address, **changes}).rows
    return found


def test_standing_workers(address: str, tmp_path: Path) -> None:
    net = tmp_path / "both" / "net_for_two.py"
    net.write_text(NET.format(64))
    narrow = answer("net_for_two:make", address)
    net.write_text(NET.format(6400))
    wide = answer("net_for_two:make", address)
    assert narrow.key != wide.key
    assert narrow.plain_peak_bytes is not None
    assert wide.plain_peak_bytes is not None
    assert wide.plain_peak_bytes - narrow.plain_peak_bytes > 4 * 6000 * 64  # an activation at least

    for place, width, memory in (("here", 64, 2), ("there", 640, 40)):
        (tmp_path / place / "net_apart.py").write_text(NET.format(width))
        (tmp_path / place / "mine.yaml").write_text(DEVICE.format(memory))
    apart = answer("net_apart:make", address)
    assert apart.status is Status.FAILED
    assert "the worker has other code of net_apart" in apart.message
    (tmp_path / "there" / "net_apart.py").write_text(NET.format(64))
    assert answer("net_apart:make", address).plain_peak_bytes == narrow.plain_peak_bytes  # it was not kept as an answer

    own = answer("net_for_two:make", address, devices=["mine.yaml"], budgets=["device"])
    assert (own.device, own.budget_bytes) == ("mine.yaml", 2**30)
    (tmp_path / "there" / "mine.yaml").unlink()
    other = answer("net_for_two:make", address, devices=["mine.yaml"], budgets=["50 %"])
    assert (other.status is not Status.FAILED, other.device_bytes) == (True, 2**30)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Two modules that have a number of a third in them when they are imported, which no other test has."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    folder = tmp_path / "nets_kept"
    folder.mkdir()
    (folder / "__init__.py").write_text("DEPTH = 1\n")
    (folder / "widths.py").write_text("WIDTH = 1\n")
    for name in ("first", "second"):
        (folder / f"{name}.py").write_text("from nets_kept import DEPTH\nfrom nets_kept.widths import WIDTH\n")
    others = {name: loaded for name, loaded in sys.modules.items() if not name.startswith("nets_kept")}
    yield folder
    sys.modules.clear()
    sys.modules.update(others)


def imported(name: str) -> tuple[int, int]:
    model = f"nets_kept.{name}:make"
    import_as_asked(model, source_digest(model))
    module = sys.modules[f"nets_kept.{name}"]
    return module.DEPTH, module.WIDTH


def test_what_imported_something_old_is_old(package: Path) -> None:
    assert imported("first") == imported("second") == (1, 1)
    loaded = sys.modules["nets_kept.first"]
    assert imported("first") == (1, 1)
    assert sys.modules["nets_kept.first"] is loaded  # nothing has changed
    (package / "widths.py").write_text("WIDTH = 20\n")
    assert imported("first") == (1, 20)
    assert imported("second") == (1, 20)
    (package / "__init__.py").write_text("DEPTH = 30\n")
    assert imported("second") == (30, 20)


def test_what_somebody_else_imported_may_be_old(package: Path) -> None:
    import nets_kept.first  # pyright: ignore[reportMissingImports] - made above

    assert nets_kept.first.WIDTH == 1
    (package / "widths.py").write_text("WIDTH = 20\n")
    assert imported("first") == (1, 20)


def test_modules_as_old_as_their_files_stay() -> None:
    """Those of this process, whose files have not changed since it began."""
    loaded = sys.modules["tests.sweeping"]
    import_as_asked("tests.sweeping.models:small", source_digest("tests.sweeping.models:small"))
    assert sys.modules["tests.sweeping"] is loaded


def test_other_code_is_refused(package: Path) -> None:
    asked = source_digest("nets_kept.first:make")
    (package / "widths.py").write_text("WIDTH = 20\n")
    with pytest.raises(ValueError, match=r"the worker has other code of nets_kept\.first than"):
        import_as_asked("nets_kept.first:make", asked)


@pytest.mark.usefixtures("package")
def test_a_digest_runs_no_modules() -> None:
    source_digest("nets_kept.first:make")
    assert "nets_kept" in sys.modules
    assert "nets_kept.widths" not in sys.modules
