"""What the public functions refuse: every argument with values of the wrong kind, each a sentence with the remedy."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import explorer
from explorer.budgets import budgets
from explorer.solution import Solution, Status
from explorer.solvers import SolveSession

NAN, INF, HUGE = math.nan, math.inf, 10**30


class Net(nn.Module):
    """Small, and with something to recompute."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores."""
        return self.layers(x)


@dataclass(frozen=True)
class Things:
    """What the functions are for."""

    model: Net
    batch: tuple[torch.Tensor, torch.Tensor]
    profile: explorer.Profile
    schedule: explorer.Schedule
    scheduled: explorer.ScheduledModule
    solution: Solution
    measurement: explorer.Measurement


@pytest.fixture(scope="module")
def things() -> Things:
    torch.manual_seed(0)
    model, batch = Net(), (torch.randn(6, 8), torch.randint(4, (6,)))
    profile = explorer.profile(model, batch, loss=F.cross_entropy)
    schedule = explorer.keep_all(profile.graph)
    line = explorer.simulate(profile, schedule)
    scheduled = explorer.apply(model, schedule, batch, loss=F.cross_entropy)
    solution = Solution(Status.FEASIBLE, line.peak_bytes, schedule, line.time_ms, line.peak_bytes)
    return Things(model, batch, profile, schedule, scheduled, solution, explorer.measure(scheduled, batch, steps=1))


def call(function: str, things: Things, **changes: Any) -> Any:
    """A public function with arguments that are right, but for these."""
    model = {"model": things.model, "batch": things.batch, "loss": F.cross_entropy}
    of_profile = {"profile": things.profile, "schedule": things.schedule}
    right: dict[str, dict[str, Any]] = {
        "apply": {**model, "schedule": things.schedule},
        "compiled": {**model, "schedule": things.schedule},
        "compiled_schedule": model,
        "compiled_within": {**model, "budget": "1 GiB"},
        "estimate": {**model, "device": "T4"},
        "explain": {**of_profile, "tensor": things.profile.graph.storages[0].name},
        "explain_all": of_profile,
        "explain_operator": {**of_profile, "operator": things.profile.graph.operators[0].name},
        "export": {**model, "schedule": things.schedule, "path": os.devnull},
        "selective_schedule": {**model, "schedule": things.schedule},
        "explore": {"model_or_profile_or_name": things.model, "batch": things.batch, "loss": F.cross_entropy},
        "format_bytes": {"amount_bytes": 1},
        "keep_all": {"graph": things.profile.graph},
        "largest_batch": {"profile": things.profile, "budget": "1 GiB"},
        "largest_sequence": {"profile_of": lambda _: things.profile, "budget": "1 GiB"},
        "load_profile": {"path": "resnet50-small-cpu"},
        "load_schedule": {"path": "none.json"},
        "load_sweep": {"path": "none.parquet"},
        "measure": {"module": things.scheduled, "batch": things.batch},
        "measure_compiled": model,
        "measure_runs": {"module": things.scheduled, "batch": things.batch},
        "memory_price": {"curve": [things.solution], "budget_bytes": 1},
        "parse_bytes": {"value": 1},
        "place": of_profile,
        "profile": model,
        "profile_compiled": model,
        "residual": {**of_profile, "measurement": things.measurement},
        "residual_by_run": {**of_profile, "measured": ()},
        "simulate": of_profile,
        "smallest_budget": {"profile": things.profile},
        "solve": {"profile": things.profile, "budget": "1 GiB"},
        "sweep": {"models": ["resnet50"], "devices": ["T4"], "folder": "sweep"},
        "trade_off": {"profile": things.profile},
        "add_schedule": {"module": things.scheduled, "schedule": things.schedule, "batch": things.batch},
        "update_within": {"module": things.scheduled, "optimizer": torch.optim.SGD(things.model.parameters())},
        "SolveSession": {"profile": things.profile, "on_event": print},
    }
    return getattr(explorer, function)(**{**right[function], **changes})


def kinds_of_models(t: Things) -> list[Any]:
    return [None, 5, b"resnet50", Net, nn.Identity(), Net().eval(), t.batch, t.schedule, lambda x: x, t.batch[0]]


