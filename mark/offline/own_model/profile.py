"""`mark profile`: a model's latency by batch size on this machine, as a profile file that plans can use."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

from rich.table import Table

from mark.aws.ec2.imds import instance_type_here
from mark.catalog.load import load_prices
from mark.catalog.schema import LAMBDA, parse_profiles
from mark.domain.documents import json_text
from mark.domain.errors import Misconfigured, file_errors, unknown
from mark.domain.models.objective import ModelSpec
from mark.domain.models.profile import (
    UNSTATED,
    AlsoMeasured,
    Evidence,
    LatencyPoint,
    Parallelism,
    Profile,
    usual_parallelisms,
)
from mark.domain.offerings.offering import InstanceType
from mark.domain.tensor import TensorSpec
from mark.offline.own_model.streams import StreamsAtOnce, streams
from mark.planner.batching import tune_batching
from mark.plugins.load import load_model, make_model
from mark.ports import Backend, InferRequest, PythonModel
from mark.protocols.oip.bodies import Tensors, compose_infer, example_body
from mark.report.files import write_whole
from mark.report.tables import Column, make_table
from mark.report.terminal import note, progress, show, show_json, unheard
from mark.serving.backends.factory import python_backend
from mark.serving.backends.model_runner import log as backend_log
from mark.serving.backends.oip_server import OipBackend
from mark.serving.backends.python_streams import PythonStreamBackend
from mark.serving.backends.servers import InvocationsBackend
from mark.serving.backends.tf_serving import TfServingBackend
from mark.serving.backends.threads import processors
from mark.serving.profiling import MeasuredPoint, measure, profile_of, profile_text

READY_WITHIN_S = 10.0
"""A server that is to be measured is there already."""
USUAL_TYPE = "c5.large"
"""What a machine that is no EC2 instance stands for, unless said otherwise."""
USUAL_BATCHES = (1, 2, 4, 8, 16, 32)
BUSY_SHARE = 0.75
"""Load average over processors from which other work is taken to slow what is measured."""
WORTH = 1.1
"""More replicas hold the model more often: they are chosen where they are at least so many times as fast."""
KINDS = ("python", "oip", "tf-serving", "invocations")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileOptions:
    """Flags of `mark profile`.

    folder: where a Python target's modules are looked for first. instance_type: what this machine stands for; None
    for its own, or c5.large where it is no EC2 instance.
    batches: batch sizes; None for the usual ones, of which Lambda takes 1 alone. named: profile files that the
    settings name.
    """

    model: str
    target: str
    folder: Path | None
    kind: str
    instance_type: str | None
    batches: tuple[int, ...] | None
    seconds: float
    body: Path | None
    to: Path | None
    named: tuple[Path, ...] = ()
    #: No batch is measured that takes longer.
    longest_s: float = math.inf
    #: The model, where it has been made already.
    made: PythonModel | None = None
    #: One item to measure with instead of zeros.
    example: Tensors | None = None
    #: The settings say that the model streams; a class that yields says so itself.
    streams: bool = False
    #: Replicas x threads to measure; None for the usual ones that the type can run.
    parallelisms: tuple[Parallelism, ...] | None = None
    #: Needs and objective, where they are known.
    spec: ModelSpec | None = None


def profile_backend(options: ProfileOptions, *, as_json: bool) -> None:
    """Measure, print, and write or complete the profile file."""
    measured = measured_profile(options)
    others, points, profile = measured.others, measured.points, measured.profile
    if options.to is not None:
        write_profiles(options.to, (*others, profile))
    if as_json:
        show_json(_document(measured))
    else:
        show(_table(measured))
    if measured.first_parts_s:
        note("a batch of n is n streams at once: median ms is until all have ended, first ms until a first part")
    if profile.provenance.evidence is Evidence.STAND_IN:
        note(
            f"a stand-in for {profile.instance_type}: measured on {profile.provenance.machine}; reports say so "
            f"until `mark profile --on {profile.instance_type}` has measured there"
        )
    if profile.provenance.also_measured:
        note(
            f"the profile is of {_words(profile.parallelism)}, which the Python backend will run; "
            f"{_others_words(profile)}"
        )
    note_if_busy()
    left_out = sorted({*_sizes(options.batches, profile.instance_type)} - {point.batch for point in points})
    if left_out:
        note(f"batches of {', '.join(map(str, left_out))} are not measured: the time is too short; --seconds")
    unstable = [str(point.batch) for point in points if not point.stable]
    if unstable:
        note(f"batches of {', '.join(unstable)} were not stable when time was up; give a longer --seconds")
    if options.to is not None and not as_json:
        known = options.to.resolve() in {path.resolve() for path in options.named}
        show(f"wrote {options.to}{'' if known else '; name it under profiles in the settings'}")


class MeasuredProfile(NamedTuple):
    """What was measured. others: profiles of the file that stay."""

    others: tuple[Profile, ...]
    points: tuple[MeasuredPoint, ...]
    profile: Profile
    #: Of a stream the median to a first part, by how many ran at once.
    first_parts_s: Mapping[int, float]


def measured_profile(options: ProfileOptions) -> MeasuredProfile:
    """Measure, and make a profile of it. Errors: Misconfigured."""
    here = instance_type_here()
    instance_type = options.instance_type or here or USUAL_TYPE
    kind = None if instance_type == LAMBDA else load_prices(None).instance_type(instance_type)
    sizes = _sizes(options.batches, instance_type)
    if not options.seconds > 0:
        raise Misconfigured(f"--seconds must be above 0, not {options.seconds:g}")
    others = others_of(options.to, options.model, (instance_type,))
    measured: list[MeasuredProfile] = []
    asked = _parallelisms(options, kind)
    with progress() as report, unheard(), one_failure():
        for parallelism in asked:
            backend = _backend(options, parallelism)
            if isinstance(backend, StreamsAtOnce) and instance_type == LAMBDA:
                raise Misconfigured(f"{options.model} streams, and Lambda answers whole: leave --as lambda out")
            points = asyncio.run(
                _measured(
                    backend,
                    options,
                    sizes if options.batches else _with_full_parts(sizes, parallelism.replicas),
                    partial(report, f"measuring {_words(parallelism)}"),
                    options.seconds / len(asked),
                )
            )
            profile = profile_of(
                points,
                model=options.model,
                instance_type=instance_type,
                machine=machine_here() if here is None else f"EC2 {here}",
                date=datetime.now(UTC).date().isoformat(),
                evidence=Evidence.MEASURED if here == instance_type else Evidence.STAND_IN,
            )
            profile = replace(profile, parallelism=parallelism)
            firsts = backend.first_parts_s() if isinstance(backend, StreamsAtOnce) else {}
            measured.append(MeasuredProfile(others, points, profile, firsts))
    chosen = measured[best_of([one.profile for one in measured], options.spec)]
    also = tuple(
        AlsoMeasured(parallelism=one.profile.parallelism, points=one.profile.points)
        for one in measured
        if one is not chosen
    )
    known = replace(chosen.profile.provenance, also_measured=also)
    return chosen._replace(profile=replace(chosen.profile, provenance=known))


def best_of(profiles: Sequence[Profile], spec: ModelSpec | None) -> int:
    """Number of the profile with most requests/s, within the objective where there is one that any keeps.

    Among those that differ by less than WORTH the one with fewest replicas.
    """

    def rps(profile: Profile) -> tuple[bool, float]:
        tuned = None if spec is None else tune_batching(profile, spec.slo.latency_s)
        return (tuned is not None, tuned.capacity_rps if tuned else items_per_s(profile.points))

    rates = list(map(rps, profiles))
    keeps, most_rps = max(rates)
    good = [i for i, (kept, rate) in enumerate(rates) if kept == keeps and rate * WORTH >= most_rps]
    return min(good, key=lambda i: (profiles[i].parallelism.replicas, -rates[i][1]))


def items_per_s(points: Sequence[LatencyPoint]) -> float:
    """Items/s of the fastest batch size."""
    return max(point.batch / point.latency_s for point in points)


def _parallelisms(options: ProfileOptions, kind: InstanceType | None) -> tuple[Parallelism, ...]:
    """Replicas x threads to measure. kind: None for Lambda. Misconfigured where they cannot be."""
    here = processors()
    limit = here if kind is None else min(here, kind.vcpus)
    asked = options.parallelisms
    if options.kind != "python" or kind is None:
        if asked is not None:
            raise Misconfigured("--parallelism is of Python models on instances: leave it out")
        return (UNSTATED,)
    made = options.made
    target = load_model(options.target, options.folder) if made is None else made
    is_stream = options.streams or streams(target)
    if asked is not None:
        if not asked:
            raise Misconfigured(
                "--parallelism names nothing to measure: give RxT, replicas x threads, such as 2x4"
            )
        for one in asked:
            if one.processors > limit:
                where = f"this machine has {here}" if limit == here else f"{kind.name} has {kind.vcpus}"
                raise Misconfigured(f"--parallelism {one} needs {one.processors} processors, {where}")
            if one.replicas > 1 and is_stream:
                raise Misconfigured(f"--parallelism {one}: a model that streams has one replica")
        return tuple(dict.fromkeys(asked))
    spec = options.spec
    if made is not None or kind.accelerator:
        return (UNSTATED,)
    is_single = is_stream or (spec is not None and spec.usual_sizes is not None)  # replicas divide single items
    memory_gib = 0.0 if spec is None else spec.memory_gib
    return tuple(
        one
        for one in usual_parallelisms(limit)
        if one.replicas == 1 or not (is_single or one.replicas * memory_gib > kind.memory_gib)
    )


def _with_full_parts(sizes: Sequence[int], replicas: int) -> tuple[int, ...]:
    """The usual sizes, and those of which each of several replicas has a part of 1, 2 or 4."""
    return tuple(sorted({*sizes, *((n * replicas for n in (1, 2, 4)) if replicas > 1 else ())}))


def _words(parallelism: Parallelism) -> str:
    return f"{parallelism} (replicas x threads)"


def _others_words(profile: Profile) -> str:
    """The fastest batch of each parallelism."""
    chosen = AlsoMeasured(parallelism=profile.parallelism, points=profile.points)
    return "items/s: " + ", ".join(
        f"{one.parallelism} {items_per_s(one.points):,.0f}" for one in (chosen, *profile.provenance.also_measured)
    )


@contextmanager
def one_failure() -> Iterator[None]:
    """Meanwhile the first failure of a model is told with its cause, and no other: the profile counts them."""
    told: list[logging.LogRecord] = []

    def first(record: logging.LogRecord) -> bool:
        told.append(record)
        return len(told) == 1

    backend_log.addFilter(first)
    try:
        yield
    finally:
        backend_log.removeFilter(first)


def note_if_busy() -> None:
    """Note that other work takes this machine's processors, if it does."""
    if warning := busy_warning(os.getloadavg()[0], os.cpu_count() or 1):
        note(warning)


