"""Profiles in the form in which MONeT's measurements were published."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from explorer.device_profile import Cost, Device, Profile
from explorer.graph import (
    Implementation,
    Operator,
    Optimization,
    Phase,
    Role,
    Storage,
    TensorSpec,
    TrainingGraph,
    When,
)

_BOUNDARY = "tangents"
_PARAMETER_GRADIENT = "parameter_gradient_bytes"
_OWN, _AGAIN = "default", "again"
IN_PLACE, ALGORITHM, ALTERNATIVE = "in place", "algorithm ", "alternative "
"""How implementations are called; the last two go on with a number."""


def is_published(document: Any) -> bool:
    """Has a JSON document the form in which MONeT's measurements were published?"""
    return isinstance(document, dict) and {"ops", "fixed_bytes", "optimizations"} <= document.keys()


def profile_of(document: dict[str, Any]) -> Profile:
    """The profile of a published instance.

    Operators keep their order; the boundary between the passes comes after the loss. An algorithm or alternative is an
    implementation; the first of each is taken as PyTorch's own. A workspace below zero means that memory is taken over:
    in the backward pass the incoming gradient's, which is how it is entered; elsewhere (a flattened view, a gradient
    that others read later) it counts as zero, which is a little more than published.

    Args:
        document: the instance, as parsed from JSON.

    Raises:
        ValueError: it lacks an entry.
    """
    try:
        return _Importer(document).build()
    except (LookupError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"not a valid published instance: {type(error).__name__} {error}") from error


