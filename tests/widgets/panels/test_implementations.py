"""The implementations panel: what it shows for what is selected and chosen in it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, cast

import pytest

import explorer
from explorer.device_profile import Profile
from explorer.schedule import keep_all
from explorer.simulation import simulate
from tests.solvers.graphs import chain
from widgets.panels.implementations import ImplementationsPanel
from widgets.panels.panel import PanelOwner
from widgets.scene.scene import Scene
from widgets.scene.trade_off import TradeOff


class Owner:
    """An explorer as far as the panel asks for it."""

    def __init__(self, profile: Profile) -> None:
        plain = simulate(profile, keep_all(profile.graph))
        self.scene = Scene(profile, plain, cast("TradeOff", None))
        self.panel: Any = ImplementationsPanel(cast("PanelOwner", self))
        self.panel.show(self.scene)

    def select(self, layer: str) -> None:
        self.scene = replace(self.scene, selection="" if layer == self.scene.selection else layer)
        self.panel.show(self.scene)

    @property
    def drawn(self) -> str:
        return json.loads(self.panel.plot.figure)["layout"]["meta"]

    def row(self, label: str) -> str:
        rows = [x for row in self.panel.table.rows for x in (row, *row.get("folded", ()))]
        return next(row["key"] for row in rows if row["cells"][0] == label)


@pytest.fixture(scope="module")
def gpt2() -> Profile:
    return explorer.load_profile("gpt2")


def test_without_a_selection_the_operator_with_the_most_ways_is_drawn(gpt2: Profile) -> None:
    owner = Owner(gpt2)
    assert "Memory added against time" in owner.drawn
    assert "linear_cross_entropy" in owner.drawn
    assert "Memory added: results and workspace" in owner.panel.heading.value
    offered = [label for label, _ in owner.panel.calls.options]
    assert "blocks.0.norm1: layer norm (24 alike)" in offered  # one of each sort
    assert len(owner.panel.ways.rows) > 20


def test_a_row_selects_its_layer_and_shows_its_operator(gpt2: Profile) -> None:
    owner = Owner(gpt2)
    key = owner.row("blocks.3.mlp.0: feed forward")  # folded with the other eleven
    owner.panel.table._handle_custom_msg({"picked": key}, [])
    assert owner.scene.selection == "blocks.3.mlp.0"
    assert "blocks.3.mlp.0: feed forward" in owner.drawn
    assert owner.panel.table.selected.count(key) == 1
    owner.panel.table._handle_custom_msg({"picked": key}, [])
    assert owner.scene.selection == ""
    other = owner.row("other: embedding_backward_added")
    owner.panel.table._handle_custom_msg({"picked": owner.row("other: linear_cross_entropy")}, [])
    owner.panel.table._handle_custom_msg({"picked": other}, [])
    assert owner.scene.selection == "other"
    assert "embedding_backward_added" in owner.drawn


def test_several_operators_of_a_layer_are_chosen_among(gpt2: Profile) -> None:
    owner = Owner(gpt2)
    owner.select("blocks.2")
    offered = dict(owner.panel.calls.options)
    assert list(offered) == [
        "blocks.2.norm1: layer norm (1 alike)",
        "blocks.2.attention: attention",
        "blocks.2: add and 1 more",
        "blocks.2.mlp.2: weight gradient",
        "blocks.2.mlp.0: feed forward",
    ]
    owner.panel.calls.value = offered["blocks.2.attention: attention"]
    assert "blocks.2.attention: attention" in owner.drawn
    owner.select("blocks.2.attention")  # what is shown is there, too
    assert "blocks.2.attention: attention" in owner.drawn


def test_one_kind_of_operators_alone(gpt2: Profile) -> None:
    owner = Owner(gpt2)
    owner.panel.kind.value = "attention"
    assert "blocks.0.attention: attention" in owner.drawn
    (row,) = owner.panel.table.rows
    assert row["cells"][0] == "blocks.0-11.attention: attention, 12 times"
    assert [x["cells"][0] for x in row["folded"]] == [f"blocks.{i}.attention: attention" for i in range(12)]


def test_a_layer_without_a_choice_is_told_of(gpt2: Profile) -> None:
    owner = Owner(gpt2)
    owner.select("tokens")
    assert "there is nothing to choose in tokens" in owner.panel.heading.value


def test_a_model_without_a_choice_is_told_of() -> None:
    owner = Owner(chain(3))
    assert "nothing to choose" in owner.panel.heading.value
    assert owner.panel.plot.figure == ""
    assert ImplementationsPanel.figure(owner.scene) is None
