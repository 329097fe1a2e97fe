"""A random program: every line is run as it is drawn, so that what comes out can be run."""

from __future__ import annotations

import random
import warnings
from collections.abc import Sequence
from typing import Any

import torch

from tests.fuzz.comparing import train
from tests.fuzz.grammar import FAMILIES, Family, Fits
from tests.fuzz.program import Input, Instruction, Program, State, default_dtype

_SHAPES = (
    (2, 4),
    (4, 6),
    (3, 8),
    (2, 3, 4),
    (2, 4, 8),
    (2, 2, 6),
    (2, 2, 4, 4),
    (2, 8, 4, 4),
    (1, 4, 4, 4),
    (4,),
    (4, 1),
)
_ATTEMPTS = 6


def draw(rng: random.Random, *, seed: int = 0, longest: int = 14) -> Program:
    """A random program that eager mode trains.

    Args:
        rng: all choices come from it.
        seed: noted in the program.
        longest: the most instructions.
    """
    # PyTorch warns of some things once for each process: what is drawn must not depend on that.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while True:
            program = _drawn(rng, seed=seed, longest=longest)
            if trains(program):
                return program


def trains(program: Program) -> bool:
    """Does eager mode run the program, and does it have anything to learn?"""
    with default_dtype(program.dtype), torch.random.fork_rng():
        loaded = program.load()
        try:
            seen = train(loaded.build(), loaded)
        except Exception:  # noqa: BLE001  (PyTorch raises all kinds)
            return False
    return any(x.value is not None for x in seen if x.name.startswith("step 0: gradient of"))


def _drawn(rng: random.Random, *, seed: int, longest: int) -> Program:
    dtype = rng.choice(("float32", "float32", "float64"))
    with default_dtype(dtype), torch.random.fork_rng():
        inputs = _inputs(rng)
        state = State(inputs)
        families = _some_families(rng)
        if rng.random() < 0.7:
            _train_first(rng, state)
        for number in range(rng.randint(2, longest)):
            for _ in range(_ATTEMPTS):
                instruction = _instruction(rng, state, families, number)
                if instruction is not None and state.add(instruction):
                    break
        _train_something(rng, state)
        return _finished(rng, state, seed=seed, dtype=dtype)


def _some_families(rng: random.Random) -> list[Family]:
    """Not all at once: programs of few families go deeper into how those work together."""
    if rng.random() < 0.4:
        return list(FAMILIES)
    return rng.sample(FAMILIES, rng.randint(4, 10))


def _inputs(rng: random.Random) -> tuple[Input, ...]:
    found = []
    for number in range(rng.choice((1, 1, 1, 2, 2, 3))):
        shape = rng.choice(_SHAPES)
        needs = ", requires_grad=True" if rng.random() < 0.15 else ""
        found.append(Input(f"x{number}", f"torch.randn({_tuple(shape)}{needs})"))
    size = rng.choice(((2,), (4,), (2, 3), (2, 4)))
    found.append(Input(f"x{len(found)}", f"torch.randint(0, 8, {_tuple(size)})"))
    if rng.random() < 0.15:
        twin = rng.choice(found)
        found.append(Input(f"x{len(found)}", twin.code, like=twin.name))
    return tuple(found)


def _tuple(sizes: Sequence[int]) -> str:
    return repr(tuple(sizes))


