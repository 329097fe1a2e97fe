"""What benchmarks measure: every profile, published instance, model and budget, in two tiers.

``quick`` says within a minute or two on two cores that a benchmark still runs and that nothing is far off; ``full`` is
what the figures of ``docs/figures.md`` are made of. Every benchmark with cases takes ``--tier``, and names of cases to
run those alone. Loads neither torch nor a solver before it is asked for a case.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from explorer.device_profile import Profile
from explorer.profiles.loading import bundled_profiles, load_profile

if TYPE_CHECKING:
    from torch import nn

Sample = tuple["nn.Module", Any, Any]
"""A model in training mode, a batch, and the loss; None where the model returns it."""

_GIB = 2**30
_EXACT = 1e-6  # of 0.01 ms: by less than that, a time is no more than it says


class Tier(StrEnum):
    """How much is measured."""

    QUICK = "quick"
    FULL = "full"


def add_tier(parser: argparse.ArgumentParser) -> None:
    """``--tier quick`` or ``full``, which is the default."""
    parser.add_argument("--tier", type=Tier, choices=list(Tier), default=Tier.FULL, help="how much is measured")


# Profiles at budgets.


class Whole(StrEnum):
    """What a budget is a share of.

    Parameters and their gradients may take most of the peak whatever the schedule: a share of activations says the same
    of every model, a share of the peak what a user would ask for.
    """

    PEAK = "the peak without recomputation"
    ACTIVATIONS = "what lies between the fixed bytes and that peak"


QUICK_PROFILES = ("resnet50-small-cpu", "unet3d-a100-80gb", "gpt2-a100-80gb")
"""A measured one, one that is solved in passing, and one of many operators."""
SHARES = {
    Whole.PEAK: {Tier.QUICK: (0.5,), Tier.FULL: (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)},
    Whole.ACTIVATIONS: {Tier.QUICK: (0.5,), Tier.FULL: (0.35, 0.5, 0.75)},
}


@dataclass(frozen=True)
class ProfileCase:
    """A profile at some budgets.

    Attributes:
        profile: a bundled name or a path.
        shares: of ``of``, increasing.
        of: what budgets are shares of.
    """

    profile: str
    shares: tuple[float, ...]
    of: Whole

    @property
    def name(self) -> str:
        """Of the profile, without a folder."""
        return Path(self.profile).name.removesuffix(".gz").removesuffix(".json")

    def load(self) -> Profile:
        """The profile."""
        return load_profile(self.profile)

    def budgets(self, profile: Profile) -> list[int]:
        """Bytes for each share of the loaded profile."""
        return [budget_bytes(profile, x, of=self.of) for x in self.shares]


def budget_bytes(profile: Profile, share: float, *, of: Whole) -> int:
    """A share of a profile's memory as bytes."""
    from explorer.schedule import keep_all
    from explorer.simulation import simulate

    peak_bytes = simulate(profile, keep_all(profile.graph)).peak_bytes
    if of is Whole.PEAK:
        return int(share * peak_bytes)
    return profile.fixed_bytes + round(share * (peak_bytes - profile.fixed_bytes))


def profile_cases(
    tier: Tier, *, of: Whole, profiles: Sequence[str] = (), shares: Sequence[float] = ()
) -> tuple[ProfileCase, ...]:
    """The bundled profiles of a tier at its budgets, or those named; whoever names a file gets that."""
    names = profiles or (QUICK_PROFILES if tier is Tier.QUICK else tuple(bundled_profiles()))
    chosen = tuple(sorted(shares or SHARES[of][tier]))
    return tuple(ProfileCase(name, chosen, of) for name in names)


# Published instances at published budgets.


class Counting(StrEnum):
    """Whose programs an instance was published for; the two count memory differently."""

    MONET = "monet"
    CHECKMATE = "checkmate"


