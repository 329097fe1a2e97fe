"""The Python program that trains with a schedule."""

from __future__ import annotations

import re

from explorer.autocast import Autocast
from explorer.device_profile import Profile
from explorer.harmless import in_docstring, one_line
from explorer.iteration import Iteration
from explorer.model_source import dtype_of
from explorer.solution import Solution
from widgets import style

_OPTIMIZER = re.compile(r"(?P<name>[A-Za-z]\w*)(\((?P<options>(\w+=(True|False|None|[0-9.e+-]+)(, )?)*)\))?")
"""As a plan describes one; of anything else, a program takes nothing over."""
_PLACES = """import your_module

model = your_module.make_model()
batch = your_module.make_batch()  # a {kind}: {batch}
loss = None  # or what turns the model's output and the last tensor of the batch into a loss"""
_BUNDLED = """from explorer import model_source

model, batch, loss = model_source.bundled({name!r}, like=schedule.identity.batch{dtype})"""
_MOVED = "\nmodel, batch, loss = model_source.moved((model, batch, loss), {device!r})"
_PROGRAM = '''"""Train {model} within {budget}: {time} a step at a peak of {peak}, as predicted on {device}."""

import torch

import explorer
{loss_of}
schedule = explorer.load_schedule({file!r})

{source}
scheduled = explorer.apply(model, schedule, batch, loss=loss)
optimizer = {optimizer}  # model and scheduled share their parameters
{within}{scaler}
for step in range(3):  # your data loader here: batches of the shapes that the schedule was made for
{iteration}
    print(step, value.item())

print(explorer.measure(scheduled, batch{measured}).peak_bytes, "bytes at the peak; predicted are", {peak_bytes})
'''


_LOSS_OF = '''

def tensors_of(result):
    """Those that need a gradient, of a tensor, containers and objects with attributes."""
    if isinstance(result, torch.Tensor):
        return [result] if result.requires_grad else []
    parts = result if isinstance(result, (list, tuple)) else getattr(result, "__dict__", {}).values()
    parts = result.values() if isinstance(result, dict) else parts
    return [x for part in parts for x in tensors_of(part)]


def loss_of(result):
    """What is trained on: the scalars among what the model returns, or else all of it, added up."""
    tensors = {id(x): x for x in tensors_of(result)}.values()
    return sum(x.sum() for x in [x for x in tensors if x.ndim == 0] or tensors)

'''
_PLAIN = """{forward}
    value.backward()
    optimizer.step()
    optimizer.zero_grad()"""
_SCALED = """{forward}
    scaler.scale(value).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()"""
_MICROBATCHES = 2


def snippet(profile: Profile, solution: Solution, *, file: str, bundled: str | None, of: float | None = None) -> str:
    """A program that applies the schedule in ``file`` and trains.

    Args:
        profile: of the schedule.
        solution: has one.
        file: where the schedule lies, from where the program runs.
        bundled: name of the bundled model it is for; None for a user's own, whose place is then
            marked.
        of: bytes in whose unit memory is told, as in ``style.format_memory``.

    Raises:
        ValueError: the solution has no schedule.
    """
    if solution.schedule is None or solution.time_ms is None or solution.peak_bytes is None:
        raise ValueError("there is no schedule to apply yet; wait for the solver, or choose a larger budget")
    # As a captured batch names its tensors: by position below "batch", or by the keyword that each is passed as.
    keywords = not all(x.name.startswith("batch[") for x in profile.graph.batch)
    casts = profile.graph.autocast or Autocast(None)
    scaled = casts.dtype == "float16"  # its gradients would vanish without
    planned = solution.schedule.identity.iteration
    called = f"scheduled({'**' if keywords else '*'}batch)"
    if bundled is None:  # the bundled models return a tensor
        called = f"loss_of({called})"
    forward = _forward(f"value = {called}", casts, profile.device.kind)
    return _PROGRAM.format(
        model=in_docstring(profile.graph.model),
        budget=style.format_memory(solution.budget_bytes, of=of),
        time=style.format_ms(solution.time_ms),
        peak=style.format_memory(solution.peak_bytes, of=of),
        device=in_docstring(profile.device.label),
        file=file,
        loss_of=_LOSS_OF if bundled is None else "",
        source=_places(profile, keywords=keywords) if bundled is None else _source(profile, bundled),
        optimizer=_optimizer(planned),
        within="explorer.update_within(scheduled, optimizer)\n" if planned.within else "",
        scaler=f"scaler = torch.amp.GradScaler({profile.device.kind!r})\n" if scaled else "",
        iteration=_iteration(forward, planned, scaled=scaled),
        measured=_measured(planned),
        peak_bytes=solution.peak_bytes,
    )


def _places(profile: Profile, *, keywords: bool) -> str:
    """Where users put what makes a model of their own."""
    batch = one_line(", ".join(map(str, profile.graph.batch)))
    return _PLACES.format(kind="dict" if keywords else "tuple", batch=batch)


def _forward(call: str, casts: Autocast, kind: str) -> str:
    """The forward pass, under what it was captured under."""
    if casts.dtype is None:
        return f"    {call}"
    cached = "" if casts.cached else ", cache_enabled=False"
    return f"    with torch.autocast({kind!r}, torch.{casts.dtype}{cached}):\n        {call}"


def _optimizer(planned: Iteration) -> str:
    """What makes the optimizer that was planned for, which may be none of PyTorch's: see ``label_of``."""
    found = _OPTIMIZER.fullmatch(planned.optimizer or "SGD")
    if found is None:
        return "your_module.make_optimizer(model.parameters())"
    rate = "0.01" if found["name"] == "SGD" else "0.001"
    options = f", {found['options']}" if found["options"] else ""
    return f"torch.optim.{found['name']}(model.parameters(), lr={rate}{options})"


def _iteration(forward: str, planned: Iteration, *, scaled: bool) -> str:
    """One iteration of the loop."""
    text = (_SCALED if scaled else _PLAIN).format(forward=forward)
    if not planned.accumulate:
        return text
    passes, _, rest = text.partition(".backward()\n")
    passes = "".join(f"    {line}\n" for line in f"{passes}.backward()".splitlines())
    return f"    for microbatch in range({_MICROBATCHES}):  # whose gradients add up\n{passes}{rest}"


def _measured(planned: Iteration) -> str:
    """The arguments that measure such an iteration."""
    accumulate = ", accumulate=True" if planned.accumulate else ""
    return (", optimizer=optimizer" if planned.optimizer is not None else "") + accumulate


def _source(profile: Profile, bundled: str) -> str:
    """What makes a bundled model, where its schedules run."""
    kind = profile.device.kind
    dtype = dtype_of(profile.graph.parameters)
    told = "" if dtype is None else f", dtype={dtype!r}"
    return _BUNDLED.format(name=bundled, dtype=told) + ("" if kind == "cpu" else _MOVED.format(device=kind))
