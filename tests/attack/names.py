"""Hostile names, in everything that a profile or a user can name, through every way out."""

from __future__ import annotations

import ast
import json
import os
import random
import tempfile
from collections.abc import Callable
from contextlib import chdir
from dataclasses import replace
from functools import cache
from pathlib import Path
from unittest.mock import patch

import explorer
from explorer import harmless
from explorer.analysis.explaining import explain_all, sentence
from explorer.command_line.lab import notebook_of
from explorer.device_profile import Profile
from explorer.graph import Operator, TensorSpec
from explorer.schedule import Schedule, keep_all
from explorer.simulation import simulate
from explorer.solution import Solution, Status
from explorer.solvers.monet.recalled import Answer
from explorer.solvers.options import Options
from explorer.solvers.service.cache import AnswerCache, label_of, problem_key
from explorer.storage import storage_format
from explorer.storage.cache_folder import VARIABLE
from explorer.storage.conversion import from_plain, to_plain
from tests.attack.holding import CONTROL, Parsed, call, check_figure, check_html, refused
from tests.solvers.graphs import chain
from widgets import text
from widgets.notebook import picture
from widgets.panels.figures import figures
from widgets.report import report
from widgets.scene.scene import Scene
from widgets.scene.trade_off import TradeOff
from widgets.snippet import snippet

_LONGEST = 1900  # characters of a name that a file may hold, with something added to it

PAYLOADS = (
    "",
    " ",
    ".",
    "..",
    "../../evil",
    "/etc/passwd",
    "~root/x",
    "~",
    "-o",
    "C:\\users\\new",
    "x\\",
    "a\0b",
    "\n",
    "x\r\nSet-Cookie: a=b",
    "a\u2028print('run')",
    "\x07\x08\x7f\x9b31m",
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "\x1b]8;;http://evil.example\x1b\\link\x1b]8;;\x1b\\",
    "\x1bc\x1b[2J",
    "[/x]",
    "[bold]",
    "[link=http://evil.example]x[/link]",
    ":smiley:",
    "<b>",
    "<script>run()</script>",
    "<!--<script>",
    "</script><script>run()</script>",
    "--></script><!--",
    "<img src=x onerror=run()>",
    "<svg/onload=run()>",
    '"><svg onload="run()">',
    "' onmouseover='run()",
    '<a href="javascript:run()">x</a>',
    '<a href="https://evil.example">x</a>',
    "</title></style></pre><iframe src=javascript:run()>",
    "&lt;script&gt;&#x3c;",
    "%{x}%{customdata}<extra>",
    "]]>",
    "'",
    '"',
    '"""',
    "'''",
    'x"""\nimport os; os.system("run")\n"""',
    "{0}{run}{__import__('os')}",
    "{{}}}",
    "%s%n%(x)d",
    "$(touch run)",
    "`touch run`",
    "; touch run;",
    "'; DROP TABLE answers; --",
    '" OR 1=1 --',
    "\ud800",
    "\udfff\ud800x",
    "\u202eexe.nosj",
    "\u200b\ufeff",
    "e\u0301\u0301\u0301",
    "名前🙂",
    "nul",
    "x" * 10_000,
    "<script>" * 2_000,
)


def hostile(rng: random.Random) -> str:
    """One of the payloads, or two together."""
    drawn = rng.choice(PAYLOADS)
    return drawn + rng.choice(PAYLOADS) if rng.random() < 0.3 else drawn


def hostile_profile(rng: random.Random) -> Profile:
    """A small profile in which every name may be hostile; what has to be unique still is."""
    profile, bad = chain(3), lambda: hostile(rng)[:_LONGEST] if rng.random() < 0.7 else "plain"
    graph = profile.graph
    graph = replace(
        graph,
        model=bad(),
        batch=tuple(TensorSpec(bad(), x.shape, bad()) for x in graph.batch),
        parameters=(TensorSpec(bad(), (1,), bad()),),
        storages=tuple(replace(x, name=f"{bad()}{x.id}", dtype=bad()) for x in graph.storages),
        operators=tuple(_renamed(x, bad) for x in graph.operators),
    )
    device = replace(profile.device, name=bad(), torch_version=bad(), note=bad(), estimated=rng.random() < 0.5)
    return replace(profile, graph=graph, device=device, optimizer=bad())


def scene_of(profile: Profile) -> Scene:
    """What every panel and the report draw from, with a schedule that needs no search."""
    line = simulate(profile, keep_all(profile.graph))
    found = plain(profile)
    return Scene(profile, line, TradeOff(line, (found,)), found, line, selection=profile.graph.operators[0].layer)