QUICK_INSTANCES = (
    *("vgg16-none:8", "vgg16-all:7", "unet-none:8", "unet-all:7", "resnet50-none:7", "resnet50-all:7"),
    *("vgg16-checkmate:8", "vgg16-checkmate:10"),
)
PROGRAM_SIZES = {
    Tier.QUICK: ("vgg16-none:8", "vgg16-all:8"),
    Tier.FULL: ("vgg16-none:8", "vgg16-all:8", "unet-none:8", "unet-all:8"),
}
"""For ResNet-50 stating the paper's program alone takes minutes and gigabytes."""
PAPER_PROGRAMS = {
    Tier.QUICK: ("vgg16-none:10",),
    Tier.FULL: ("vgg16-none:7", "vgg16-none:8", "vgg16-none:9", "vgg16-none:10", "unet-none:10"),
}
"""Those whose program as published SCIP solves within minutes."""


ABLATION = {
    Tier.QUICK: (
        ("resnet50-all:5", "resnet50-none:6", "unet-all:6", "unet-all:9", "vgg16-all:8"),
        ("gpt2-a100-80gb:0.6", "googlenet-p100-16gb:0.5", "unet-a100-80gb:0.4", "vit_b16-p100-16gb:0.5"),
    ),
    Tier.FULL: ((), ("*:0.75", "*:0.6", "*:0.5", "*:0.4")),
}
"""Published instances at GiB (none named: all of them), and profiles at shares of plain PyTorch's peak."""


@dataclass(frozen=True)
class PublishedCase:
    """A published instance at one of its budgets.

    Attributes:
        path: of the instance.
        document: what the file holds.
        reference: what was published of it at this budget.
    """

    path: Path
    document: dict[str, Any] = field(repr=False)
    reference: dict[str, Any] = field(repr=False)

    @property
    def instance(self) -> str:
        """Its name."""
        return self.path.stem

    @property
    def budget_gib(self) -> float:
        """The budget as published."""
        return float(self.reference["budget_gib"])

    @property
    def budget_bytes(self) -> int:
        """The same in bytes."""
        return round(self.budget_gib * _GIB)

    def load(self) -> Profile:
        """The instance as a profile."""
        return load_profile(self.path)

    def load_rounded_up(self) -> Profile:
        """With every operator's time rounded up to 0.01 ms: what was solved for publication."""
        profile = self.load()
        costs = {key: replace(x, time_ms=math.ceil(100 * x.time_ms - _EXACT) / 100) for key, x in profile.costs.items()}
        return replace(profile, costs=costs)


def published_cases(
    folder: Path, tier: Tier, *, counting: Counting = Counting.MONET, only: Sequence[str] = ()
) -> tuple[PublishedCase, ...]:
    """The published instances of a folder at their budgets.

    Args:
        folder: with the instances as JSON.
        tier: all of them, or some.
        counting: those that were published for that.
        only: whatever the tier says, these: ``"vgg16-none"`` at each budget, or ``"vgg16-none:8"`` (GiB).

    Raises:
        ValueError: nothing in the folder is called like one of ``only``.
    """
    found = [x for x in _all_published(folder) if (x.document["optimizations"] == "checkmate") == (counting != "monet")]
    if unknown := [name for name in only if not any(_is_called(x, name) for x in found)]:
        known = sorted({x.instance for x in found})
        raise ValueError(f"{', '.join(unknown)} is no published instance here; there are {', '.join(known) or 'none'}")
    wanted = only or (QUICK_INSTANCES if tier is Tier.QUICK else ())
    return tuple(x for x in found if not wanted or any(_is_called(x, name) for name in wanted))


