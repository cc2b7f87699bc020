"""Settings of a load that was recorded."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from mark.config.capacity import TimeZone
from mark.config.parts import NotNegative, Part, Positive


class TraceSettings(Part):
    """The load that is replayed (docs/traces.md)."""

    file: str | None = Field(
        None,
        description="What was recorded: a file, a folder, a pattern such as logs/*.gz, or s3://bucket/prefix.",
    )
    where: tuple[str, ...] = Field(
        (), description="Requests or series to take, such as path=/v2/* or status!=5*; all when left out."
    )
    rows: Literal["counts", "rates", "requests"] | None = Field(
        None,
        description="Meaning of a CSV's rows where its header does not say; inferred when left out.",
    )
    time: str | None = Field(
        None, description="Column or JSON key of the time, such as data.time; found by name when left out."
    )
    value: str | None = Field(
        None,
        description="Column or JSON key of the load; found by name when left out. JSON lines are requests then.",
    )
    tz: TimeZone | None = Field(
        None, description="Zone of times that name none, such as Europe/Berlin; UTC when left out."
    )
    dates: Literal["dmy", "mdy"] | None = Field(
        None, description="Order of dates with slashes, where the file does not tell it."
    )
    bursts: Literal["none", "typical", "strong"] = Field(
        "typical", description="Bursts to draw within bins of more than a minute, which show none."
    )
    mean_rps: Positive | None = Field(None, description="Scale the trace so that the replayed part has this mean.")
    scale: Positive = Field(
        1.0, description="Multiply the whole load, its history too, after `mean_rps`: 2 asks for twice as much."
    )
    start_s: NotNegative = Field(
        0.0, description="Where the replay starts on the trace's clock; what lies before is the history."
    )
    duration_s: Positive | None = Field(None, description="How long the replay lasts; to the end when left out.")
    sizes: str | None = Field(
        None,
        description="Sizes of requests in items (docs/papers.md): lognormal:MU,SIGMA,MIN,MAX, "
        "normal:MU,SIGMA,MIN,MAX, constant:N, kairos, or a CSV size,probability. Left out, the model's, or one "
        "item each.",
    )
    speed: float = Field(
        1.0,
        ge=1,
        allow_inf_nan=False,
        description="Moves through the trace so many times as fast; one request stands for as many.",
    )
