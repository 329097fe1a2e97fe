"""The Python program that trains with a schedule."""

from __future__ import annotations

from explorer.device_profile import Profile
from explorer.solution import Solution
from widgets import style

_PLACES = """import your_module

model = your_module.make_model()
batch = your_module.make_batch()  # a tuple: {batch}
loss = None  # or what turns the model's output and the last tensor of the batch into a loss"""
_BUNDLED = """from explorer import model_source

model, batch, loss = model_source.bundled({name!r}, like=schedule.identity.batch)"""
_PROGRAM = '''"""Train {model} within {budget}: {time} a step at a peak of {peak}, as predicted on {device}."""

import torch

import explorer

schedule = explorer.load_schedule({file!r})

{source}
scheduled = explorer.apply(model, schedule, batch, loss=loss)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)  # model and scheduled share their parameters

for step in range(3):  # your data loader here: batches of the shapes that the schedule was made for
    value = scheduled(*batch)
    value.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step, value.item())

print(explorer.measure(scheduled, batch).peak_bytes, "bytes at the peak; predicted are", {peak_bytes})
'''


def snippet(profile: Profile, solution: Solution, *, file: str, bundled: str | None) -> str:
    """A program that applies the schedule in ``file`` and trains.

    Args:
        profile: of the schedule.
        solution: has one.
        file: where the schedule lies, from where the program runs.
        bundled: name of the bundled model it is for; None for a user's own, whose place is then marked.

    Raises:
        ValueError: the solution has no schedule.
    """
    if solution.schedule is None or solution.time_ms is None or solution.peak_bytes is None:
        raise ValueError("there is no schedule to apply yet; wait for the solver, or choose a larger budget")
    batch = ", ".join(map(str, profile.graph.batch))
    return _PROGRAM.format(
        model=profile.graph.model,
        budget=style.format_gib(solution.budget_bytes),
        time=style.format_ms(solution.time_ms),
        peak=style.format_gib(solution.peak_bytes),
        device=profile.device.label,
        file=file,
        source=_PLACES.format(batch=batch) if bundled is None else _BUNDLED.format(name=bundled),
        peak_bytes=solution.peak_bytes,
    )