class _Places(dict[str, Any]):
    """Fills the places of a rule, each with the first draw that is asked of it."""

    def __init__(self, rng: random.Random, state: State, fits: Fits, number: int) -> None:
        super().__init__()
        self.rng = rng
        self.tensors = state.tensors()
        self.module = state.module
        self.fits = fits
        self.number = number

    def __missing__(self, key: str) -> Any:
        self[key] = getattr(self, f"draw_{key}")()
        return self[key]

    def pick(self, names: list[str]) -> str:
        """One of the names, most often a late one."""
        if not names:
            raise LookupError
        return self.rng.choice(names[-3:] if self.rng.random() < 0.6 else names)

    def floating(self) -> dict[str, torch.Tensor]:
        return {key: x for key, x in self.tensors.items() if x.is_floating_point()}

    @property
    def tensor(self) -> torch.Tensor:
        return self.tensors[self["x"]]

    def draw_x(self) -> str:
        return self.pick([key for key, x in self.floating().items() if self.fits(x)])

    def draw_s(self) -> str:
        wanted = self.tensor
        return self.pick([key for key, x in self.floating().items() if x.shape == wanted.shape])

    def draw_y(self) -> str:
        return self.pick(list(self.floating()))

    def draw_i(self) -> str:
        return self.pick([key for key, x in self.tensors.items() if x.dtype == torch.int64])

    def draw_d(self) -> int:
        return self.rng.randrange(max(self.tensor.ndim, 1))

    draw_e = draw_d

    def draw_k(self) -> int:
        return self.rng.randint(1, self.tensor.shape[self["d"]])

    def draw_j(self) -> int:
        return self.rng.choice((0, 1, 1, 2))

    def draw_L(self) -> int:  # noqa: N802
        return self.tensor.shape[-1]

    def draw_C(self) -> int:  # noqa: N802
        return self.tensor.shape[1]

    def draw_S(self) -> str:  # noqa: N802
        return _tuple(self.tensor.shape)

    def draw_P(self) -> str:  # noqa: N802
        return _tuple(self.rng.sample(range(self.tensor.ndim), self.tensor.ndim))

    def draw_o(self) -> int:
        return self.rng.choice((2, 4, 4, 8))

    def draw_f(self) -> float:
        return self.rng.choice((0.5, 2.0, -1.0, 0.1, 1.5))

    def draw_p(self) -> float:
        return self.rng.choice((0.0, 0.3, 0.5))

    def draw_n(self) -> int:
        return self.number

    def draw_m(self) -> int:
        return self.rng.randint(max(self.number - 4, 0), self.number)

    def draw_r(self) -> str:
        return f"v{self.number}"


def _instruction(rng: random.Random, state: State, families: list[Family], number: int) -> Instruction | None:
    family = rng.choices(families, [x.weight for x in families])[0]
    rule = rng.choice(family.rules)
    places = _Places(rng, state, rule.fits, number)
    try:
        code = rule.code.format_map(places)
        return Instruction(code, tuple(line.format_map(places) for line in rule.setup))
    except (LookupError, AttributeError):
        return None


def _train_first(rng: random.Random, state: State) -> None:
    """A first line with a parameter in it, so that most others have a gradient."""
    name = rng.choice([key for key, x in state.tensors().items() if x.is_floating_point()])
    shape = tuple(state.values[name].shape)
    code, setup = rng.choice(
        (
            (f"v50 = {name} * self.first_weight", f"self.first_weight = nn.Parameter(torch.rand({shape[-1:]}))"),
            (f"v50 = {name} + self.first_weight", f"self.first_weight = nn.Parameter(torch.rand({shape}))"),
            (f"v50 = self.first({name})", f"self.first = nn.Linear({shape[-1]}, {rng.choice((shape[-1], 4, 8))})"),
        )
    )
    state.add(Instruction(code, (setup,)))


def _train_something(rng: random.Random, state: State) -> None:
    """A last line with a parameter in it, so that there is something to train."""
    ends = [key for key, x in state.tensors().items() if x.is_floating_point()]
    first = rng.choice(ends[-3:])
    for name in (first, *ends):
        shape = tuple(state.values[name].shape)
        weight = f"self.last_weight = nn.Parameter(torch.full({_tuple(shape[-1:])}, 0.5))"
        if state.add(Instruction(f"v99 = {name} * self.last_weight", (weight,))):
            return


def _finished(rng: random.Random, state: State, *, seed: int, dtype: str) -> Program:
    instructions = list(state.instructions)
    tensors = state.tensors()
    makes = [name for x in instructions for name in x.makes if name in tensors]
    losses = [name for name in makes if tensors[name].requires_grad]
    main = rng.choice(losses[-2:])
    loss, target = None, None
    result = main
    kind = rng.random()
    if kind < 0.25:
        loss, target = _loss(rng, tensors[main])
    elif kind < 0.55:
        instructions.append(Instruction(f"v100 = {main}.square().mean()"))
        result = rng.choice(("v100", "v100", f"(v100, {main})", f"{{'loss': v100, 'logits': {main}}}"))
    if loss is None and rng.random() < 0.5:
        result = _structure(rng, result, [*makes, *tensors], state)
    inputs = state.inputs if target is None else (*state.inputs, target)
    signature, unpack, batch = _batch(rng, [x.name for x in state.inputs])
    if target is not None:
        batch = f"({batch}, {target.name})"
    return Program(
        seed=seed,
        dtype=dtype,
        inputs=inputs,
        signature=signature,
        unpack=unpack,
        instructions=tuple(instructions),
        result=result,
        batch=batch,
        loss=loss,
        finish=_finish(rng, state),
        trained=rng.choice(("all",) * 7 + ("first", "first", "last", "last", "everything")),
    )