def models(t: Things) -> list[Any]:
    frozen = Net().requires_grad_(requires_grad=False)
    return [*kinds_of_models(t), "resnet50", t.profile, frozen]


def unscheduled(t: Things) -> list[Any]:
    return [*models(t), t.scheduled]


def kinds_of_compiled(t: Things) -> list[Any]:
    return [*kinds_of_models(t), "resnet50", t.profile]


def profiles(t: Things) -> list[Any]:
    return [None, 5, "resnet50-small-cpu", "", Net, t.model, t.scheduled, t.schedule, t.solution, t.profile.graph, {}]


def schedules(t: Things) -> list[Any]:
    nothing = Solution(Status.INFEASIBLE, 1, message="no schedule fits 1 B")
    return [None, 5, "schedule.json", t.solution, nothing, t.profile, t.model, (t.solution,), t.profile.graph, {}]


def kinds_of_batches(t: Things) -> list[Any]:
    x, y = t.batch
    wrong = [None, 5, "x", (), {}, iter([t.batch]), torch.utils.data.DataLoader([1]), x.numpy(), (x.numpy(), y), (1, 2)]
    return [*wrong, (x, y, y), x, {"x": x, "y": y}, t.model]


def traced_batches(t: Things) -> list[Any]:
    return [*kinds_of_batches(t), (torch.randn(6, 9), t.batch[1]), ([[1.0]], t.batch[1])]


def batches(t: Things) -> list[Any]:
    x, y = t.batch
    return [*traced_batches(t), (x.to("meta"), y), (x.double(), y)]


BUDGETS = [None, 0, -1, HUGE, 1.5, NAN, INF, True, "", "  ", "much", "-8 GiB", "0 %", "-5 %", "nan GiB", "inf B"]
BUDGETS += ["8", "8 XB", "1e400 B", "1e-400 B", "1e400 %", "8 GiB 5", b"8 GiB", [1], {}, "9" * 5000, "9" * 5000 + " B"]
SECONDS = [None, "5", 0, -1, NAN, INF, -INF, True, [1], 1j]
NUMBERS = [None, "5", -1, NAN, INF, True, [1], 1j]
COUNTS = [None, "5", 0, -1, 1.5, NAN, INF, True, [1]]
FLAGS = [None, "yes", 0, 1, [True]]
TEXTS = [None, 5, "", "nonsense", ["monet"], {}, b"monet", NAN]
SHARES = [None, "1", -0.1, 1.1, NAN, INF, True]


def foreign() -> torch.optim.Optimizer:
    return torch.optim.SGD(Net().parameters())


