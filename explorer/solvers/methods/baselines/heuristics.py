"""The answers of Checkmate's eight baselines (its section 5.1, Table 1); each makes a few schedules for all budgets.

None of them knows a budget: of the schedules that a heuristic makes for its parameter, the quickest that fits answers.
Checkpoints come from the heuristic; what is recomputed follows from them (``checkmate.recomputing``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from explorer.device_profile import Profile
from explorer.solution import Solution
from explorer.solvers.methods.answers import best_of, unsuited
from explorer.solvers.methods.baselines.forward_graph import articulation_points, connected, not_a_chain
from explorer.solvers.methods.baselines.revolve import extra_steps, revolve
from explorer.solvers.methods.baselines.segments import every_root, greedy_choices, segmented
from explorer.solvers.methods.checkmate.nodes import Nodes
from explorer.solvers.methods.checkmate.recomputing import recompute
from explorer.solvers.options import Options

Answers = tuple[Solution, ...]


def checkpoint_all(profile: Profile, budgets_bytes: Sequence[int], *, options: Options) -> Answers:
    """Keep everything: one forward and one backward pass, nothing recomputed; what frameworks do by themselves."""
    nodes = Nodes.of(profile)
    return _answers(nodes, [recompute(nodes, lambda _stage, _storage: True)], budgets_bytes, options)


def griewank_walther(profile: Profile, budgets_bytes: Sequence[int], *, options: Options) -> Answers:
    """Griewank and Walther's revolve, for 1, 2, … snapshots: optimal where all steps cost and take the same.

    For linear graphs; knows neither costs nor sizes.
    """
    nodes = Nodes.of(profile)
    if reason := not_a_chain(nodes):
        return _no_chain(budgets_bytes, reason)
    chain = connected(nodes)
    extra, _ = extra_steps(len(chain), len(chain))
    # More snapshots than needed to repeat each step once are of no use but to repeat fewer, up to none.
    numbers = dict.fromkeys(extra[-1, 1:].tolist())
    snapshots = [1 + extra[-1, 1:].tolist().index(x) for x in numbers]
    return _answers(nodes, (revolve(nodes, chain, c) for c in snapshots), budgets_bytes, options)


def chen_root(profile: Profile, budgets_bytes: Sequence[int], *, options: Options) -> Answers:
    """Chen et al.'s √n: the end of every segment of √n nodes; for linear graphs, without regard to cost or size."""
    nodes = Nodes.of(profile)
    if reason := not_a_chain(nodes):
        return _no_chain(budgets_bytes, reason)
    return _answers(nodes, [segmented(nodes, every_root(connected(nodes)))], budgets_bytes, options)


def chen_greedy(profile: Profile, budgets_bytes: Sequence[int], *, options: Options) -> Answers:
    """Chen et al.'s greedy heuristic, segments of about equal memory of many sizes; for linear graphs."""
    nodes = Nodes.of(profile)
    if reason := not_a_chain(nodes):
        return _no_chain(budgets_bytes, reason)
    return _greedy(nodes, connected(nodes), budgets_bytes, options)


def articulation_root(profile: Profile, budgets_bytes: Sequence[int], *, options: Options) -> Answers:
    """AP √n (section 5.1.1): Chen's √n on the articulation points of the forward graph."""
    nodes = Nodes.of(profile)
    return _answers(nodes, [segmented(nodes, every_root(articulation_points(nodes)))], budgets_bytes, options)


def articulation_greedy(profile: Profile, budgets_bytes: Sequence[int], *, options: Options) -> Answers:
    """AP greedy (section 5.1.1): Chen's greedy heuristic on the articulation points of the forward graph."""
    nodes = Nodes.of(profile)
    return _greedy(nodes, articulation_points(nodes), budgets_bytes, options)


def linearized_root(profile: Profile, budgets_bytes: Sequence[int], *, options: Options) -> Answers:
    """Linearized √n (section 5.1.2): Chen's √n as if every node read its predecessor in topological order alone."""
    nodes = Nodes.of(profile)
    return _answers(nodes, [segmented(nodes, every_root(connected(nodes)))], budgets_bytes, options)


def linearized_greedy(profile: Profile, budgets_bytes: Sequence[int], *, options: Options) -> Answers:
    """Linearized greedy (section 5.1.2): Chen's greedy heuristic on the nodes in topological order."""
    nodes = Nodes.of(profile)
    return _greedy(nodes, connected(nodes), budgets_bytes, options)


def _greedy(nodes: Nodes, candidates: Sequence[int], budgets_bytes: Sequence[int], options: Options) -> Answers:
    choices = greedy_choices(nodes, set(candidates))
    return _answers(nodes, (segmented(nodes, x) for x in choices), budgets_bytes, options)


def _answers(nodes: Nodes, orders: Iterable[list[int]], budgets_bytes: Sequence[int], options: Options) -> Answers:
    schedules = (nodes.schedule(order, method=options.method, budget_bytes=None) for order in orders)
    return best_of(nodes.profile, schedules, budgets_bytes, method=options.method)


def _no_chain(budgets_bytes: Sequence[int], reason: str) -> Answers:
    return unsuited(budgets_bytes, f"the forward pass is no chain: {reason}")
