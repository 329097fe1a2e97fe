"""Memory of past solves: keeps the better answer, survives damage and other processes."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from explorer import cli
from explorer.schedule import keep_all
from explorer.simulation import simulate
from explorer.solution import Status
from explorer.solvers import SolveSession, solve, solving
from explorer.solvers.memory import VARIABLE, Answer, SolveMemory, label_of, problem_key
from explorer.solvers.options import Options, parse_optimizations
from tests.solvers.graphs import chain
from tests.solvers.test_session import Heard

PROFILE = chain(12)
KEEP = keep_all(PROFILE.graph)
PEAK = simulate(PROFILE, KEEP).peak_bytes
BUDGET = (PROFILE.fixed_bytes + 2 * PEAK) // 3


def answer(budget_bytes: int = PEAK, *, time_ms: float | None = 24.0, bound_ms: float = 20.0) -> Answer:
    return Answer(budget_bytes, 1.0, bound_ms, False, time_ms, None if time_ms is None else KEEP)


@pytest.fixture
def memory(tmp_path, monkeypatch) -> SolveMemory:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    return SolveMemory()


def test_nothing_is_known_of_what_was_never_solved(memory):
    assert memory.recall("problem") == ()
    assert memory.contents() == ()


def test_the_better_schedule_and_the_better_bound_stay(memory):
    memory.remember("problem", answer(time_ms=None, bound_ms=21.0), label="a chain")
    memory.remember("problem", answer(time_ms=24.0, bound_ms=20.0), label="a chain")
    memory.remember("problem", answer(time_ms=30.0, bound_ms=19.0), label="a chain")
    assert memory.recall("problem") == (answer(time_ms=24.0, bound_ms=21.0),)
    assert memory.recall("another") == ()
    memory.remember("problem", replace(answer(time_ms=23.0), spent_s=5.0), label="a chain")
    assert memory.recall("problem") == (replace(answer(time_ms=23.0, bound_ms=21.0), spent_s=5.0),)


@pytest.mark.parametrize("damage", [b"no database at all" * 100, None])
def test_a_damaged_file_is_made_anew(memory, damage):
    for number in range(50):
        memory.remember("problem", answer(PEAK + number), label="a chain")
    file = memory.folder / "solves.sqlite3"
    content = bytearray(file.read_bytes())
    content[100 : len(content) // 2] = bytes(len(content) // 2 - 100)
    file.write_bytes(content if damage is None else damage)
    memory.recall("problem")
    memory.remember("problem", answer(), label="a chain")
    memory.remember("problem", answer(), label="a chain")
    assert answer() in memory.recall("problem")


def test_processes_write_at_once_and_nothing_is_lost(memory):
    script = (
        "import sys; from tests.solvers.test_memory import *; memory = SolveMemory()\n"
        "for n in range(40): memory.remember('problem', answer(1000 * int(sys.argv[1]) + n), label='a chain')"
    )
    writers = [subprocess.Popen([sys.executable, "-c", script, str(number)]) for number in range(3)]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    assert len(memory.recall("problem")) == 120
    assert [x.answers for x in memory.contents()] == [120]


def test_a_folder_that_cannot_be_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "file" / "cache"))
    memory = SolveMemory()
    memory.remember("problem", answer(), label="a chain")
    assert memory.recall("problem") == ()


def test_off_keeps_nothing(monkeypatch):
    monkeypatch.setenv(VARIABLE, "off")
    memory = SolveMemory()
    memory.remember("problem", answer(), label="a chain")
    assert memory.recall("problem") == ()


def test_problems_are_told_apart():
    keys = {
        problem_key(profile, Options(optimizations=parse_optimizations(chosen), exact=exact))
        for profile in (PROFILE, chain(13))
        for chosen in ("all", "none", "output")
        for exact in (True, False)
    }
    assert len(keys) == 12
    assert problem_key(chain(12), Options(time_limit=3.0)) == problem_key(PROFILE, Options(gap=0.5))


@pytest.mark.usefixtures("memory")
def test_a_solve_is_not_repeated(monkeypatch):
    first = solve(PROFILE, budget=BUDGET, time_limit=1.0)
    assert first.schedule is not None
    monkeypatch.setattr(solving, "refine", None)
    again = solve(PROFILE, budget=BUDGET, time_limit=1.0)
    assert (again.status, again.schedule, again.time_ms) == (first.status, first.schedule, first.time_ms)
    assert again.bounds[0].time_ms >= first.bounds[0].time_ms
    with pytest.raises(TypeError):
        solve(PROFILE, budget=BUDGET, time_limit=1.0, remember=False)


def test_what_is_remembered_is_judged_again(memory):
    lie = Answer(BUDGET, 99.0, 0.0, False, 1.0, replace(KEEP, steps=KEEP.steps[:-3]))
    memory.remember(problem_key(PROFILE, Options()), lie, label="a lie")
    found = solve(PROFILE, budget=BUDGET, time_limit=1.0)
    assert found.schedule is not None
    assert simulate(PROFILE, found.schedule).peak_bytes <= BUDGET


@pytest.mark.usefixtures("memory")
def test_near_enough_for_one_gap_is_not_for_another():
    loose = solve(PROFILE, budget=BUDGET, time_limit=5.0, gap=0.9)
    tight = solve(PROFILE, budget=BUDGET, time_limit=5.0, gap=0.0)
    assert loose.bounds[0].time_ms < tight.bounds[0].time_ms
    assert tight.status is Status.OPTIMAL


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE answers SET bound_ms = 999.0",
        "UPDATE answers SET bound_ms = 'much'",
        "UPDATE answers SET spent_s = NULL",
        "UPDATE answers SET schedule = x'00'",
    ],
)
def test_a_row_that_cannot_be_is_forgotten(memory, damage):
    memory.remember("problem", answer(), label="a chain")
    with sqlite3.connect(memory.folder / "solves.sqlite3") as database:
        database.execute(damage)
    database.close()
    assert memory.recall("problem") == ()
    memory.remember("problem", answer(time_ms=25.0), label="a chain")
    assert memory.recall("problem") == (answer(time_ms=25.0),)


def test_a_budget_that_cannot_be_written_is_no_error(memory):
    memory.remember("problem", answer(2**70), label="a chain")
    assert memory.recall("problem") == ()


@pytest.mark.usefixtures("memory")
def test_the_next_session_answers_at_once():
    finals = []
    for _ in range(2):
        heard = Heard()
        with SolveSession(PROFILE, on_event=heard.queue.put, time_limit=2.0) as session:
            finals.append(heard.final(session.request(BUDGET)).solution)
    assert finals[0].status in (Status.OPTIMAL, Status.FEASIBLE)
    assert finals[1].schedule == finals[0].schedule
    assert len(heard.events) == 1


def test_the_command_shows_and_clears(memory):
    run = CliRunner().invoke
    assert "Nothing is remembered yet" in run(cli.app, ["cache"]).output
    memory.remember("problem", answer(), label=label_of(PROFILE, Options()))
    shown = run(cli.app, ["cache"])
    assert shown.exit_code == 0
    assert ": all" in shown.output
    assert run(cli.app, ["cache", "--clear"]).exit_code == 0
    assert memory.contents() == ()
