"""What all tests share: threads, garbage, random examples, which tests need a GPU, and which are for a thorough run."""

from __future__ import annotations

import gc
import os

# Before torch is imported anywhere. Passive: waiting threads leave the cores to other processes. One thread: tensors
# are small, two files of tests run at a time, and threads that share a step wait for the one that has no core.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Every test solves for itself; those of the memory name a folder.
os.environ["SCHEDULE_EXPLORER_CACHE"] = "off"

import pytest

try:
    from hypothesis import settings
except ModuleNotFoundError:
    # The tests for a GPU do without, so that they run where there is torch and little else.
    settings = None
if settings is not None:
    # A slow machine is no failure, and the same code gives the same verdict twice.
    settings.register_profile("explorer", deadline=None, derandomize=True)
    settings.load_profile("explorer")

# So that its assertions show their values, as those of test modules do.
pytest.register_assert_rewrite("tests.solvers.checks")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The flags that let more tests run."""
    parser.addoption("--gpu", action="store_true", help="run the tests that need a CUDA device too")
    parser.addoption("--thorough", action="store_true", help="run further examples of what other tests show too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip the GPU tests, and leave out the thorough ones, unless they were asked for or named."""
    if not config.getoption("--gpu"):
        for item in items:
            if item.get_closest_marker("gpu") is not None:
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device; run with --gpu"))
    if config.getoption("--thorough") or any("::" in x for x in config.args):
        return
    left_out = {x for x in items if _thorough(x)}
    left_out |= _beyond_samples([x for x in items if x not in left_out])
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [x for x in items if x not in left_out]


def _thorough(item: pytest.Item) -> bool:
    """``@pytest.mark.thorough`` is for all examples of a test, ``@pytest.mark.thorough("bert", …)`` for those named."""
    marker = item.get_closest_marker("thorough")
    if marker is None or not marker.args:
        return marker is not None
    parts = f"-{item.callspec.id}-" if isinstance(item, pytest.Function) else ""
    return any(f"-{x}-" in parts for x in marker.args)


def _beyond_samples(items: list[pytest.Item]) -> set[pytest.Item]:
    """``@pytest.mark.sampled(8)``: where a test has more examples, eight of them are enough, spread over all."""
    examples: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sampled") is not None:
            examples.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left_out: set[pytest.Item] = set()
    for same in examples.values():
        marker = same[0].get_closest_marker("sampled")
        assert marker is not None
        kept = min(marker.args[0], len(same))
        left_out |= set(same) - {same[x * len(same) // kept] for x in range(kept)}
    return left_out


@pytest.fixture(scope="module", autouse=True)
def _settled() -> None:
    """Let the collector pass over what stays: it is asked before each measurement, and torch has a million objects."""
    gc.collect()
    gc.freeze()
