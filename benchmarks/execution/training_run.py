"""Training with a schedule beside training without: does the loss curve lie on eager mode's?

    python -m benchmarks.execution.training_run [--tier quick] [--share 0.75] [--json FILE] [--plot FILE.html]

ResNet-50 on pictures of ten made-up classes, SGD with momentum; all runs begin with the same weights and see the same
batches. With all optimizations results are not bit-equal (the schedule may choose other algorithms), so the curves
drift apart as those of eager mode with another algorithm do: eager mode in channels-last layout shows how much that
is. A schedule of bit-exact implementations gives eager mode's own curve.
"""

from __future__ import annotations

import argparse
import copy
from pathlib import Path
from typing import Any

import torch
from torch import nn

import explorer
from benchmarks.cases import Size, Tier, add_tier, model_cases
from benchmarks.provenance import record, write_results
from explorer.schedule import Run

# Small enough that a difference in the last bits stays small for 50 steps.
_LEARNING_RATE = 1e-4


def main() -> None:
    """Print the curves and how far apart they are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_tier(parser)
    parser.add_argument("--steps", type=int, help="default: 50, or 10 if quick")
    parser.add_argument("--share", type=float, default=0.75, help="budget as a share of PyTorch's peak")
    parser.add_argument("--json", type=Path, help="also write the losses here")
    parser.add_argument("--plot", type=Path, help="also write a plot here, as HTML")
    options = parser.parse_args()
    run = record(options)
    steps = options.steps or (10 if options.tier is Tier.QUICK else 50)
    (case,) = model_cases(options.tier, Size.SMALL, ["resnet50"])
    model, _, loss = case.sample()
    batches = [pictures(seed, case.batch["batch_size"], case.batch["image_size"]) for seed in range(steps)]
    profile = explorer.profile(model, batches[0], loss=loss)
    plain = explorer.simulate(profile, explorer.keep_all(profile.graph))
    modules = {
        name: explorer.apply(copy.deepcopy(model), schedule, batches[0], loss=loss)
        for name, schedule in schedules(profile, int(options.share * plain.peak_bytes)).items()
    }
    other: nn.Module = copy.deepcopy(model).to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    losses = {
        "eager": train(copy.deepcopy(model), batches, loss),
        **{name: train(module, batches, None) for name, module in modules.items()},
        "eager, channels last": train(other, batches, loss),
    }
    for number in range(0, steps, 7):
        print(f"step {number:3d}: " + ", ".join(f"{name} {found[number]:.6f}" for name, found in losses.items()))
    for name, found in losses.items():
        apart = [abs(a - b) for a, b in zip(found, losses["eager"], strict=True)]
        print(f"{name}: furthest from eager {max(apart):.2e}, over the first ten steps {max(apart[:10]):.2e}")
    if options.json:
        write_results(options.json, losses, run)
    if options.plot:
        options.plot.write_text(plot(losses), encoding="utf-8")


def schedules(profile: explorer.Profile, budget: int) -> dict[str, explorer.Schedule]:
    """The fastest schedules within a budget, of all implementations and of the bit-exact ones."""
    plain_ms = explorer.simulate(profile, explorer.keep_all(profile.graph)).time_ms
    found: dict[str, explorer.Schedule] = {}
    for name, exact in (("scheduled", False), ("scheduled, bit-exact", True)):
        solution = explorer.solve(profile, budget=budget, exact=exact, remember=False)
        assert solution.schedule is not None, solution.message
        assert solution.time_ms is not None
        own = [x.implementations[0].name for x in profile.graph.operators]
        others = sum(isinstance(x, Run) and x.implementation != own[x.operator] for x in solution.schedule.steps)
        print(
            f"{name}, budget {explorer.format_bytes(budget)}: predicted {solution.time_ms / plain_ms:.3f} × plain, "
            f"{len(solution.schedule.recomputed(profile.graph))} operators recomputed, "
            f"{others} runs of other implementations"
        )
        found[name] = solution.schedule
    return found


def pictures(seed: int, count: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch of noisy stripes, whose direction and width say the class."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 10, (count,), generator=generator)
    at = torch.linspace(0, 1, size)
    waves = torch.sin(
        6.28 * (2 + labels[:, None, None] % 5 * 3) * torch.where((labels < 5)[:, None, None], at, at[:, None])
    )
    images = waves[:, None].expand(count, 3, size, size) + 0.5 * torch.randn(count, 3, size, size, generator=generator)
    return images.contiguous(), labels


def train(module: nn.Module, batches: list[Any], loss: Any) -> list[float]:
    """Losses of SGD steps; ``loss`` None: the module returns it."""
    optimizer = torch.optim.SGD(module.parameters(), lr=_LEARNING_RATE, momentum=0.9)
    found = []
    for inputs, target in batches:
        result = module(inputs, target) if loss is None else loss(module(inputs), target)
        result.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(float(result.detach()))
    return found


def plot(losses: dict[str, list[float]]) -> str:
    """Loss over steps."""
    import plotly.graph_objects as go

    from widgets import style

    figure = go.Figure()
    dashes = ("solid", "dot", "dashdot", "dash")
    colours = ("#444444", style.VERMILLION, style.PURPLE, style.SKY)
    for (name, found), colour, dash in zip(losses.items(), colours, dashes, strict=True):
        figure.add_scatter(y=found, name=name, mode="lines", line={"color": colour, "dash": dash, "width": 3})
    figure.update_layout(template="plotly_white", xaxis_title="step", yaxis_title="loss", width=800, height=420)
    return figure.to_html(include_plotlyjs=True, config={"showSendToCloud": False})


if __name__ == "__main__":
    main()
