"""Damaged and hostile files: bytes, structure, numbers and names of profiles and schedules; and of the cache.

``attack(seed, folder)`` makes one, gives it to everything that reads such a file, and says what came of it: ``taken``,
``refused`` in one sentence, or what was found wrong.
"""

from __future__ import annotations

import gzip
import json
import math
import random
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from explorer import keep_all, load_profile, load_schedule, simulate
from explorer.command_line.commands import app
from explorer.device_profile import Profile
from explorer.solvers.monet.recalled import Answer
from explorer.solvers.service.cache import AnswerCache
from explorer.storage.storage_format import text_of
from tests.solvers.graphs import chain
from tests.test_simulation import small_profile

FOUND = "FOUND"
CANARY = "code-was-run"
LONGEST_S = 10.0  # of processor time: on a busy machine whatever is right takes long too
_LONGEST_WAIT_S = 120.0  # of any other time
_LONGEST_MESSAGE = 5000  # it may quote two names
_COLUMNS = "label", "used", "spent_s", "bound_ms", "excluded", "time_ms", "peak_bytes", "schedule"
_COMMANDS = 10  # one file in so many goes through the command line too
NUMBERS: tuple[Any, ...] = (
    0,
    -1,
    1,
    2**31,
    2**53 + 1,
    2**63,
    -(2**63),
    10**400,
    1e308,
    -1e308,
    math.inf,
    math.nan,
    0.5,
)
TEXTS: tuple[Any, ...] = (
    "",
    "x" * 100_000,
    "\0",
    "\ud800",
    "\x1b[31m\x1b]0;x\x07",
    "[/x]",
    "../../" + CANARY,
    f"'); open('{CANARY}', 'w') #",
    f"__import__('pathlib').Path('{CANARY}').touch()",
    f'"""; open("{CANARY}", "w")',
    "'; DROP TABLE answers; --",
)
OTHERS: tuple[Any, ...] = (None, True, False, [], {}, [[]], {"": {}}, *NUMBERS, *TEXTS)


def attack(seed: int, folder: Path) -> str:
    """Make and try one; ``folder`` is empty, and the working folder."""
    draw = random.Random(seed)
    kind = draw.choice((_profile, _profile, _schedule, _schedule, _cache))
    began, used = time.monotonic(), time.process_time()
    try:
        said = kind(draw, folder)
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        said = f"{FOUND} {type(error).__name__}: {str(error)[:200]}"
    taken_s = time.monotonic() - began
    if time.process_time() - used > LONGEST_S or taken_s > _LONGEST_WAIT_S:
        said = f"{FOUND} a hang of {taken_s:.0f} s, then {said}"
    if any(CANARY in x.name for x in (*folder.iterdir(), *folder.parent.iterdir())):
        said = f"{FOUND} code run"
    return said


def _profile(draw: random.Random, folder: Path) -> str:
    file = _written(draw, text_of(_profiles()[draw.randrange(2)], schema=1), folder / "profile.json")
    before = sorted(folder.iterdir())

    def use() -> None:
        profile = load_profile(file)
        simulate(profile, keep_all(profile.graph))
        assert profile.digest

    command = ["simulate", str(file), str(folder / "absent.json")]
    return _outcome(use, command, draw, before, folder)


def _schedule(draw: random.Random, folder: Path) -> str:
    profile = _profiles()[draw.randrange(2)]
    file = _written(draw, text_of(keep_all(profile.graph), schema=1), folder / "schedule.json")
    profile.save(folder / "p.json")
    command = ["simulate", str(folder / "p.json"), str(file)]
    return _outcome(lambda: simulate(profile, load_schedule(file)), command, draw, sorted(folder.iterdir()), folder)


def _outcome(use: Callable[[], Any], command: list[str], draw: random.Random, before: list[Path], folder: Path) -> str:
    said = "taken"
    try:
        use()
    except ValueError as error:
        said = "refused"
        if not str(error).strip() or len(str(error)) > _LONGEST_MESSAGE:
            return f"{FOUND} a message of {len(str(error))} characters"
    if draw.randrange(_COMMANDS) == 0:
        ended = CliRunner().invoke(app, command)
        if ended.exit_code not in (0, 2) or "Traceback" in ended.output:
            return f"{FOUND} exit code {ended.exit_code}: {ended.output[-200:]!r}"
        if said == "refused" and ended.exit_code != 2:
            return f"{FOUND} taken by the command only"
    return said if sorted(folder.iterdir()) == before else f"{FOUND} a file that was not named"


