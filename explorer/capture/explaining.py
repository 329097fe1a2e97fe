"""What a trace failed with, as a user should read it: the line that asked for values, and what to write instead."""

from __future__ import annotations

import contextlib
import inspect
import linecache
import re
import traceback
from pathlib import Path

import torch
from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

DATA_DEPENDENT = (DataDependentOutputException, DynamicOutputShapeException, GuardOnDataDependentSymNode)
_SELECTING = (torch.ops.aten.nonzero, torch.ops.aten.masked_select, torch.ops.aten.index)
"""Operators that have another in their place, with a mask."""
_NOBODYS = (Path(torch.__file__).parent, Path(__file__).parents[1], Path(contextlib.__file__))
_TARGETS = re.compile(r"\b(?:labels?|targets?)\b")
_LINES_ABOVE = 4
"""So far above a branch its condition is computed."""
_FIXED = "A schedule is fixed before the values are known: "


def explained(error: Exception, model: nn.Module) -> Exception:
    """The error as a user should read it, or itself where it is no fault of the traced code's control flow.

    Args:
        error: of the trace.
        model: that was traced.
    """
    if isinstance(error, AssertionError) and "share storage" in str(error):
        return ValueError(
            "the batch holds one memory twice (a tensor that is there twice, or a view of another), and the model "
            "changes it in place: give a copy of one of them (.clone())"
        )
    if "is not supported for tensor subclasses" in str(error):  # numpy(), tolist(), …
        return ValueError(
            f"the model takes the values of a tensor out of PyTorch{_place(error)}. A schedule runs PyTorch's "
            "operators only: compute it with torch instead of NumPy or Python numbers, or move it out of the model"
        )
    if not isinstance(error, DATA_DEPENDENT) and "data-dependent" not in str(error).lower():
        return error
    return ValueError(_question(error, model))


def _question(error: Exception, model: nn.Module) -> str:
    """What is said of a question about values."""
    called = {x.name for x in traceback.extract_tb(error.__traceback__)}
    place = _place(error)
    if "_detect_is_causal_mask" in called:
        return (
            f"PyTorch looks at a mask to see whether it is causal{place}. {_FIXED}say it beside the mask, "
            "is_causal=True or False (tgt_is_causal, memory_is_causal of nn.Transformer)"
        )
    also = _also(error.__cause__)
    if "pack_padded_sequence" in called:
        return (
            f"the shape of a packed sequence depends on the values of its lengths{place}. {_FIXED}give the layer the "
            "padded sequences, whose results before their ends are the same, and take those at the ends by "
            "out[torch.arange(len(lengths)), lengths - 1], or set the others to zero by a mask (backwards: reverse "
            f"each with gather; docs/supported.md has both).{also}"
        )
    asked = f"the model's control flow or shapes depend on the values of tensors{place}. {_FIXED}"
    if (remedy := _remedy_in_library(error, model, left_out=bool(also))) is not None:
        return f"{asked}{remedy}.{also}"
    if not isinstance(error, DynamicOutputShapeException):
        return f"{asked}replace the branch by torch.where or a mask, or move it out of the model.{also}"
    if error.func.overloadpacket not in _SELECTING:
        return (
            f"shapes in {error.func} depend on the values of tensors{place}. {_FIXED}leave it out of what is planned; "
            f"a loss, for one, is called on what the module returns, as in plain PyTorch.{also}"
        )
    return (
        f"numbers of selected elements depend on the values of tensors{place}. {_FIXED}keep them all, and weigh them "
        "by a mask (torch.where(mask, x, 0), or (x * mask).sum() / mask.sum() for a mean); where each expert takes "
        "rows of its own, run it on all rows, times a weight that is 0 for those of others, or on a fixed number of "
        f"them (topk), added by index_add.{also}"
    )


