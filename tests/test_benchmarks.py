"""Cases exist, and every file of results says where its figures come from."""

from __future__ import annotations

import argparse
import json
import math
import re
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import report
from benchmarks.cases import (
    MODEL_CASES,
    PAPER_PROGRAMS,
    PROGRAM_SIZES,
    QUICK_INSTANCES,
    Counting,
    Size,
    Tier,
    Whole,
    model_cases,
    profile_cases,
    published_cases,
)
from benchmarks.gpu import agenda
from benchmarks.gpu.agenda import Impossible, done
from benchmarks.gpu.asking import add_options, as_arguments
from benchmarks.gpu.measuring import others_in
from benchmarks.gpu.page import SIMULATED, write_page
from benchmarks.provenance import add_rows, read_results, record, write_results
from explorer.execution.device import describe_device
from explorer.models import MODELS
from explorer.profiles.loading import bundled_profiles

ROOT = Path(__file__).parents[1]
RESULTS = sorted((ROOT / "benchmarks" / "results").rglob("*.json"))


def test_cases_of_both_tiers_exist() -> None:
    for of in Whole:
        quick, full = (profile_cases(tier, of=of) for tier in Tier)
        assert {x.profile for x in quick} < {x.profile for x in full} == set(bundled_profiles())
        assert len(quick[0].shares) < len(full[0].shares)
    for size, cases in MODEL_CASES.items():
        assert {x.name for x in cases} <= {*MODELS, "gpt"}
        assert model_cases(Tier.FULL, size) == cases
        assert model_cases(Tier.QUICK, size) == tuple(x for x in MODEL_CASES[Size.TINY] if x.quick)


def test_a_case_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="vgg17 is no model of this tier; there are resnet50, unet, mobilenet_v2"):
        model_cases(Tier.FULL, Size.SMALL, ["vgg17"])
    with pytest.raises(ValueError, match="vgg16-none:8 is no published instance here; there are none"):
        published_cases(tmp_path, Tier.FULL, only=["vgg16-none:8"])


def test_published_cases_are_told_apart_by_what_counts(tmp_path: Path) -> None:
    references = [{"budget_gib": 8.0}, {"budget_gib": 9.5}]
    for name in ("vgg16-none", "vgg16-checkmate"):
        document = {"optimizations": name.partition("-")[2], "references": references}
        (tmp_path / f"{name}.json").write_text(json.dumps(document))

    def names(tier: Tier, counting: Counting, *only: str) -> list[str]:
        found = published_cases(tmp_path, tier, counting=counting, only=only)
        return [f"{x.instance}:{x.budget_gib:g}" for x in found]

    assert names(Tier.FULL, Counting.MONET) == ["vgg16-none:8", "vgg16-none:9.5"]
    assert names(Tier.FULL, Counting.MONET, "vgg16-none:9.5") == ["vgg16-none:9.5"]
    assert names(Tier.QUICK, Counting.CHECKMATE) == ["vgg16-checkmate:8"]
    assert published_cases(tmp_path, Tier.QUICK)[0].budget_bytes == 8 * 2**30
    for tier in Tier:
        assert {x.partition(":")[0] for x in (*PROGRAM_SIZES[tier], *PAPER_PROGRAMS[tier])} <= {
            x.partition(":")[0] for x in QUICK_INSTANCES
        }


def test_provenance_names_no_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = record(
        argparse.Namespace(folder=tmp_path / "zoo", json=None, profiles=[str(tmp_path / "a.json")]), seeds=(3,)
    )
    assert run.options == {"folder": "zoo", "json": None, "profiles": ["a.json"]}
    file = tmp_path / "results.json"
    write_results(file, [{"value": 1}], run)
    for text in (file.read_text(), capsys.readouterr().out):
        assert str(tmp_path) not in text
        assert str(Path.home()) not in text
        assert run.versions["torch"] in text
        assert run.processor in text
    assert read_results(file) == [{"value": 1}]


