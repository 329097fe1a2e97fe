"""What a training iteration does with gradients, as far as a plan knows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum


class Buckets(StrEnum):
    """Where ``DistributedDataParallel`` has the gradients that processes have in common."""

    NONE = "none"
    OWN = "ddp"
    """In buckets beside the gradients."""
    VIEWS = "ddp-views"
    """In buckets that the gradients become views of: ``gradient_as_bucket_view=True``."""


@dataclass(frozen=True, slots=True)
class Iteration:
    """What a training iteration does with gradients, as far as a plan knows.

    Attributes:
        accumulate: gradients of earlier microbatches are there, and fresh ones are added to them.
        optimizer: what updates the parameters, as ``describe`` of it says; None: nothing that is planned for.
        within: each parameter is updated within the backward pass, as soon as its gradient is complete, which is gone
            then; otherwise all are after it.
        buckets: gradients go to buckets, to be averaged over processes.
    """

    accumulate: bool = False
    optimizer: str | None = None
    within: bool = False
    buckets: Buckets = Buckets.NONE

    @property
    def uses_up(self) -> bool:
        """Is a gradient of no more use once it was added to another one, copied to a bucket, or used for an update?"""
        return self.accumulate or self.within or self.buckets is Buckets.VIEWS

    def __post_init__(self) -> None:
        """Raises ValueError for what excludes each other."""
        if self.within and self.optimizer is None:
            raise ValueError("an update within the backward pass needs an optimizer: optimizer=…")
        if self.within and self.accumulate:
            raise ValueError(
                "gradients that are accumulated cannot be used up within the backward pass: leave out accumulate=True, "
                "or update at the end"
            )
        if self.within and self.buckets is not Buckets.NONE:
            raise ValueError(
                "an update within the backward pass would come before DistributedDataParallel has averaged the "
                "gradients: update at the end"
            )

    def as_in(self, other: Iteration) -> Iteration:
        """The same with updates when ``other`` has them, if that is all the two differ in."""
        same = replace(self, within=False) == replace(other, within=False)
        return other if same else self

    def __str__(self) -> str:
        """As ``accumulating, updated by AdamW (foreach) at the end``."""
        parts = ["accumulating"] if self.accumulate else []
        if self.buckets is not Buckets.NONE:
            parts.append("averaged over processes" + (" in place" if self.buckets is Buckets.VIEWS else ""))
        if self.optimizer is not None:
            parts.append(f"updated by {self.optimizer} {'within the backward pass' if self.within else 'at the end'}")
        return ", ".join(parts) or "a forward and a backward pass"


STEP_ALONE = Iteration()
"""One forward and backward pass, and nothing that is known of what is done with its gradients."""
