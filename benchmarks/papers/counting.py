"""How large MONeT's and Checkmate's programs are (MONeT, Table 7): counted by family, and built.

The paper's counts are what Gurobi's presolve left. Counted here is what is left of the published statement once it is
rid of what needs no solver: variables that equal a constant or another variable, rows that then say nothing or the same
twice, and algorithms of a convolution that another one beats in both time and workspace. What a presolve finds besides
(memory rows that can never bind at a budget, or that fix a variable) is the difference.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from explorer import load_profile
from explorer.device_profile import Profile
from explorer.graph import Operator, Optimization, Role, TrainingGraph
from explorer.solvers.formulation import grouped, paper
from explorer.solvers.methods.checkmate.cells import Freedom
from explorer.solvers.methods.checkmate.nodes import Nodes, without_workspace
from explorer.solvers.methods.checkmate.program import build
from explorer.solvers.options import Options, parse_optimizations

GIB = 2**30
Counts = dict[str, int]
_MOST_NODES = 420  # of a step whose programs are built: the paper's rows have an entry for each of its tensors


@dataclass(frozen=True)
class Shape:
    """All that the programs' sizes depend on.

    Attributes:
        forward: operators of the forward pass with the loss, intermediates left out.
        intermediates: compact tensors that may be made besides.
        inputs: positions (producer, reader) within the forward pass, intermediates included.
        backward: operators of the backward pass.
        needs: for each of them, the forward operators that each of its ways reads.
        gradients: positions (producer, reader) within the backward pass.
        in_place: forward operators that may overwrite what they read, and how many different ones are overwritten.
        first_algorithms: of each convolution of the forward pass, how many no other one beats.
        backward_algorithms: the same of the backward pass.
    """

    forward: int
    intermediates: int
    inputs: tuple[tuple[int, int], ...]
    backward: int
    needs: tuple[tuple[tuple[int, ...], ...], ...]
    gradients: tuple[tuple[int, int], ...]
    in_place: tuple[int, int]
    first_algorithms: tuple[int, ...]
    backward_algorithms: tuple[int, ...]


def of_instance(document: dict[str, Any]) -> Shape:
    """The shape of a published instance."""
    operators = document["ops"]
    ahead = [x for x in operators if x["kind"] != "backward"]
    behind = [x for x in operators if x["kind"] == "backward"]
    place = {x["id"]: n for n, x in enumerate(ahead)}
    later = {x["id"]: n for n, x in enumerate(behind)}
    in_place = [x["inplace"]["over"] for x in ahead if "inplace" in x]

    def unbeaten(x: dict[str, Any]) -> int:
        return _unbeaten([(y["ms"], y["workspace_bytes"]) for y in x["algorithms"]])

    return Shape(
        forward=sum(x["kind"] != "intermediate" for x in ahead),
        intermediates=sum(x["kind"] == "intermediate" for x in ahead),
        inputs=tuple((place[y], n) for n, x in enumerate(ahead) for y in x.get("inputs", ())),
        backward=len(behind),
        needs=tuple(tuple(tuple(place[y] for y in way["needs"]) for way in x.get("alternatives", [x])) for x in behind),
        gradients=tuple((later[y], n) for n, x in enumerate(behind) for y in x["gradient_inputs"]),
        in_place=(len(in_place), len(set(in_place))),
        first_algorithms=tuple(unbeaten(x) for x in ahead if "algorithms" in x),
        backward_algorithms=tuple(unbeaten(x) for x in behind if "algorithms" in x),
    )


def of_profile(profile: Profile, *, joint: bool) -> Shape:
    """The shape of a captured step, with everything that may be chosen, or with operators in place alone."""
    graph = profile.graph
    ahead = [x for x in graph.forward if (joint or not x.optional) and not _counts_batches(graph, x)]
    behind = [x for x in graph.backward if not x.optional]
    place = {x.id: n for n, x in enumerate(ahead)}
    later = {x.id: n for n, x in enumerate(behind)}
    producer = graph.producer

    def ways(operator: Operator) -> tuple[tuple[int, ...], ...]:
        found = [operator.default()] if not joint else [x for x in operator.implementations if x.first]
        makers = [tuple(sorted({place[p] for y in x.reads if (p := producer.get(y)) in place})) for x in found]
        return tuple(dict.fromkeys(makers))

    def algorithms(operators: Sequence[Operator]) -> tuple[int, ...]:
        found = []
        for operator in operators:
            several = [x for x in operator.implementations if x.optimization is Optimization.CONVOLUTION]
            if joint and several and "convolution" in operator.target:
                costs = [profile.cost(x) for x in (operator.default(), *several)]
                found.append(_unbeaten([(x.time_ms, x.workspace_bytes) for x in costs]))
        return tuple(found)

    def within(operators: Sequence[Operator], known: dict[int, int]) -> tuple[tuple[int, int], ...]:
        pairs = {(producer.get(y), n) for n, x in enumerate(operators) for y in x.default().reads}
        return tuple(sorted((known[p], n) for p, n in pairs if p in known and known[p] != n))

    over = [x.overwrites for op in ahead for x in op.implementations[-1:] if x.overwrites is not None]
    return Shape(
        forward=sum(not x.optional for x in ahead),
        intermediates=sum(x.optional for x in ahead),
        inputs=within(ahead, place),
        backward=len(behind),
        needs=tuple(ways(x) for x in behind),
        gradients=within(behind, later),
        in_place=(len(over), len(set(over))),
        first_algorithms=algorithms(ahead),
        backward_algorithms=algorithms(behind),
    )


def _counts_batches(graph: TrainingGraph, operator: Operator) -> bool:
    """Is it BatchNorm's counter, which the papers' graphs do not have?"""
    return all(graph.storages[x].role is Role.BUFFER for x in operator.default().reads)


def _unbeaten(costs: list[tuple[float, int]]) -> int:
    found = set(costs)
    return sum(not any(y != x and y[0] <= x[0] and y[1] <= x[1] for y in found) for x in found)


def monet(shape: Shape) -> tuple[Counts, Counts]:
    """Rows and columns by family (MONeT section 4, appendix C; a stage for the forward pass and each backward one)."""
    width, stages = shape.forward + shape.intermediates, shape.backward + 1
    running, overwritten = shape.in_place
    several = [x for x in shape.needs if len(x) > 1]
    algorithms = [x for x in shape.first_algorithms if x > 1]
    late = [x for x in shape.backward_algorithms if x > 1]
    products = width * sum(map(len, several))
    columns = {
        "R": shape.backward * width + shape.intermediates,
        "S": stages * width,
        "P where something may overwrite": stages * overwritten,
        "in place": stages * running,
        "ways of the backward pass": sum(map(len, several)),
        "products S · way": products,
        "algorithms": stages * sum(algorithms) + sum(late),
    }
    rows = {
        "what is read is there (7)": shape.backward * len(shape.inputs),
        "what is saved was there (7)": stages * width,
        "what a way needs is there (8)": sum(len(way) for ways in shape.needs for way in ways),
        "in place (15, 16)": 5 * stages * running,
        "products (C.4)": 3 * products,
        "one way, one algorithm": len(several) + stages * len(algorithms) + len(late),
        "memory, nothing runs (13)": stages * width,
        "memory, a forward operator runs (1, 12)": stages * width,
        "memory, a backward operator runs (10)": shape.backward,
    }
    return rows, columns


def checkmate(shape: Shape) -> tuple[Counts, Counts]:
    """Rows and columns by family (Checkmate section 4.5; a stage for each node), triangular as its section 4.6 says."""
    ahead = shape.forward
    nodes = ahead + shape.backward
    edges = [*shape.inputs, *((ahead + a, ahead + b) for a, b in shape.gradients)]
    edges += [(x, ahead + n) for n, ways in enumerate(shape.needs) for x in ways[0]]
    triangle = nodes * (nodes - 1) // 2
    freed = sum(nodes - reader for _, reader in edges)
    columns = {"R": triangle, "S": triangle, "U": triangle + nodes, "FREE": freed}
    rows = {
        "what is read is there (1b)": freed,
        "what is saved was there (1c)": triangle,
        "FREE, both sides (6)": 2 * freed,
        "memory (2, 3)": triangle + nodes,
    }
    return rows, columns


def counts_of(network: str, zoo: Path | None) -> Iterator[dict[str, Any]]:
    """A row for each of Table 7's systems: counted by family; and our own programs built, where they can be."""
    folder = zoo if zoo is not None and (zoo / f"{network}-all.json").exists() else None
    bundled = load_profile(f"{network}-p100-16gb") if folder is None else None
    for system in ("checkmate", "none", "all"):
        if folder is not None:
            path = folder / f"{network}-{system}.json"
            document, profile = json.loads(path.read_text(encoding="utf-8")), load_profile(path)
            shape = of_instance(document)
        else:
            assert bundled is not None, "it is loaded where there is no instance"
            profile, shape = bundled, of_profile(bundled, joint=system == "all")
        there = folder is not None  # where the loss is an operator, which the paper does not count
        rows, columns = checkmate(shape) if system == "checkmate" else monet(shape)
        row = {"system": system, "forward": shape.forward - there, "rows": rows, "columns": columns, "instance": there}
        yield row | {"built": _built(profile, system)}


def _built(profile: Profile, system: str) -> dict[str, Counts]:
    budget = 10 * GIB
    if system == "checkmate":
        nodes = Nodes.of(without_workspace(profile))
        if len(nodes) > _MOST_NODES:
            return {}
        found = build(nodes, budget, freedom=Freedom.FULL, workspace=False).statistics
        return {"checkmate": {"rows": found.rows, "columns": found.columns}}
    wanted = parse_optimizations(("inplace",) if system == "none" else "all")
    problem = Options(optimizations=wanted).problem(profile)
    small = len(profile.graph.operators) <= _MOST_NODES
    builders = {"grouped": grouped.build} | ({"paper": paper.build} if small else {})
    made = {name: builder(problem, budget).statistics for name, builder in builders.items()}
    return {name: {"rows": x.rows, "columns": x.columns} for name, x in made.items()}
