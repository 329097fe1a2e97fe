"""The blocks of a model, as its graph's layers tell them: what is checkpointed as a whole."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from explorer.graph import Operator, TrainingGraph
from explorer.recomputing import may_run_again

_LEVELS = 3  # lists within lists within lists


def blocks_of(graph: TrainingGraph) -> dict[str, tuple[int, ...]]:
    """Forward operators of each block, by the path of its module: members of lists of modules, else its children."""
    return _grouped(graph, member_of) or _grouped(graph, lambda x: x.layer.split(".")[0])


def repeated_blocks_of(graph: TrainingGraph) -> dict[str, tuple[int, ...]]:
    """Forward operators of each member of the outermost lists of modules that have several, by its path."""
    levels = (_grouped(graph, partial(member_of, level=x)) for x in range(_LEVELS))
    return next((x for x in levels if len(x) > 1), {})


def home_of(operator: Operator, names: Collection[str]) -> str | None:
    """The block, of these, that an operator belongs to."""
    parts = operator.layer.split(".")
    paths = (".".join(parts[: end + 1]) for end in range(len(parts)))
    return next((x for x in paths if x in names), None)


def member_of(operator: Operator, *, level: int = 0) -> str:
    """The path down to the first member of a list: ``layer1.0`` of ``layer1.0.conv2``; empty if there is none.

    Args:
        operator: any.
        level: how many members of lists are above that.
    """
    parts = operator.layer.split(".")
    members = [at for at, part in enumerate(parts) if part.isdecimal()]
    return ".".join(parts[: members[level] + 1]) if len(members) > level else ""


def _grouped(graph: TrainingGraph, name_of: Callable[[Operator], str]) -> dict[str, tuple[int, ...]]:
    groups: dict[str, list[int]] = {}
    for operator in graph.forward:
        name = name_of(operator)
        if name and not operator.optional:
            groups.setdefault(name, []).append(operator.id)
    computing = {name: sum(may_run_again(graph.operators[x]) for x in ids) for name, ids in groups.items()}
    return {name: tuple(ids) for name, ids in groups.items() if computing[name] > 1}
