"""The trace that settings or flags name: of files, of a folder, or of S3, read once and by one reader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from mark.config.settings import Settings
from mark.config.trace import TraceSettings
from mark.simulator.traces.bursts import with_bursts
from mark.simulator.traces.formats.filters import parse_where
from mark.simulator.traces.formats.rows import RowKind, TraceOptions
from mark.simulator.traces.formats.sources import S3, Objects
from mark.simulator.traces.formats.times import DayOrder
from mark.simulator.traces.trace import AS_IT_IS, Trace, read_trace

DEFAULTS = TraceSettings()
REGION = Settings().service.aws.region


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceReading:
    """Options of reading a trace, and the bursts to draw within its long bins."""

    options: TraceOptions = AS_IT_IS
    bursts: str = DEFAULTS.bursts
    region: str = REGION

    @classmethod
    def of(cls, settings: Settings) -> TraceReading:
        """The reading that settings ask for."""
        given = settings.trace
        options = TraceOptions(
            where=parse_where(given.where),
            rows=RowKind(given.rows) if given.rows else None,
            time=given.time,
            value=given.value,
            zone=ZoneInfo(given.tz) if given.tz else None,
            dates=DayOrder(given.dates) if given.dates else None,
        )
        return cls(options=options, bursts=given.bursts, region=settings.service.aws.region)


def read_place(place: str, reading: TraceReading) -> Trace:
    """The trace at a path, a folder, a pattern or a prefix of S3, as it stands there."""
    return read_places([place], reading)


def read_places(places: Sequence[str], reading: TraceReading) -> Trace:
    """The trace of several places, as a shell writes out a pattern."""
    with open_objects(places, reading.region) as objects:
        return read_trace(places, reading.options, objects)


def given_trace(settings: Settings) -> Trace | None:
    """The trace that settings name by a file, with bursts where its bins show none."""
    chosen = settings.trace
    if chosen.file is None:
        return None
    return with_bursts(read_place(chosen.file, TraceReading.of(settings)), chosen.bursts, settings.seed)


@contextmanager
def open_objects(places: Sequence[str], region: str) -> Iterator[Objects | None]:
    """A reader of S3 with the account's own credentials, where a place is there."""
    if not any(place.startswith(S3) for place in places):
        yield None
        return
    # boto3 takes half a second to import, and only this needs it
    from mark.aws.objects import BucketReader  # noqa: PLC0415
    from mark.aws.session import Aws, AwsSettings  # noqa: PLC0415

    aws = Aws(AwsSettings(region=region))
    try:
        yield BucketReader(aws)
    finally:
        aws.close()
