"""Several processes: ``DistributedDataParallel`` around a scheduled module, as around any other."""

from __future__ import annotations

import copy
import os
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import multiprocessing, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import explorer
from explorer.execution.chain import Step
from explorer.execution.memory import watch_cpu_memory
from explorer.execution.steps import persistent_bytes

PROCESSES = 2

Results = dict[str, list[Any]]
"""What each of the functions below returned, by its name, in each process."""


def perceptron() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(x for _ in range(6) for x in (nn.Linear(64, 64), nn.ReLU())), nn.Linear(64, 3)).train()


def batch(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(8, 64, generator=generator), torch.randint(3, (8,), generator=generator)


def scheduled(model: nn.Module, **planned: Any) -> tuple[explorer.ScheduledModule, explorer.Profile]:
    profile = explorer.profile(model, batch(0), loss=functional.cross_entropy, **planned)
    least = explorer.smallest_budget(profile, time_limit=1.0).minimum
    assert least is not None
    solution = explorer.solve(profile, budget=least.budget_bytes, steps=2, exact=True)
    assert solution.schedule is not None
    return explorer.apply(model, solution.schedule, batch(0), loss=functional.cross_entropy), profile


@contextmanager
def noted(order: list[str]) -> Iterator[None]:
    """While open, nodes of backward passes are noted."""
    gradients = Step.gradients

    def noting(self: Step) -> Any:
        order.append("node")
        return gradients(self)

    Step.gradients = noting  # type: ignore[method-assign]
    try:
        yield
    finally:
        Step.gradients = gradients  # type: ignore[method-assign]


def train(rank: int) -> dict[str, Any]:
    """Five iterations, the last of two microbatches, of both."""
    model = perceptron()
    eager = DistributedDataParallel(copy.deepcopy(model), bucket_cap_mb=0.04)  # type: ignore[arg-type]
    module, _ = scheduled(model, distributed="ddp")
    mine = DistributedDataParallel(module, bucket_cap_mb=0.04)  # type: ignore[arg-type]
    order: list[str] = []

    def hook(state, bucket):  # without annotations, which PyTorch would take as text
        order.append("bucket")
        return allreduce_hook(state, bucket)

    mine.register_comm_hook(None, hook)
    optimizers = [torch.optim.SGD(x.parameters(), lr=0.1, momentum=0.9) for x in (eager, mine)]
    with noted(order), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="this step begins with gradients in memory")
        for number in range(5):
            x, y = batch(10 * number + rank)
            if number == 4:
                with eager.no_sync():
                    functional.cross_entropy(eager(x), y).backward()
                with mine.no_sync():
                    mine(x, y).backward()
            order.clear()
            functional.cross_entropy(eager(x), y).backward()
            mine(x, y).backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
    pairs = zip(eager.module.parameters(), mine.module.parameters(), strict=True)
    return {"equal": all(torch.equal(a, b) for a, b in pairs), "order": order}


def test_training_is_eager_ddps_and_buckets_leave_in_time(results: Results) -> None:
    for found in results["train"]:
        assert found["equal"]
        order = found["order"]
        assert order.count("bucket") > 2
        # What is left for after the last node is the last bucket alone.
        assert order[::-1].index("node") == 1


def memory(rank: int) -> list[tuple[int, int]]:
    """Predicted and measured peaks, for both kinds of buckets."""
    found = []
    for distributed in ("ddp", "ddp-views"):
        module, profile = scheduled(perceptron(), distributed=distributed)
        predicted = explorer.simulate(profile, module.schedule).peak_bytes
        around = DistributedDataParallel(module, gradient_as_bucket_view=distributed == "ddp-views")
        given = batch(rank)

        def step(around: nn.Module = around, given: Any = given) -> None:
            around(*given).backward()
            for parameter in around.parameters():
                parameter.grad = None

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for _ in range(3):  # DDP builds its buckets anew after the first
                step()
        buckets_bytes = sum(x.nbytes for x in around.parameters())
        before = persistent_bytes(module, given) + buckets_bytes
        found.append((predicted, before + watch_cpu_memory(step).peak_bytes()))
    return found


def test_buckets_are_in_the_prediction(results: Results) -> None:
    for found in results["memory"]:
        assert [measured for _, measured in found] == [predicted for predicted, _ in found]


def surprise(_: int) -> str:
    module, _ = scheduled(perceptron())
    around = DistributedDataParallel(module)
    with pytest.warns(UserWarning, match=r"buckets here, of 98.26 KiB.*profile\(…, distributed='ddp'\)") as told:
        around(*batch(0)).backward()
    around(*batch(0)).backward()
    return str(told[0].message)


def test_buckets_that_were_not_planned_for_are_told(results: Results) -> None:
    assert all("above what was predicted" in x for x in results["surprise"])


def within(_: int) -> str:
    model = perceptron()
    module, _ = scheduled(model, optimizer="sgd", update="within")
    explorer.update_within(module, torch.optim.SGD(model.parameters(), lr=0.1))
    around = DistributedDataParallel(module)
    with pytest.raises(ValueError, match="before DistributedDataParallel has averaged the gradients"):
        around(*batch(0))
    return "refused"


def test_updates_within_are_refused(results: Results) -> None:
    assert results["within"] == ["refused"] * PROCESSES


def sharded(_: int) -> list[str]:
    """FSDP2 before and after."""
    told = []
    model = perceptron()
    module, _ = scheduled(model)
    module(*batch(0)).backward()
    module.zero_grad()
    mesh = init_device_mesh("cpu", (PROCESSES,))
    fully_shard(model, mesh=mesh)
    for attempt in (
        lambda: module(*batch(0)),
        lambda: explorer.profile(model, batch(0), loss=functional.cross_entropy),
    ):
        with pytest.raises(ValueError, match=r"sharded, by FSDP2 .*DistributedDataParallel instead") as error:
            attempt()
        told.append(str(error.value))
    return told


def test_sharded_parameters_are_refused(results: Results) -> None:
    assert all(len(x) == 2 for x in results["sharded"])


def _begin(rank: int, port: int, folder: Path) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=PROCESSES)
    torch.save({x.__name__: x(rank) for x in (train, memory, surprise, within, sharded)}, folder / f"{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """All that is tested here, in the same processes: most of the time goes into their start."""
    folder = tmp_path_factory.mktemp("results")
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    multiprocessing.spawn(_begin, args=(port, folder), nprocs=PROCESSES)
    ranks = [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(PROCESSES)]
    return {name: [x[name] for x in ranks] for name in ranks[0]}
