"""``python -m tests.fake_cuda tests.fake_cuda.buffered``: scheduled steps in one buffer on a device, as JSON.

The product's allocator for CUDA, compiled as it is for a GPU, around what stands for PyTorch's caching one. Each
experiment lists what is not as in steps without a buffer, or not as planned.
"""

from __future__ import annotations

import ctypes
import json
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import torch

import explorer
from explorer.execution.measuring import buffer_of
from explorer.execution.other_batches import model_below
from explorer.execution.out_of_memory import OutOfMemory
from tests.fake_cuda.cuda import machine
from tests.fake_cuda.streams import Experiment, beside


class Buffered(Experiment):
    """A scheduled step in one buffer, noted and placed, and what it gives without one."""

    def __init__(self, name: str = "gpt", device: str = "cuda:0", *, noted: int = 2) -> None:
        super().__init__(name, device)
        plain = self.module
        plan = type(plain).plans[0]
        self.module = explorer.apply(
            model_below(plain),
            plan.schedule,
            self.batch,
            loss=plan.capture.loss,
            check=False,
            buffer=True,
        )
        self.buffer = buffer_of(self.module)
        for _ in range(noted):
            self.gradients()

    def wrong(self, found: list[Any], *, most_misses: int = 0) -> list[str]:
        said = super().wrong(found)
        use = self.buffer.use
        if use is None or use.misses > most_misses or use.served < 20 or use.buffer_bytes != use.load_bytes:
            said.append(f"not as planned: {use}")
        return said


def one_after_the_other(device: str = "cuda:0") -> list[str]:
    """Three steps; beside the buffer there is what outlives them alone."""
    experiment = Buffered(device=device)
    said = []
    for _ in range(3):
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        found = experiment.gradients()
        more = torch.cuda.max_memory_allocated(device) - before
        kept = sum(-(-x.nbytes // 512) * 512 for x in found)
        if more > kept + 4096:
            said.append(f"{more} bytes beside the buffer, gradients are {kept}")
        said += experiment.wrong(found)
        del found
    return said


def the_other_device() -> list[str]:
    """While the first is the current one."""
    return one_after_the_other("cuda:1")


def all_on_a_side_stream() -> list[str]:
    """Noted on the default stream, where parameters' gradients belong: autograd has the buffer's blocks used there."""
    experiment = Buffered()
    with beside():
        found = experiment.gradients()
    return experiment.wrong(found, most_misses=10) + experiment.wrong(experiment.gradients())


def what_another_stream_reads() -> list[str]:
    """A block that ``record_stream`` was called for is not another's within the step, nor in the one it ends in."""
    experiment = Buffered("residual", noted=0)
    stream, said, kept = torch.cuda.Stream(), [], None
    for step in range(6):
        loss = experiment.module(*experiment.batch)
        block = torch.zeros(5000, device=experiment.device)
        address = (block if kept is None else kept).data_ptr()  # where the kept one lies, the next is not served
        if step >= 2:
            block.record_stream(stream)
        kept = block if step == 3 else None
        del block
        again = [torch.zeros(5000, device=experiment.device) for _ in range(3)]
        if step >= 2 and address in {x.data_ptr() for x in again}:
            said.append(f"in step {step} it was another's at once")
        del again
        loss.backward()
        experiment.module.zero_grad(set_to_none=True)
    return said + machine().hazards()


def steps_that_overlap_or_end_early() -> list[str]:
    """Two forward passes before a backward pass, one without, one that fails: gradients as ever, then as planned."""
    experiment = Buffered()
    module, batch = experiment.module, experiment.batch
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first, second = module(*batch), module(*batch)
        first.backward()
        said = Experiment.wrong(experiment, [x.grad for x in module.parameters()])
        module.zero_grad(set_to_none=True)
        second.backward()
        module.zero_grad(set_to_none=True)
        module(*batch)
        machine().fail_at(20)
        try:
            module(*batch).backward()
        except OutOfMemory:
            pass
        else:
            said.append("memory did not fail")
        machine().fail_at(None)
        outside = [torch.full((100 + x,), float(x), device=experiment.device) for x in range(200)]
        module.zero_grad(set_to_none=True)
        experiment.gradients()
    found = experiment.gradients()
    if not all(bool((x.cpu() == number).all()) for number, x in enumerate(outside)):
        said.append("what was allocated outside has changed")
    return said + experiment.wrong(found)


def other_threads() -> list[str]:
    """They allocate on the same device throughout, and are not served."""
    experiment = Buffered()
    stop, said = threading.Event(), []

    def work() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            mine = [torch.full((256 + 64 * n,), float(number), device=experiment.device) for n in range(8)]
            said.extend(f"{number} changed" for x in mine if not bool((x.cpu() == number).all()))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(5):
            said += [x for x in experiment.wrong(experiment.gradients()) if "stream" not in x]
    finally:
        stop.set()
        thread.join()
    return said


def measured() -> list[str]:
    """The buffer counts throughout, the peak is no more than it and what outlives the step."""
    experiment = Buffered("residual", noted=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = explorer.measure(experiment.module, experiment.batch, steps=2)
    use = found.buffer
    assert use is not None
    kept = sum(-(-x.nbytes // 512) * 512 for x in experiment.module.parameters())
    more = int(found.allocated_bytes.max() - found.allocated_bytes[0])
    said = [] if more <= kept + 4096 and found.peak_bytes > use.buffer_bytes else [f"{more} bytes beside {use}, {kept}"]
    return said + ([] if use.misses == 0 else [f"not as planned: {use}"])


def no_memory_for_the_buffer() -> list[str]:
    """Said once; steps go on without it."""
    experiment = Buffered(noted=1)
    buffer, library = experiment.buffer, machine().library
    place = buffer._place

    def without_room(arena: Any) -> None:
        library.fake_limit(ctypes.c_int64(1))
        try:
            place(arena)
        finally:
            library.fake_limit(ctypes.c_int64(80 << 30))

    buffer._place = without_room  # type: ignore[method-assign]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        experiment.gradients()
    said = [] if any("no memory for a buffer" in str(x.message) for x in told) else ["it is not said"]
    found = experiment.gradients()
    same = all(map(torch.equal, found, experiment.expected))
    return said + ([] if same and buffer.use is None else ["not as without"])


EXPERIMENTS: tuple[Callable[[], list[str]], ...] = (
    one_after_the_other,
    the_other_device,
    all_on_a_side_stream,
    what_another_stream_reads,
    steps_that_overlap_or_end_early,
    other_threads,
    measured,
    no_memory_for_the_buffer,
)

if __name__ == "__main__":
    wanted = sys.argv[1:]
    sys.stdout.write(json.dumps({x.__name__: x() for x in EXPERIMENTS if not wanted or x.__name__ in wanted}))
