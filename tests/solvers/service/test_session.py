"""Solving in a worker process: what it answers, what it survives, what it leaves behind."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from itertools import combinations
from pathlib import Path

import psutil
import pytest

from explorer import simulate, solve, trade_off
from explorer.device_profile import Profile
from explorer.graph import Role
from explorer.solution import Status
from explorer.solvers import SolveEvent, SolveSession
from explorer.solvers.options import Options
from explorer.solvers.problem.pins import parse_pins
from explorer.solvers.search.annealing import anneal
from tests.solvers.graphs import chain
from tests.solvers.hearing import PATIENCE_S, Heard, between, gone


@pytest.fixture
def profile() -> Profile:
    return chain(24)


@pytest.fixture
def hard() -> Profile:
    """Long enough that its proof is not found in passing."""
    return chain(150)


def test_a_budget_that_had_its_time_is_answered_at_once(hard):
    heard = Heard()
    with SolveSession(hard, on_event=heard.queue.put, time_limit=0.5) as session:
        first = heard.final(session.request(between(hard, 0.5)))
        again = session.request(between(hard, 0.5))
        event = heard.next()
        assert (event.request, event.final) == (again, True)
        assert event.solution.time_ms == first.solution.time_ms


def test_an_answer_at_once_then_better_ones_then_one_final(profile):
    heard = Heard()
    with SolveSession(profile, on_event=heard.queue.put, time_limit=3.0, gap=0.0) as session:
        budget = between(profile, 0.5)
        request = session.request(budget)
        event = heard.final(request)
    assert sum(x.final for x in heard.events) == 1
    assert all(x.request == request for x in heard.events)
    first = heard.events[0].solution
    assert first.schedule is not None
    times = [x.solution.time_ms for x in heard.events]
    assert times == sorted(times, reverse=True)
    assert event.solution.status in (Status.OPTIMAL, Status.FEASIBLE)
    assert simulate(profile, event.solution.schedule).peak_bytes <= budget


def test_a_larger_budget_is_never_answered_worse(profile):
    """Than a smaller one was before, and so not worse than itself; what is learnt later is not known earlier."""
    heard = Heard()
    with SolveSession(profile, on_event=heard.queue.put, time_limit=1.0) as session:
        shares = (0.4, 0.5, 0.45, 0.8, 0.5, 0.8)
        answers = [heard.final(session.request(between(profile, x))).solution for x in shares]
    for before, after in combinations(answers, 2):
        assert after.budget_bytes < before.budget_bytes or after.time_ms <= before.time_ms


def test_the_latest_request_wins(hard):
    heard = Heard()
    with SolveSession(hard, on_event=heard.queue.put, time_limit=600.0, gap=0.0) as session:
        first = session.request(between(hard, 0.3))
        heard.next()
        for share in (0.35, 0.4, 0.45):
            session.request(between(hard, share))
        last = session.request(between(hard, 1.0))
        event = heard.final(last)
    assert event.solution.status is Status.OPTIMAL
    assert first < last
    assert not any(x.final for x in heard.events if x.request != last)


def test_cancel_ends_a_request_with_what_was_found(hard):
    heard = Heard()
    with SolveSession(hard, on_event=heard.queue.put, time_limit=600.0, gap=0.0) as session:
        session.cancel()
        request = session.request(between(hard, 0.3))
        heard.next()
        session.cancel()
        event = heard.final(request)
        assert event.solution.schedule is not None
        assert event.solution.status in (Status.FEASIBLE, Status.OPTIMAL)
        again = heard.final(session.request(between(hard, 1.0)))
    assert again.solution.status is Status.OPTIMAL


def test_cancel_is_heard_while_the_search_is_still_being_compiled(hard, monkeypatch, tmp_path):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    heard = Heard()
    with SolveSession(hard, on_event=heard.queue.put, time_limit=600.0, gap=0.0, remember=False) as session:
        request = session.request(between(hard, 0.3))
        heard.next()
        assert not list(tmp_path.rglob("*.nbi")), "compiled already"
        session.cancel()
        event = heard.final(request)
        assert not list(tmp_path.rglob("*.nbi")), "it waited for the compiler"
    assert event.solution.schedule is not None


@pytest.mark.thorough
def test_a_damaged_file_of_compiled_code_is_made_anew(profile, monkeypatch, tmp_path):
    solve(profile, budget=between(profile, 0.5), time_limit=0.1, remember=False)
    names = [x.name for x in Path(anneal.stats.cache_path).glob("annealing*.nbi")]
    assert names
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    where = "from explorer.solvers.search.annealing import anneal; print(anneal.stats.cache_path)"
    found = subprocess.run([sys.executable, "-c", where], check=True, capture_output=True, text=True)
    folder = Path(found.stdout.strip())
    assert tmp_path in folder.parents
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_bytes(b"")
    heard = Heard()
    with SolveSession(profile, on_event=heard.queue.put, time_limit=1.0, remember=False) as session:
        event = heard.final(session.request(between(profile, 0.5)))
    assert event.solution.status in (Status.FEASIBLE, Status.OPTIMAL)
    assert not any(x.restart for x in heard.events)
    assert any((folder / name).stat().st_size for name in names if (folder / name).exists())


def test_a_budget_too_small_says_what_would_do(profile):
    heard = Heard()
    with SolveSession(profile, on_event=heard.queue.put, time_limit=1.0) as session:
        event = heard.final(session.request(profile.fixed_bytes))
        assert event.solution.status is Status.INFEASIBLE
        smallest = event.solution.minimum.budget_bytes
        enough = heard.final(session.request(smallest))
    assert enough.solution.peak_bytes <= smallest


def test_what_was_found_elsewhere_is_where_an_answer_begins(hard):
    """A point of the curve, clicked, leads to a schedule that is no slower than the point."""
    heard = Heard()
    curve = trade_off(hard, points=8)
    known = curve[4]
    with SolveSession(hard, on_event=heard.queue.put, time_limit=0.1, remember=False) as session:
        session.request(known.peak_bytes, known=known)
        assert heard.next().solution.time_ms <= known.time_ms + 1e-9
        # It counts though no one waits for the answer that it came with.
        smaller = curve[2]
        session.request(smaller.peak_bytes, known=smaller)
        last = session.request(smaller.peak_bytes, known=smaller)
        while (event := heard.next()).request != last:
            pass
        assert event.solution.time_ms <= smaller.time_ms + 1e-9
        other = chain(3)
        wrong = trade_off(other)[0]
        with pytest.raises(ValueError, match="schedule"):
            session.request(known.peak_bytes, known=wrong)
        assert heard.final(session.request(known.peak_bytes)).solution.time_ms <= known.time_ms + 1e-9


def test_the_worker_has_no_torch(profile):
    heard = Heard()
    with SolveSession(profile, on_event=heard.queue.put, time_limit=60.0) as session:
        heard.final(session.request(between(profile, 0.5)))
        maps = Path(f"/proc/{session.worker_id}/maps").read_text()
    assert "pyscipopt" in maps
    assert "libtorch" not in maps
    code = "import explorer.solvers.service.worker, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_closing_leaves_no_process_and_no_thread(hard):
    before = set(threading.enumerate())
    session = SolveSession(hard, on_event=lambda _: None, time_limit=600.0, gap=0.0)
    session.request(between(hard, 0.3))
    worker = session.worker_id
    session.close()
    session.close()
    assert gone(worker)
    assert set(threading.enumerate()) <= before
    with pytest.raises(ValueError, match="closed"):
        session.request(10_000)


def test_a_session_may_be_closed_by_its_own_callback(profile):
    done = threading.Event()
    session = SolveSession(profile, on_event=lambda _: (session.close(), done.set()))
    worker = session.worker_id
    session.request(between(profile, 0.5))
    assert done.wait(PATIENCE_S)
    assert gone(worker)


def test_a_callback_that_raises_is_logged_and_the_session_goes_on(profile, caplog):
    heard = Heard()

    def raise_at_first(event: SolveEvent) -> None:
        heard.queue.put(event)
        if event.request == 1:
            raise RuntimeError("odd")

    with SolveSession(profile, on_event=raise_at_first, time_limit=1.0) as session:
        heard.final(session.request(between(profile, 0.5)))
        assert heard.final(session.request(between(profile, 1.0))).solution.status is Status.OPTIMAL
    assert "odd" in caplog.text


@pytest.mark.parametrize("end", ["", "import os; os.kill(os.getpid(), 9)"])
def test_a_script_without_a_main_guard_runs_once_and_its_end_ends_the_worker(tmp_path, end):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import threading
            from explorer.solvers import SolveSession
            from tests.solvers.graphs import chain
            print("run")
            heard = threading.Event()
            session = SolveSession(chain(24), on_event=lambda _: heard.set(), time_limit=60.0, gap=0.0)
            session.request(2000)
            assert heard.wait(100)
            print(session.worker_id, flush=True)
            """
        )
        + end
    )
    root = str(Path(__file__).parents[3])
    run = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": root},
    )
    said, worker = run.stdout.split()
    assert said == "run"
    assert run.stderr == ""
    assert gone(int(worker))


