"""The app under attack: a real server, asked by those who are not its page."""

from __future__ import annotations

import asyncio
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from tests.ui.served import Served, served

T = TypeVar("T")
_PLACES = 2
_ALONE_S = 8
_ASKED = 8
_PATIENCE_S = 120
_KERNEL, _WORKER = "ipykernel_launcher", "explorer.solvers.service.worker"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """With two places, which are free soon."""
    options = (f"--Places.most={_PLACES}", f"--Places.alone_s={_ALONE_S}", "--Places.cull_interval=1")
    with served(tmp_path_factory.mktemp("voila"), *options) as running:
        yield running


def ask(url: str, **headers: str) -> tuple[int, str]:
    """Status and body."""
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=_PATIENCE_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def run_apart(work: Coroutine[Any, Any, T]) -> T:
    """In a thread of its own: what drives browsers leaves a loop running in the one that tests run in."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(asyncio.run, work).result()


def wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def kernel_id(server: Served) -> str:
    """Of any kernel there is."""
    (kernel, *_) = server.processes(_KERNEL)
    return Path(kernel.cmdline()[-1]).stem.removeprefix("kernel-")


async def handshake(server: Served, kernel: str, **headers: str) -> int:
    """The status with which a web socket to a kernel is answered; 101 if it is opened."""
    url = f"ws://127.0.0.1:{server.port}/api/kernels/{kernel}/channels"
    try:
        connection = await websocket_connect(HTTPRequest(url, headers=headers))
    except HTTPClientError as error:
        return error.code
    await closed(connection)
    return 101


async def closed(connection: WebSocketClientConnection) -> None:
    """Close it, and wait until it is: a socket left open is a warning in whatever test comes next."""
    connection.close()
    while await connection.read_message() is not None:
        pass


@pytest.mark.timeout(300)
@pytest.mark.parametrize("path", ["", "?template=/etc", "api/kernels/x", "voila/api/shutdown/x", "voila/files/x.png"])
def test_a_name_that_was_made_to_lead_here_is_refused(path: str, server: Served) -> None:
    for host in ("evil.example", f"evil.example:{server.port}", "127.0.0.1.evil.example", "10.0.0.1"):
        status, _ = ask(server.url + path, Host=host)
        assert status in {403, 404}, (path, host)
    assert not server.processes(_KERNEL)


@pytest.mark.timeout(300)
def test_places_are_bounded_the_others_are_told_and_all_are_freed(server: Served) -> None:
    with ThreadPoolExecutor(_ASKED) as pool:
        answers = list(pool.map(lambda _: ask(server.url), range(_ASKED)))
    assert sorted(status for status, _ in answers) == [200] * _PLACES + [503] * (_ASKED - _PLACES)
    for status, body in answers:
        if status == 503:
            assert "All 2 places of this schedule explorer are taken" in body
            assert "try again later" in body
    assert len(server.processes(_KERNEL)) <= _PLACES
    wait_until(lambda: not server.processes(_KERNEL) and not server.processes(_WORKER))
    assert ask(server.url)[0] == 200


@pytest.mark.timeout(300)
def test_a_page_from_elsewhere_does_not_reach_a_kernel(server: Served) -> None:
    wait_until(lambda: ask(server.url)[0] == 200)
    kernel = kernel_id(server)
    here = f"http://127.0.0.1:{server.port}"

    async def statuses() -> list[int]:
        return [
            await handshake(server, kernel, Origin="http://evil.example"),
            await handshake(server, kernel, Origin="null"),
            await handshake(server, kernel, Origin="http://evil.example", Host="evil.example"),
            await handshake(server, kernel, Origin=here),
        ]

    assert run_apart(statuses()) == [403, 403, 403, 101]


@pytest.mark.timeout(300)
def test_a_page_that_is_open_keeps_its_kernel_and_one_that_is_gone_does_not(server: Served) -> None:
    wait_until(lambda: not server.processes(_KERNEL))
    assert ask(server.url)[0] == 200
    url = f"ws://127.0.0.1:{server.port}/api/kernels/{kernel_id(server)}/channels"

    async def stay() -> int:
        connection = await websocket_connect(url)
        await asyncio.sleep(2 * _ALONE_S)
        kept = len(server.processes(_KERNEL))
        await closed(connection)
        return kept

    assert run_apart(stay()) == 1
    wait_until(lambda: not server.processes(_KERNEL))


@pytest.mark.timeout(300)
def test_a_solver_dies_with_its_kernel(server: Served) -> None:
    wait_until(lambda: not server.processes(_KERNEL))
    assert ask(server.url)[0] == 200
    wait_until(lambda: bool(server.processes(_WORKER)))
    workers = server.processes(_WORKER)
    for kernel in server.processes(_KERNEL):
        kernel.send_signal(signal.SIGKILL)
    wait_until(lambda: not any(worker.is_running() and worker.status() != "zombie" for worker in workers))


@pytest.mark.timeout(300)
def test_kernels_of_visitors_know_that_they_are(server: Served) -> None:
    wait_until(lambda: ask(f"{server.url}?SCHEDULE_EXPLORER_VISITOR=&VOILA_PREHEAT=")[0] == 200)
    kernels = server.processes(_KERNEL)
    assert kernels
    for kernel in kernels:
        assert kernel.environ()["SCHEDULE_EXPLORER_VISITOR"] == "1"