def _cache(draw: random.Random, folder: Path) -> str:
    """Whatever is wrong with the memory of solves: it works afterwards, and nothing is raised."""
    memory = AnswerCache(folder)
    profile = _profiles()[0]
    answer = Answer(1000, 1.0, 1.0, False, 2.0, 900)
    memory.remember("p", answer, keep_all(profile.graph), label=str(draw.choice(TEXTS)))
    file = folder / "solves.sqlite3"
    if draw.random() < 0.5:
        file.write_bytes(_damaged(draw, file.read_bytes()))
    else:
        with sqlite3.connect(file) as database:
            column = draw.choice(
                ("label", "used", "spent_s", "bound_ms", "excluded", "time_ms", "peak_bytes", "schedule")
            )
            value = draw.choice((None, b"\xff\xfe", "text", -1, 2**62, 1e308, math.inf, "\x1b[31m", ""))
            database.execute(f"UPDATE answers SET {column} = ?", (value,))  # noqa: S608 - of the list above
        database.close()
    for use in (lambda: memory.recall("p"), lambda: memory.schedule("p", 1000), memory.contents, memory.clear):
        if draw.random() < 0.7:
            use()
    memory.remember("q", answer, keep_all(profile.graph), label="afterwards")
    return "taken" if memory.recall("q") and memory.schedule("q", 1000) else f"{FOUND} nothing is remembered any more"


def _written(draw: random.Random, text: str, file: Path) -> Path:
    """The file of a damaged document, compressed or not."""
    if draw.random() < 0.3:
        data = _damaged(draw, text.encode())
    else:
        document = json.loads(text)
        if draw.random() < 0.9:
            del document["checksum"]
        for _ in range(draw.choice((1, 1, 1, 2, 5))):
            document = _mutated(draw, document)
        data = json.dumps(document).encode()
        if draw.random() < 0.05:
            more = draw.choice((b"[" * 1000 + b"]" * 1000, b"9" * 20_000))
            data = data.replace(b'"schema"', b'"more": ' + more + b', "schema"', 1)
    if draw.random() < 0.2:
        file = file.with_suffix(".json.gz")
        data = gzip.compress(data)
        if draw.random() < 0.5:
            data = _damaged(draw, data)
    file.write_bytes(data)
    return file


def _damaged(draw: random.Random, data: bytes) -> bytes:
    """Some bytes changed, put in or cut off."""
    found = bytearray(data)
    way = draw.randrange(4)
    if way == 0:
        return bytes(found[: draw.randrange(len(found))])
    for _ in range(draw.choice((1, 1, 3, 30))):
        at = draw.randrange(len(found))
        if way == 1:
            found[at] = draw.randrange(256)
        elif way == 2:
            found[at] ^= 1 << draw.randrange(8)
        else:
            found[at:at] = draw.randbytes(draw.choice((1, 5, 100)))
    return bytes(found)


def _mutated(draw: random.Random, document: Any) -> Any:
    """One entry deleted, repeated, exchanged with another, or of another value."""
    holder, key = draw.choice(_places(document))
    way = draw.randrange(4)
    if way == 0:
        del holder[key]
    elif way == 1 and isinstance(holder, list):
        holder.insert(key, holder[key])
    elif way == 2:
        other = draw.choice([*holder] if isinstance(holder, dict) else range(len(holder)))
        holder[key], holder[other] = holder[other], holder[key]
    elif isinstance(holder[key], int | float):
        holder[key] = draw.choice((*NUMBERS, holder[key] + 1, -holder[key]))
    elif isinstance(holder[key], str):
        holder[key] = draw.choice((*TEXTS, *OTHERS))
    else:
        holder[key] = draw.choice(OTHERS)
    return document


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every entry of a document: what holds it, and its key there; those of long lists not more often than others."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = [(value, key) for key, _ in inner]
    for _, entry in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        found += _places(entry)
    return found or [({"": 0}, "")]


def _profiles() -> tuple[Profile, Profile]:
    return small_profile(), chain(5)
