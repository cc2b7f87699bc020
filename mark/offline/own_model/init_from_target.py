"""`mark init TARGET`: a model of one's own becomes a working folder: model.json, profile.json and mark.yaml.

The model is loaded, tried and measured first, so that what is written is known to work; what only its owner knows,
the objective and the load, is asked on a terminal and taken from flags and defaults elsewhere.
"""

from __future__ import annotations

import math
import resource
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import typer

from mark.catalog.load import load_prices
from mark.catalog.schema import LAMBDA, ModelFile, parse_file
from mark.catalog.shipped_models import MODEL_FILE, PROFILE_FILE
from mark.config.settings import Settings
from mark.domain.errors import Misconfigured
from mark.domain.models.profile import UNSTATED, Evidence, LatencyPoint, Profile, Provenance
from mark.offline.own_model.example import first_item
from mark.offline.own_model.init import CONFIG_FILE
from mark.offline.own_model.init_files import REST_TIMES, Needs, config_text, model_text
from mark.offline.own_model.predict import call_ms, given_inputs
from mark.offline.own_model.profile import ProfileOptions, measured_profile, note_if_busy, write_profiles
from mark.offline.own_model.sources import Given, as_class, check_unloaded, declared, no_model, source_of_target
from mark.offline.own_model.streams import streams, try_stream
from mark.offline.own_model.targets import class_name
from mark.offline.own_model.try_model import Tried, try_model
from mark.offline.trace_source import TraceReading, read_place
from mark.plugins.load import make_model
from mark.ports import PythonModel
from mark.protocols.exchange import zeros
from mark.protocols.model_contract import class_mistakes
from mark.protocols.oip.bodies import Tensors
from mark.report.files import write_whole
from mark.report.formatting import percent
from mark.report.terminal import note, show

USUAL_LATENCY_MS = (50, 100, 200, 300, 500, 1000, 2000, 3000, 5000, 10_000, 20_000, 60_000)
"""Objectives that are proposed: the first that is TIMES the time of a single request, or more."""
TIMES = 10.0
USUAL_SHARE, USUAL_RPS, LEAST_RPS = 0.99, 10.0, 0.001
GPU_TYPE, NVIDIA = "g4dn.xlarge", "-nvidia"
"""The least type with a GPU, for a model that was not tried; and the end of the kinds of such machines."""
MEMORY_STEP_GIB, PAYLOAD_STEP_MIB = 0.25, 0.001
KIB_PER_GIB, BYTES_PER_MIB = 1024.0**2, 1024.0**2


@dataclass(frozen=True, slots=True, kw_only=True)
class InitOptions(Given):
    """Flags of `mark init TARGET`; None: asked on a terminal, or the default.

    seconds: how long to measure at most; 0 for not at all.
    """

    out: Path | None
    model: str | None
    latency_ms: float | None
    share: float | None
    memory_gib: float | None
    rps: float | None
    #: With the log or trace whose mean is the load to expect, if any.
    settings: Settings
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """A model that works: what it needs, its profiles, and what was written around it, for people."""

    needs: Needs
    profiles: tuple[Profile, ...]
    about: tuple[str, ...]


def write_model(options: InitOptions) -> Path:
    """Do what `measured_model` does, and say what can be done with the files; the path of mark.yaml."""
    folder, found = measured_model(options)
    show_needs(found)
    show_commands(folder, options, [found])
    return folder / CONFIG_FILE


def measured_model(options: InitOptions) -> tuple[Path, Examined]:
    """Try the model, ask, and write the three files; their folder, and what they say. Errors: Misconfigured."""
    check_flags(options)
    folder = options.out or source_of_target(options.target).parent
    refuse_existing(folder, options)
    with examined(options, mean_rps(options.settings)) as found:
        write_files(folder, found.needs.name, [found], options)
    return folder, found


