"""What happens between a linear layer and a loss, as ``linear_cross_entropy`` goes through it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any

import torch

aten = torch.ops.aten
VIEWS = (aten.view.default, aten._unsafe_view.default)
NONE, MEAN, SUM = range(3)  # as PyTorch counts reductions
_PARTS = (4, 8, 16, 64)
_LEAST_ROWS = 8


def counts_of_parts(rows: int) -> tuple[int, ...]:
    """In how many parts these rows may go: none so small that products take much longer."""
    return tuple(x for x in _PARTS if rows >= _LEAST_ROWS * x)


@dataclass(frozen=True, slots=True)
class Made:
    """Stands for what the forward pass made.

    Attributes:
        number: of the step that made it; −1 for the logits.
    """

    number: int


@dataclass(frozen=True, slots=True)
class Step:
    """A call on what the step before it made.

    Attributes:
        target: of ATen.
        args: behind the first.
        kwargs: names and values.
        moves: it moves rows (a view, a slice); otherwise it computes each element from its own.
    """

    target: Any
    args: tuple[Any, ...] = ()
    kwargs: tuple[tuple[str, Any], ...] = ()
    moves: bool = False

    def run(self, value: torch.Tensor, made: dict[int, torch.Tensor]) -> torch.Tensor:
        """Its result; ``made`` is what ``Made`` stands for."""
        args = [made[x.number] if isinstance(x, Made) else x for x in self.args]
        return self.target(value, *args, **dict(self.kwargs))


def of_layer(steps: Sequence[Step], number: int) -> bool | None:
    """Does what a step made have the layer's rows, before any move? False: those with a loss; None: neither."""
    moves = [n for n, x in enumerate(steps) if x.moves and x.target not in VIEWS]
    if all(n > number for n in moves):
        return bool(moves)
    return False if all(n <= number for n in moves) else None


@dataclass(frozen=True, slots=True, repr=False)
class Plan:
    """What happens between a linear layer and a loss.

    Attributes:
        forward: from the layer's result to what log-softmax reads.
        backward: from the gradient of that to the gradient of the layer's result.
        rows: those of ``forward`` that move rows, for one number a row; empty where all rows stay in their places.
        half_to_float: log-softmax's own argument.
        dtype: of the gradient of what log-softmax reads, where it is another one than that of the log-probabilities.
        reduction: as PyTorch counts them.
        ignored: a class whose rows count nothing.
        sums: the sum of each row's log-probabilities is asked for, too (smoothed labels).
        saved: numbers of ``Made`` that the backward pass reads.
        wanted: are gradients of the layer's source, weight and bias?
        by_class: the weight's gradient has a row for each class.
        at_once: forward and backward may run together.
        classes: the axis of what log-softmax reads that has the classes.
        last: the last axis has them, all the way.
        between: from log-softmax's result to what the loss reads: views.
        back: from the loss's gradient to that of log-softmax's result: views.
        weighted: in sums, each class's log-probability counts by its weight.
        of_sums: the shape of the sums, where it is not that of the classes.
        at_a_time: how many of log-softmax's first axis PyTorch's own way goes through backward at a time, so that the
            gradient of the layer's result is made before rows without a loss are; None: all.
    """

    forward: tuple[Step, ...]
    backward: tuple[Step, ...]
    rows: tuple[Step, ...]
    half_to_float: bool
    dtype: torch.dtype | None
    reduction: int
    ignored: int
    sums: bool
    saved: tuple[int, ...]
    wanted: tuple[bool, bool, bool]
    by_class: bool
    at_once: bool
    classes: int = 1
    last: bool = True
    between: tuple[Step, ...] = ()
    back: tuple[Step, ...] = ()
    weighted: bool = False
    of_sums: tuple[int, ...] | None = None
    at_a_time: int | None = None

    def __repr__(self) -> str:
        """Without what is as usual: measured costs go by this, and stay what they are where a plan learns more."""
        values = [(x.name, getattr(self, x.name), x.default) for x in fields(self)]
        said = [f"{name}={value!r}" for name, value, usual in values if usual is MISSING or value != usual]
        return f"Plan({', '.join(said)})"

    @property
    def flat(self) -> bool:
        """Does log-softmax read rows of classes, and the loss what log-softmax makes?"""
        return self.last and self.classes == 1 and not self.between

    @property
    def losses(self) -> int:
        """Results that are no larger than a number for each row."""
        return 3 if self.sums else 2

    @property
    def kept(self) -> int:
        """Results of PyTorch's own way: those, the log-probabilities, and what is saved besides."""
        return self.losses + 1 + len(self.saved)

    @property
    def last_computed(self) -> int:
        """Number of what is in the memory that log-softmax reads."""
        return max((n for n, x in enumerate(self.forward) if not x.moves or x.target is aten.clone.default), default=-1)

    @staticmethod
    def runs(value: torch.Tensor, steps: tuple[Step, ...]) -> torch.Tensor:
        """The result of steps that read nothing else."""
        for step in steps:
            value = step.run(value, {})
        return value

    @property
    def alone(self) -> bool:
        """Is there nothing else in the memory that log-softmax reads, such as rows that were left out?"""
        return all(x.target in VIEWS for x in self.forward[self.last_computed + 1 :])

    def chosen(self, count: int, device: torch.device) -> torch.Tensor | None:
        """Which of the layer's ``count`` rows have a loss, in order; None if all of them have."""
        if not self.rows:
            return None
        numbers = torch.arange(count, device=device).unsqueeze(1)
        for step in self.rows:
            numbers = step.run(numbers, {})
        return numbers.flatten()