def plain(profile: Profile) -> Solution:
    """Nothing is recomputed."""
    schedule = keep_all(profile.graph)
    line = simulate(profile, schedule)
    return Solution(Status.FEASIBLE, line.peak_bytes, schedule, line.time_ms, line.peak_bytes)


def attack(seed: int) -> str:
    """One random attack.

    Args:
        seed: the same one is the same attack.

    Returns:
        ``"held"``, or ``"refused: …"`` with the sentence.

    Raises:
        AssertionError: a find; says what came out where.
    """
    rng = random.Random(seed)
    way = rng.choice(tuple(WAYS))
    try:
        return WAYS[way](rng)
    except Exception as error:
        raise AssertionError(f"seed {seed}, {way}: {type(error).__name__}: {error}"[:2000]) from error


def _renamed(operator: Operator, bad: Callable[[], str]) -> Operator:
    called = {x.name: f"{bad()}{i}" for i, x in enumerate(operator.implementations)}
    made = tuple(replace(x, name=called[x.name]) for x in operator.implementations)
    made += (replace(made[0], name=f"{bad()} too"),)  # there is a choice, which a panel shows
    target = "aten.convolution.default" if operator.id == 0 else bad()
    return replace(operator, name=f"{bad()}{operator.id}", target=target, layer=bad(), implementations=made)


# Ways out


def to_report(rng: random.Random) -> str:
    """The page to take away."""
    profile = hostile_profile(rng)
    scene = scene_of(profile)
    page = report(scene, file=f"{hostile(rng)}.json", bundled=None)
    found = check_html(page, scripts=_scripts())
    contents = [x for kind, x in found.scripts if kind == "application/json"]
    assert not any("<" in content for content in contents)
    content = contents[-1]
    assert json.loads(content) == json.loads(storage_format.text_of(plain(profile).schedule, schema=1))
    return "held"


def to_pages(rng: random.Random) -> str:
    """What the widget shows as HTML, and the picture that stands in for it."""
    profile = hostile_profile(rng)
    scene = scene_of(profile)
    check_html(picture.render(hostile(rng), scene, mark="mark"), scripts=0)
    check_html(picture.render(hostile(rng), None, mark="mark"), scripts=0)
    check_html(text.figures(scene), scripts=0)
    told = [text.heading(profile), *(sentence(profile, x) for x in explain_all(profile, plain(profile).schedule))]
    for line in told:
        check_html(f"<p title='{harmless.in_html(line)}'>{harmless.in_html(line)}</p>", scripts=0)
    return "held"


def to_figures(rng: random.Random) -> str:
    """Plots, whose texts plotly takes for HTML."""
    profile = hostile_profile(rng)
    scene = scene_of(profile)
    drawn = figures(scene)
    assert {"timeline", "trade_off", "layers", "matrix", "implementations"} <= drawn.keys()
    for figure in drawn.values():
        check_figure(json.loads(figure.to_json()))
    return "held"


def to_program(rng: random.Random) -> str:
    """The program that trains: it compiles, and but for its constants it is the one of a profile with plain names."""
    profile = hostile_profile(rng)
    file = hostile(rng)
    program = snippet(profile, plain(profile), file=file, bundled=None)
    program.encode()
    usual = chain(3)
    normal = snippet(usual, plain(usual), file="a.json", bundled=None)
    starred = {program.count("scheduled(**batch)"), normal.count("scheduled(**batch)")}
    assert _bones(program.replace("(**batch)", "(*batch)")) == _bones(normal.replace("(**batch)", "(*batch)")), starred
    assert any(isinstance(x, ast.Constant) and x.value == file for x in ast.walk(ast.parse(program)))
    assert not CONTROL.search(program)
    source = json.loads(notebook_of(file))["cells"][0]["source"]
    assert _bones(source) == _bones(json.loads(notebook_of("a"))["cells"][0]["source"])
    return "held"


