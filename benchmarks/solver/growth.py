"""How solving grows with a network's depth, and what large networks take; estimated for an A100.

    python benchmarks/growth.py
    python benchmarks/growth.py --networks gpt:12 gpt:24 gpt:48 --share 0.6

A network is a name of ``NETWORKS``, with a number of blocks where it has such. Budgets are a share of the peak without
recomputation, or lie just above the smallest known where that is more. By a worker that is warm: seconds from the
request to the first schedule, and to one proven within 5 % of the fastest.
"""

from __future__ import annotations

import argparse
import queue
import time
from collections.abc import Callable
from typing import Any

import torch
import transformers
from solve_latency import moments

from explorer import SolveSession, estimate, keep_all, simulate, trade_off
from explorer.device_profile import Profile
from explorer.models import MODELS
from explorer.models.gpt import GPT, GPTConfig
from explorer.models.resnet import resnet152
from explorer.solution import BoundScope
from explorer.solvers import SolveEvent

_WIDTHS = 10, 11, 8, 10, 10, 9, 8, 9
_DEVICE = "A100-80GB"
_WARM_S = 6.0
_NEAR = "5% problem"
_ATTENTION: dict[str, Any] = {"attn_implementation": "eager"}  # attention as operators of its own
_TOKENS = (8, 1024)
_SHORT_TOKENS = (8, 512)  # BERT's longest


def main() -> None:
    """Print a line for each network; the last column is the first one's time, scaled by the number of operators."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=["gpt2:12", "gpt2:24", "gpt2:48", "bert:12", "resnet152"])
    parser.add_argument("--share", type=float, default=0.5)
    parser.add_argument("--time-limit", type=float, default=30.0)
    options = parser.parse_args()
    columns = zip(
        ("network", "operators", "budget", "smallest", "schedule", "5 %", "gap", "linear"), _WIDTHS, strict=True
    )
    print("".join(f"{name:>{width}}" for name, width in columns))
    first: tuple[int, float] | None = None
    for network in options.networks:
        operators, near_s = measure(network, share=options.share, time_limit=options.time_limit)
        first = first or (operators, near_s)
        print(f"{first[1] * operators / first[0]:7.2f} s", flush=True)


def measure(network: str, *, share: float, time_limit: float) -> tuple[int, float]:
    """Solve once by a warm worker and print the line; the number of operators, and seconds to a proven 5 %."""
    name, _, blocks = network.partition(":")
    profile = NETWORKS[name](int(blocks or 0))
    keep = simulate(profile, keep_all(profile.graph))
    smallest = trade_off(profile)[0].budget_bytes
    budget = max(round(share * keep.peak_bytes), smallest + (keep.peak_bytes - smallest) // 50)
    events: queue.Queue[tuple[float, SolveEvent]] = queue.Queue()
    with SolveSession(
        profile, on_event=lambda x: events.put((time.perf_counter(), x)), time_limit=time_limit, remember=False
    ) as session:
        moments(session.request(keep.peak_bytes), 0.0, events)
        time.sleep(_WARM_S)  # that is proven at once, before everything is loaded
        began = time.perf_counter()
        reached, _, solution = moments(session.request(budget), began, events)
    near_s = reached.get(_NEAR, float("inf"))
    gap = solution.gap(BoundScope.PROBLEM)
    shares = f"{budget / keep.peak_bytes:8.3f}{smallest / keep.peak_bytes:10.3f}"
    moment = f"{reached.get('schedule', float('inf')):8.2f} s{near_s:7.2f} s"
    print(
        f"{network:>10}{len(profile.graph.operators):11}{shares}{moment}{'-' if gap is None else f'{gap:.1%}':>8}",
        end="",
    )
    return len(profile.graph.operators), near_s


def _gpt(blocks: int) -> Profile:
    """The bundled one."""
    with torch.device("meta"):
        return estimate(GPT(GPTConfig(layers=blocks)), MODELS["gpt2"].batch(batch_size=_TOKENS[0]), device=_DEVICE)


def _gpt2(blocks: int) -> Profile:
    """Hugging Face's, of GPT-2 small's width."""
    with torch.device("meta"):
        config = transformers.GPT2Config(use_cache=False, n_layer=blocks, **_ATTENTION)
        return estimate(transformers.GPT2LMHeadModel(config).train(), _texts(_TOKENS), device=_DEVICE)


def _bert(blocks: int) -> Profile:
    """Hugging Face's, of BERT base's width."""
    with torch.device("meta"):
        config = transformers.BertConfig(num_hidden_layers=blocks, **_ATTENTION)
        return estimate(transformers.BertForMaskedLM(config).train(), _texts(_SHORT_TOKENS), device=_DEVICE)


def _texts(shape: tuple[int, int]) -> dict[str, torch.Tensor]:
    tokens = torch.zeros(shape, dtype=torch.long)
    return {"input_ids": tokens, "labels": tokens}


def _resnet152(_: int) -> Profile:
    spec = MODELS["resnet50"]
    with torch.device("meta"):
        return estimate(resnet152(), spec.batch(batch_size=64), loss=spec.loss, device=_DEVICE)


NETWORKS: dict[str, Callable[[int], Profile]] = {
    "gpt": _gpt,
    "gpt2": _gpt2,
    "bert": _bert,
    "resnet152": _resnet152,
}


if __name__ == "__main__":
    main()
