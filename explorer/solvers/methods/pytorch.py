"""What PyTorch itself offers, as schedules: plain eager mode, and ``torch.utils.checkpoint`` around blocks.

The third, ``torch.compile``'s partitioner, needs the model: see ``explorer.compiled_schedule``.
"""

from __future__ import annotations

from collections.abc import Sequence

from explorer.blocks import blocks_of, home_of
from explorer.device_profile import Profile
from explorer.graph import TrainingGraph
from explorer.recomputing import Recomputing
from explorer.schedule import keep_all
from explorer.solution import Solution
from explorer.solvers.methods.answers import best_of, unsuited
from explorer.solvers.options import Options


def eager(profile: Profile, budgets_bytes: Sequence[int], *, options: Options) -> tuple[Solution, ...]:
    """Plain PyTorch: nothing is recomputed, every tensor is freed after its last use.

    Optimises nothing and knows no budget; its one schedule fits or not.
    """
    return best_of(profile, [keep_all(profile.graph)], budgets_bytes, method=options.method)


def checkpoint_blocks(profile: Profile, budgets_bytes: Sequence[int], *, options: Options) -> tuple[Solution, ...]:
    """``torch.utils.checkpoint.checkpoint`` around every block of the model, as users write it.

    Optimises nothing and knows no budget. Of a block, its inputs are kept and nothing else; when the backward pass
    reaches it, its forward pass runs again as a whole, as far as its backward pass needs it (the variant without
    reentry). Blocks are the members of the model's lists of modules (``layer1.0``, ``blocks.3``) that have several
    operators; where there are none, its children.

    Two things are better here than in PyTorch: what a block passes on is never in memory twice, and random numbers are
    drawn once, not drawn again from a kept state.
    """
    graph = profile.graph
    blocks = blocks_of(graph)
    if not blocks:
        reason = "the profile does not say which modules its operators come from, so there are no blocks to checkpoint"
        return unsuited(budgets_bytes, reason)
    recomputing = Recomputing(graph)
    home = {number: name for name, numbers in blocks.items() for number in numbers}
    together = {number: blocks[name] for number, name in home.items()}
    saved = _read_elsewhere(graph, home)
    schedule = recomputing.schedule(saved, method=options.method, together=together, as_eager=True)
    return best_of(profile, [schedule], budgets_bytes, method=options.method)


def _read_elsewhere(graph: TrainingGraph, home: dict[int, str]) -> set[int]:
    """What blocks read of what is computed outside them, and the backward pass of one part of what another computed."""
    made = {x: home.get(operator.id) for operator in graph.forward for x in operator.default().writes}
    names = set(home.values())
    inputs = {
        x
        for number, name in home.items()
        for implementation in graph.operators[number].implementations[:1]
        for x in implementation.reads
        if x in made and made[x] != name
    }
    return inputs | {
        x
        for operator in graph.backward
        if not operator.optional
        for x in operator.default().reads
        if x in made and (made[x] is None or made[x] != home_of(operator, names))
    }
