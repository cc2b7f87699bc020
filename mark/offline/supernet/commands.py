"""`mark supernet train`, `profile` and `show`: a supernet from its examples to its figures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from mark.aws.ec2.imds import instance_type_here
from mark.catalog.load import SUPERNETS, load_prices, supernet_folder
from mark.domain.errors import MarkError, Misconfigured, failure_words, file_errors
from mark.domain.models.profile import Evidence, Profile
from mark.domain.supernet import Subnet
from mark.offline.own_model.profile import USUAL_BATCHES, USUAL_TYPE, machine_here, request_for
from mark.offline.own_model.targets import class_name
from mark.offline.supernet.artifact import (
    FIGURES_FILE,
    WEIGHTS_FILE,
    Artifact,
    read_artifact,
    write_artifact,
)
from mark.offline.supernet.card import ABOUT_COLUMNS, cells, columns, provenance, sentences
from mark.plugins.load import make_supernet, make_workshop
from mark.ports import OpenSupernet, PythonModel
from mark.report.files import make_folder
from mark.report.tables import figures, make_table, texts
from mark.report.terminal import progress, show, show_json, unheard
from mark.serving.backends.python import PythonBackend
from mark.serving.profiling import MeasuredPoint, measure_variants, profile_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Measuring:
    """Latency measurement. instance_type: what this machine stands for, None for its own or the usual."""

    instance_type: str | None
    batches: tuple[int, ...] | None
    seconds: float
    gpu: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions:
    """Flags of `mark supernet train`; target None: the shipped supernet."""

    target: str | None
    name: str | None
    out: Path
    epochs: int
    measuring: Measuring


def train_supernet(options: TrainOptions, *, seed: int, as_json: bool) -> None:
    """Train, calibrate, search and profile; write the artifact and print it. Errors: Misconfigured."""
    target = options.target or SUPERNETS["supernet"]
    if options.epochs < 1:
        raise Misconfigured(f"--epochs must be 1 or more, not {options.epochs}")
    _check(options.measuring)
    make_folder(options.out)
    workshop = make_workshop()
    source = make_supernet(target, None if options.target is None else Path())
    with _blamed(target):
        opened = workshop.train(
            source, name=options.name or class_name(target), target=target, seed=seed, epochs=options.epochs
        )
    with file_errors(f"write to {options.out}"):
        opened.save(options.out / WEIGHTS_FILE)
    _measure_and_print(opened, options.out, options.measuring, as_json=as_json)


def profile_supernet(folder: Path, measuring: Measuring, *, as_json: bool) -> None:
    """Measure a trained supernet here, and write the new figures into its folder. Errors: Misconfigured."""
    _check(measuring)
    known = read_artifact(folder).trained
    workshop = make_workshop()
    source = make_supernet(known.target, None if known.target in SUPERNETS.values() else Path())
    with _blamed(known.target):
        opened = workshop.open(source, known, folder / WEIGHTS_FILE, gpu=measuring.gpu)
    _measure_and_print(opened, folder, measuring, as_json=as_json)


def show_supernet(folder: Path | None, model: str, *, as_json: bool) -> None:
    """Print the figures of a folder, or of that shipped supernet. Errors: Misconfigured."""
    _print(read_artifact(folder or supernet_folder(model)), as_json=as_json)


def _check(measuring: Measuring) -> None:
    if not measuring.seconds > 0:
        raise Misconfigured(f"--seconds must be above 0, not {measuring.seconds:g}")
    if measuring.instance_type is not None:
        load_prices(None).instance_type(measuring.instance_type)
    elif measuring.gpu and instance_type_here() is None:
        raise Misconfigured("say which instance type this machine's GPU stands for: --as TYPE")


@contextmanager
def _blamed(target: str) -> Iterator[None]:
    """Turn into one line what a user's network or examples raise."""
    try:
        yield
    except MarkError:
        raise
    except (Exception, SystemExit) as error:  # foreign code may raise anything; the cause is chained
        raise Misconfigured(f"supernet {target!r} failed: {failure_words(error)}") from error


def _measure_and_print(opened: OpenSupernet, folder: Path, measuring: Measuring, *, as_json: bool) -> None:
    with _blamed(opened.figures.target):
        actuation = opened.actuation()
        artifact = Artifact(trained=opened.figures, actuation=actuation, profiles=_measured(opened, measuring))
    write_artifact(folder, artifact)
    _print(artifact, as_json=as_json)
    if not as_json:
        show(f"wrote {folder / FIGURES_FILE}, {WEIGHTS_FILE}, profile.json and card.md beside it")