OPTIMIZERS = ["lion", 5, "", [], lambda _: None, Net, foreign()]
AUTOCASTS = [5, "", "int8", "half", torch.int8, [], True]
UPDATES = [None, 5, "", "now", True, []]
LOSSES = ["cross_entropy", 5, nn.CrossEntropyLoss, lambda _: None, lambda *_: None, []]
CALLBACKS = [5, "print", []]
NAMES = [None, 5, "", "no such thing", [], "x" * 5000]
PATHS = [None, 5, "", "missing.json", "no-such-thing", b"x", [], "x" * 5000, "a\0b", "."]
OPTIONS: dict[str, list[Any]] = {
    "optimizations": [None, 5, "", "magic", ["output", "magic"], [5], b"all", {"all": 1, "x": 2}],
    "exact": FLAGS,
    "pins": [5, "relu_3", [1], ["ab"], {"nothing": "keep"}, {5: "keep"}, {"nothing": 5}, [("a", "b", "c")]],
}
Wrong = list[Any] | Callable[[Things], list[Any]]
WRONG: dict[str, dict[str, Wrong]] = {
    "apply": {
        "model": unscheduled,
        "check": FLAGS,
        "buffer": FLAGS,
        "other_batches": [*UPDATES, "drop"],
        "schedule": schedules,
        "batch": batches,
        "loss": LOSSES,
        "encoding": [5, "", "fp4", []],
    },
    "export": {
        "model": unscheduled,
        "schedule": schedules,
        "batch": batches,
        "loss": LOSSES,
        "path": lambda t: [None, 5, "", b"x", [], "x" * 5000, "a\0b", ".", t.profile, "no/such/folder/x.py"],
        "form": [None, 5, "", "json", []],
        "profile": lambda t: [5, "resnet50", t.schedule, t.profile],  # it is for another form
        "check": [None, 5, "yes"],
    },
    "selective_schedule": {"model": unscheduled, "schedule": schedules, "batch": batches, "loss": LOSSES},
    "add_schedule": {
        "module": lambda t: [*models(t), t.model],
        "schedule": schedules,
        "batch": batches,
        "encoding": [5, "", "fp4", []],
        "check": FLAGS,
    },
    "compiled": {
        "model": kinds_of_compiled,
        "schedule": schedules,
        "batch": kinds_of_batches,
        "loss": LOSSES,
        "profile": lambda t: [5, "resnet50", t.schedule, t.profile],  # it is of a plain step
        "measure": FLAGS,
    },
    "compiled_within": {
        "model": kinds_of_compiled,
        "batch": kinds_of_batches,
        "budget": BUDGETS,
        "loss": LOSSES,
        "time_limit": SECONDS,
    },
    "profile_compiled": {
        "model": kinds_of_compiled,
        "batch": kinds_of_batches,
        "loss": LOSSES,
        "progress": CALLBACKS,
    },
    "compiled_schedule": {
        "model": unscheduled,
        "batch": traced_batches,
        "loss": LOSSES,
        "activation_memory_budget": SHARES,
        "autocast": AUTOCASTS,
    },
    "estimate": {
        "model": unscheduled,
        "batch": traced_batches,
        "loss": LOSSES,
        "device": [None, 5, "", "toaster", "missing.yaml", [], torch.device("cpu")],
        "precision": [5, "", "fp4", [], torch.float16],
        "optimizer": OPTIMIZERS,
        "update": [*UPDATES, "within"],
        "distributed": [5, "", "fsdp", True, []],
        "fuse": FLAGS,
        "autocast": AUTOCASTS,
        "accumulate": FLAGS,
        "progress": CALLBACKS,
    },
    "explain": {"profile": profiles, "schedule": schedules, "tensor": NAMES},
    "explain_all": {"profile": profiles, "schedule": schedules},
    "explain_operator": {"profile": profiles, "schedule": schedules, "operator": NAMES},
    "explore": {
        "model_or_profile_or_name": lambda t: [*kinds_of_models(t), t.scheduled, t.solution],
        "batch": kinds_of_batches,
        "loss": LOSSES[:3],
        "profile": lambda t: [5, "resnet50", t.schedule, t.solution, t.model],
        "budget": BUDGETS[1:],
        "device": [5, "toaster", "cuda", []],
        "autocast": AUTOCASTS,
        "fuse": FLAGS,
        "optimizer": OPTIMIZERS,
        "update": [*UPDATES, "within"],
        "accumulate": FLAGS,
        "distributed": [5, "", "fsdp", True, []],
        "order": FLAGS,
        "time_limit": SECONDS,
        "panels": [5, "timeline", ["nonsense"], [5]],
        **OPTIONS,
        "pins": [x for x in OPTIONS["pins"] if x != {"nothing": "keep"}],  # which tensors there are is not known yet
    },
    "format_bytes": {"amount_bytes": [None, "5", [], 1j]},
    "keep_all": {"graph": lambda t: [t.profile, *(x for x in profiles(t) if x is not t.profile.graph)]},
    "largest_batch": {
        "profile": profiles,
        "budget": BUDGETS,
        "method": TEXTS,
        "time_limit": SECONDS,
        "optimizations": OPTIONS["optimizations"],
        "exact": FLAGS,
    },
    "largest_sequence": {
        "profile_of": lambda t: [None, 5, "128", t.profile, lambda _: None, lambda _: t.schedule],
        "budget": BUDGETS,
        "multiple": [0, -1, 1.5, "128", None, []],
        "most": [0, 127, 1.5, "128", None, []],
        "time_limit": SECONDS,
        "optimizations": OPTIONS["optimizations"],
        "exact": FLAGS,
    },
    "load_profile": {"path": lambda t: [*PATHS, t.profile]},
    "load_schedule": {"path": lambda t: [*PATHS, t.schedule, t.solution, "resnet50", "resnet50@0.7", "nothing@0.5"]},
    "load_sweep": {"path": lambda t: [*PATHS, t.profile]},
    "measure": {
        "module": models,
        "optimizer": OPTIMIZERS,
        "accumulate": FLAGS,
        "autocast": AUTOCASTS,
        "batch": lambda t: [*batches(t), tuple(reversed(t.batch))],
        "steps": COUNTS,
        "progress": CALLBACKS,
    },
    "measure_compiled": {
        "model": lambda t: [*kinds_of_models(t), t.scheduled],
        "batch": kinds_of_batches,
        "loss": LOSSES[:3],
        "activation_memory_budget": SHARES,
        "autocast": AUTOCASTS,
        "steps": COUNTS,
        "backend": [None, 5, "magic", []],
    },
    "measure_runs": {"module": lambda t: [*models(t), t.model], "batch": batches, "optimizer": OPTIMIZERS},
    "memory_price": {
        "curve": lambda t: [None, 5, "x", [], [None], [5], t.solution, t.profile, [t.schedule]],
        "budget_bytes": [*BUDGETS, "80 %"],
    },
    "parse_bytes": {"value": [*BUDGETS, "80 %"]},
    "place": {"profile": profiles, "schedule": schedules, "buffer": [*BUDGETS[1:], "80 %"], "time_limit": SECONDS},
    "profile": {
        "model": unscheduled,
        "batch": batches,
        "loss": LOSSES,
        "device": [5, "", "toaster", "cuda", "meta", [], 1.5],
        "optimizer": OPTIMIZERS,
        "update": [*UPDATES, "within"],
        "distributed": [5, "", "fsdp", True, []],
        "fuse": FLAGS,
        "autocast": AUTOCASTS,
        "accumulate": FLAGS,
        "encoding": [5, "", "fp4", []],
        "progress": CALLBACKS,
    },
    "residual": {
        "profile": profiles,
        "schedule": schedules,
        "measurement": lambda t: [None, 5, t.profile, (), "x"],
        "plain_step_time_ms": [0, -1.0, "", "soon", True, float("nan"), float("inf"), []],
    },
    "residual_by_run": {
        "profile": profiles,
        "schedule": schedules,
        "measured": lambda t: [None, 5, (), [5], t.measurement],
    },
    "simulate": {
        "profile": profiles,
        "schedule": schedules,
        "first_microbatch": [*FLAGS, True],
        "allocator": TEXTS[1:],
    },
    "smallest_budget": {"profile": profiles, "time_limit": SECONDS, "remember": FLAGS, **OPTIONS},
    "solve": {
        "profile": profiles,
        "budget": BUDGETS,
        "method": TEXTS,
        "formulation": TEXTS,
        "time_limit": SECONDS,
        "gap": NUMBERS,
        "remember": FLAGS,
        "order": FLAGS,
        "of": TEXTS,
        "allocator": TEXTS,
        "seed": [None, "5", -1, HUGE, 1.5, NAN, True],
        "steps": COUNTS[1:],
        "update": [*UPDATES[1:], "end", "best"],  # without an optimizer
        **OPTIONS,
    },
    "sweep": {
        "models": lambda t: [None, 5, "resnet50", [], [5], ["nonsense"], [None], [""], [t.model]],
        "devices": [None, 5, "T4", [], [5], ["nonsense"], [None]],
        "batches": [None, 5, [], ["16"], [0], [1.5], [True]],
        "budgets": [None, 5, "1 GiB", [], *([x] for x in BUDGETS)],
        "methods": [None, 5, "monet", [], ["magic"], [5], [None]],
        "precision": [5, "", "float8", []],
        "optimizer": [5, "", "lion", Net, foreign()],
        "time_limit": SECONDS,
        "folder": [None, 5, "", b"x", [], "x" * 5000, "a\0b", f"{__file__}/sweep"],
        "workers": COUNTS[1:],
        "scheduler": [5, "", [], True],
        "progress": CALLBACKS,
    },
    "update_within": {
        "module": lambda t: [None, 5, Net, t.batch, t.schedule, nn.Identity()],
        "optimizer": [*OPTIMIZERS, "sgd"],
    },
    "trade_off": {
        "profile": profiles,
        "points": [*COUNTS, 1, HUGE],
        "methods": [5, "monet", [], ["magic"], [5], [None]],
        "budgets": [5, "1 GiB", [], ["much"]],
        "time_limit": SECONDS,
        "executor": [5, "pool"],
        "on_progress": CALLBACKS,
        "should_stop": CALLBACKS,
        "order": FLAGS,
        **OPTIONS,
    },
    "SolveSession": {
        "profile": profiles,
        "on_event": [None, *CALLBACKS],
        "formulation": TEXTS,
        "time_limit": SECONDS,
        "gap": NUMBERS,
        "remember": FLAGS,
        **OPTIONS,
    },
}
CASES = [(function, argument) for function, arguments in WRONG.items() for argument in arguments]


