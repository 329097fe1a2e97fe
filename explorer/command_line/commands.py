"""The ``schedule-explorer`` command. Exit codes: 0 done, 1 no schedule or a failed run, 2 bad input."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Column, Table

from explorer.command_line import solving
from explorer.command_line.endings import Commands, complain, end_solvers
from explorer.command_line.lab import open_lab
from explorer.command_line.options import SCHEDULE, model_of, optimizer_of, sizes_of
from explorer.command_line.outputs import check_export, check_profile
from explorer.command_line.sweeping import sweep
from explorer.command_line.tables import (
    PlainConsole,
    add_parts,
    progress_bar,
    run_table,
    summary,
    zoo_row,
)
from explorer.harmless import file_stem
from explorer.profiles.loading import BUNDLED_FOR, bundled_profiles, load_profile
from explorer.schedule import keep_all
from explorer.simulation import simulate
from explorer.units import amount_of_bytes, format_bytes
from explorer.zoo.loading import load_schedule

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Memory-optimised training schedules for PyTorch: profile a model, solve for a budget, run the schedule.",
)
_MODEL = typer.Argument(
    metavar="MODEL",
    help="A bundled model (resnet50, unet …) or package.module:factory, a callable that returns (model, batch) or "
    "(model, batch, loss).",
)
_FUSE = "Also offer kernels that PyTorch's compiler makes of chains of calls."
_AUTOCAST = "Of the forward pass: bfloat16 or float16, as under torch.autocast; none if not given."
_OPTIMIZER = (
    "Plan whole iterations with this one: sgd, momentum, adam, adamw …, each also as adamw-foreach, -fused, -plain."
)
_UPDATE = (
    "When it updates: at the end, or within the backward pass, each parameter as soon as its gradient is complete."
)
_ACCUMULATE = "Plan microbatches whose gradients are added to those of earlier ones."
_DISTRIBUTED = "ddp: in DistributedDataParallel; ddp-views: with gradient_as_bucket_view=True."
_ENCODINGS = "lossless, fp16, fp10 or fp8"
_SIZE = "one number for all sides, or one for each: 416x608"


@app.command()
def profile(  # noqa: PLR0913 - an option for each thing that users may want to say
    model: Annotated[str, _MODEL],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write; MODEL.json if not given.")
    ] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Of a bundled model's batch.")] = None,
    image_size: Annotated[str | None, typer.Option(help=f"Of a bundled model's images: {_SIZE}.")] = None,
    volume_size: Annotated[str | None, typer.Option(help=f"Of a bundled model's volumes: {_SIZE}.")] = None,
    sequence_length: Annotated[int | None, typer.Option(min=1, help="Of a bundled model's sequences.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; where the model is if not given.")] = None,
    optimizer: Annotated[str | None, typer.Option(help=_OPTIMIZER)] = None,
    encoding: Annotated[str | None, typer.Option(help=f"Also offer Gist's encodings: {_ENCODINGS}.")] = None,
    *,
    autocast: Annotated[str | None, typer.Option(help=_AUTOCAST)] = None,
    update: Annotated[str, typer.Option(help=_UPDATE)] = "end",
    accumulate: Annotated[bool, typer.Option("--accumulate", help=_ACCUMULATE)] = False,
    distributed: Annotated[str | None, typer.Option(help=_DISTRIBUTED)] = None,
    fuse: Annotated[bool, typer.Option("--fuse", help=_FUSE)] = False,
) -> None:
    """Measure time and memory of every operator of a training step."""
    import explorer
    from explorer.operators.encodings import Encoding

    target = output or Path(f"{file_stem(model.rpartition(':')[2])}.json")
    check_profile(target, model=model)
    encodings = None if encoding is None else Encoding.of(encoding)
    sizes = sizes_of(batch_size, image_size, volume_size, sequence_length)
    made, batch, loss = model_of(model, sizes, device=device)
    with progress_bar() as progress:
        result = explorer.profile(
            made,
            batch,
            loss=loss,
            device=device,
            optimizer=optimizer,
            update=update,
            accumulate=accumulate,
            distributed=distributed,
            encoding=encodings,
            autocast=autocast,
            fuse=fuse,
            progress=progress,
        )
    result.save(target)
    PlainConsole().print(f"{summary(result)} Wrote {target}")


@app.command()
def profile_compiled(
    model: Annotated[str, _MODEL],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write; MODEL-compiled.json if not given.")
    ] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Of a bundled model's batch.")] = None,
    image_size: Annotated[str | None, typer.Option(help=f"Of a bundled model's images: {_SIZE}.")] = None,
    volume_size: Annotated[str | None, typer.Option(help=f"Of a bundled model's volumes: {_SIZE}.")] = None,
    sequence_length: Annotated[int | None, typer.Option(min=1, help="Of a bundled model's sequences.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; where the model is if not given.")] = None,
) -> None:
    """Measure the kernels that torch.compile makes of a training step, for solve --method monet-compiled."""
    import explorer

    target = output or Path(f"{file_stem(model.rpartition(':')[2])}-compiled.json")
    check_profile(target, model=model)
    sizes = sizes_of(batch_size, image_size, volume_size, sequence_length)
    made, batch, loss = model_of(model, sizes, device=device)
    with progress_bar() as progress:
        result = explorer.profile_compiled(made, batch, loss=loss, progress=progress)
    result.save(target)
    PlainConsole().print(f"{summary(result)} Wrote {target}")


@app.command()
def estimate(  # noqa: PLR0913 - likewise
    model: Annotated[str, _MODEL],
    device: Annotated[
        str, typer.Option("--device", "-d", help="A name of the table, or a YAML file: docs/devices.md.")
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write; MODEL-DEVICE.json if not given.")
    ] = None,
    precision: Annotated[
        str | None, typer.Option(help="float32, tf32, float16 or bfloat16; PyTorch's default if not given.")
    ] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Of a bundled model's batch.")] = None,
    image_size: Annotated[str | None, typer.Option(help=f"Of a bundled model's images: {_SIZE}.")] = None,
    volume_size: Annotated[str | None, typer.Option(help=f"Of a bundled model's volumes: {_SIZE}.")] = None,
    sequence_length: Annotated[int | None, typer.Option(min=1, help="Of a bundled model's sequences.")] = None,
    optimizer: Annotated[str | None, typer.Option(help=_OPTIMIZER)] = None,
    *,
    autocast: Annotated[str | None, typer.Option(help=_AUTOCAST)] = None,
    update: Annotated[str, typer.Option(help=_UPDATE)] = "end",
    accumulate: Annotated[bool, typer.Option("--accumulate", help=_ACCUMULATE)] = False,
    distributed: Annotated[str | None, typer.Option(help=_DISTRIBUTED)] = None,
    fuse: Annotated[bool, typer.Option("--fuse", help=_FUSE)] = False,
) -> None:
    """Estimate time and memory of a training step on a device that need not be here, from its data sheet."""
    import torch

    import explorer
    from explorer.profiling.devices import device_spec

    spec = device_spec(device)
    target = output or Path(f"{file_stem(model.rpartition(':')[2])}-{file_stem(spec.name)}.json")
    check_profile(target, model=model, device=device)
    sizes = sizes_of(batch_size, image_size, volume_size, sequence_length)
    # A function of the user's may look at its tensors; the bundled models need no memory.
    with torch.device("cpu" if ":" in model else "meta"):
        made, batch, loss = model_of(model, sizes)
    with progress_bar() as progress:
        result = explorer.estimate(
            made,
            batch,
            loss=loss,
            device=spec,
            precision=precision,
            autocast=autocast,
            optimizer=optimizer,
            update=update,
            accumulate=accumulate,
            distributed=distributed,
            fuse=fuse,
            progress=progress,
        )
    result.save(target)
    PlainConsole().print(f"{summary(result)} Wrote {target}")


@app.command()
def profiles() -> None:
    """List the profiles that come with the package."""
    table = Table(Column("name", no_wrap=True), "batch", Column("device", no_wrap=True), "without recomputation")
    for name, path in bundled_profiles().items():
        known = load_profile(path)
        plain = simulate(known, keep_all(known.graph))
        table.add_row(
            name,
            " × ".join(map(str, known.graph.batch[0].shape)),
            known.device.label,
            f"{plain.time_ms:.0f} ms, {format_bytes(plain.peak_bytes)}",
        )
    PlainConsole().print(table)
    PlainConsole().print(f"A model's name alone stands for its profile that ends in {BUNDLED_FOR}.")


@app.command()
def zoo(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[WORD]…", help="Names that have all of these: resnet50 a100 @0.5.")
    ] = None,
    fits: Annotated[str | None, typer.Option(help="Only those with a peak of at most this: '16 GiB'.")] = None,
) -> None:
    """List the schedules that come with the package; other commands take their names as SCHEDULE."""
    from explorer.zoo.entries import zoo as entries

    most_bytes = None if fits is None else amount_of_bytes(fits, name="--fits")
    table = Table(Column("name", no_wrap=True), *(Column(x, justify="right") for x in ("peak", "step", "added", "gap")))
    named = [x for x in entries() if all(word in x.name for word in words or ())]
    for entry in named:
        if most_bytes is None or (entry.peak_bytes is not None and entry.peak_bytes <= most_bytes):
            table.add_row(entry.name, *zoo_row(entry))
    if not table.row_count and (peaks := {x.peak_bytes: x.name for x in named if x.peak_bytes is not None}):
        raise ValueError(
            f"no such schedule fits {fits}: the smallest, {peaks[min(peaks)]}, takes {format_bytes(min(peaks))}"
        )
    if not table.row_count:
        raise ValueError("the zoo has no schedule like that; 'schedule-explorer zoo' lists them all")
    PlainConsole().print(table)


@app.command()
def run(
    model: Annotated[str, _MODEL],
    schedule: Annotated[str, SCHEDULE],
    profile: Annotated[
        str | None, typer.Option("--profile", "-p", help="The schedule's profile, for the prediction to compare with.")
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Training steps to time.")] = 3,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; where the model is if not given.")] = None,
    encoding: Annotated[str | None, typer.Option(help=f"As for the profile: {_ENCODINGS}.")] = None,
    *,
    buffer: Annotated[bool, typer.Option("--buffer", help="Run steps in one buffer, without fragmentation.")] = False,
) -> None:
    """Train for a few real steps with a schedule, and measure them."""
    import explorer

    loaded = load_schedule(schedule)
    known = None if profile is None else load_profile(profile)
    predicted = None if known is None else simulate(known, loaded)
    optimizer = known.optimizer if known else optimizer_of(loaded)
    made, batch, loss = model_of(model, {}, like=loaded.identity.batch, device=device)
    with PlainConsole(stderr=True).status("applying the schedule") as status:
        module = explorer.apply(made, loaded, batch, loss=loss, encoding=encoding, buffer=buffer)
        status.update(f"measuring {steps} steps")
        try:
            accumulate = loaded.identity.iteration.accumulate
            measured = explorer.measure(module, batch, steps=steps, optimizer=optimizer, accumulate=accumulate)
        except (RuntimeError, MemoryError) as error:
            complain("failed", f"the step did not run: {error}")
            raise typer.Exit(1) from error
    table = run_table(predicted, measured)
    if known is not None:
        add_parts(table, explorer.residual(known, loaded, measured))
    PlainConsole().print(table)


@app.command()
def export(
    model: Annotated[str, _MODEL],
    schedule: Annotated[str, SCHEDULE],
    output: Annotated[Path, typer.Option("--output", "-o", help="The Python file to write.")],
    device: Annotated[str | None, typer.Option(help="cpu or cuda; where the model is if not given.")] = None,
    form: Annotated[
        str,
        typer.Option(
            help="python: the step itself; selective: torch.utils.checkpoint, a policy for each block; compile: what "
            "torch.compile saves."
        ),
    ] = "python",
    profile: Annotated[
        str | None,
        typer.Option("--profile", "-p", help="The schedule's, for figures in files of forms selective, compile."),
    ] = None,
) -> None:
    """Write a schedule as one Python file that trains the model with torch alone."""
    import explorer

    check_export(output, form=form, model=model, schedule=schedule, profile=profile)
    loaded = load_schedule(schedule)
    made, batch, loss = model_of(model, {}, like=loaded.identity.batch, device=device)
    with PlainConsole(stderr=True).status("capturing the step"):
        known = None if profile is None else load_profile(profile)
        explorer.export(made, loaded, batch, loss=loss, path=output, form=form, profile=known)
    PlainConsole().print(f"{output}: {output.stat().st_size / 1e3:.0f} kB; scheduled(model) in it is the model")


@app.command()
def explore(
    profile: Annotated[
        str, typer.Argument(metavar="[PROFILE|NAME]", help="A file that 'profile' wrote, or a bundled name.")
    ] = "resnet50",
    *,
    browser: Annotated[bool, typer.Option(help="Open a browser; without one, use the URL that is printed.")] = True,
    port: Annotated[int, typer.Option(min=1, max=65535, help="JupyterLab's; the next free one if taken.")] = 8888,
) -> None:
    """Open JupyterLab on a notebook that explores a profile."""
    load_profile(profile)  # so that a wrong name is refused here, not in the notebook
    open_lab(profile, browser=browser, port=port)


@app.command("compile")
def compile_command() -> None:
    """Compile what is compiled at its first use, so that no notebook waits for it."""
    from explorer.solvers.service.compiling import compile_all

    began = time.monotonic()
    with PlainConsole(stderr=True).status("compiling the search, for up to a minute"):
        folder = compile_all()
    PlainConsole().print(f"The search is compiled ({time.monotonic() - began:.0f} s); the machine code is in {folder}")


@app.command()
def cache(*, clear: Annotated[bool, typer.Option("--clear", help="Forget everything.")] = False) -> None:
    """Show what is remembered of past solves, or forget it."""
    from explorer.solvers.service.cache import AnswerCache
    from explorer.storage.cache_folder import VARIABLE

    memory = AnswerCache()
    if memory.folder is None:
        PlainConsole().print(f"Nothing is remembered: {VARIABLE} is 'off'.")
        return
    if clear:
        memory.clear()
    known = memory.contents()
    table = Table("problem", "budgets", "used last", title=f"{memory.folder}, {format_bytes(memory.file_bytes)}")
    for problem in known:
        used = datetime.fromtimestamp(problem.used, UTC).astimezone()
        table.add_row(problem.label, str(problem.answers), f"{used:%Y-%m-%d %H:%M}")
    PlainConsole().print(table if known else f"Nothing is remembered yet in {memory.folder}.")


for _command in (solving.solve, solving.methods, solving.place, sweep):
    app.command()(_command)
app.command("simulate")(solving.simulate_command)


def main() -> None:
    """Entry point of the installed command."""
    try:
        app()
    finally:
        end_solvers()
