"""Models with a batch, by name: bundled ones in any size, and whatever a user's own function makes."""

from __future__ import annotations

import inspect
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from explorer.graph import TensorSpec
from explorer.units import shown

_SEED = 0
_DTYPES = ("bfloat16", "float16", "float32", "float64")


def bundled(
    name: str, *, like: Sequence[TensorSpec] = (), dtype: str | None = None, **sizes: Any
) -> tuple[Any, Any, Any]:
    """A bundled model with random weights and a random batch for it, equal at every call.

    Args:
        name: as ``explorer.models.model_spec`` knows it.
        like: a batch whose shapes to take, as ``TrainingGraph.batch``; the model's own sizes where empty.
        dtype: of all floating-point tensors: ``"bfloat16"``, ``"float16"``, ``"float32"`` or ``"float64"``. None: that
            of ``like``'s, or as the model is trained by default.
        **sizes: what ``ModelSpec.batch`` takes, instead of ``like``'s: ``batch_size``, ``image_size`` …

    Returns:
        Model, batch and loss, as ``explorer.profile`` and ``explorer.apply`` take them.

    Raises:
        ValueError: there is no such model, it has no such size, or ``dtype`` is none.
    """
    if dtype is not None and dtype not in _DTYPES:
        raise ValueError(f"dtype is {shown(dtype)}; allowed: {', '.join(map(repr, _DTYPES))}, or None")
    import torch
    from torch.utils import _pytree as pytree

    from explorer.models import model_spec

    spec = model_spec(name)
    wanted = {**_sizes(like), **sizes}
    # The caller's own random numbers go on as if nothing was drawn here.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)
        try:
            batch = spec.batch(**wanted)
        except TypeError as error:
            if like and not sizes:
                raise ValueError(
                    f"the batch is of another model: {spec.title} has no {' and '.join(wanted)}"
                ) from error
            raise ValueError(f"{spec.title} does not take all of {', '.join(wanted)}: {error}") from error
        named = dtype or dtype_of(like)
        kind = spec.dtype if named is None else getattr(torch, named)
        batch = pytree.tree_map_only(torch.Tensor, lambda x: x.to(kind) if x.is_floating_point() else x, batch)
        return spec.build().to(kind), batch, spec.loss


def dtype_of(tensors: Sequence[TensorSpec]) -> str | None:
    """Of floating-point tensors that are not in float32: what ``bundled`` has to be told of a profile's parameters."""
    found = {x.dtype for x in tensors} & set(_DTYPES)
    return found.pop() if len(found) == 1 and found != {"float32"} else None


def factory(path: str, **sizes: int) -> tuple[Any, Any, Any]:
    """Call ``package.module:function`` for a model and its batch; modules of the current folder are found.

    Args:
        path: where it is.
        **sizes: what it is called with.

    Returns:
        Model, batch and loss; no loss where the function returns two things only.

    Raises:
        ValueError: there is no such module or function, it takes no ``sizes`` or pays no heed to them, or it returns
            something else.
    """
    module_name, _, function_name = path.partition(":")
    if not module_name or not function_name:
        raise ValueError(f"model {shown(path)} must be a bundled name, or package.module:function")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        module = import_module(module_name)
        function = getattr(module, function_name)
    except (ImportError, AttributeError) as error:
        found = sys.modules.get(module_name)
        # A folder of that name, such as that of a sweep's answers, is taken for a package.
        is_folder = hasattr(found, "__path__") and getattr(found, "__file__", None) is None
        why = f"there is a folder {module_name!r}, but no module of that name" if is_folder else error
        raise ValueError(f"cannot find {path!r}: {why}") from error
    except Exception as error:
        raise ValueError(f"cannot import {module_name!r}: {_raised(error)}") from error
    if sizes and not _takes(function, sizes):
        names = " and ".join(sizes)
        raise ValueError(f"{path} takes no {names}, which it is asked for: let it take {names}, or leave out batches")
    try:
        made = function(**sizes)
    except Exception as error:
        raise ValueError(f"{path} failed: {_raised(error)}") from error
    if not (isinstance(made, tuple) and len(made) in (2, 3)):
        raise ValueError(
            f"{path} returned {type(made).__name__}; it must return (model, batch) or (model, batch, loss)"
        )
    _check_heeded(path, made[1], sizes)
    return made[0], made[1], made[2] if len(made) == 3 else None


def _check_heeded(path: str, batch: Any, sizes: dict[str, int]) -> None:
    """Raises ValueError where a batch has nothing of a size that was asked for: what is said per sample would be wrong.

    That may be a dimension, also one more (where samples begin and end) or a multiple (all tokens of all samples), or
    the length of a list of samples.
    """
    import torch
    from torch.utils import _pytree as pytree

    leaves = pytree.tree_leaves(batch)
    shapes = [tuple(x.shape) for x in leaves if isinstance(x, torch.Tensor) and x.ndim]
    for name, size in sizes.items():
        heeded = any({size, size + 1} & {*shape} or shape[0] % max(size, 1) == 0 for shape in shapes)
        if shapes and not heeded and len(leaves) < size:
            raise ValueError(
                f"{path} was called with {name}={size}, and the batch that it made has nothing of that size (its first "
                f"tensor is of shape {shapes[0]}): does it make use of {name}?"
            )


def _takes(function: Any, sizes: dict[str, int]) -> bool:
    """May it be called with these names? Of what cannot be looked into that is not known before."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    taken = {x.name for x in signature.parameters.values() if x.kind not in (x.POSITIONAL_ONLY, x.VAR_POSITIONAL)}
    return taken >= sizes.keys() or any(x.kind is x.VAR_KEYWORD for x in signature.parameters.values())


def _raised(error: Exception) -> str:
    """What an error of a user's own code says, and where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}: {error}{place}"


def moved(made: tuple[Any, Any, Any], device: str) -> tuple[Any, Any, Any]:
    """The same on another device.

    Raises:
        ValueError: torch knows no such device here.
    """
    import torch
    from torch.utils import _pytree as pytree

    model, batch, loss = made
    try:
        batch = pytree.tree_map_only(torch.Tensor, lambda x: x.to(device), batch)
        return model.to(device), batch, loss
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device {device!r} cannot be used: {str(error).splitlines()[0]}") from error


def _sizes(like: Sequence[TensorSpec]) -> dict[str, Any]:
    """The sizes of the first tensor of a batch, by the keyword that its rank has in the bundled models."""
    if not like:
        return {}
    batch_size, *sizes = like[0].shape
    match sizes:
        case [length]:
            return {"batch_size": batch_size, "sequence_length": length}
        case [_, height, width]:
            return {"batch_size": batch_size, "image_size": (height, width)}
        case [_, depth, height, width]:
            return {"batch_size": batch_size, "volume_size": (depth, height, width)}
    return {"batch_size": batch_size}
