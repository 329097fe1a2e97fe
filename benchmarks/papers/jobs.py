"""What ``benchmarks.papers.full`` computes: each job yields parts, ``{"part": name, "rows": [...]}``."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import explorer
from benchmarks.methods.order import ALEXNET
from benchmarks.methods.order import estimated as with_optimizer
from benchmarks.papers import networks
from benchmarks.papers.counting import counts_of
from benchmarks.papers.flops import by_flops
from benchmarks.papers.published import BUDGETS_GIB, NETWORKS
from explorer.capture import capture
from explorer.capture.stand_in import as_on_cuda, stand_in_for
from explorer.device_profile import Cost, Profile
from explorer.models import MODELS
from explorer.profiles.published import profile_of
from explorer.profiling.counting import Precisions
from explorer.profiling.devices import device_spec
from explorer.profiling.estimating import estimate_capture
from explorer.profiling.rates import Family, byte_rate
from explorer.solvers.methods.batch_size import with_batch_size
from explorer.solvers.methods.checkmate.solver import with_quickest_convolutions
from explorer.solvers.methods.table import METHODS
from explorer.solvers.monet.knowledge import Knowledge
from explorer.solvers.monet.pipeline import Pursuit
from explorer.solvers.options import Options, parse_optimizations
from explorer.solvers.ordering.schedules import least_memory

GIB = 2**30
_DEFAULT = 99  # its number beside cuDNN's own
Part = dict[str, Any]
Parts = Iterator[Part]
IN_THE_ZOO = ("resnet50", "unet", "vgg16")
"""Networks whose P100 costs are published; those of the others are estimated."""
SETS = {
    "none": ("inplace",),
    "convolution": ("inplace", "convolution"),
    "output": ("inplace", "output"),
    "intermediate": ("inplace", "intermediate"),
    "all": ("inplace", "convolution", "output", "intermediate"),
}
"""MONeT's ablation (section 5): all of its experiments choose operators in place."""
ABLATION_GIB = (5, 6, 8, 10)
_ABLATION_S = 4.0
_BUDGETS_S = 5.0
TIMES_S = 60.0
_BATCH_S = 3.0
_STEPS = 20  # budgets between model and batch alone and the peak; rotor's section 5.3 has ten from nothing on


def costs_of(network: str, zoo: Path | None, kind: str = "all") -> tuple[Profile, bool]:
    """A network's costs on a P100, and whether they are the published ones."""
    if zoo is not None and network in IN_THE_ZOO:
        return explorer.load_profile(zoo / f"{network}-{kind}.json"), True
    return explorer.load_profile(f"{network}-p100-16gb"), False


def with_defaults(network: str, zoo: Path) -> Profile:
    """A published joint instance in which every convolution has PyTorch's default algorithm first.

    The joint instance has cuDNN's algorithms by number; which of them PyTorch takes by itself, with which workspace, is
    in the instance without optimizations. Checkmate's schedules are made for those.
    """
    joint, plain = (json.loads((zoo / f"{network}-{x}.json").read_text(encoding="utf-8")) for x in ("all", "none"))
    kinds = ("forward", "backward")
    pairs = zip(*([x for x in y["ops"] if x["kind"] in kinds] for y in (joint, plain)), strict=True)
    for operator, default in pairs:
        if "algorithms" in operator:
            own = default.get("alternatives", [default])[0]
            costs = {"ms": own["ms"], "workspace_bytes": max(0, own["workspace_bytes"])}
            operator["algorithms"] = [{"algorithm": _DEFAULT, **costs}, *operator["algorithms"]]
    return profile_of(joint)


def plain_of(profile: Profile) -> tuple[float, int]:
    """Milliseconds and peak of PyTorch's step, by the quickest convolutions, as its benchmark mode finds them."""
    schedule = explorer.keep_all(profile.graph)
    quickest = with_quickest_convolutions(profile, schedule, 2**60, exact=False)
    return explorer.simulate(profile, quickest).time_ms, explorer.simulate(profile, schedule).peak_bytes


