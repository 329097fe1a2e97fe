"""What CUDA's libraries keep allocated from a first step on, block by block."""

from __future__ import annotations

from explorer.device_profile import Profile
from explorer.graph import Operator, TrainingGraph
from explorer.timeline import Stage, Timeline

CUBLASLT_BYTES = 2**20
"""What PyTorch keeps for cuBLASLt, which computes products with a bias, unless told otherwise."""

_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "vdot", "_euclidean_dist")
_CUBLAS = tuple(f"aten.{x}." for x in (*_PRODUCTS, "linalg_solve_triangular"))


def uses_cublas(graph: TrainingGraph) -> bool:
    """Is there a product of matrices or vectors, which makes PyTorch keep a workspace for cuBLAS on CUDA?"""
    return any(map(_is_product, graph.operators))


def uses_cublaslt(graph: TrainingGraph) -> bool:
    """Is there a product with a bias?"""
    return any(operator.target.startswith("aten.addmm.") for operator in graph.operators)


def library_workspaces(profile: Profile, timeline: Timeline) -> list[tuple[int, int]]:
    """The blocks that ``persistent_workspace_bytes`` are, each with the run of a first step that makes it, in order.

    Forward and backward pass run in threads of their own, each with a handle of cuBLAS; what is for biases comes with
    the first of them. Were they one block, or there before the step, the caching allocator would place them otherwise.
    """
    total_bytes = profile.device.persistent_workspace_bytes
    runs = [x for x, operator in enumerate(timeline.operators) if _is_product(profile.graph.operators[operator])]
    if not runs:
        return [(0, total_bytes)] if total_bytes else []
    biases_bytes = CUBLASLT_BYTES if uses_cublaslt(profile.graph) and total_bytes > CUBLASLT_BYTES else 0
    backward_bytes = (total_bytes - biases_bytes) // 2
    forward_bytes = total_bytes - biases_bytes - backward_bytes
    first = runs[0]
    later = next((x for x in runs if timeline.stages[x] is not Stage.FORWARD), runs[-1])
    return [(x, y) for x, y in ((first, forward_bytes), (first, biases_bytes), (later, backward_bytes)) if y]


def _is_product(operator: Operator) -> bool:
    return operator.target.startswith(_CUBLAS)