class _Importer:
    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self.ops: list[dict[str, Any]] = document["ops"]
        self.storages: list[Storage] = []
        self.operators: list[Operator] = []
        self.costs: dict[str, Cost] = {}
        self.made: dict[int, int] = {}  # instance's operator id to the storage of its output
        self.parameter_gradient: dict[int, int] = {}

    def build(self) -> Profile:
        batch = int(self.document["batch_size"])
        dtype = str(self.document["dtype"])
        self._store("parameters and batch", int(self.document["fixed_bytes"]), Role.PARAMETER)
        for op in self.ops:
            if op["kind"] == "backward" and not any(x.phase is Phase.BACKWARD for x in self.operators):
                self._add(_BOUNDARY, _BOUNDARY, Phase.BACKWARD, [self._implementation(_BOUNDARY, [], [], 0.0, 0)])
            self._operator(op)
        graph = TrainingGraph(
            model=str(self.document["model"]),
            batch=(TensorSpec("batch", (batch,), dtype),),
            parameters=(),
            storages=tuple(self.storages),
            operators=tuple(self.operators),
        )
        device = Device(str(self.document["device"]), "cuda", "1.5")
        return Profile(graph, self.costs, device)

    def _operator(self, op: dict[str, Any]) -> None:
        self._makes(op)
        backward = op["kind"] == "backward"
        implementations = self._backward(op) if backward else self._forward(op)
        name = f"{op['op']}_{op['id']}"
        phase = Phase.BACKWARD if backward else Phase.FORWARD
        self._add(name, str(op["op"]), phase, implementations, optional=op["kind"] == "intermediate")

    def _makes(self, op: dict[str, Any]) -> None:
        role = Role.GRADIENT if op["kind"] == "backward" else Role.ACTIVATION
        shape = tuple(op.get("shape", ()))
        if op["output_bytes"]:
            self.made[op["id"]] = self._store(f"{op['op']}_{op['id']}", int(op["output_bytes"]), role, shape)
        if op.get(_PARAMETER_GRADIENT):
            name = f"{op['op']}_{op['id']} parameters"
            size = int(op[_PARAMETER_GRADIENT])
            self.parameter_gradient[op["id"]] = self._store(name, size, Role.PARAMETER_GRADIENT, held=True)

    def _forward(self, op: dict[str, Any]) -> list[Implementation]:
        reads, writes = self._storages(op["inputs"]), self._storages([op["id"]])
        auxiliary = Optimization.INTERMEDIATE if op["kind"] == "intermediate" else None
        if "algorithms" in op:
            return self._algorithms(op, reads, writes)
        found = []
        once, again = ("ms", "workspace_bytes"), ("recompute_ms", "recompute_workspace_bytes")
        same = all(op[x] == op[y] for x, y in zip(once, again, strict=True))
        cases = [(_OWN, once, When.ALWAYS)] if same else [(_OWN, once, When.FIRST), (_AGAIN, again, When.AGAIN)]
        for name, (ms, workspace), when in cases:
            cost = float(op[ms]), max(0, int(op[workspace]))
            found.append(self._implementation(name, reads, writes, *cost, when=when, optimization=auxiliary))
        if "inplace" in op:
            over = self.made[op["inplace"]["over"]]
            cost = float(op["inplace"]["ms"]), int(op["inplace"]["workspace_bytes"]) + self.storages[over].bytes
            found.append(
                self._implementation(IN_PLACE, reads, writes, *cost, overwrites=over, optimization=Optimization.INPLACE)
            )
        return found

    def _backward(self, op: dict[str, Any]) -> list[Implementation]:
        gradients = self._storages(op["gradient_inputs"])
        writes = self._storages([op["id"]])
        if op["id"] in self.parameter_gradient:
            writes.append(self.parameter_gradient[op["id"]])
        if "algorithms" in op:
            return self._algorithms(op, [*self._storages(op["needs"]), *gradients], writes)
        found = []
        optional = {x["id"] for x in self.ops if x["kind"] == "intermediate"}
        for number, alternative in enumerate(op["alternatives"]):
            compact = optional & set(alternative["needs"])
            wanted = Optimization.INTERMEDIATE if compact else Optimization.OUTPUT
            found.append(
                self._implementation(
                    f"{ALTERNATIVE}{number}",
                    [*self._storages(alternative["needs"]), *gradients],
                    writes,
                    float(alternative["ms"]),
                    *self._over_gradient(int(alternative["workspace_bytes"]), op),
                    optimization=wanted if number else None,
                )
            )
        return found

    def _over_gradient(self, workspace_bytes: int, op: dict[str, Any]) -> tuple[int, int | None]:
        """A workspace below zero: beside the gradient that is overwritten, and which one that is.

        Where every gradient that is large enough is read again (by other branches behind one ``cat``) none can be: the
        alternative is not in place there, and takes no workspace.
        """
        if workspace_bytes >= 0:
            return workspace_bytes, None
        later = {x for other in self.ops[op["id"] + 1 :] for x in other.get("gradient_inputs", ())}
        for over in self._storages(x for x in op["gradient_inputs"] if x not in later):
            if self.storages[over].bytes + workspace_bytes >= 0:
                return workspace_bytes + self.storages[over].bytes, over
        return 0, None

    def _algorithms(self, op: dict[str, Any], reads: list[int], writes: list[int]) -> list[Implementation]:
        return [
            self._implementation(
                f"{ALGORITHM}{algorithm['algorithm']}",
                reads,
                writes,
                float(algorithm["ms"]),
                int(algorithm["workspace_bytes"]),
                optimization=Optimization.CONVOLUTION if number else None,
            )
            for number, algorithm in enumerate(op["algorithms"])
        ]

    def _implementation(
        self,
        name: str,
        reads: list[int],
        writes: list[int],
        time_ms: float,
        workspace_bytes: int,
        overwrites: int | None = None,
        *,
        when: When = When.ALWAYS,
        optimization: Optimization | None = None,
    ) -> Implementation:
        key = f"{len(self.operators)} {name}"
        self.costs[key] = Cost(time_ms, workspace_bytes)
        return Implementation(
            name, tuple(reads), tuple(writes), key, when=when, overwrites=overwrites, optimization=optimization
        )

    def _add(
        self, name: str, target: str, phase: Phase, implementations: list[Implementation], *, optional: bool = False
    ) -> None:
        operator = Operator(len(self.operators), name, target, phase, "", tuple(implementations), optional)
        self.operators.append(operator)

    def _store(self, name: str, size: int, role: Role, shape: tuple[int, ...] = (), *, held: bool = False) -> int:
        dtype = str(self.document["dtype"])
        self.storages.append(Storage(len(self.storages), name, size, role, shape, dtype, held))
        return len(self.storages) - 1

    def _storages(self, ids: Iterable[int]) -> list[int]:
        return [self.made[x] for x in ids if x in self.made]