def _remedy_in_library(error: Exception, model: nn.Module, *, left_out: bool) -> str | None:
    """What to do about a line of an installed package, which nobody can replace; None: the line is the user's.

    Args:
        error: the question.
        model: that was traced.
        left_out: the library can do without the question, and what is said next is in the way.
    """
    frames = _frames(error)
    library = _library(frames[-1]) if frames else None
    if library is None:
        return None
    last = frames[-1]
    above = [linecache.getline(last.filename, (last.lineno or 1) - x) for x in range(_LINES_ABOVE + 1)]
    if any("layerdrop" in x for x in above):
        configs = [vars(x.config) for x in model.modules() if hasattr(getattr(x, "config", None), "__dict__")]
        settings = list(dict.fromkeys(y for x in configs for y in x if y.endswith("layerdrop"))) or ["layerdrop"]
        return f"layers are left out by chance: make the model with {', '.join(f'{x}=0.0' for x in settings)}"
    given = inspect.signature(model.forward).parameters
    names = [x for line in _enclosing(last) for x in _TARGETS.findall(line) if x in given]
    if not names and any("loss" in Path(x.filename).stem for x in frames if _library(x)):
        names = [x for x in given if _TARGETS.fullmatch(x)]
    if names:
        return f"leave out {names[0]}, and call the loss on what the model returns, outside or as loss="
    if left_out:
        return f"the line is one of {library}, and what that does instead while it is compiled fails, too"
    return (
        f"the line is one of {library}: plan a module of your own that calls the model's parts and gives them the "
        "answer as a plain argument, or a subclass without the question"
    )


def _enclosing(frame: traceback.FrameSummary) -> list[str]:
    """A frame's line, and those above it that begin a block around it, up to the function's."""
    lines = [linecache.getline(frame.filename, frame.lineno or 0)]
    for number in range((frame.lineno or 0) - 1, 0, -1):
        line = linecache.getline(frame.filename, number)
        if line.lstrip().startswith("def "):
            break
        if line.strip() and _indent(line) < _indent(lines[-1]):
            lines.append(line)
    return lines


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _library(frame: traceback.FrameSummary) -> str | None:
    """The installed package that a frame's code is of."""
    parts = Path(frame.filename).parts
    inside = next((x for x in ("site-packages", "dist-packages") if x in parts), None)
    return None if inside is None else parts[parts.index(inside) + 1].removesuffix(".py")


def _also(behind: BaseException | None) -> str:
    """What the model failed with where that question was left out, which may be the reason for all."""
    if behind is None or isinstance(behind, DATA_DEPENDENT):
        return ""
    told = f"{type(behind).__name__}: {str(behind).strip().partition(chr(10))[0]}"
    return f" Without that question the model fails{_place(behind)}: {told}"


def _place(error: BaseException) -> str:
    return line_of(_frames(error))


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Of an error, or of what it came from."""
    frames: list[traceback.FrameSummary] = []
    seen: BaseException | None = error
    while seen is not None and not frames:
        frames = foreign(traceback.extract_tb(seen.__traceback__))
        seen = seen.__cause__ or seen.__context__
    return frames


def foreign(frames: traceback.StackSummary) -> list[traceback.FrameSummary]:
    """Those outside torch and this package."""
    return [x for x in frames if not any(Path(x.filename).is_relative_to(folder) for folder in _NOBODYS)]


def called_from_outside() -> bool:
    """Is it no code of torch that called this package, or one that handles gradients for whoever called it?"""
    frame, (torchs, own, _) = inspect.currentframe(), _NOBODYS
    while frame is not None and Path(frame.f_code.co_filename).is_relative_to(own):
        frame = frame.f_back
    if frame is None or not Path(frame.f_code.co_filename).is_relative_to(torchs):
        return frame is not None
    return frame.f_code.co_name == "zero_grad" or Path(frame.f_code.co_filename).stem == "clip_grad"


def line_of(frames: list[traceback.FrameSummary]) -> str:
    """Where the innermost frame stands, as `` at file.py:12: code``; nothing where there is none."""
    if not frames:
        return ""
    # The calling script or cell comes first; the innermost line is the one that asked for the value.
    last = frames[-1]
    return f" at {last.filename}:{last.lineno}: {last.line}"
