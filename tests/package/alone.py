"""What a machine does that has this package, torch and NumPy, and nothing else of what the explorer is made of.

Run as a script in such an environment; ``--hide`` makes one of any other, by hiding every other package from imports.
"""

from __future__ import annotations

import io
import re
import sys
import tempfile
from contextlib import redirect_stderr, suppress
from importlib import metadata
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path

HERE = {"explorer", "widgets"}


def hide_all_but(*kept: str) -> None:
    """Let nothing be imported but these distributions, what they require, this package and Python's own modules."""
    left = _with_requirements(kept)
    owners = metadata.packages_distributions()
    hidden = {top for top, names in owners.items() if not left & {_normal(name) for name in names}} - HERE

    class Finder:
        def find_spec(self, name, path=None, target=None):
            return None if name.partition(".")[0] in hidden else PathFinder.find_spec(name, path, target)

    sys.meta_path[:] = [Finder() if finder is PathFinder else finder for finder in sys.meta_path]


def _with_requirements(kept: tuple[str, ...]) -> set[str]:
    found: set[str] = set()
    pending = list(kept)
    while pending:
        name = _normal(re.split(r"[\[<>=!; (~]", pending.pop(), maxsplit=1)[0])
        if name not in found and any(metadata.distributions(name=name)):
            found.add(name)
            pending += [x for x in metadata.requires(name) or () if "extra ==" not in x]
    return found


def _normal(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def check_nothing_else_is_here() -> None:
    """None of what the extras bring, but what torch itself requires."""
    from explorer.extras import EXTRA_OF

    there = {name for name in EXTRA_OF if find_spec(name) is not None}
    assert there <= {"networkx"}, f"installed: {there}"  # networkx is torch's as well


def train_and_measure(folder: Path) -> None:
    """From a model to a schedule that trains, by public names: eager mode's gradients, the peak that was said."""
    import torch
    from torch import nn

    import explorer

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    batch = torch.randn(128, 64), torch.randint(10, (128,))
    loss = nn.functional.cross_entropy
    loss(model(batch[0]), batch[1]).backward()
    expected = [x.grad.clone() for x in model.parameters() if x.grad is not None]
    model.zero_grad()

    explorer.profile(model, batch, loss=loss).save(folder / "profile.json")
    profile = explorer.load_profile(folder / "profile.json")
    explorer.keep_all(profile.graph).save(folder / "schedule.json")
    schedule = explorer.load_schedule(folder / "schedule.json")
    assert explorer.simulate(explorer.load_profile("gpt2"), explorer.load_schedule("gpt2@0.5")).peak_bytes > 0
    predicted = explorer.simulate(profile, schedule)
    scheduled = explorer.apply(model, schedule, batch, loss=loss)
    measured = explorer.measure(scheduled, batch, steps=1)
    assert measured.peak_bytes == predicted.peak_bytes, (measured.peak_bytes, predicted.peak_bytes)
    model.zero_grad()
    scheduled(*batch).backward()
    assert all(torch.equal(x.grad, y) for x, y in zip(model.parameters(), expected, strict=True))

    explorer.export(model, schedule, batch, loss=loss, path=folder / "exported.py")
    spec = spec_from_file_location("exported", folder / "exported.py")
    sys.modules["exported"] = exported = module_from_spec(spec)
    spec.loader.exec_module(exported)
    model.zero_grad()
    exported.scheduled(model)(*batch).backward()
    assert all(torch.equal(x.grad, y) for x, y in zip(model.parameters(), expected, strict=True))


def what_is_missing_is_said() -> list[str]:
    """Every public name loads, or says in one sentence what to install; so do functions and the command.

    Returns:
        the sentences.
    """
    import torch
    from torch import nn

    import explorer
    from explorer.command_line.__main__ import main

    said = []
    for name in explorer.__all__:
        try:
            getattr(explorer, name)
        except ImportError as error:
            said.append(str(error))
    try:
        explorer.estimate(nn.Linear(2, 2), torch.randn(1, 2), device="T4")
    except ImportError as error:
        said.append(str(error))
    sys.argv = ["schedule-explorer", "profiles"]
    with redirect_stderr(io.StringIO()) as written, suppress(SystemExit):
        main()
    said.append(written.getvalue().removeprefix("error: ").rstrip())
    for sentence in said:
        assert re.fullmatch(r"\S.* needs \w+, which is not installed: pip install 'schedule-explorer\[\w+\]'", sentence)
    return said


if __name__ == "__main__":
    if "--hide" in sys.argv:
        hide_all_but("torch", "numpy")
    check_nothing_else_is_here()
    with tempfile.TemporaryDirectory() as scratch:
        train_and_measure(Path(scratch))
    print(*what_is_missing_is_said(), sep="\n")
