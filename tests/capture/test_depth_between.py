"""Deep models that do something else before, after and between some blocks: their graph is that of a whole capture."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from explorer.capture import depth
from explorer.capture.attention import Architecture
from explorer.capture.stand_in import capture_for_cuda
from explorer.graph import TrainingGraph
from tests.capture.deep_programs import EXTRAS, NAMES, Program, Where, drawn

COUNT = 26
IRREGULAR: dict[str, Where] = {
    "at 20": lambda i, _: i == 20,
    "at some": lambda i, _: i in (2, 10, 20, 24),
    "from 20": lambda i, _: i >= 20,
    "in the middle": lambda i, n: i == n // 2,
    "in deep models": lambda i, n: i == 0 and n > 12,
}
REGULAR: dict[str, tuple[str, Where]] = {
    "norm after every second": ("plain norm", lambda i, _: i % 2 == 1),
    "norm after every block": ("norm", lambda _, __: True),
    "cast at first": ("cast", lambda i, _: i == 0),
    "in place at last": ("in place", lambda i, n: i == n - 1),
    "clamped gradients": ("hook", lambda _, __: True),
    "checkpoints": ("checkpoint", lambda _, __: True),
    "a buffer": ("counts in a buffer", lambda _, __: True),
}
PASSING = {"push", "pop", "from the first kept"}  # nothing by themselves
AUTOCAST = {"autocast": torch.bfloat16}


def program(name: str, where: Where, *, count: int = COUNT) -> Program:
    return Program(count, extras=((name, where),), beside=name == "beside")


def by_induction(program: Program, **options: Any) -> TrainingGraph | None:
    """The graph that follows from few blocks; None: all of them are captured."""
    given = {"loss": None, "dtype": None, "autocast": None, "architecture": Architecture(), "fuse": False, **options}
    try:
        found = depth._by_induction(*program.model(), **given)
    except Exception:  # noqa: BLE001 - as ``capture_in_depth`` has it
        return None
    return None if found is None else found[1]


def whole(program: Program, **options: Any) -> TrainingGraph:
    return capture_for_cuda(*program.model(), **options).graph


@pytest.mark.thorough(*(x for x in EXTRAS if x not in {"loss", "cast", "no_grad", "steeper", "hook", "keeps a tensor"}))
@pytest.mark.parametrize("name", [x for x in NAMES if x not in PASSING])
def test_what_happens_at_one_block_is_not_lost(name: str) -> None:
    assert by_induction(program(name, IRREGULAR["at 20"])) is None


@pytest.mark.parametrize("where", IRREGULAR)
def test_what_happens_at_some_blocks_is_not_lost(where: str) -> None:
    assert by_induction(program("plain loss", IRREGULAR[where])) is None


@pytest.mark.thorough(*(x for x in REGULAR if x not in {"norm after every second", "clamped gradients"}))
@pytest.mark.parametrize("name", REGULAR)
def test_what_happens_at_every_block_follows(name: str) -> None:
    made = program(*REGULAR[name])
    assert by_induction(made) == whole(made)


@pytest.mark.thorough(*range(60))
@pytest.mark.parametrize("seed", range(60))
def test_random_models(seed: int) -> None:
    made = drawn(seed)
    options: dict[str, Any] = {"fuse": seed % 5 == 0, **(AUTOCAST if seed % 7 == 0 else {})}
    found = by_induction(made, **options)
    assert found is None or found == whole(made, **options), made.text