@pytest.fixture(autouse=True)
def nothing_begins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is refused is refused before a search begins, or a process starts."""

    def begun(*_: object, **__: object) -> None:
        raise AssertionError("the work began")

    monkeypatch.setattr("explorer.solvers.solving.Knowledge", begun)
    monkeypatch.setattr("explorer.solvers.service.session.WorkerProcess", begun)
    monkeypatch.setattr("widgets.entry_point.Explorer", begun)
    return


@pytest.mark.parametrize(("function", "argument"), CASES, ids=[f"{x}-{y}" for x, y in CASES])
def test_wrong_kinds_are_refused_in_one_sentence(function: str, argument: str, things: Things) -> None:
    wrong = WRONG[function][argument]
    for value in wrong(things) if callable(wrong) else wrong:
        more = {"methods": ["rotor"]} if argument == "budgets" else {}
        with pytest.raises(Exception) as raised:  # noqa: PT011 - its type is looked at next
            call(function, things, **{argument: value, **more})
        case = f"{function}({argument}={value!r:.60}): {raised.value!r:.300}"
        assert isinstance(raised.value, ValueError), case
        said = str(raised.value)
        assert 10 < len(said) < 600, case
        assert "\n" not in said, case


def test_every_public_function_and_argument_is_tried() -> None:
    """``Explorer`` is made by ``explore``; data classes check their entries when they are read from a file."""
    public = {x for x in explorer.__all__ if inspect.isfunction(getattr(explorer, x))} | {SolveSession.__name__}
    assert public == WRONG.keys()
    # A scheduled module has its own loss; the peak that per cent are of is for this package's own use.
    ignored = {("measure", "loss"), ("parse_bytes", "whole")}
    for function in public:
        arguments = inspect.signature(getattr(explorer, function)).parameters
        untried = [x for x in arguments if x not in WRONG[function] and (function, x) not in ignored]
        assert not untried, function


@pytest.mark.parametrize(
    ("function", "changes", "told"),
    [
        ("apply", lambda t: {"schedule": t.solution}, "give its schedule, solution.schedule"),
        ("apply", lambda _: {"schedule": Solution(Status.INFEASIBLE, 1, message="too small")}, "infeasible: too small"),
        ("apply", lambda t: {"model": t.scheduled}, "give the Net that it was made of"),
        ("profile", lambda t: {"model": t.scheduled}, "give the Net that it was made of"),
        ("profile", lambda _: {"model": Net}, "make one first: Net"),
        ("profile", lambda _: {"optimizer": 5}, "optimizer is 5; give the name of one: 'sgd'"),
        ("profile", lambda _: {"update": "within"}, "needs an optimizer: optimizer="),
        ("profile", lambda _: {"optimizer": foreign()}, "no parameter of Net: give the optimizer of this model"),
        ("update_within", lambda _: {"optimizer": "adamw"}, "give the torch.optim.Optimizer that trains the model"),
        ("profile", lambda t: {"batch": (t.batch[0].numpy(), t.batch[1])}, r"torch.as_tensor\(batch\[0\]\)"),
        ("profile", lambda t: {"batch": (t.batch[0].to("meta"), t.batch[1])}, r"move it with .to\('cpu'\)"),
        ("profile", lambda _: {"batch": torch.utils.data.DataLoader([1])}, r"next\(iter\(loader\)\)"),
        ("profile", lambda _: {"loss": nn.CrossEntropyLoss}, r"make one of it: CrossEntropyLoss\(\)"),
        ("profile", lambda _: {"loss": None}, r"If the batch is \(inputs, target\), name the loss"),
        (
            "profile",
            lambda t: {"batch": (torch.randn(6, 9), t.batch[1])},
            "cannot be trained on this batch at test_err",
        ),
        ("solve", lambda t: {"profile": t.model}, "explorer.profile"),
        ("solve", lambda _: {"profile": "resnet50"}, r"explorer.load_profile\('resnet50'\)"),
        ("solve", lambda _: {"time_limit": "5"}, "'5'; it must be a positive number of seconds"),
        ("solve", lambda _: {"budget": HUGE}, "too large; allowed: up to 2.60 bytes"),
        ("simulate", lambda t: {"profile": t.schedule, "schedule": t.profile}, "the profile comes first"),
        ("keep_all", lambda t: {"graph": t.profile}, "profile.graph"),
        ("measure", lambda t: {"module": t.batch, "batch": t.scheduled}, "the module comes first"),
        ("explore", lambda _: {"batch": None}, r"explore\(model, batch\)"),
        ("explore", lambda t: {"model_or_profile_or_name": t.profile}, "a profile already has its batch"),
    ],
)
def test_the_remedy_is_named(function: str, changes: Callable[[Things], Any], told: str, things: Things) -> None:
    with pytest.raises(ValueError, match=told):
        call(function, things, **changes(things))


def test_files_of_the_other_kind_name_their_loader(things: Things, tmp_path: Any) -> None:
    things.profile.save(tmp_path / "profile.json")
    things.schedule.save(tmp_path / "schedule.json")
    with pytest.raises(ValueError, match=r"holds 'Schedule', not a Profile; explorer.load_schedule reads it"):
        explorer.load_profile(tmp_path / "schedule.json")
    with pytest.raises(ValueError, match=r"holds 'Profile', not a Schedule; explorer.load_profile reads it"):
        explorer.load_schedule(tmp_path / "profile.json")


def test_errors_of_a_callback_stay_as_they_are(things: Things) -> None:
    def stop(*_: object) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match=r"^enough$"):
        explorer.profile(things.model, things.batch, loss=F.cross_entropy, progress=stop)
    with pytest.raises(RuntimeError, match=r"^enough$"):
        explorer.measure(things.model, things.batch, loss=F.cross_entropy, progress=stop)


def test_gradients_are_on_in_what_is_measured(things: Things) -> None:
    """Under ``no_grad`` a step without its backward pass was measured, and every time scaled to that."""
    with torch.no_grad():
        measured = explorer.measure(things.model, things.batch, loss=F.cross_entropy, steps=1)
    assert measured.peak_bytes == things.measurement.peak_bytes
    assert measured.allocated_bytes.size == things.measurement.allocated_bytes.size


@pytest.mark.parametrize("budget", [2**60, np.int64(2**40), "100 %", "1e3 %", " 8e0 gib "])
def test_unusual_budgets_that_are_fine(budget: int | str, things: Things, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert explorer.solve(things.profile, budget=budget, method="rotor").schedule is not None


def test_the_largest_budget_is_solved_as_any_other(things: Things, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    found = explorer.solve(things.profile, budget=2**60, steps=1)
    assert found.status is Status.OPTIMAL
    assert found.time_ms is not None
    assert things.solution.time_ms is not None
    assert found.time_ms <= things.solution.time_ms


def test_per_cent_are_of_what_a_step_takes_that_keeps_everything(
    things: Things, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    plain = explorer.simulate(things.profile, things.schedule).peak_bytes
    assert explorer.solve(things.profile, budget="90 %", method="rotor").budget_bytes == int(plain * 0.9)
    assert budgets(["100 %", plain, "12.5 %"], things.profile) == [plain, plain, plain // 8]
