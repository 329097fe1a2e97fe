"""Running out of memory: said with the operator's name, and everything given back, so that work can go on."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from explorer.torch_errors import is_out_of_memory

ADVICE = "Solve for a smaller budget, or free what else is on the device."
"""Where a scheduled step fails."""
FORWARD, BACKWARD = (f"the {x} pass, at its beginning" for x in ("forward", "backward"))
"""Before any operator."""


class OutOfMemory(torch.OutOfMemoryError, MemoryError):  # noqa: N818 - as MemoryError and PyTorch name theirs
    """A device had too little memory for one operator; names it. What the failed work held is released."""


@contextmanager
def named(what: str | Callable[[BaseException], str], *, advice: str) -> Iterator[None]:
    """Turn an allocator's failure into ``OutOfMemory``.

    Args:
        what: was being done, or finds that out from the failure.
        advice: what to do, as a sentence.

    Raises:
        OutOfMemory: memory ran out.
    """
    message = None
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if isinstance(error, OutOfMemory) or not is_out_of_memory(error):
            raise
        place = what if isinstance(what, str) else what(error)
        message = f"out of memory in {place}: {str(error).strip().splitlines()[0]} {advice}"
        # The frames that failed hold tensors for as long as somebody holds the error.
        traceback.clear_frames(error.__traceback__)
    if message is not None:
        release()
        raise OutOfMemory(message)


def release() -> None:
    """Give unused memory back to the device."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
