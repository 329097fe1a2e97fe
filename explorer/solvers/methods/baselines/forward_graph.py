"""The forward pass as the graph that checkpointing heuristics look at: is it a chain, and where can it be cut?"""

from __future__ import annotations

import networkx as nx

from explorer.solvers.methods.checkmate.nodes import Nodes

_INPUT = -1


def connected(nodes: Nodes) -> list[int]:
    """The forward nodes that activations connect with each other, in order; counters and the like are left out."""
    return sorted(max(nx.weakly_connected_components(_graph(nodes)), key=len))


def not_a_chain(nodes: Nodes) -> str | None:
    """Why the forward pass is no linear graph, in words; None where it is one."""
    graph, operators = _graph(nodes), nodes.profile.graph.operators

    def name(i: int) -> str:
        return repr(operators[nodes.nodes[i].operator].name)

    previous: int | None = None
    for i in connected(nodes):
        readers = sorted(graph.successors(i))
        if len(readers) > 1:
            return f"{name(i)} is read by {name(readers[0])} and {name(readers[1])}"
        sources = sorted(graph.predecessors(i))
        if previous is not None and sources != [previous]:
            return f"{name(i)} does not read {name(previous)}, and that alone"
        previous = i
    return None


def articulation_points(nodes: Nodes) -> list[int]:
    """Forward nodes whose removal disconnects the forward graph, in order (section 5.1.1).

    The batch counts as a node of the graph, before all that reads no activation.
    """
    graph = _graph(nodes)
    kept = connected(nodes)
    undirected = graph.subgraph(kept).to_undirected()
    undirected.add_edges_from((_INPUT, i) for i in kept if not graph.in_degree(i))
    return sorted(x for x in nx.articulation_points(undirected) if x != _INPUT)


def _graph(nodes: Nodes) -> nx.DiGraph:
    """An edge from each forward node to those that read what it writes."""
    graph = nx.DiGraph()
    graph.add_nodes_from(range(nodes.boundary))
    for i, node in enumerate(nodes.nodes[: nodes.boundary]):
        graph.add_edges_from((nodes.producer[x], i) for x in node.first.reads)
    return graph
