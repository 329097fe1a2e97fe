"""Exercises take every right answer, however it is written, and answer any other with a hint."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from numbers import Real
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
import torch

import explorer
from teaching import questions
from teaching.chain import taught_chain
from teaching.exercises import Exercises, Question
from teaching.game import Game
from tests.teaching.test_course import CHAIN, HARD

ROOT = Path(__file__).parents[2]
BLOCKS = (
    *(("A", 0, 3, 4), ("B", 1, 6, 3), ("C", 2, 4, 2)),
    *(("D", 4, 7, 5), ("E", 5, 8, 2), ("F", 7, 9, 4), ("G", 8, 9, 4)),
)
MIB = 2**20


def least(budget: int, times: np.ndarray | None = None) -> float | None:
    """As the notebook's: nothing fits below 7."""
    return None if budget < 7 else 1.0 if times is not None else 3.0


ALL: dict[str, Callable[[], Exercises]] = {
    "memory": lambda: questions.memory(explorer.load_profile("resnet50-small-cpu")),
    "by_hand": lambda: questions.by_hand(
        Game(taught_chain(CHAIN), budget_bytes=20), Game(taught_chain(HARD), budget_bytes=17)
    ),
    "program": lambda: questions.program(least, lambda room: room - 5, lambda: 6),
    "grouping": lambda: questions.grouping(
        {"paper": (10169, 5210), "grouped": (292, 161)}, (32, 64), {32: (4193, 1350), 64: (16577, 1949)}
    ),
    "annealing": lambda: questions.annealing(
        {"annealing alone": 1154.5, "branch and bound alone": 1193.4, "both": 1154.5}, 1136.3
    ),
    "implementations": lambda: questions.implementations(
        {"none": 318.4, "output": None, "convolution": 309.9, "all": 297.5}, 32.0
    ),
    "addresses": lambda: questions.addresses(BLOCKS, 0.24597),
    "iterations": lambda: questions.iterations(
        {"nothing": 57405952, "AdamW": 57405952 + round(16.21 * MIB), "AdamW, within": 57405952 + round(16.21 * MIB)}
    ),
}
ODD = (
    *(None, True, False, "", "nothing of the kind", "0.8", "A", b"both", object(), int, len),
    *(-1, -12345.678, 1e300, 10**400, float("nan"), float("inf"), -float("inf"), 1j, Fraction(-1, 3)),
    *([], [None], ["both"], ["f0", "f2"], [[1], [2]], (), ("A", 1), set(), {1, 2}, {"nobody"}, frozenset()),
    *({}, {"A": None}, {"A": 0}, {1: 2}, {x[0]: float("nan") for x in BLOCKS}, {x[0]: 0.5 for x in BLOCKS}),
    *({x[0]: 0 for x in BLOCKS}, {x[0]: -1 for x in BLOCKS}, {x[0]: "0" for x in BLOCKS}),
    *(np.nan, np.float32("nan"), np.float64(-1), np.int64(-5), np.bool_(True), np.array(np.nan), np.complex128(1j)),
    *(np.array([]), np.arange(3.0), np.array(["x_f0"]), np.str_("nobody")),
    *(torch.tensor(float("nan")), torch.tensor(-1.0), torch.arange(3), torch.tensor(True), torch.empty(0)),
    torch.empty((), device="meta"),
)


@cache
def exercises(name: str) -> Exercises:
    return ALL[name]()