def test_options_are_checked_in_the_notebook_not_in_the_worker(profile):
    with pytest.raises(ValueError, match="formulation is 'dense'"):
        SolveSession(profile, on_event=print, formulation="dense")
    with SolveSession(profile, on_event=print) as session, pytest.raises(ValueError, match="budget 0 must be positive"):
        session.request(0)


def test_the_worker_yields_to_the_notebook_and_hears_no_interrupt_of_it(profile):
    heard = Heard()
    with SolveSession(profile, on_event=heard.queue.put, time_limit=1.0) as session:
        heard.final(session.request(between(profile, 0.6)))
        worker = session.worker_id
        assert worker is not None
        assert os.getpriority(os.PRIO_PROCESS, worker) > os.getpriority(os.PRIO_PROCESS, 0)
        assert os.getpgid(worker) != os.getpgid(0)
        # In a session of its own Linux would weigh it against the notebook as a whole, whatever its priority.
        assert os.getsid(worker) == os.getsid(0)


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads have priorities of their own on Linux only")
def test_the_solver_comes_last_once_it_is_loaded(profile):
    heard = Heard()
    with SolveSession(profile, on_event=heard.queue.put, time_limit=3.0) as session:
        worker = psutil.Process(session.worker_id)
        assert worker.nice() == psutil.Process().nice()
        heard.final(session.request(between(profile, 0.5)))
        assert {os.getpriority(os.PRIO_PROCESS, x.id) for x in worker.threads()} == {19}