def busy_warning(load: float, processors: int) -> str:
    """The warning that other work takes this machine's processors while a model is measured; empty if it does not.

    load: runnable processes as a mean of the last minute.
    """
    if load < BUSY_SHARE * processors:
        return ""
    return (
        f"this machine is busy (load average {load:.1f} on {processors} processors): latencies and their spread "
        "come out too high, and every replay with them; measure again when it is idle"
    )


def _sizes(options: tuple[int, ...] | None, instance_type: str) -> tuple[int, ...]:
    """The batch sizes to measure. Misconfigured where Lambda is asked for more than one request at a time."""
    if instance_type != LAMBDA:
        return options or USUAL_BATCHES
    if options not in (None, (1,)):
        raise Misconfigured("Lambda answers one request at a time: leave --batches out, or give --batches 1")
    return (1,)


async def _measured(
    backend: Backend,
    options: ProfileOptions,
    sizes: Sequence[int],
    report: Callable[[float], None],
    seconds: float,
) -> tuple[MeasuredPoint, ...]:
    await backend.start()
    try:
        path = f"/v2/models/{options.model}/infer" if options.kind in ("python", "oip") else "/invocations"
        if options.example is None:
            request = request_for(options.body, path, getattr(backend, "inputs", ()))
        else:
            request = compose_infer(options.example, path=path, binary=False)
        return await measure(
            backend,
            lambda: request,
            sizes,
            seconds=seconds,
            progress=lambda share, _points: report(share),
            longest_s=options.longest_s,
            every_size=options.batches is not None,
        )
    finally:
        await backend.close()


