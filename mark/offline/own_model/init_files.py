"""Texts of model.json and mark.yaml as `mark init` writes them for models of one's own. Pure, but for paths."""

from __future__ import annotations

import math
import os
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from mark.catalog.shipped_models import MODEL_FILE, PROFILE_FILE
from mark.config.trace import TraceSettings
from mark.domain.documents import json_text
from mark.plugins.packages import requirements_of

ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
REST_TIMES = 2.0
"""What is planned for after a stream's first part, by what was measured alone: several run at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """Objective and needs of the model; share in (0, 1]."""

    name: str
    #: As settings name it; a file counts from the working directory.
    target: str
    latency_ms: float
    share: float
    memory_gib: float
    payload_mib: float
    rps: float
    #: Somebody said which latency is promised.
    stated: bool
    streams: bool
    #: The model was tried here; else all of this is stated, for a GPU that this machine has not.
    tried: bool
    #: Of a stream: what usually follows its first part. 0: nothing, or it is not known.
    rest_ms: float


def model_text(models: Sequence[Needs], gpus: Sequence[str]) -> str:
    """Text of model.json. gpus: accelerators for models that were not tried on this machine."""
    entries = [_entry(needs, gpus) for needs in models]
    return json_text({"format": "mark-models/1", "models": entries}, indent=2) + "\n"


def _entry(needs: Needs, gpus: Sequence[str]) -> dict[str, Any]:
    proposed = f"proposed by mark init: ten times {'a first part' if needs.streams else 'one request'}"
    measured = "mark init: peak of one process that loads and calls it, rounded up"
    return {
        "name": needs.name,
        "latency_ms": needs.latency_ms,
        "target_percent": round(needs.share * 100, 6),
        "objective_source": "stated to mark init" if needs.stated else proposed,
        "memory_gib": needs.memory_gib,
        "memory_source": measured if needs.tried else "stated to mark init",
        "payload_mib": round(needs.payload_mib, 6),
        "payload_source": "mark init: one example with its answer as JSON",
        "architectures": [ARCHITECTURES.get(platform.machine().lower(), "amd64") if needs.tried else "amd64"],
        "accelerators": [] if needs.tried else list(gpus),
        "cpu": True,
        "redispatch": True,
    }


def config_text(folder: Path, service: str, models: Sequence[Needs], trace: TraceSettings) -> str:
    """Text of mark.yaml in that folder, which serves these models."""
    name = re.sub(r"[^a-z0-9-]", "-", service.lower()).strip("-")[:31]
    return CONFIG.format(
        model=_quoted(models[0].name),
        service=name if name[:1].isalpha() else "mark",
        serve="".join(_serve_text(folder, needs) for needs in models),
        models=MODEL_FILE,
        profiles=PROFILE_FILE,
        trace=_trace_text(folder, trace),
        rollout="" if all(needs.tried for needs in models) else ROLLOUT,
    )


def _serve_text(folder: Path, needs: Needs) -> str:
    where, _, attribute = needs.target.rpartition(":")
    here = os.path.relpath(Path.cwd(), folder)
    is_file = where.endswith(".py")
    shown = f"{os.path.relpath(Path(where).expanduser(), folder)}:{attribute}" if is_file else needs.target
    return SERVE.format(
        name=_quoted(needs.name),
        target=_quoted(shown),
        folder="" if here == "." else FOLDER.format(folder=_quoted(here)),
        streams=_streams_text(needs),
        overflow=_overflow_text(needs),
        rps=f"{needs.rps:g}",
    )


def _overflow_text(needs: Needs) -> str:
    if requirements_of(needs.target, Path.cwd()) is not None:
        return WITHOUT_LAMBDA
    return "" if needs.streams or not needs.tried else OVERFLOW


def _streams_text(needs: Needs) -> str:
    """The lines of a model that streams; those of its objective only where its rest was measured."""
    if not needs.streams:
        return ""
    source = f"{REST_TIMES:g} times what was measured"
    first = FIRST_BYTE.format(source=source, latency=needs.latency_ms, rest=needs.rest_ms)
    return STREAMS + (first if needs.rest_ms else "")


def _trace_text(folder: Path, trace: TraceSettings) -> str:
    """The section `trace`, in a comment where there is none."""
    if trace.file is None:
        return "# trace: {file: load.csv.gz, start_s: 86400}"
    given = trace.model_dump(exclude_defaults=True, exclude={"file"})
    more = "".join(f", {key}: {json_text(value)}" for key, value in given.items())
    return f"trace: {{file: {_quoted(_from(folder, trace.file))}{more}}}"


def _quoted(text: str) -> str:
    """The text in YAML, which takes JSON's but for surrogates."""
    return yaml.safe_dump(text, default_style='"', allow_unicode=True, width=math.inf).strip()


def _from(folder: Path, place: str) -> str:
    """A file's path from that folder; another place as it is."""
    return os.path.relpath(place, folder) if Path(place).exists() else place


CONFIG = """\
# What MArk serves, and what it promises. docs/settings.md explains every key; an unknown one is refused.
# Paths count from this file's folder.

# The model's objective and needs, and its latency by instance type (`mark profile` adds types to it).
model: {model}
models: {models}
profiles: [{profiles}]

# How instances are bought: on-demand or spot.
market: on-demand

# The policy that decides what is rented; `mark policies` lists them.
policies: [hedged]

service:
  name: {service}

  # Where clients reach the gateway. Beyond loopback a token is required.
  host: 127.0.0.1
  # port: 8080

  serve:
{serve}\

# A trace of your own traffic for `mark simulate`: what lies before start_s is what forecasters learn from.
{trace}

# What may be spent in a day and a month (UTC), and what happens then: warn, floor or pause.
# budget: {{daily_usd: 50, monthly_usd: 900, when_reached: floor}}
{rollout}\
"""

ROLLOUT = """\

# What `mark deploy` makes launch templates for: also machines with an NVIDIA GPU (docs/deploy.md).
rollout:
  machines: [{architecture: amd64}, {architecture: amd64, accelerator: nvidia}]
"""

WITHOUT_LAMBDA = """\
      # Functions of Lambda do not install the packages that the model brings in requirements.txt.
      offerings: {overflow: false}
"""

OVERFLOW = """\
      # Lambda takes what instances cannot answer in time. The profile has a stand-in of it, measured here;
      # `mark profile --on lambda` measures it in AWS.
      # offerings: {overflow: false}
"""

STREAMS = """\
        # Answers come in parts (docs/protocols.md); Lambda, which answers whole, takes none.
        streams: true
"""

FIRST_BYTE = """\
      # A stream is in time if it begins within latency_ms. rest_ms is what usually follows, here
      # {source}.
      objective: {{measured: first_byte, latency_ms: {latency:g}, rest_ms: {rest:g}}}
"""

FOLDER = """\
        # Imports are looked for here, too: where `mark init` ran, as this file's folder lies in another one.
        folder: {folder}
"""

SERVE = """\
    - model: {name}
      # path/file.py:Name or module:Name; what lies in its folder may be imported.
      backend:
        kind: python
        target: {target}
{folder}\
{streams}\
      # The load to start with, requests/s, until there is a history.
      expected_rps: {rps}
{overflow}\
"""
