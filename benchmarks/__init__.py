"""A script for each figure that is claimed, in folders by what is measured.

    python -m benchmarks.FOLDER.NAME [--tier quick]

from the repository's root. ``solver``: how good answers are and how soon. ``methods``: other systems, and sets of
implementations. ``execution``: real steps, beside eager mode and beside what was predicted. ``widgets``: what a person
waits for. ``gpu``: what there is to measure on a CUDA device. ``zoo``: many architectures through the whole flow.

What is measured stands in ``cases``, and ``provenance`` says under which circumstances: every script prints that first,
and ``--json`` writes it beside the figures. ``report`` makes the tables of ``docs/figures.md`` from ``results``.
"""