def _measured(opened: OpenSupernet, measuring: Measuring) -> tuple[Profile, ...]:
    """A profile of each variant, all measured in turn, as agents call it."""
    here = instance_type_here()
    instance_type = measuring.instance_type or here or USUAL_TYPE
    machine = machine_here() if here is None else f"EC2 {here}"
    subnets = opened.figures.subnets
    served = {subnet.variant: opened.model(subnet.variant) for subnet in subnets}
    with progress() as report, unheard():
        points = asyncio.run(
            _points(
                served,
                measuring.batches or USUAL_BATCHES,
                measuring.seconds,
                lambda share: report("measuring", share),
            )
        )

    def profile(subnet: Subnet) -> Profile:
        measured = profile_of(
            points[subnet.variant],
            model=opened.figures.name,
            instance_type=instance_type,
            machine=f"{machine}, {opened.gpu}" if opened.gpu else machine,
            date=datetime.now(UTC).date().isoformat(),
            evidence=Evidence.MEASURED if here == instance_type else Evidence.STAND_IN,
            variant=subnet.variant,
            command="mark supernet",
        )
        return replace(measured, accuracy=subnet.accuracy)

    return tuple(profile(subnet) for subnet in subnets)


async def _points(
    served: Mapping[str, PythonModel], sizes: Sequence[int], seconds: float, report: Callable[[float], None]
) -> Mapping[str, tuple[MeasuredPoint, ...]]:
    async with AsyncExitStack() as stack:
        backends = {}
        for variant, model in served.items():
            backend = PythonBackend(_factory(model), name=variant)
            stack.push_async_callback(backend.close)
            await backend.start()
            backends[variant] = backend
        inputs = next(iter(backends.values())).inputs
        request = request_for(None, "/v2/models/supernet/infer", inputs)
        return await measure_variants(
            backends,
            lambda: request,
            sizes,
            seconds=seconds,
            progress=lambda share, _points: report(share),
            every_size=True,  # variants are compared size by size
        )


def _factory(model: PythonModel) -> Callable[[], PythonModel]:
    return lambda: model


def _print(artifact: Artifact, *, as_json: bool) -> None:
    trained, profiles = artifact.trained, artifact.profiles
    if as_json:
        show_json(_document(artifact))
        return
    show(
        f"{trained.name} ({trained.target}): {trained.evaluated:,} of {trained.possible:,} subnets evaluated, "
        f"{len(trained.subnets)} on the Pareto front; {trained.epochs} epochs, {trained.trained_s:.0f} s"
    )
    table = make_table([*texts("variant"), *figures(*columns(profiles))], gap=2, notes=ABOUT_COLUMNS)
    for subnet, profile in zip(trained.subnets, profiles, strict=True):
        table.add_row(subnet.variant, *cells(subnet, profile))
    show("", table, "", f"measured: {provenance(profiles)}")
    show(*sentences(trained, artifact.actuation))


def _document(artifact: Artifact) -> dict[str, object]:
    """The document of the three commands (docs/json.md)."""
    trained, known = artifact.trained, artifact.profiles[0].provenance
    flat = asdict(trained)
    del flat["subnets"]
    return {
        **flat,
        "memory_ratio": trained.memory_ratio,
        "front_ratio": trained.front_ratio,
        "largest_ratio": trained.largest_ratio,
        "mean_accuracy": trained.mean_accuracy,
        "mean_shared_accuracy": trained.mean_shared_accuracy,
        "actuation": asdict(artifact.actuation),
        "instance_type": artifact.profiles[0].instance_type,
        "evidence": known.evidence.value,
        "machine": known.machine,
        "date": known.date,
        "variants": [
            {
                "variant": subnet.variant,
                "control": list(subnet.control),
                "accuracy": subnet.accuracy,
                "shared_accuracy": subnet.shared_accuracy,
                "chosen_loss": subnet.chosen_loss,
                "macs": subnet.macs,
                "extracted_bytes": subnet.extracted_bytes,
                "latency_ms_by_batch": {str(point.batch): point.latency_s * 1000 for point in profile.points},
            }
            for subnet, profile in zip(trained.subnets, artifact.profiles, strict=True)
        ],
    }