def test_what_scip_says_can_be_read(hard):
    heard = Heard()
    with SolveSession(hard, on_event=heard.queue.put, time_limit=300.0, gap=0.0, remember=False) as session:
        request = session.request(between(hard, 0.5))
        for _ in range(3000):
            if "dualbound" in session.scip_log:
                break
            time.sleep(0.1)
        assert "dualbound" in session.scip_log
        session.cancel()
        heard.final(request)
    assert session.scip_log == ""


def test_other_options_are_solved_for_by_the_same_process(profile):
    """And nothing of what was found before is mistaken for an answer."""
    heard = Heard()
    budget = between(profile, 0.5)
    with SolveSession(profile, on_event=heard.queue.put, time_limit=30.0) as session:
        first = heard.final(session.request(budget)).solution
        worker = session.worker_id
        tensor = next(x.name for x in profile.graph.storages if x.role is Role.ACTIVATION and not x.held)
        pins = parse_pins({tensor: "recompute"})
        session.reconfigure(Options(time_limit=30.0, pins=pins))
        pinned = heard.final(session.request(budget)).solution
        assert session.worker_id == worker
        assert pins.broken_by(profile.graph, pinned.schedule) == ()
        session.reconfigure(Options(time_limit=30.0))
        again = heard.final(session.request(budget)).solution
        assert again.status is Status.OPTIMAL  # within 1 % of the fastest
        assert again.time_ms <= 1.011 * min(first.time_ms, pinned.time_ms)