@contextmanager
def examined(options: InitOptions, rps: float | None, taken: Sequence[str] = ()) -> Iterator[Examined]:
    """The model, tried and measured; what was written around it goes again where the block fails.

    rps: the load to expect, if a trace tells it. taken: names of other models. Errors: Misconfigured.
    """
    if not options.load and (lacking := _lacking(options)):
        raise Misconfigured("; ".join((lacking, *_mistakes_unloaded(options))))
    with as_class(options) as made:
        options = replace(options, target=made.target)
        if (name := _name(options)) in taken:
            raise Misconfigured(f"it is a second model named {name}; rename its file")
        model, tried = _tried(options, made.example) if options.load else (declared(options.target), None)
        needs = _asked_needs(options, model, tried, rps)
        profiles: tuple[Profile, ...] = () if options.load else (_assumed(needs),)
        if tried:
            profiles = _measured(options, needs, model, tried)
            _note_if_slow(needs, tried, profiles)
        needs = _with_memory(options, needs)
        parse_file(model_text([needs], ()), ModelFile, "the model")  # what flags gave, as the file would be
        yield Examined(needs=needs, profiles=profiles, about=made.about)


def write_files(folder: Path, service: str, models: Sequence[Examined], options: InitOptions) -> None:
    """Write model.json, mark.yaml and, where something was measured, profile.json."""
    needs = [one.needs for one in models]
    write_whole(folder / MODEL_FILE, model_text(needs, gpus()))
    write_whole(folder / CONFIG_FILE, config_text(folder, service, needs, options.settings.trace))
    if profiles := [profile for one in models for profile in one.profiles]:
        write_profiles(folder / PROFILE_FILE, profiles)
        if options.load:
            note_if_busy()


def mean_rps(settings: Settings) -> float | None:
    """The mean of a log or trace, requests/s; None without one. Misconfigured where it cannot be read."""
    if settings.trace.file is None:
        return None
    return max(LEAST_RPS, read_place(settings.trace.file, TraceReading.of(settings)).mean_rps)


def refuse_existing(folder: Path, options: InitOptions) -> None:
    """Misconfigured where files would be overwritten without --force, or the folder is named as a file."""
    if folder.suffix in (".yaml", ".yml"):
        raise Misconfigured(
            f"--out {folder}: with a model it is a folder, which gets {CONFIG_FILE} and other files"
        )
    names = [CONFIG_FILE, MODEL_FILE, *((PROFILE_FILE,) if options.seconds > 0 or not options.load else ())]
    there = [str(folder / name) for name in names if (folder / name).exists()]
    if there and not options.force:
        verb = "is" if len(there) == 1 else "are"
        raise Misconfigured(
            f"{', '.join(there)} {verb} there already; --force overwrites, --out names another folder"
        )


def check_flags(options: InitOptions) -> None:
    """Misconfigured where flags give what files cannot have, before anything is measured."""
    if not options.seconds >= 0:
        raise Misconfigured(f"--seconds must be 0 or more, not {options.seconds:g}")
    above = {"--slo-ms": options.latency_ms, "--memory-gib": options.memory_gib, "--rps": options.rps}
    for flag, figure in above.items():
        if figure is not None and not 0 < figure < math.inf:
            raise Misconfigured(f"{flag} must be above 0, not {figure:g}")
    if options.share is not None and not 0 < options.share <= 1:
        raise Misconfigured(f"--slo-target is a share above 0 and at most 1, not {options.share:g}")


def _lacking(options: InitOptions) -> str | None:
    """Which flags have to say what is not measured; None where nothing is missing."""
    if options.asks:
        return None
    flags = {"--slo-ms": options.latency_ms, "--memory-gib": options.memory_gib}
    lacking = [flag for flag, given in flags.items() if given is None]
    return f"--no-load measures nothing: give {' and '.join(lacking)}" if lacking else None


def _mistakes_unloaded(given: Given) -> tuple[str, ...]:
    try:
        check_unloaded(given)
    except Misconfigured as error:
        return (str(error),)
    return ()


def _assumed(needs: Needs) -> Profile:
    """A profile that nobody measured, so that the service can be deployed, which `mark profile --on` needs."""
    known = Provenance(
        evidence=Evidence.ASSUMED,
        source="mark init --no-load: nobody has measured it",
        formula=f"the objective over {TIMES:g}",
        date=datetime.now(UTC).date().isoformat(),
    )
    points = (LatencyPoint(batch=1, latency_s=needs.latency_ms / 1000 / TIMES),)
    return Profile(model=needs.name, instance_type=GPU_TYPE, points=points, provenance=known)


