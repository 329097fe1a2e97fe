"""A chain of stages as rotor sees it, and sequences of its operations (Beaumont et al., RR-9302, section 3)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np


class Kind(StrEnum):
    """What may be done with a stage (table 1)."""

    ALL = "F_all"
    """Forward, everything that the stage's backward pass needs is saved."""
    CHECKPOINT = "F_ck"
    """Forward, the stage's input stays in memory."""
    EMPTY = "F_empty"
    """Forward, nothing is saved: the output takes the place of the input."""
    BACKWARD = "B"


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a sequence; stages count from 0."""

    kind: Kind
    stage: int


Sequence = tuple[Operation, ...]


@dataclass(frozen=True, eq=False)
class Chain:
    """A chain of n stages, the last of which computes the loss. Every array has one entry for each stage.

    Attributes:
        input_bytes: int64, the activation that the stage reads (ω_a of the stage before). That of the first stage is
            the batch, which is counted elsewhere.
        saved_bytes: int64, what F_all leaves in memory, the stage's output included and its input not (ω_ā).
        gradient_bytes: int64, of the gradient that the stage's backward pass receives (ω_δ).
        forward_peak_bytes: int64, most that is in memory beside the input during F_ck or F_∅ (ω_a + o_f).
        saving_peak_bytes: int64, the same of F_all (ω_ā + o_f).
        backward_peak_bytes: int64, the same of B, incoming gradient and saved activations included (ω_δ + ω_ā + o_b).
        first_ms: float64, of the first forward run (u_f).
        again_ms: float64, of every later one; in the paper the same.
        backward_ms: float64, of the backward pass (u_b).
        forward_base_bytes: int64, entry t: in memory beside all of that while anything runs forward with the backward
            pass done down to stage t + 1: gradients of parameters, masks that were drawn. In the paper, 0.
        backward_base_bytes: int64, entry s: the same while B of stage s runs.
    """

    input_bytes: np.ndarray
    saved_bytes: np.ndarray
    gradient_bytes: np.ndarray
    forward_peak_bytes: np.ndarray
    saving_peak_bytes: np.ndarray
    backward_peak_bytes: np.ndarray
    first_ms: np.ndarray
    again_ms: np.ndarray
    backward_ms: np.ndarray
    forward_base_bytes: np.ndarray
    backward_base_bytes: np.ndarray

    def __len__(self) -> int:
        """How many stages."""
        return len(self.input_bytes)

    def peak_bytes(self, sequence: Iterable[Operation]) -> int:
        """Most that is in memory during a sequence, as table 1 counts it.

        Raises:
            ValueError: the sequence is not valid: an operation does not find its input.
        """
        # Inputs and saved histories in memory; the activation that ran on last is among the inputs.
        inputs, saved = {0}, set[int]()
        at, peak = len(self) - 1, 0
        for number, operation in enumerate(sequence):
            stage, kind = operation.stage, operation.kind
            readable = stage in inputs or stage - 1 in saved
            if not readable or (kind is Kind.BACKWARD and (stage != at or stage not in saved)):
                raise ValueError(f"operation {number}, {kind} of stage {stage}, does not find its input in memory")
            rest = sum(int(self.input_bytes[x]) for x in inputs) + sum(int(self.saved_bytes[x]) for x in saved)
            if kind is Kind.BACKWARD:
                own = self.backward_peak_bytes[stage] - self.saved_bytes[stage] + self.backward_base_bytes[stage]
                saved.discard(stage)
                inputs.discard(stage)
                at -= 1
            else:
                of_kind = self.saving_peak_bytes if kind is Kind.ALL else self.forward_peak_bytes
                own = of_kind[stage] + self.gradient_bytes[at] + self.forward_base_bytes[at]
                if kind is Kind.ALL:
                    saved.add(stage)
                elif stage + 1 < len(self):
                    inputs.add(stage + 1)
                if kind is Kind.EMPTY:
                    inputs.discard(stage)
            peak = max(peak, rest + int(own))
        if at >= 0:
            raise ValueError(f"the sequence ends before the backward pass of stage {at}")
        return peak


def keep_everything(chain: Chain) -> Sequence:
    """F_all of every stage, then B of every stage: what PyTorch does."""
    forward = [Operation(Kind.ALL, stage) for stage in range(len(chain))]
    return (*forward, *(Operation(Kind.BACKWARD, stage) for stage in reversed(range(len(chain)))))


def in_segments(chain: Chain, segments: int) -> Sequence:
    """PyTorch's ``checkpoint_sequential``: keep the input of each segment; all segments but the last run twice.

    Args:
        chain: to run.
        segments: as many, equally long but for the last, as PyTorch divides the stages.
    """
    length = len(chain) // segments
    starts = [number * length for number in range(segments)]
    ends = [*starts[1:], len(chain)]
    sequence: list[Operation] = []
    for start, end in zip(starts[:-1], ends[:-1], strict=True):
        sequence.append(Operation(Kind.CHECKPOINT, start))
        sequence += [Operation(Kind.EMPTY, stage) for stage in range(start + 1, end)]
    for start, end in zip(reversed(starts), reversed(ends), strict=True):
        sequence += [Operation(Kind.ALL, stage) for stage in range(start, end)]
        sequence += [Operation(Kind.BACKWARD, stage) for stage in reversed(range(start, end))]
    return tuple(sequence)