def ablation(zoo: Path | None, only: Sequence[str]) -> Parts:
    """MONeT, Figures 4 and 6: each kind of optimization alone, and all."""
    for network in _chosen(NETWORKS, only):
        joint, published = costs_of(network, zoo)
        default = with_defaults(network, zoo) if published and zoo is not None else joint
        plain_ms, _ = plain_of(joint)
        rows = []
        for gib in ABLATION_GIB:
            for name, optimizations in SETS.items():
                profile = joint if "convolution" in optimizations else default
                found = explorer.solve(
                    profile, budget=gib * GIB, optimizations=optimizations, time_limit=_ABLATION_S, remember=False
                )
                milliseconds = found.time_ms
                if found.schedule is not None and "convolution" not in optimizations:
                    better = with_quickest_convolutions(profile, found.schedule, gib * GIB, exact=False)
                    milliseconds = explorer.simulate(profile, better).time_ms
                overhead = None if milliseconds is None else milliseconds / plain_ms - 1
                rows.append({"gib": gib, "set": name, "overhead": overhead, "status": found.status.value})
        yield {"part": network, "published_costs": published, "plain_ms": plain_ms, "rows": rows}


def budgets(zoo: Path | None, only: Sequence[str]) -> Parts:
    """MONeT, Figures 3 and 8 and Table 1: MONeT and Checkmate at every published budget."""
    for network in _chosen((*NETWORKS, "unet3d"), only):
        profile, published = costs_of(network, zoo)
        default, _ = costs_of(network, zoo, "none")
        joint = with_defaults(network, zoo) if published and zoo is not None else profile
        plain_ms, plain_bytes = plain_of(profile)
        if network == "unet3d":
            asked = [round(share * plain_bytes) for share in (0.45, 0.5, 0.54, 0.6, 0.7, 0.81, 0.9, 1.0)]
        else:
            asked = [round(gib * GIB) for gib in (4.5, 5, 5.5, *BUDGETS_GIB[1:], 12)]
        rows = []
        for method in ("monet", "checkmate-o", "checkmate-d"):
            costs = {"monet": profile, "checkmate-d": default, "checkmate-o": joint}[method]
            for budget in asked:
                found = explorer.solve(costs, budget=budget, method=method, time_limit=_BUDGETS_S, remember=False)
                overhead = None if found.time_ms is None else found.time_ms / plain_ms - 1
                rows.append(
                    {"method": method, "budget_bytes": budget, "overhead": overhead, "peak_bytes": found.peak_bytes}
                )
        yield {
            "part": network,
            "published_costs": published,
            "plain_ms": plain_ms,
            "plain_bytes": plain_bytes,
            "rows": rows,
        }


def solve_times(zoo: Path | None, only: Sequence[str]) -> Parts:
    """MONeT, Tables 2, 5 and 6: seconds until the schedule is proven within 5 % and 2 % of the fastest."""
    for network in _chosen(NETWORKS, only):
        rows = []
        for kind, optimizations in (("none", SETS["none"]), ("all", SETS["all"])):
            profile, published = costs_of(network, zoo, kind)
            rows += [{"kind": kind, "gib": x, **_seconds(profile, x * GIB, optimizations)} for x in BUDGETS_GIB]
        yield {"part": network, "published_costs": published, "rows": rows}


def _seconds(profile: Profile, budget_bytes: int, optimizations: tuple[str, ...]) -> dict[str, Any]:
    options = Options(time_limit=TIMES_S, gap=0.02, optimizations=parse_optimizations(optimizations))
    knowledge = Knowledge(options.problem(profile))
    knowledge.search.ready(timeout=120.0)
    began = time.monotonic()
    reached: dict[float, float] = {}

    def note(solution: explorer.Solution) -> None:
        gap = solution.gap()
        for limit in (0.05, 0.02):
            if gap is not None and gap <= limit:
                reached.setdefault(limit, time.monotonic() - began)

    last = Pursuit(knowledge, budget_bytes, options, began=began).run(on_solution=note)
    note(last)
    return {"status": last.status.value, "to_5": reached.get(0.05), "to_2": reached.get(0.02), "gap": last.gap()}


def gist(_: Path | None, only: Sequence[str]) -> Parts:
    """MONeT, Table 3: Gist's single schedule, at the paper's batches, and MONeT at the smallest memory ratio there."""
    for network in _chosen(NETWORKS, only):
        profile = _with_encodings(network)
        plain_ms, plain_bytes = plain_of(profile)
        found = explorer.solve(profile, budget=2**40, method="gist", remember=False)
        assert found.time_ms is not None, "everything fits"
        assert found.peak_bytes is not None, "everything fits"
        row = {"memory": found.peak_bytes / plain_bytes, "overhead": found.time_ms / plain_ms - 1, "plain_ms": plain_ms}
        yield {"part": network, "rows": [row]}


