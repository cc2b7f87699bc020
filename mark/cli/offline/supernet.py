"""`mark supernet`: flags and help of its commands."""
# ruff: noqa: PLC0415, PLR0913 - what takes long to import is imported when it is needed; a command has many flags

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mark.cli import options as given
from mark.domain.errors import Misconfigured

if TYPE_CHECKING:
    from mark.offline.supernet.commands import Measuring

AsType = Annotated[
    str | None,
    typer.Option(
        "--as",
        metavar="TYPE",
        help="Instance type that this machine stands for.  [default: its own on EC2, elsewhere c5.large]",
    ),
]
Batches = Annotated[
    str | None, typer.Option(metavar="SIZE,...", help="Batch sizes to measure.  [default: 1,2,4,8,16,32]")
]
Seconds = Annotated[float, typer.Option(metavar="SECONDS", help="Time limit of measuring, all variants together.")]

TRAIN_EXAMPLES = (
    "mark supernet train",
    "mark supernet train --target my_net.py:MyNet --out mine --epochs 40",
)
PROFILE_EXAMPLES = (
    "mark supernet profile",
    "mark supernet profile --artifact mine --batches 1,4,16 --seconds 60 --json",
    "mark supernet profile --gpu --as g4dn.xlarge",
)
SHOW_EXAMPLES = ("mark supernet show", "mark supernet show --model supernet-text --json")


def train(
    *,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="TARGET",
            help="Your network's path/file.py:Name or module:Name (docs/papers.md).  "
            "[default: the shipped one, for digits]",
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name in the profile.  [default: the class's]")
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder for weights, figures, profile and card.")
    ] = Path("supernet"),
    epochs: Annotated[int, typer.Option(metavar="NUMBER", help="Passes over the examples to learn from.")] = 30,
    as_type: AsType = None,
    batches: Batches = None,
    seconds: Seconds = 30.0,
    seed: given.Seed = None,
    json: given.Json = False,
    config: given.Config = None,
) -> None:
    """Train a network of which parts can be left out in place.

    Trains by progressive shrinking, calibrates the subnets, finds their Pareto front, measures each of it by batch
    size, and writes weights, figures, profile and card. The shipped one takes some three minutes on one core.
    """
    settings = given.settings_of(locals(), "seed")
    from mark.offline.supernet.commands import TrainOptions, train_supernet

    options = TrainOptions(
        target=target, name=model, out=out, epochs=epochs, measuring=_measuring(as_type, batches, seconds)
    )
    train_supernet(options, seed=settings.seed, as_json=json)


def profile(
    *,
    artifact: Annotated[Path, typer.Option(metavar="DIR", help="Folder that `mark supernet train` wrote.")] = Path(
        "supernet"
    ),
    as_type: AsType = None,
    batches: Batches = None,
    seconds: Seconds = 30.0,
    gpu: Annotated[bool, typer.Option("--gpu", help="Measure on this machine's GPU.")] = False,
    json: given.Json = False,
    config: given.Config = None,
) -> None:
    """Measure a trained supernet on this machine.

    Measures each variant by batch size, switching beside reloading, and the difference between subnets and
    extracted networks. The new figures take the place of those in the folder.
    """
    given.settings_of(locals())
    from mark.offline.supernet.commands import profile_supernet

    profile_supernet(artifact, replace(_measuring(as_type, batches, seconds), gpu=gpu), as_json=json)


def show(
    *,
    artifact: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of a trained supernet.  [default: figures of a shipped one]"),
    ] = None,
    model: Annotated[
        str, typer.Option(metavar="NAME", help="Shipped one: supernet (digits) or supernet-text.")
    ] = "supernet",
    json: given.Json = False,
    config: given.Config = None,
) -> None:
    """Show a supernet's variants and what was measured."""
    given.settings_of(locals())
    from mark.offline.supernet.commands import show_supernet

    show_supernet(artifact, model, as_json=json)


def _measuring(as_type: str | None, batches: str | None, seconds: float) -> Measuring:
    from mark.offline.supernet.commands import Measuring

    sizes = () if batches is None else given.number_list("--batches", batches)
    if not all(size >= 1 and size.is_integer() for size in sizes):
        raise Misconfigured(f"--batches must be whole numbers from 1 on, not {batches}")
    return Measuring(instance_type=as_type, batches=tuple(map(int, sizes)) or None, seconds=seconds)