def _backend(options: ProfileOptions, parallelism: Parallelism) -> Backend:
    match options.kind:
        case "python":
            made = options.made
            is_stream = options.streams or streams(
                load_model(options.target, options.folder) if made is None else made
            )
            backend = python_backend(
                partial(make_model, options.target, options.folder) if made is None else lambda: made,
                parallelism,
                name=options.model,
                streams=is_stream,
                log_level=logging.CRITICAL,
            )
            return StreamsAtOnce(backend) if isinstance(backend, PythonStreamBackend) else backend
        case "oip":
            return OipBackend(options.target, name=options.model, ready_within_s=READY_WITHIN_S)
        case "tf-serving":
            return TfServingBackend(
                options.target, name=options.model, inputs=(), outputs=(), ready_within_s=READY_WITHIN_S
            )
        case "invocations":
            return InvocationsBackend(options.target, ready_within_s=READY_WITHIN_S)
        case _:
            raise unknown("kind", options.kind, KINDS)


def request_for(file: Path | None, path: str, inputs: Sequence[TensorSpec]) -> InferRequest:
    """A request to `path` with the file's body, or zeros of the model's inputs."""
    if file is not None:
        with file_errors(f"read {file}"):
            body = file.read_bytes()
    elif inputs:
        body = json_text(example_body(inputs)).encode()
    else:
        raise Misconfigured("the server does not describe its model's inputs: give a request with --body")
    return InferRequest(path=path, content_type="application/json", body=body)


