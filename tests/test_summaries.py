"""Values of any size show themselves on a line, and as a small table in a notebook."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

import explorer
from explorer.measurement import Measurement
from explorer.schedule import Schedule, keep_all
from explorer.summaries import Summarised


@pytest.fixture(scope="module")
def values() -> list[Summarised]:
    profile = explorer.load_profile("gpt2")
    answered = explorer.solve(profile, budget="60 %", time_limit=0.2, remember=False)
    refused = explorer.solve(profile, budget="1 MiB", time_limit=0.2, remember=False)
    schedule = keep_all(profile.graph)
    measured = Measurement("a device", "a method", 1 << 20, None, 3.25, np.zeros(100_000), np.zeros(100_000, np.int64))
    return [profile, answered, refused, schedule, explorer.simulate(profile, schedule), measured]


def test_three_lines_hold_any_of_them(values: list[Summarised]):
    assert {type(x).__name__ for x in values} == {"Profile", "Solution", "Schedule", "Timeline", "Measurement"}
    for value in values:
        told = repr(value)
        assert told.startswith(f"<{type(value).__name__}: ")
        assert "\n" not in told and len(told) < 240


def test_a_notebook_gets_a_table_of_the_same_facts(values: list[Summarised]):
    for value in values:
        found: list[str] = []
        parser = HTMLParser()
        parser.handle_data = found.append
        parser.feed(value._repr_html_())
        parser.close()
        assert [x for fact in value.facts() for x in fact if x] == found[1:]


def test_names_from_files_stay_text():
    schedule = keep_all(explorer.load_profile("gpt2").graph)
    hostile = Schedule(replace(schedule.identity, model="<script>\x1b[2J\nx"), (), "m")
    assert "\x1b" not in repr(hostile) and "\n" not in repr(hostile)
    assert "<script" not in hostile._repr_html_()
