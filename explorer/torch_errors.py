"""What PyTorch, and the code of a model, raise: told apart, and said in one sentence."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

_TORCH_LOG = logging.getLogger("torch._subclasses.fake_tensor")
_OURS = (Path(torch.__file__).parent, Path(__file__).parent)
_SAID = 300  # characters of an error of others
# The CPU's allocator; CUDA's driver, which kernels and streams ask; cuDNN, of whose plans no workspace fits; cuDNN and
# cuBLAS, whose handles or own memory do not.
_NO_MEMORY = (
    "can't allocate memory",
    "CUDA error: out of memory",
    "unable to find an engine",
    "CUDNN_STATUS_ALLOC_FAILED",
    "DEVICE_ALLOCATION_FAILED",
    "HOST_ALLOCATION_FAILED",
    "CUBLAS_STATUS_ALLOC_FAILED",
)
_NEVER_FITS = (TypeError, RuntimeError, AttributeError, LookupError, AssertionError, NotImplementedError)


def is_out_of_memory(error: BaseException) -> bool:
    """Did an allocator fail, the CPU's (whose error has no type of its own) or a GPU's?"""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or any(x in str(error) for x in _NO_MEMORY)


@contextmanager
def explained(model: nn.Module, batch: Any, *, loss: Any, callbacks: bool = False) -> Iterator[None]:
    """Say what a model or loss does not take, without PyTorch's report of how it came to know.

    Args:
        model: is run, or traced, in this context.
        batch: that it is run with.
        loss: likewise.
        callbacks: are called in this context too, whose errors stay as they are; so do the model's own.

    Raises:
        ValueError: in place of the error of another type that the code of a model, or PyTorch, raises for a batch.
    """
    level = _TORCH_LOG.level
    _TORCH_LOG.setLevel(logging.CRITICAL)
    try:
        yield
    except _NEVER_FITS as error:
        if is_out_of_memory(error) or (callbacks and not _ours(traceback.extract_tb(error.__traceback__)[-1])):
            raise
        said = " ".join(str(error).split())[:_SAID] or "no message"
        pair = loss is None and isinstance(batch, tuple | list) and len(batch) == 2
        hint = ". If the batch is (inputs, target), name the loss: loss=…" if pair else ""
        what = f"{type(model).__name__} cannot be trained on this batch{_place(error)}"
        raise ValueError(f"{what}: {type(error).__name__}: {said}{hint}") from error
    finally:
        _TORCH_LOG.setLevel(level)


def _place(error: BaseException) -> str:
    """The last line of code on the way to an error that is neither PyTorch's nor ours, if any."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [x for x in frames if not _ours(x)]
    return f" at {Path(theirs[-1].filename).name}:{theirs[-1].lineno}: {theirs[-1].line}" if theirs else ""


def _ours(frame: traceback.FrameSummary) -> bool:
    return any(Path(frame.filename).is_relative_to(folder) for folder in _OURS)