def test_rows_of_a_part_take_the_place_of_its_earlier_ones(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    first, second = (record(argparse.Namespace(number=x)) for x in (1, 2))
    add_rows(file, [{"model": "a", "value": 1}, {"model": "b", "value": 1}], first, by="model")
    add_rows(file, [{"model": "a", "value": 2}], second, by="model")
    assert read_results(file) == [{"model": "b", "value": 1}, {"model": "a", "value": 2}]
    entries = json.loads(file.read_text())["provenance"]
    assert [(x["options"]["number"], x["parts"]) for x in entries] == [(1, ["b"]), (2, ["a"])]
    file.write_text("[]")
    with pytest.raises(ValueError, match="is no file of results"):
        read_results(file)


@pytest.mark.parametrize("file", RESULTS, ids=lambda x: x.stem)
def test_every_file_of_results_says_where_it_comes_from(file: Path) -> None:
    content = json.loads(file.read_text(encoding="utf-8"))
    assert content["results"]
    assert content["provenance"]
    assert all(x.get("commit") or re.search("commit [0-9a-f]{10}", x["note"]) for x in content["provenance"])


def test_tables_of_the_documentation_are_of_the_stored_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "figures.md"
    shutil.copy(report.PAGE, page)
    before = page.read_text(encoding="utf-8")
    monkeypatch.setattr(report, "PAGE", page)
    report.main()
    assert page.read_text(encoding="utf-8") == before


def test_documentation_names_benchmarks_that_exist() -> None:
    texts = [x.read_text(encoding="utf-8") for x in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"))]
    modules = {x for text in texts for x in re.findall(r"python -m (benchmarks[\w.]*\w)", text)}
    assert len(modules) > 15
    assert [x for x in sorted(modules - {"benchmarks.FOLDER.NAME"}) if find_spec(x) is None] == []
    files = {x for text in texts for x in re.findall(r"benchmarks/[\w/]+\.\w+", text)}
    assert [x for x in sorted(files) if not (ROOT / x).exists()] == []


def test_what_is_impossible_on_a_gpu_is_said_and_not_tried_again(tmp_path: Path) -> None:
    tried: list[Path] = []

    def make(path: Path) -> None:
        tried.append(path)
        raise Impossible("there is no schedule so small")

    piece = ("schedule", tmp_path / "schedule.json", make)
    assert done(piece, math.inf)
    assert done(piece, math.inf)
    assert tried == [tmp_path / "schedule.json"]
    assert "so small" in (tmp_path / "schedule.json.none.txt").read_text(encoding="utf-8")


def device_file(folder: Path, path: str, name: str, results: Any) -> None:
    """A file of results of the agenda."""
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    device = {"name": name, "memory_bytes": 2**37, "torch_version": "2.13", "driver": "580", "note": ""}
    made = [{"date": "2026-11-28", "commit": "abcdef0123"}]
    content = {"provenance": made, "device": device, "results": results}
    (folder / path).write_text(json.dumps(content), encoding="utf-8")


def run_of(reserved_bytes: int) -> list[dict[str, Any]]:
    """Plain PyTorch, and a schedule of which so much more was reserved than predicted."""
    residual = {"cache_bytes": reserved_bytes, "unexplained_bytes": 0}
    row = {"what": "0.5 of the peak", "peak_bytes": 2**30, "predicted_peak_bytes": 2**30, "step_time_ms": 7.5}
    row |= {"reserved_peak_bytes": 2**30 + reserved_bytes, "predicted_reserved_bytes": 2**30, "residual": residual}
    return [{"what": "plain PyTorch"}, {**row, "predicted_time_ms": 7.5, "allocator": "caching"}]


def test_a_page_tells_piece_by_piece_what_was_simulated(tmp_path: Path) -> None:
    rows = [{"part": "forward", "implementation": "aten", "workspace_bytes": 0, "time_ms": 1.25}]
    for name, device in (("tf32", "NVIDIA H200"), ("float32", SIMULATED)):
        device_file(tmp_path, f"layer-{name}.json", device, rows)
    device_file(tmp_path, "runs/unet.json", SIMULATED, run_of(2**28))
    device_file(tmp_path, "runs/vgg16.json", "NVIDIA H200", run_of(2**28))
    device_file(tmp_path, "checks/one.json", SIMULATED, {"name": "one", "status": "passed", "said": ""})
    page = write_page(tmp_path).read_text(encoding="utf-8")
    assert "**In part made from a simulation**" in page
    assert "- TF32, forward: aten is the quickest, 1.25 ms" in page
    assert "- float32, forward: 1 ways to run it, with 0.0 to 0.0 MiB (simulated)" in page
    assert "passed: one (simulated)." in page
    assert "| unet, 0.5 of the peak (simulated) |" in page
    simulated, real = (next(x for x in page.splitlines() if x.startswith(f"- {y}, 0.5")) for y in ("unet", "vgg16"))
    # There it is the same model that says what was reserved.
    assert "the model of the allocator" not in simulated
    assert "in other pieces and order" in simulated
    assert "the model of the allocator has them lie otherwise" in real


def test_a_page_has_the_answers_of_impossible_pieces(tmp_path: Path) -> None:
    told = "unet has no schedule within 0.33 of 9 GiB"
    (tmp_path / "schedules").mkdir()
    (tmp_path / "schedules" / "unet-0.33.json.none.txt").write_text(f"{told}\n", encoding="utf-8")
    assert f"- {told}\n" in write_page(tmp_path).read_text(encoding="utf-8")


def test_a_folder_of_results_is_of_one_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    device_file(tmp_path, "layer-tf32.json", SIMULATED, [])
    here = describe_device(torch.device("cpu")).name
    device_file(tmp_path, "layer-float32.json", here, [])
    assert others_in(tmp_path, "cpu") == [SIMULATED]
    monkeypatch.setattr(sys, "argv", ["agenda", str(tmp_path), "--device", "cpu", "--items", "layer"])
    with pytest.raises(SystemExit):
        agenda.main()
    assert f"has results of {SIMULATED}, and this is {here}: name another folder" in capsys.readouterr().err


def test_options_of_the_agenda_are_no_folders() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?")
    add_options(parser)
    asked = parser.parse_args(["--items", "layer", "checks", "--small", "--steps", "2"])
    assert asked.folder is None
    assert list(as_arguments(asked)) == ["--items", "layer", "checks", "--small", "--steps", "2"]
    assert parser.parse_args(["results", "--models", "vgg16"]).folder == "results"