def gpus() -> tuple[str, ...]:
    """NVIDIA's accelerators in the price file."""
    return tuple(sorted({item.accelerator for item in load_prices().types if item.machine.endswith(NVIDIA)}))


def _tried(options: InitOptions, example: Tensors | None) -> tuple[PythonModel, Tried | None]:
    """The model and a call with an example, else zeros; None where nothing is measured.

    Misconfigured where it is no model.
    """
    target = options.target
    try:
        model = make_model(target, Path())
    except Misconfigured as error:
        raise Misconfigured(f"{error}; if it needs what this machine lacks, such as a GPU: --no-load") from error
    if mistakes := class_mistakes(model):
        why = None if hasattr(model, "predict") else no_model(target)
        raise Misconfigured(why or f"model {target!r}: {'; '.join(mistakes)}")
    if options.seconds <= 0:
        return model, None
    specs = tuple(model.inputs)
    if example is None:
        example = given_inputs(options.file, options.data, class_name(target), specs)
    try:
        inputs = zeros(specs, 1) if example is None else first_item(example)
        tried = try_stream(model, inputs) if streams(model) else try_model(model, inputs)
    except Misconfigured as error:
        if example is not None:
            raise
        raise Misconfigured(
            f"the model does not take zeros, so it cannot be measured: {error}; give an input with --data or "
            "--input, or write the files without a profile: --seconds 0"
        ) from error
    if tried.mistakes:
        raise Misconfigured(f"model {target!r}: {'; '.join(tried.mistakes)}")
    if tried.failed:
        note(f"{tried.failed} of {tried.calls + tried.failed} calls of the model failed; the others are measured")
    return model, tried


def _measured(options: InitOptions, needs: Needs, model: PythonModel, tried: Tried) -> tuple[Profile, ...]:
    """Profiles for an instance and for Lambda, which answers one request at a time: the same calls tell both."""
    profiled = ProfileOptions(
        model=needs.name,
        target=options.target,
        folder=Path(),
        kind="python",
        instance_type=None,
        batches=None,
        seconds=options.seconds,
        body=None,
        to=None,
        longest_s=(needs.latency_ms + needs.rest_ms) / 1000,
        made=model,
        example=tried.inputs,
    )
    profile = measured_profile(profiled).profile
    if tried.whole_s is not None:
        return (profile,)  # Lambda answers whole
    known = replace(profile.provenance, evidence=Evidence.STAND_IN)
    return profile, replace(
        profile, instance_type=LAMBDA, points=profile.points[:1], provenance=known, parallelism=UNSTATED
    )


def _note_if_slow(needs: Needs, tried: Tried, profiles: Sequence[Profile]) -> None:
    """Note that a request takes longer than is promised, by the calls that were fast."""
    single_s = tried.fastest_s if needs.streams else min(tried.fastest_s, profiles[0].latency_s(1))
    if single_s * 1000 > needs.latency_ms:
        what = "a first part" if needs.streams else "one request"
        note(
            f"{what} takes {call_ms(single_s)} here, longer than the {needs.latency_ms:g} ms that you promise: a "
            "machine like this one cannot keep them"
        )


def _asked_needs(options: InitOptions, model: PythonModel, tried: Tried | None, mean_rps: float | None) -> Needs:
    """Needs from flags, questions or defaults; memory is known once it is measured."""
    single_s = tried.fastest_s if tried else 0.0
    usual_ms = next((ms for ms in USUAL_LATENCY_MS if ms >= single_s * 1000 * TIMES), USUAL_LATENCY_MS[-1])
    usual_rps = USUAL_RPS if mean_rps is None else mean_rps
    is_stream = streams(model)
    rest_s = tried.whole_s - tried.median_s if tried is not None and tried.whole_s is not None else 0.0
    question = "Begin to answer within how many ms?" if is_stream else "Answer within how many ms?"
    latency_ms = _one(options, options.latency_ms, question, usual_ms)
    return Needs(
        name=_name(options),
        target=options.target,
        latency_ms=latency_ms,
        share=_one(options, options.share, "Which share of the requests must be in time?", USUAL_SHARE),
        memory_gib=0.0,
        payload_mib=_payload_mib(model, tried),
        rps=_one(options, options.rps, "How many requests/s are expected at first?", usual_rps),
        stated=options.latency_ms is not None or options.asks,
        streams=is_stream,
        tried=options.load,
        rest_ms=max(1, math.ceil(REST_TIMES * rest_s * 1000)) if is_stream and tried else 0,
    )


