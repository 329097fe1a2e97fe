"""Repeated blocks: which there are, and how they are called."""

from __future__ import annotations

from dataclasses import replace

import pytest

import explorer
from explorer.device_profile import Profile
from widgets.scene.blocks import Blocks, Run, blocks_of, folded


@pytest.fixture(scope="module")
def gpt2() -> Profile:
    return explorer.load_profile("gpt2")


def test_equal_blocks_are_a_run(gpt2: Profile) -> None:
    blocks = blocks_of(gpt2.graph)
    assert blocks.runs == (Run("blocks.", 0, 12),)
    place = blocks.place("blocks.7.mlp.1")
    assert place is not None
    assert (place.run.stem, place.block, place.rest) == ("blocks.", 7, ".mlp.1")
    assert blocks.place("norm") is None
    assert blocks.place("") is None
    assert blocks_of(gpt2.graph) is blocks


def test_blocks_that_differ_are_apart() -> None:
    stems = {(run.stem, run.first, run.count) for run in blocks_of(explorer.load_profile("resnet50").graph).runs}
    assert {("layer3.", 1, 5), ("layer2.", 1, 3)} <= stems  # the first of each has a shortcut of its own
    assert not [stem for stem, *_ in stems if stem == "layer"]


def test_a_block_of_other_operators_ends_a_run(gpt2: Profile) -> None:
    operators = [
        replace(x, target="aten.other.default") if x.layer == "blocks.5.mlp.1" else x for x in gpt2.graph.operators
    ]
    runs = Blocks(replace(gpt2.graph, operators=tuple(operators))).runs
    assert runs == (Run("blocks.", 0, 5), Run("blocks.", 6, 6))


def test_blocks_within_blocks_belong_to_the_outer_run(gpt2: Profile) -> None:
    layers = {x.layer: x.layer.replace("mlp.1", "mlp.experts.1") for x in gpt2.graph.operators}
    nested = [replace(x, layer=layers[x.layer]) for x in gpt2.graph.operators]
    blocks = Blocks(replace(gpt2.graph, operators=tuple(nested)))
    assert blocks.runs == (Run("blocks.", 0, 12),)


@pytest.mark.parametrize(
    ("blocks", "told"),
    [
        (range(32), "layers.4-35"),
        ([0, 1, 2, 5], "layers.4-6, 9"),
        ([3], "layers.7"),
        ([0, 2, 4, 6, 8, 9], "layers.4, 6, 8, …"),
    ],
)
def test_a_name_lists_blocks(blocks: list[int], told: str) -> None:
    assert Run("layers.", 4, 32).label(blocks) == told


def test_equal_items_of_a_run_are_one_and_the_others_stay(gpt2: Profile) -> None:
    items = [("norm", 0), *((f"blocks.{i}.mlp", int(i == 3)) for i in range(12)), ("norm", 0)]
    found = folded(items, blocks_of(gpt2.graph), layer=lambda x: x[0], equal=lambda x: x[1])
    assert [(name, len(members)) for name, members in found] == [
        ("norm", 1),
        ("blocks.0-2, 4-11.mlp", 11),
        ("blocks.3.mlp", 1),
        ("norm", 1),
    ]