def said(ask: Exercises, number: int, answer: Any, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    ask(number, answer)
    return capsys.readouterr().out.splitlines()[-1].strip()


def test_all_of_the_course_are_here() -> None:
    asked = set()
    for path in (ROOT / "notebooks").rglob("*.ipynb"):
        source = "\n".join(x.source for x in nbformat.read(path, as_version=4).cells if x.cell_type == "code")
        asked |= set(re.findall(r"questions\.(\w+)\(", source))
    public = {
        name
        for name, x in inspect.getmembers(questions, inspect.isfunction)
        if x.__module__ == questions.__name__ and not name.startswith("_")
    }
    assert asked == public == ALL.keys()


@pytest.mark.parametrize("name", ALL)
def test_anything_else_gets_a_hint(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    ask = exercises(name)
    for number in range(1, len(ask.questions) + 1):
        for odd in ODD:
            told = said(ask, number, odd, capsys)
            assert told.startswith("Not yet. "), f"{name} {number}: {odd!r}: {told}"
            assert len(told) > len("Not yet. ")
    ask.reveal()
    assert f"All {len(ask.questions)} answers hold." in capsys.readouterr().out


def spellings(answer: Any) -> list[Any]:
    """The same answer, written otherwise."""
    if isinstance(answer, Real):
        exact = float(answer)
        found = [exact, np.float64(exact), np.float32(exact), np.array(exact), Fraction(exact)]
        found += [torch.tensor(exact), torch.tensor(exact, dtype=torch.float64)]
        return found + ([int(exact), np.int64(exact)] if exact.is_integer() else [])
    if isinstance(answer, str):
        return [answer, answer.upper(), answer.capitalize(), f"  {answer}\n", np.str_(answer)]
    if isinstance(answer, dict):
        return [
            {x.lower(): float(y) for x, y in answer.items()},
            {f" {x} ": np.int64(y) for x, y in answer.items()},
            {x: torch.tensor(y) for x, y in reversed(answer.items())},
        ]
    return [tuple(answer), set(answer), frozenset(answer), answer[::-1], [x.upper() for x in answer]]


@pytest.mark.parametrize("name", ALL)
def test_right_is_right_however_it_is_written(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    ask = exercises(name)
    for number, question in enumerate(ask.questions, start=1):
        answers = [question.solution(), *([] if question.judges else [question.truth()])]
        for answer in (y for x in answers for y in spellings(x)):
            told = said(ask, number, answer, capsys)
            assert told.startswith("Right."), f"{name} {number}: {answer!r}: {told}"


@pytest.mark.parametrize(
    ("name", "number", "answer", "told"),
    [
        ("grouping", 1, 10169 / 292, "Right."),
        ("grouping", 1, 35, "Right."),
        ("grouping", 1, 34, "Not yet. Divide."),
        ("grouping", 1, 36, "Not yet. Divide."),
        ("grouping", 3, 1949 / 1350, "Right."),
        ("grouping", 3, 1.5, "Not yet. Rows of the second column."),
        ("by_hand", 2, ["f0", "f2"], "Not yet. There is no tensor f0; there are x_f0, x_f1"),
        ("by_hand", 2, 5, "Not yet. A list of names is asked for."),
        ("by_hand", 2, "x_f0", "Not yet. Try large tensors"),
        ("by_hand", 4, "Drop again", "Right."),
        ("annealing", 1, "Both", "Right."),
        ("annealing", 1, "branch and bound alone", "Not yet. Several may share it"),
        ("annealing", 1, ["both"], "Not yet. A name or some words are asked for, in quotes."),
        ("annealing", 2, "0.8", "Not yet. A number is asked for, without quotes."),
        ("annealing", 2, None, "Not yet. A number is asked for."),
        ("implementations", 2, "output", "Not yet. More choices are never worse"),
        ("iterations", 2, "The same", "Right."),
        ("iterations", 1, 16.21, "Right."),
        ("addresses", 2, {"A": 0}, "Not yet. There is no address for B, C, D, E, F, G."),
        ("addresses", 2, {"a": 0, "A": 1}, "Not yet. There is no address for B"),
        ("addresses", 3, 24.597, "Not yet."),
        ("memory", 2, "Backward", "Right."),
    ],
)
def test_what_was_refused_or_raised(
    name: str, number: int, answer: Any, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(exercises(name), number, answer, capsys).startswith(told)


def test_a_judge_that_cannot_read_an_answer_gives_its_hint() -> None:
    question = Question("Twice what?", lambda answer: answer["x"] / 0 == 2, hint="Half.", judges=True)
    for odd in (None, 3, "x", [], {}, {"x": 1}):
        assert question.wrong(odd) == "Half."


def test_between_two_roundings_either_will_do() -> None:
    question = Question("Half of seven? (To the nearest whole.)", lambda: 3.5, digits=0)
    assert [question.wrong(x) is None for x in (2, 3, 3.5, 4, 5)] == [False, True, True, True, False]
