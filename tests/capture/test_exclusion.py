"""What goes on in another thread while a model is traced."""

from __future__ import annotations

import subprocess
import sys

# A process of its own: what numba has loaded once it does not load again.
_TRACE_WHILE_THE_SEARCH_LOADS = """
import threading, time
import torch
from torch import nn
from explorer.capture import capture
from explorer.solvers.search.plan_search import PlanSearch
from explorer.solvers.options import Options
from tests.solvers.graphs import chain

started, problem = threading.Event(), Options().problem(chain(12))

class Branch(nn.Linear):
    def forward(self, x):
        if not started.is_set():
            started.set()
            time.sleep(1)
        y = super().forward(x).sum()
        return y if y > 0 else -y

def trace():
    try:
        capture(Branch(3, 1), torch.ones(3))
    except ValueError as error:
        print(error)

tracing = threading.Thread(target=trace)
tracing.start()
assert started.wait(60)
assert PlanSearch(problem).ready(timeout=300)
tracing.join()
"""


def test_a_search_that_loads_while_a_model_is_traced_is_no_worse_for_it():
    done = subprocess.run(
        [sys.executable, "-c", _TRACE_WHILE_THE_SEARCH_LOADS], check=True, capture_output=True, text=True
    )
    assert "torch.where" in done.stdout
    assert "compiled anew" not in done.stderr
