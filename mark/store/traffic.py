"""Gateways' reports: as arguments of the script that counts them, and the totals again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from mark.domain.documents import json_text
from mark.domain.load.size_window import add_sizes
from mark.domain.load.traffic import (
    CLIENT_COUNTS,
    FAILURE_KINDS,
    MODEL_COUNTS,
    MODEL_SUMS,
    ClientTraffic,
    FailureKind,
    GatewayReport,
    ModelTraffic,
)
from mark.domain.models.versions import VERSION_COUNTS, VersionCounts
from mark.store.keys import Keys

ARRIVED = "arrived"
FAILURES = "failures"
"""Name of the latest kinds of failures, among the counts of the model: JSON."""
SIZE = "size/"
"""Start of the names of counts by size: `size/ITEMS`, among those of the model."""
ENTERED = "entered/"
"""Start of the names of counts by the zone in which requests came in: `entered/ZONE`, likewise."""
FIRST_BYTE = "first_byte/"
"""Start of the names of counts by the bin of the first byte: `first_byte/BIN`, likewise."""
CLIENT = "client/"
"""Start of the names of clients' counts: `client/NAME/COUNT`, among those of the model."""
VERSION = "version/"
"""Start of the names of versions' counts, likewise."""
KEEP_WINDOWS = 720
"""Windows of arrivals that are kept: an hour of service time. Totals are kept for good."""
GATEWAY_TTL_S = 10.0
"""After how long a silent gateway's gauges count no more, in wall seconds."""
REMEMBER_S = 86400.0
"""For how long a silent gateway's last sequence is known, in wall seconds."""


def report_keys(keys: Keys, report: GatewayReport) -> list[str]:
    """Keys of the script REPORT."""
    own = [
        keys.of(name, model.model)
        for model in report.models
        for name in ("arrivals", "shared", "traffic", "latency", "gauges")
    ]
    return [keys.of("sequences"), keys.of("gateways"), *own]


def report_args(report: GatewayReport) -> list[str | int]:
    """Arguments of the script REPORT."""
    remember_ms = round(1000 * REMEMBER_S)
    models = [json_text(_model_document(model)) for model in report.models]
    return [report.gateway, report.sequence, KEEP_WINDOWS, remember_ms, *models]


def version_counts(version: str) -> tuple[str, ...]:
    """Names of a version's counts, among those of its model."""
    return tuple(f"{VERSION}{version}/{name}" for name in VERSION_COUNTS)


def traffic_keys(keys: Keys, model: str) -> list[str]:
    """Keys of the script TRAFFIC."""
    return [keys.of("gateways"), *(keys.of(name, model) for name in ("traffic", "latency", "gauges"))]


def traffic_totals(model: str, answer: Sequence[Sequence[bytes]]) -> ModelTraffic:
    """Read the answer of the script TRAFFIC as totals; `arrivals` and `shared` stay empty."""
    traffic, latencies, gauges = answer
    tallies = _pairs(traffic)
    told = [_gauges(gauge) for gauge in gauges]
    totals: dict[str, Any] = {
        **{name: int(tallies.get(name, 0)) for name in MODEL_COUNTS},
        **{name: float(tallies.get(name, 0.0)) for name in MODEL_SUMS},
    }
    return ModelTraffic(
        model=model,
        latency_counts=tuple(sorted((int(place), int(count)) for place, count in _pairs(latencies).items())),
        lambda_in_flight=sum(gauge.in_flight for gauge in told),
        lambda_warm=sum(gauge.warm for gauge in told),
        recent_known=sum(gauge.recent_known for gauge in told),
        recent_sum=sum(gauge.recent_sum for gauge in told),
        clients=tuple(ClientTraffic(client=name, **one) for name, one in _counts(tallies, CLIENT, CLIENT_COUNTS)),
        sizes=add_sizes(_numbered(tallies, SIZE)),
        entered=tuple(
            sorted(
                (name.removeprefix(ENTERED), int(one)) for name, one in tallies.items() if name.startswith(ENTERED)
            )
        ),
        first_byte_counts=tuple(sorted(_numbered(tallies, FIRST_BYTE))),
        versions=tuple(
            VersionCounts(version=name, **one) for name, one in _counts(tallies, VERSION, VERSION_COUNTS)
        ),
        failures=_failures(tallies.get(FAILURES, b"[]")),
        gateways=len(told),
        **totals,
    )


def _model_document(model: ModelTraffic) -> dict[str, Any]:
    """One model's part of a report; what is nothing is left out."""
    whole = {name: getattr(model, name) for name in MODEL_COUNTS} | {
        ARRIVED: sum(count for _, count in model.arrivals)
    }
    whole |= {
        f"{CLIENT}{one.client}/{name}": getattr(one, name) for one in model.clients for name in CLIENT_COUNTS
    }
    whole |= {f"{SIZE}{size}": count for size, count in model.sizes}
    whole |= {f"{ENTERED}{zone}": count for zone, count in model.entered}
    whole |= {f"{FIRST_BYTE}{place}": count for place, count in model.first_byte_counts}
    whole |= {
        f"{VERSION}{one.version}/{name}": getattr(one, name) for one in model.versions for name in VERSION_COUNTS
    }
    real = {name: getattr(model, name) for name in MODEL_SUMS}
    failures = {
        "failures": [{"kind": one.kind, **asdict(one)} for one in model.failures],
        "most_failures": FAILURE_KINDS,
    }
    return {
        **(failures if model.failures else {}),
        "whole": {name: count for name, count in whole.items() if count},
        "real": {name: repr(float(value)) for name, value in real.items() if value},
        "arrivals": model.arrivals,
        "shared": model.shared,
        "latencies": model.latency_counts,
        "gauges": f"{model.lambda_in_flight} {model.lambda_warm} {model.recent_known} {model.recent_sum!r}",
    }


def _counts(
    tallies: Mapping[str, bytes], start: str, names: Sequence[str]
) -> Iterator[tuple[str, Mapping[str, int]]]:
    """Counts of each whose names are `start`WHOSE/NAME, by whose they are."""
    counts: dict[str, dict[str, int]] = {}
    for key, value in tallies.items():
        if key.startswith(start):
            whose, _, name = key.removeprefix(start).rpartition("/")
            if name in names:
                counts.setdefault(whose, {})[name] = int(value)
    return iter(sorted(counts.items()))


def _failures(text: bytes) -> tuple[FailureKind, ...]:
    return tuple(
        FailureKind(text=str(one["text"]), count=int(one["count"]), since=float(one["since"]), at=float(one["at"]))
        for one in json.loads(text)
    )


def _numbered(tallies: Mapping[str, bytes], start: str) -> Iterator[tuple[int, int]]:
    """Counts whose names are `start` and a number, with it."""
    return ((int(key.removeprefix(start)), int(count)) for key, count in tallies.items() if key.startswith(start))


class _Gauges(NamedTuple):
    """A gateway's gauges; one of an earlier version sends no more than the first two."""

    in_flight: int
    warm: int
    recent_known: int = 0
    recent_sum: float = 0.0


def _gauges(text: bytes) -> _Gauges:
    in_flight, warm, *recent = text.split()
    known, total = recent or (b"0", b"0")
    return _Gauges(int(in_flight), int(warm), int(known), float(total))


def _pairs(flat: Sequence[bytes]) -> dict[str, bytes]:
    return {name.decode(): value for name, value in zip(flat[::2], flat[1::2], strict=True)}
