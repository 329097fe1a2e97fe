"""Memory of past solves: keeps the better answer, survives damage and other processes."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from explorer.command_line import commands
from explorer.schedule import Schedule, keep_all
from explorer.simulation import simulate
from explorer.solution import Status
from explorer.solvers import SolveSession, smallest_budget, solve, trade_off
from explorer.solvers.monet import pipeline
from explorer.solvers.monet.knowledge import Knowledge
from explorer.solvers.monet.recalled import Answer
from explorer.solvers.options import Options, parse_optimizations
from explorer.solvers.service import cache as memory_module
from explorer.solvers.service.cache import AnswerCache, label_of, problem_key
from explorer.storage.cache_folder import VARIABLE
from tests.solvers.graphs import chain
from tests.solvers.service.test_session import Heard

PROFILE = chain(12)
KEEP = keep_all(PROFILE.graph)
PEAK = simulate(PROFILE, KEEP).peak_bytes
BUDGET = (PROFILE.fixed_bytes + 2 * PEAK) // 3


def answer(budget_bytes: int = PEAK, *, time_ms: float | None = 24.0, bound_ms: float = 20.0) -> Answer:
    return Answer(budget_bytes, 1.0, bound_ms, False, time_ms, None if time_ms is None else PEAK)


def keep(memory: AnswerCache, found: Answer) -> None:
    memory.remember("problem", found, None if found.time_ms is None else KEEP, label="a chain")


def change(memory: AnswerCache, statement: str, *values: object) -> None:
    """Behind its back."""
    with sqlite3.connect(memory.folder / "solves.sqlite3") as database:
        database.execute(statement, values)
    database.close()


@pytest.fixture
def memory(tmp_path, monkeypatch) -> AnswerCache:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    return AnswerCache()


def test_nothing_is_known_of_what_was_never_solved(memory):
    assert memory.recall("problem") == ()
    assert memory.contents() == ()


def test_the_better_schedule_and_the_better_bound_stay(memory):
    keep(memory, answer(time_ms=None, bound_ms=21.0))
    keep(memory, answer(time_ms=24.0, bound_ms=20.0))
    keep(memory, answer(time_ms=30.0, bound_ms=19.0))
    assert memory.recall("problem") == (answer(time_ms=24.0, bound_ms=21.0),)
    assert memory.recall("another") == ()
    keep(memory, replace(answer(time_ms=23.0), spent_s=5.0))
    assert memory.recall("problem") == (replace(answer(time_ms=23.0, bound_ms=21.0), spent_s=5.0),)


@pytest.mark.parametrize("damage", [b"no database at all" * 100, None])
def test_a_damaged_file_is_made_anew(memory, damage):
    for number in range(50):
        keep(memory, answer(PEAK + number))
    file = memory.folder / "solves.sqlite3"
    content = bytearray(file.read_bytes())
    content[100 : len(content) // 2] = bytes(len(content) // 2 - 100)
    file.write_bytes(content if damage is None else damage)
    memory.recall("problem")
    keep(memory, answer())
    keep(memory, answer())
    assert answer() in memory.recall("problem")


def test_processes_write_at_once_and_nothing_is_lost(memory):
    script = (
        "import sys; from tests.solvers.service.test_cache import *; memory = AnswerCache()\n"
        # A writer gives up after seconds, rather than let a solve wait; on a busy machine one may take longer.
        "sys.modules[AnswerCache.__module__]._BUSY_S = 120.0\n"
        "for n in range(40): keep(memory, answer(1000 * int(sys.argv[1]) + n))"
    )
    writers = [subprocess.Popen([sys.executable, "-c", script, str(number)]) for number in range(3)]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    assert len(memory.recall("problem")) == 120
    assert [x.answers for x in memory.contents()] == [120]


def test_a_folder_that_cannot_be_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "file" / "cache"))
    memory = AnswerCache()
    keep(memory, answer())
    assert memory.recall("problem") == ()


def test_off_keeps_nothing(monkeypatch):
    monkeypatch.setenv(VARIABLE, "off")
    memory = AnswerCache()
    keep(memory, answer())
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
    monkeypatch.setattr(pipeline, "refine", None)
    again = solve(PROFILE, budget=BUDGET, time_limit=1.0)
    assert (again.status, again.schedule, again.time_ms) == (first.status, first.schedule, first.time_ms)
    assert again.bounds[0].time_ms >= first.bounds[0].time_ms
    with pytest.raises(TypeError):
        solve(PROFILE, budget=BUDGET, time_limit=1.0, remember=False)


def test_what_is_remembered_is_judged_again(memory):
    lie = Answer(BUDGET, 99.0, 0.0, False, 1.0, BUDGET)
    memory.remember(problem_key(PROFILE, Options()), lie, replace(KEEP, steps=KEEP.steps[:-3]), label="a lie")
    found = solve(PROFILE, budget=BUDGET, time_limit=1.0)
    assert found.schedule is not None
    assert simulate(PROFILE, found.schedule).peak_bytes <= BUDGET


@pytest.mark.usefixtures("memory")
def test_near_enough_for_one_gap_is_not_for_another():
    loose = solve(PROFILE, budget=BUDGET, time_limit=5.0, gap=0.9)
    tight = solve(PROFILE, budget=BUDGET, time_limit=200.0, gap=0.0)  # it ends when that is proven
    assert loose.bounds[0].time_ms < tight.bounds[0].time_ms
    assert tight.status is Status.OPTIMAL


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE answers SET bound_ms = 999.0",
        "UPDATE answers SET bound_ms = 'much'",
        "UPDATE answers SET spent_s = NULL",
        "UPDATE answers SET peak_bytes = NULL",
    ],
)
def test_a_row_that_cannot_be_is_forgotten(memory, damage):
    keep(memory, answer())
    change(memory, damage)
    assert memory.recall("problem") == ()
    keep(memory, answer(time_ms=25.0))
    assert memory.recall("problem") == (answer(time_ms=25.0),)


@pytest.mark.parametrize("damage", [b"\0", None, 5, "text"])
def test_a_schedule_that_cannot_be_read_is_forgotten(memory, damage):
    keep(memory, answer())
    assert memory.schedule("problem", PEAK) == KEEP
    change(memory, "UPDATE answers SET schedule = ?", damage)
    assert memory.recall("problem") == (answer(),)
    assert memory.schedule("problem", PEAK) is None
    assert memory.recall("problem") == ()
    assert memory.schedule("problem", PEAK) is None


@pytest.mark.parametrize(
    "damage",
    [
        "DROP TABLE answers",
        "ALTER TABLE answers RENAME COLUMN used TO later",
        "UPDATE answers SET spent_s = CAST(x'FF' AS TEXT)",
    ],
)
def test_a_table_that_is_not_ours_is_made_anew(memory, damage):
    keep(memory, answer())
    change(memory, damage)
    memory.recall("problem")
    keep(memory, answer())
    assert memory.recall("problem") == (answer(),)


def test_what_another_process_made_anew_is_not_deleted(memory, monkeypatch):
    """Two notebooks come upon the same damage: the slower must not delete what the quicker has written since."""
    keep(memory, answer())
    file = memory.folder / "solves.sqlite3"
    file.write_bytes(b"no database at all" * 100)
    opened = []

    def meanwhile(database: sqlite3.Connection) -> int:
        if not opened:
            opened.append(database)
            file.unlink()
            keep(AnswerCache(), answer())
            raise sqlite3.DatabaseError("file is not a database")
        return version(database)

    version = memory_module._version
    monkeypatch.setattr(memory_module, "_version", meanwhile)
    assert memory.recall("problem") == (answer(),)


def test_answers_are_read_as_they_are_wanted(memory):
    """Opening takes as long with hundreds of budgets known as with one."""
    curve = trade_off(PROFILE)
    assert len(curve) > 4
    for point in curve:  # each found for far more than it needs
        found = Answer(point.peak_bytes + 10**6, 9.0, 0.0, False, point.time_ms, point.peak_bytes)
        memory.remember("problem", found, point.schedule, label="a chain")
    knowledge, read = Knowledge(Options().problem(PROFILE)), []

    def schedule_of(budget_bytes: int) -> Schedule | None:
        read.append(budget_bytes - 10**6)
        return memory.schedule("problem", budget_bytes)

    knowledge.recall(memory.recall("problem"), schedule_of)
    assert read == []
    middle = curve[len(curve) // 2]
    knowledge.settled(middle.peak_bytes, options=Options())
    assert read == [middle.peak_bytes]
    assert knowledge.frontier.best(middle.peak_bytes).time_ms == middle.time_ms
    assert knowledge.minimum().budget_bytes == curve[0].peak_bytes
    assert read == [middle.peak_bytes, curve[0].peak_bytes]
    while knowledge.read_on():
        pass
    assert {x.peak_bytes for x in knowledge.frontier.points()} >= {x.peak_bytes for x in curve}
    assert len(read) == len(set(read)) <= len(curve)


def test_what_cannot_be_read_does_not_count_as_time_spent(memory):
    for budget, time_ms in ((BUDGET, 1.0), (BUDGET + 1, 2.0)):
        memory.remember("problem", Answer(budget, 99.0, 0.0, False, time_ms, BUDGET), KEEP, label="a chain")
    knowledge = Knowledge(Options().problem(PROFILE))
    knowledge.search.ready(timeout=60.0)
    assert pipeline.Pursuit(knowledge, BUDGET, Options()).begin().schedule is not None
    knowledge.recall(memory.recall("problem"), lambda _: None)
    assert not knowledge.settled(BUDGET + 1, options=Options(gap=0.0))


def test_a_budget_that_cannot_be_written_is_no_error(memory):
    keep(memory, answer(2**70))
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
    assert "Nothing is remembered yet" in run(commands.app, ["cache"]).output
    memory.remember("problem", answer(), KEEP, label=label_of(PROFILE, Options()))
    shown = run(commands.app, ["cache"])
    assert shown.exit_code == 0
    assert ": all" in shown.output
    assert run(commands.app, ["cache", "--clear"]).exit_code == 0
    assert memory.contents() == ()


def test_after_any_damage_what_is_found_is_remembered_again(memory):
    """A byte that is another, a file that ends early, twenty bits: nothing raises, and nothing stops remembering."""
    for number in range(30):
        memory.remember(f"problem {number % 3}", answer(1000 + number), KEEP, label="a model on a device")
    file = memory.folder / "solves.sqlite3"
    whole, rng = file.read_bytes(), random.Random(0)
    for number in range(200):
        damaged = bytearray(whole)
        if number % 3 == 0:
            damaged[rng.randrange(4096)] = rng.randrange(256)
        elif number % 3 == 1:
            damaged = damaged[: rng.randrange(len(damaged))]
        for _ in range(20 if number % 3 == 2 else 0):
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        file.write_bytes(damaged)
        for known in memory.recall("problem 1"):
            memory.schedule("problem 1", known.budget_bytes)
        memory.contents()
        memory.remember("new", answer(5), KEEP, label="a lone \ud800")
        assert [x.budget_bytes for x in memory.recall("new")] == [5]
        assert memory.schedule("new", 5) == KEEP
        memory.clear()
        assert memory.contents() == ()


@pytest.mark.parametrize("smallest", [lambda: smallest_budget(PROFILE, time_limit=2), lambda: trade_off(PROFILE)[0]])
def test_a_schedule_is_known_for_the_smallest_budget_that_was_told(memory, smallest):
    found = smallest()
    known = memory.schedule(problem_key(PROFILE, Options()), found.peak_bytes)
    assert simulate(PROFILE, known).peak_bytes == found.peak_bytes
    solution = solve(PROFILE, budget=found.peak_bytes, time_limit=1e-3)
    assert solution.peak_bytes == found.peak_bytes
    assert solution.time_ms <= found.time_ms


def test_what_is_not_to_be_remembered_is_not(memory):
    smallest_budget(PROFILE, time_limit=2, remember=False)
    assert memory.contents() == ()