def others_of(file: Path | None, model: str, types: Sequence[str]) -> tuple[Profile, ...]:
    """Profiles of the file that stay: those of other models, types and variants. Checked before measuring."""
    if file is None or not file.exists():
        return ()
    with file_errors(f"read {file}"):
        text = file.read_text(encoding="utf-8")
    kept = parse_profiles(text, str(file))
    return tuple(p for p in kept if p.model != model or p.instance_type not in types)


def write_profiles(path: Path, profiles: Sequence[Profile]) -> None:
    """Write a profile file."""
    write_whole(path, profile_text(profiles))


def machine_here() -> str:
    """The processor that measured."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]}, {len(names)} vCPUs" if names else platform.machine()


def _document(measured: MeasuredProfile) -> dict[str, object]:
    """The document of `mark profile --json` (docs/json.md)."""
    profile, firsts = measured.profile, measured.first_parts_s
    return {
        "model": profile.model,
        "instance_type": profile.instance_type,
        "evidence": profile.provenance.evidence.value,
        "machine": profile.provenance.machine,
        "replicas": profile.parallelism.replicas,
        "threads": profile.parallelism.threads,
        "also_measured": [
            {
                "replicas": one.parallelism.replicas,
                "threads": one.parallelism.threads,
                "latency_ms_by_batch": {str(point.batch): point.latency_s * 1000 for point in one.points},
            }
            for one in profile.provenance.also_measured
        ],
        "points": [
            point_document(point) | ({"first_ms": firsts[point.batch] * 1000} if firsts else {})
            for point in measured.points
        ],
    }


def point_document(point: MeasuredPoint) -> dict[str, object]:
    """A measured batch size (docs/json.md)."""
    return {
        "batch": point.batch,
        "median_ms": point.median_s * 1000,
        "p95_ms": point.p95_s * 1000,
        "calls": point.calls,
        "stable": point.stable,
    }


def _table(measured: MeasuredProfile) -> Table:
    firsts = measured.first_parts_s
    names = ("batch", *(("first ms",) if firsts else ()), "median ms", "p95 ms", "items/s", "calls")
    table = make_table([Column(title=name, is_figure=True) for name in names])
    for point in measured.points:
        table.add_row(
            str(point.batch),
            *((f"{firsts[point.batch] * 1000:.3f}",) if firsts else ()),
            f"{point.median_s * 1000:.3f}",
            f"{point.p95_s * 1000:.3f}",
            f"{point.batch / point.median_s:,.0f}",
            str(point.calls),
        )
    return table