def to_terminal(rng: random.Random) -> str:
    """Commands on a hostile profile, and with hostile arguments."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        profile = hostile_profile(rng)
        profile.save("p.json")
        plain(profile).schedule.save("s.json")
        bad = hostile(rng).replace("\0", "") or "x"  # no process can be given a NUL
        command = rng.choice(_COMMANDS)
        before = _files()
        said = call(*(bad if x == "BAD" else x for x in command))
        new = _files() - before
        assert not new, new
        return said


def to_memory(rng: random.Random) -> str:
    """The memory of past solves, which a command lists."""
    with tempfile.TemporaryDirectory() as folder:
        memory, profile = AnswerCache(Path(folder)), hostile_profile(rng)
        options = Options("monet")
        other, found = hostile(rng), plain(profile)
        answer = Answer(1000, 1.0, 0.0, excluded=False, time_ms=found.time_ms, peak_bytes=found.peak_bytes)
        memory.remember("known", answer, found.schedule, label="known")
        key = problem_key(profile, options)
        memory.remember(key, answer, found.schedule, label=label_of(profile, options) + other)
        # Two half characters after one another are a whole one once they have been in a file.
        kept = from_plain(json.loads(json.dumps(to_plain(found.schedule))), Schedule)
        assert memory.schedule(key, 1000) == kept
        assert memory.schedule("known", 1000) == kept
        assert len(memory.contents()) == 2
        assert memory.recall(f"{other}'".encode(errors="replace").decode()) == ()
        with patch.dict(os.environ, {VARIABLE: folder}):
            return call("cache")


def to_files(rng: random.Random) -> str:
    """Names of files: made from a name, or typed."""
    name = hostile(rng)
    stem = harmless.file_stem(name)
    assert Path(stem).name == stem
    assert not stem.startswith((".", "-"))
    assert len(f"{stem}-0.123gib.json.partial".encode()) < 255
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        Path("elsewhere").symlink_to("/")
        typed = rng.choice((name, f"elsewhere/{name}", f"a/../../{name}"))
        try:
            path = harmless.below_working_folder(typed)
        except ValueError as error:
            return refused(str(error))
        assert path.is_relative_to(Path(folder).resolve())
        assert path != Path(folder).resolve()
    return "held"


def to_pins(rng: random.Random) -> str:
    """Pins that name what there is not, or what there is and is hostile."""
    profile = hostile_profile(rng)
    named = rng.choice(profile.graph.operators)
    pin = rng.choice(((named.name, hostile(rng)), (hostile(rng), "keep"), (named.name, named.implementations[0].name)))
    try:
        explorer.solve(profile, budget=10_000, pins=[pin], time_limit=0.2, remember=False)
    except ValueError as error:
        return refused(str(error))
    return "held"


WAYS: dict[str, Callable[[random.Random], str]] = {
    "report": to_report,
    "pages": to_pages,
    "figures": to_figures,
    "program": to_program,
    "terminal": to_terminal,
    "memory": to_memory,
    "files": to_files,
    "pins": to_pins,
}
_COMMANDS = (
    ("simulate", "p.json", "s.json"),
    ("solve", "p.json", "--budget", "100 %", "--time-limit", "0.1", "--afresh", "-o", "s.json"),
    ("simulate", "p.json", "BAD"),
    ("simulate", "BAD", "s.json"),
    ("solve", "p.json", "--budget", "BAD"),
    ("solve", "p.json", "--budget", "1 B", "--time-limit", "0.1", "--afresh"),
    ("solve", "p.json", "--budget", "100 %", "--method", "BAD"),
    ("solve", "p.json", "--budget", "100 %", "--pin", "BAD=keep"),
    ("solve", "p.json", "--budget", "100 %", "--optimizations", "BAD"),
    ("solve", "p.json", "--budget", "100 %", "--output", "no/such/BAD"),
    ("explore", "BAD"),
    ("profile", "BAD"),
    ("profile", "BAD:make"),
    ("profile", "resnet50", "--image-size", "BAD"),
    ("estimate", "resnet50", "--device", "BAD"),
    ("run", "resnet50", "BAD"),
    ("run", "resnet50", "s.json", "--profile", "BAD"),
    ("cache", "BAD"),
    ("methods", "BAD"),
    ("BAD",),
    ("--BAD",),
)


def _bones(program: str) -> str:
    """A program's structure, without what its constants say."""
    tree = ast.parse(program)
    for x in ast.walk(tree):
        if isinstance(x, ast.Constant):
            x.value = None
    return ast.dump(tree)


def _files() -> set[Path]:
    """Below the current folder, and beside it."""
    return {*Path.cwd().rglob("*"), *Path.cwd().parent.glob("*.json"), *Path.cwd().parent.glob("*.ipynb")}


@cache
def _scripts() -> int:
    """In the report of a profile with plain names."""
    return len(Parsed(report(scene_of(_plainly_named()), file="a.json", bundled=None)).scripts)


def _plainly_named() -> Profile:
    profile, (first, *others) = chain(3), chain(3).graph.operators
    ways = (*first.implementations, replace(first.implementations[0], name="too"))
    convolution = replace(first, target="aten.convolution.default", implementations=ways)
    return replace(profile, graph=replace(profile.graph, operators=(convolution, *others)))
