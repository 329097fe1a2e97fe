"""Some hundred of the attacks by files and caches, a kill, and limits; ``make attack`` runs thousands."""

from __future__ import annotations

import gzip
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from explorer import load_profile, smallest_budget, solve
from explorer.solvers.monet.recalled import Answer
from explorer.solvers.options import Options
from explorer.solvers.search.plan_search import PlanSearch
from explorer.solvers.search.sketching import interpreted, sketches
from explorer.solvers.search.trace import workspace
from explorer.solvers.service.cache import AnswerCache
from explorer.units import parse_bytes
from tests.attack import files
from tests.attack.__main__ import attack
from tests.solvers.graphs import chain
from tests.test_simulation import small_profile

FULL = """
import resource, signal, sys
from pathlib import Path
from explorer.solvers.monet.recalled import Answer
from explorer.solvers.service.cache import AnswerCache

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
memory = AnswerCache(Path(sys.argv[1]))
for budget in range(200):
    memory.remember("p", Answer(budget, 1.0, 1.0, False, None, None), None, label="x" * 1000)
print(len(memory.recall("p")))
"""


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_damaged_files_and_caches_are_refused_or_taken(first: int):
    found = {seed: attack("files", seed) for seed in range(first, first + 100)}
    assert not {seed: said for seed, said in found.items() if said.startswith(files.FOUND)}


def test_killed_processes_leave_no_orphans_and_lose_nothing():
    assert attack("kills", 0) == "held"


def test_what_unpacks_to_gigabytes_is_refused_before_it_does(tmp_path: Path):
    bomb = tmp_path / "profile.json.gz"
    with gzip.open(bomb, "wb", compresslevel=1) as file:
        for _ in range(256):
            file.write(bytes(2**20))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match=r"too large; allowed: 32 MiB, unpacked"):
        load_profile(bomb)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 150 * 1024


@pytest.mark.parametrize("digits", ["9" * 20_000, "[" * 1000 + "]" * 1000])
def test_numbers_and_lists_beyond_all_measure_are_refused(tmp_path: Path, digits: str):
    path = tmp_path / "profile.json"
    path.write_text('{"kind": ' + digits + "}")
    with pytest.raises(ValueError, match=r"profile\.json"):
        load_profile(path)


def test_content_nested_deeply_under_a_checksum_is_refused(tmp_path: Path):
    small_profile().save(tmp_path / "profile.json")
    document = json.loads((tmp_path / "profile.json").read_text())
    text = json.dumps(document).replace('"note": ""', '"note": ' + "[" * 900 + "]" * 900)
    (tmp_path / "profile.json").write_text(text)
    with pytest.raises(ValueError, match=r"nested deeper|was changed|not complete"):
        load_profile(tmp_path / "profile.json")


@pytest.mark.parametrize("budget", ["1e308 GiB", "9" * 20_000, "9" * 20_000 + " B", 10**400])
def test_budgets_beyond_all_measure_are_refused(budget: int | str):
    with pytest.raises(ValueError, match=r"^budget"):
        parse_bytes(budget)


def test_names_and_writes_that_occur_twice_are_refused(tmp_path: Path):
    small_profile().save(tmp_path / "profile.json")
    whole = (tmp_path / "profile.json").read_text()

    def refused(change: str, message: str) -> None:
        document = json.loads(whole)
        del document["checksum"]
        operators = document["content"]["graph"]["operators"]
        if change == "operator":
            operators[1]["name"] = operators[0]["name"]
        elif change == "implementation":
            operators[0]["implementations"] *= 2
        else:
            operators[0]["implementations"][0]["writes"] *= 2
        (tmp_path / "profile.json").write_text(json.dumps(document))
        with pytest.raises(ValueError, match=message):
            load_profile(tmp_path / "profile.json")

    refused("operator", "two operators are called")
    refused("implementation", "has two implementations")
    refused("write", "one of them twice")


@pytest.mark.parametrize("limit", [0, 4096, 40_000])
def test_a_full_disk_ends_remembering_and_nothing_else(tmp_path: Path, limit: int):
    command = [sys.executable, "-c", FULL, str(tmp_path), str(limit)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    memory = AnswerCache(tmp_path)  # there is room again
    memory.remember("q", Answer(1, 1.0, 1.0, False, None, None), None, label="afterwards")
    assert memory.recall("q")


@pytest.mark.thorough("0.01")
@pytest.mark.parametrize("time_limit", [0.01, 0.2])
def test_the_smallest_limits_give_an_answer(time_limit: float):
    profile = chain(12)
    budget = (profile.fixed_bytes + solve(profile, budget="100 %", steps=1).peak_bytes) // 2
    assert solve(profile, budget=budget, time_limit=time_limit, remember=False).schedule is not None
    assert smallest_budget(profile, time_limit=time_limit).schedule is not None


def test_without_time_a_sketch_ends_once_a_plan_fits():
    problem = Options().problem(chain(300))
    search, operators = PlanSearch(problem), len(problem.forward) + len(problem.backward)
    work, budget = workspace(search.arrays, length=12 * operators), search.keep_all_peak_bytes // 2
    found = list(
        sketches(
            search.arrays,
            lambda genes: interpreted(search.arrays, genes, work, budget),
            budget_bytes=budget,
            until=0.0,
        )
    )
    assert len(found) == 1


def test_a_solve_on_an_empty_folder_of_machine_code_answers_before_it_is_compiled(tmp_path: Path):
    chain(12).save(tmp_path / "profile.json")
    solved = [
        sys.executable,
        "-c",
        "from explorer.command_line.commands import main; main()",
        "solve",
        str(tmp_path / "profile.json"),
    ]
    options = ["--budget", "70 %", "--time-limit", "0.5", "--output", str(tmp_path / "schedule.json")]
    surroundings = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "machine-code")}
    ended = subprocess.run([*solved, *options], env=surroundings, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "schedule.json").exists()
    assert "is being compiled" in ended.stderr
    assert not list(tmp_path.rglob("*.nbc"))