def _with_encodings(network: str) -> Profile:
    """At the paper's batch, on an estimated P100; encodings at the memory's speed, which is their best case.

    An operator that reads what is encoded takes as long as one that reads the dense tensor, which is written and read
    once more, and has it as workspace.
    """
    spec, device = MODELS[network], device_spec("P100-16GB")
    with torch.device("meta"):
        model, batch = spec.build().train(), spec.batch()
    standing, batch = stand_in_for(model, batch, dtype=None)
    with as_on_cuda(None) as casts:
        plain, encoded = (capture(standing, batch, loss=spec.loss, encoding=x, autocast=casts) for x in (None, "fp16"))
    known = estimate_capture(plain, spec=device, precisions=Precisions(matmul="float32", convolution="float32"))
    graph, costs = encoded.graph, dict(known.costs)
    rate = byte_rate(device, Family.ELEMENTWISE) / 1e3  # bytes a millisecond

    def size(storages: Iterable[int]) -> int:
        return sum(graph.storages[x].bytes for x in storages)

    for operator in graph.operators:
        own = operator.default()
        for x in operator.implementations:
            if x.cost in costs:
                continue
            if own.cost in known.costs:
                dense = size(set(own.reads) - set(x.reads))
                base = known.costs[own.cost]
                moved = size(set(x.reads) - set(own.reads)) + 2 * dense
                costs[x.cost] = Cost(base.time_ms + moved / rate, base.workspace_bytes + dense)
            else:
                costs[x.cost] = Cost((size(x.reads) + size(x.writes)) / rate, 0)
    return Profile(graph, costs, known.device)


def layer(zoo: Path | None, only: Sequence[str]) -> Parts:
    """MONeT, Figure 7: what is published of ResNet-50's second convolution of 3 × 3, 184 × 64 × 56 × 56."""
    if zoo is None:
        raise ValueError("the costs of one layer are in the published instances: name their folder")
    operators = json.loads((zoo / "resnet50-all.json").read_text(encoding="utf-8"))["ops"]
    ahead = [x for x in operators if x["kind"] == "forward" and "algorithms" in x][2]
    behind = {x["computes"]: x for x in operators if x["kind"] == "backward" and x["of"] == ahead["id"]}
    parts = {"forward": ahead, "weight gradient": behind["weight"], "input gradient": behind["input"]}
    for name in _chosen(parts, only):
        yield {"part": name, "rows": parts[name]["algorithms"]}


def largest_batch(_: Path | None, only: Sequence[str]) -> Parts:
    """Checkmate, Figure 6: the largest batch in 16 GiB at the cost of one more forward pass, by static FLOPs."""
    for name in _chosen(FIGURE_6, only):
        profile = by_flops(estimated(FIGURE_6[name](), image_size=SIZES_6[name], batch_size=4, device="V100-16GB"))
        rows = []
        for method in (
            "checkpoint-all",
            "ap-root",
            "ap-greedy",
            "linearized-greedy",
            "checkmate-rounding",
            "checkmate",
        ):
            began = time.monotonic()
            found = explorer.largest_batch(profile, budget=16 * GIB, method=method, time_limit=_BATCH_S)
            seconds = time.monotonic() - began
            rows.append(
                {"method": method, "batch_size": found.batch_size, "excluded": found.excluded, "seconds": seconds}
            )
            print(name, rows[-1], flush=True)
        yield {"part": name, "rows": rows}


FIGURE_6: dict[str, Callable[[], nn.Module]] = {
    "U-Net": MODELS["unet"].build,
    "FCN8": networks.Fcn8,
    "SegNet": networks.segnet,
    "ResNet50": MODELS["resnet50"].build,
    "VGG19": networks.vgg19,
    "MobileNet": networks.mobilenet_v1,
}
_WIDE, _SQUARE = (416, 608), (224, 224)
SIZES_6 = {"U-Net": _WIDE, "FCN8": _WIDE, "SegNet": _WIDE, "ResNet50": _SQUARE, "VGG19": _SQUARE, "MobileNet": _SQUARE}


def estimated(model: nn.Module, *, image_size: tuple[int, int], batch_size: int, device: str) -> Profile:
    """A classifier or a network for masks, on ``meta``, estimated."""
    model = model.to("meta").train()
    images = torch.empty(batch_size, 3, *image_size, device="meta")
    with torch.no_grad():
        shape = model(images).shape
    if len(shape) == 2:
        target, loss = torch.empty(batch_size, dtype=torch.long, device="meta"), F.cross_entropy
    elif shape[1] == 1:
        target, loss = torch.empty(shape, device="meta"), F.binary_cross_entropy_with_logits
    else:
        target, loss = torch.empty((shape[0], *shape[2:]), dtype=torch.long, device="meta"), F.cross_entropy
    return explorer.estimate(model, (images, target), loss=loss, device=device, precision="float32")