def _all_published(folder: Path) -> Iterator[PublishedCase]:
    for path in sorted(folder.glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        for reference in document["references"]:
            yield PublishedCase(path, document, reference)


def _is_called(case: PublishedCase, name: str) -> bool:
    instance, _, gib = name.partition(":")
    return instance == case.instance and (not gib or float(gib) == case.budget_gib)


# Models to run and measure.


class Size(StrEnum):
    """Of a batch: for steps of tens of milliseconds, of some hundreds, and of seconds on two cores."""

    TINY = "tiny"
    SMALL = "small"
    LARGE = "large"


@dataclass(frozen=True)
class ModelCase:
    """A model with a batch.

    Attributes:
        name: one of ``explorer.models.MODELS``, or ``"gpt"``, GPT-2's architecture with dropout, 6 layers of width 256.
        batch: sizes of its batch.
        quick: is it in the quick tier?
    """

    name: str
    batch: Mapping[str, int]
    quick: bool = False

    def sample(self, seed: int = 0) -> Sample:
        """The model, its batch and its loss; the same for the same seed."""
        import torch

        from explorer.models import MODELS
        from explorer.models.gpt import GPT, GPTConfig

        torch.manual_seed(seed)
        if self.name != "gpt":
            spec = MODELS[self.name]
            return spec.build().train(), spec.batch(**self.batch), spec.loss
        length = self.batch["sequence_length"]
        config = GPTConfig(vocabulary=2000, context=length, layers=6, heads=4, width=256, dropout=0.1)
        model = GPT(config).train()
        tokens = torch.randint(2000, (self.batch["batch_size"], length + 1))
        return model, (tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()), None


MODEL_CASES: dict[Size, tuple[ModelCase, ...]] = {
    Size.TINY: (
        ModelCase("resnet50", {"batch_size": 8, "image_size": 64}, quick=True),
        ModelCase("mobilenet_v2", {"batch_size": 8, "image_size": 64}),
        ModelCase("unet", {"batch_size": 1, "image_size": 128}, quick=True),
        ModelCase("gpt2", {"batch_size": 1, "sequence_length": 64}),
        ModelCase("gpt", {"batch_size": 4, "sequence_length": 128}),
    ),
    Size.SMALL: (
        ModelCase("resnet50", {"batch_size": 8, "image_size": 112}),
        ModelCase("unet", {"batch_size": 1, "image_size": 256}),
        ModelCase("mobilenet_v2", {"batch_size": 8, "image_size": 112}),
        ModelCase("googlenet", {"batch_size": 8, "image_size": 112}),
        ModelCase("vgg16", {"batch_size": 4, "image_size": 112}),
        ModelCase("gpt2", {"batch_size": 2, "sequence_length": 128}),
        ModelCase("vit_b16", {"batch_size": 2}),
        ModelCase("unet3d", {"batch_size": 1, "volume_size": 32}),
    ),
    Size.LARGE: (
        ModelCase("resnet50", {"batch_size": 32, "image_size": 112}),
        ModelCase("vgg16", {"batch_size": 32, "image_size": 128}),
        ModelCase("googlenet", {"batch_size": 32, "image_size": 112}),
        ModelCase("mobilenet_v2", {"batch_size": 32, "image_size": 112}),
        ModelCase("unet", {"batch_size": 4, "image_size": 192}),
    ),
}


def model_cases(tier: Tier, size: Size, names: Sequence[str] = ()) -> tuple[ModelCase, ...]:
    """The models of a tier: of the quick one two tiny ones whatever ``size`` says, of the full one all of that size.

    Raises:
        ValueError: one of ``names``, which are taken instead of the tier's, has no such size.
    """
    among = MODEL_CASES[Size.TINY if tier is Tier.QUICK else size]
    known = {x.name: x for x in among}
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"{', '.join(unknown)} is no model of this tier; there are {', '.join(known)}")
    return tuple(known[x] for x in names) or tuple(x for x in among if x.quick or tier is Tier.FULL)


def model_names(*sizes: Size) -> str:
    """For the help of a command."""
    cases: Iterable[ModelCase] = (x for size in sizes or Size for x in MODEL_CASES[size])
    return ", ".join(dict.fromkeys(x.name for x in cases))