def _name(options: InitOptions) -> str:
    return options.model or class_name(options.target)


def _with_memory(options: InitOptions, needs: Needs) -> Needs:
    """The needs with the memory that this process had at its peak, the measured batches included."""
    peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / KIB_PER_GIB
    usual_gib = math.ceil(peak_gib / MEMORY_STEP_GIB) * MEMORY_STEP_GIB
    asked = _one(options, options.memory_gib, "How many GiB of memory does it need?", usual_gib)
    return replace(needs, memory_gib=asked)


def _one(options: InitOptions, given: float | None, question: str, default: float) -> float:
    """A figure from its flag, from the terminal, or its default."""
    if given is not None or not options.asks:
        return default if given is None else given
    answer: float = typer.prompt(question, default=default, type=float, err=True)
    return answer


def _payload_mib(model: PythonModel, tried: Tried | None) -> float:
    """One example with its answer as JSON, some 20 bytes a number, rounded up."""
    inputs = zeros(tuple(model.inputs), 1) if tried is None else tried.inputs
    outputs = zeros(tuple(model.outputs), 1) if tried is None else tried.outputs
    arrays = [*inputs.values(), *outputs.values()]
    size_mib = sum(20 * array.size + 200 for array in arrays) / BYTES_PER_MIB
    return max(1, math.ceil(size_mib / PAYLOAD_STEP_MIB)) * PAYLOAD_STEP_MIB


def show_needs(found: Examined) -> None:
    """Print what the model is, and how sure its figures are."""
    needs = found.needs
    show(*found.about)
    verb = " begin" if needs.streams else ""
    promise = f"{percent(needs.share)} of the requests{verb} within {needs.latency_ms:g} ms"
    show(f"{needs.name}: {promise}; {needs.memory_gib:g} GiB of memory")
    for profile in found.profiles:
        known = profile.provenance
        what = "one whole stream" if needs.streams else "one request"
        if known.evidence is Evidence.ASSUMED:
            show(f"{profile.instance_type}: {call_ms(profile.latency_s(1))} for {what}, assumed ({known.formula})")
            continue
        kind = "measured on" if known.evidence is Evidence.MEASURED else "a stand-in, measured on"
        show(f"{profile.instance_type}: {call_ms(profile.latency_s(1))} for {what}, {kind} {known.machine}")


def show_commands(folder: Path, options: InitOptions, models: Sequence[Examined]) -> None:
    """Print the files that were written, and commands that work as they are."""
    config = folder / CONFIG_FILE
    has_profiles = any(one.profiles for one in models)
    written = [config, folder / MODEL_FILE, *((folder / PROFILE_FILE,) if has_profiles else ())]
    show(f"wrote {', '.join(map(str, written))}")
    if not options.load:
        show(
            "next, with your account in its section `rollout` (docs/deploy.md):",
            f"  mark deploy --config {config}",
        )
        show(f"  mark profile --config {config} --on {GPU_TYPE} --out {folder / PROFILE_FILE}   # measures it")
        return
    one = f" --model {models[0].needs.name}" if len(models) > 1 else ""
    example = f" --data {shlex.quote(options.data)}" if options.data else ""
    example = f" --input {options.file}" if options.file else example
    why = "measures for longer" if has_profiles else "it has no profile yet"
    longer = f"mark profile --config {config}{one} --out {folder / PROFILE_FILE}"
    show("next:", f"  mark predict --config {config}{one}{example}")
    show(f"  {longer}   # {why}{', with zeros unless you give a --body' if example else ''}")
    show(f"  mark up --config {config} --detach", f"  mark down --config {config}")
    run = f"mark simulate --config {config}{one} --trace ACCESS_LOG --start-s 86400"
    show(f"what to run, with your traffic: {run}")