DEPTHS, DENSE = (18, 50, 101, 152), (121, 201)
CHAINS: dict[str, tuple[Any, tuple[int, ...], tuple[int, ...]]] = {
    **{f"ResNet-{x}": (partial(networks.resnet, x), (224, 500, 1000), (1, 8)) for x in DEPTHS},
    **{f"DenseNet-{x}": (partial(networks.densenet, x), (224, 500, 1000), (1, 8)) for x in DENSE},
    "Inception v3": (networks.inception_v3, (224, 500, 1000), (1, 8)),
    "ResNet-1001": (partial(networks.resnet, 1001), (224, 500, 1000), (1, 8)),
}
"""rotor, Figures 3 to 13: network, sizes of pictures, batches."""


def chains(_: Path | None, only: Sequence[str]) -> Parts:
    """rotor, Figures 3 to 13: throughput against memory of its four strategies, on an estimated V100.

    Networks are captured for pictures of 224 × 224. A larger one counts as so many of those as it has their area: all
    of the chain but its last layers grows by that.
    """
    for name in _chosen(CHAINS, only):
        build, sizes, batches = CHAINS[name]
        began = time.monotonic()
        with torch.device("meta"):
            model = build()
        whole = estimated(model, image_size=(_SIDE, _SIDE), batch_size=_CAPTURED, device="V100-16GB")
        rows = []
        for size, batch in product(sizes, batches):
            scaled = with_batch_size(whole, round(batch * (size / _SIDE) ** 2), measured=_CAPTURED)
            rows += [{"image": size, "batch": batch, **x} for x in _strategies(scaled)]
        print(name, f"{time.monotonic() - began:.0f} s", flush=True)
        yield {"part": name, "rows": rows}


_SIDE, _CAPTURED = 224, 8


def _strategies(profile: Profile) -> Iterator[dict[str, Any]]:
    plain = explorer.simulate(profile, explorer.keep_all(profile.graph))
    fixed = profile.fixed_bytes
    asked = [fixed + (plain.peak_bytes - fixed) * (n + 1) // _STEPS for n in range(_STEPS)]
    for method in ("eager", "checkpoint-sequential", "rotor-revolve", "rotor"):
        found = METHODS[method].solve(profile, asked, options=Options(method))
        points = {(x.peak_bytes, x.time_ms) for x in found if x.time_ms is not None}
        yield {"method": method, "points": sorted(points)}


BATCHES = (1, 32)
ORDERED = (ALEXNET, "vgg16", "googlenet", "resnet50", "mobilenet_v2", "vit_b16", "unet", "gpt2")


def fragmentation(_: Path | None, only: Sequence[str]) -> Parts:
    """MODeL, Figures 5 to 8: what the order saves, what PyTorch's allocator wastes, and both; update at the end."""
    for name in _chosen(ORDERED, only):
        rows = []
        for batch in BATCHES:
            profile = with_optimizer(name, batch, "sgd")
            plain = explorer.keep_all(profile.graph)
            line = explorer.simulate(profile, plain, allocator="caching")
            assert line.reservation is not None
            began = time.perf_counter()
            order = least_memory(profile)
            best = min(order.schedules, key=lambda x: explorer.simulate(profile, x).peak_bytes)
            ordered_s = time.perf_counter() - began
            placement = explorer.place(profile, best)
            seconds = time.perf_counter() - began
            rows.append(
                {
                    "batch": batch,
                    "operators": len(profile.graph.operators),
                    "peak_bytes": line.peak_bytes,
                    "reserved_bytes": line.reservation.peak_bytes,
                    "fragmentation": line.reservation.fragmentation,
                    "ordered_bytes": explorer.simulate(profile, best).peak_bytes,
                    "lower_bound_bytes": order.lower_bound_bytes,
                    "wasted_bytes": placement.buffer_bytes - placement.load_bytes,
                    "order_s": ordered_s,
                    "seconds": seconds,
                }
            )
            print(name, rows[-1], flush=True)
        yield {"part": name, "rows": rows}


def program_counts(zoo: Path | None, only: Sequence[str]) -> Parts:
    """MONeT, Table 7: the three programs, counted and built."""
    for network in _chosen(NETWORKS, only):
        yield {"part": network, "rows": list(counts_of(network, zoo))}


def _chosen(names: Any, only: Sequence[str]) -> list[str]:
    if unknown := set(only) - set(names):
        raise ValueError(f"{', '.join(sorted(unknown))}: allowed here: {', '.join(names)}")
    return [x for x in names if not only or x in only]