def _loss(rng: random.Random, result: torch.Tensor) -> tuple[str, Input]:
    shape = tuple(result.shape)
    if result.ndim == 2 and shape[1] > 1 and rng.random() < 0.6:
        target = Input("x90", f"torch.randint(0, {shape[1]}, ({shape[0]},))")
        code = rng.choice(
            (
                "F.cross_entropy",
                "nn.CrossEntropyLoss()",
                "lambda result, target: F.cross_entropy(result, target, label_smoothing=0.1)",
                f"nn.CrossEntropyLoss(weight=torch.linspace(0.5, 1, {shape[1]}))",
                f"lambda r, t: F.nll_loss(F.log_softmax(r, 1), t, weight=torch.linspace(0.5, 1, {shape[1]}))",
            )
        )
        return code, target
    target = Input("x90", f"torch.randn({_tuple(shape)})")
    code = rng.choice(("F.mse_loss", "nn.MSELoss()", "lambda r, t: (r - t).abs().sum()", "F.smooth_l1_loss"))
    return code, target


def _structure(rng: random.Random, result: str, names: list[str], state: State) -> str:
    """More results beside the first: views of it, what is not needed, inputs, parameters, what is no tensor."""
    others = [rng.choice(names) for _ in range(rng.randint(1, 2))]
    first = result
    more = [
        *others,
        rng.choice((first, f"{others[0]}[:1]", f"{others[0]}.detach()", "None", "3", f"{others[0]}.sum()")),
        rng.choice((f"{others[0]}.reshape(-1)", f"{others[0]}.clone()", "self.last_weight", "1.5")),
    ]
    chosen = [first, *rng.sample(more, rng.randint(1, 2))]
    del state
    form = rng.choice(("tuple", "list", "dict", "nested"))
    if form == "dict":
        return "{" + ", ".join(f"'r{i}': {x}" for i, x in enumerate(chosen)) + "}"
    if form == "nested":
        return f"({chosen[0]}, {{'more': [{', '.join(chosen[1:])}]}})"
    return f"[{', '.join(chosen)}]" if form == "list" else f"({', '.join(chosen)})"


def _batch(rng: random.Random, names: list[str]) -> tuple[str, tuple[str, ...], str]:
    """Parameters of ``forward``, its first lines, and the batch."""
    listed = ", ".join(names)
    kind = rng.choice(("tuple", "tuple", "list", "dict", "shuffled", "nested", "plain"))
    if kind == "dict":
        return listed, (), "{" + ", ".join(f"'{x}': {x}" for x in names) + "}"
    if kind == "shuffled":
        order = rng.sample(names, len(names))
        return listed, (), "{" + ", ".join(f"'{x}': {x}" for x in order) + "}"
    if kind == "nested":
        unpack = (f"{names[0]} = data['first']", *(f"{x} = data['rest'][{i}]" for i, x in enumerate(names[1:])))
        return "data", unpack, f"({{'first': {names[0]}, 'rest': [{', '.join(names[1:])}], 'none': None}},)"
    if kind == "plain":
        unpack = (f"{names[0]} = {names[0]} * factor if flag is None else {names[0]}",)
        return f"{listed}, factor=1.0, flag=None", unpack, f"({listed}, 2.0, None)"
    return listed, (), f"[{listed}]" if kind == "list" else f"({listed},)"


def _finish(rng: random.Random, state: State) -> tuple[str, ...]:
    """Parameters that are frozen, layers in evaluation mode, layers and parameters with a second name."""
    lines = []
    parameters = [name for name, _ in state.module.named_parameters() if name != "last_weight"]
    layers = [name for name, _ in state.module.named_children()]
    if parameters and rng.random() < 0.2:
        lines.append(f"self.get_parameter('{rng.choice(parameters)}').requires_grad_(False)")
    if layers and rng.random() < 0.07:
        lines.append(f"self.{rng.choice(layers)}.eval()")
    if layers and rng.random() < 0.1:
        name = rng.choice(layers)
        again = (f"self.{name}", f"nn.Sequential(self.{name})", f"copy.copy(self.{name})")
        lines.append(f"self.again = {rng.choice(again)}")
    return tuple(lines)
