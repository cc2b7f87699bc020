"""The files of the catalogue: prices, models and latency profiles, one schema each, JSON, units in the keys.

A profile file is what `mark profile` writes and what a config names beside the shipped ones:

    {"format": "mark-profiles/1",
     "profiles": [
       {"model": "inception-v3", "instance_type": "c5.large", "evidence": "published",
        "source": "who says so", "date": "2019", "machine": "", "formula": "", "variant": "base",
        "latency_ms_by_batch": {"1": 211.268, "2": 330.5}}]}

`evidence` is measured, stand-in (measured on `machine`, used for another type), published or assumed; an
assumed profile must state its `formula`, a stand-in its `machine`. `accuracy` is the share of items that a
variant answers right. The times hold for `replicas` of the model with `threads` each: one where neither is
stated. `also_measured` has others. Batches rise; `unstable_batches` are those whose median was
not yet known well when the time was up. The instance type `lambda` is Lambda, one request at a time. Latencies
keep six decimals of a millisecond. A source that is left out is "not stated". Unknown keys are refused, and so
is a key that stands twice; all mistakes of a file are named at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Annotated, Literal, Self, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from mark.catalog.mistakes import mistakes_line
from mark.domain.billing.service_prices import UNITS, ServiceItem, price_key
from mark.domain.errors import MarkError, Misconfigured
from mark.domain.models.objective import ModelSpec, Slo
from mark.domain.models.profile import (
    NOT_STATED,
    AlsoMeasured,
    Evidence,
    LatencyPoint,
    Parallelism,
    Profile,
    Provenance,
)
from mark.domain.offerings.offering import BurstCredits, InstanceType

LAMBDA = "lambda"
"""The instance type that stands for Lambda in a profile."""
PROFILE_FORMAT = "mark-profiles/1"
_MS_PER_S = 1000.0
_MS_DECIMALS = 6

Positive = Annotated[float, Field(gt=0)]
Name = Annotated[str, Field(min_length=1)]


class Entry(BaseModel):
    """A part of a catalogue file; an unknown key is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class CreditsEntry(Entry):
    """CPU credits of a burstable type, as the EC2 user guide's credit table states them."""

    earn_credits_per_hour: Positive
    max_credits: Positive
    baseline_percent: Annotated[float, Field(gt=0, le=100)]
    launch_credits_per_vcpu: Annotated[float, Field(ge=0)]
    keeps_when_stopped: bool
    unlimited: bool
    surplus_usd_per_vcpu_hour: Positive


class PriceEntry(Entry):
    """One instance type. Prices are USD per hour, Linux."""

    instance_type: Name
    vcpus: Annotated[int, Field(gt=0)]
    memory_gib: Positive
    architecture: Literal["amd64", "arm64"]
    on_demand_usd_per_hour: Positive
    spot_usd_per_hour: Positive | None = None
    spot_interruption_percent_per_month: Annotated[float, Field(ge=0, lt=100)] | None = None
    accelerator: str = ""
    accelerator_count: Annotated[int, Field(ge=0)] = 0
    accelerator_memory_gib: Positive | None = None
    credits: CreditsEntry | None = None

    @model_validator(mode="after")
    def _spot_is_not_dearer(self) -> Self:
        if self.spot_usd_per_hour is not None and self.spot_usd_per_hour > self.on_demand_usd_per_hour:
            raise ValueError(f"{self.instance_type}: spot price above on-demand price")
        if bool(self.accelerator) != bool(self.accelerator_count):
            raise ValueError(f"{self.instance_type}: an accelerator needs its count")
        if self.accelerator_memory_gib is not None and not self.accelerator:
            raise ValueError(f"{self.instance_type}: memory of an accelerator, and none is named")
        return self

    def to_domain(self) -> InstanceType:
        """The domain's word for it."""
        percent = self.spot_interruption_percent_per_month
        own = {"instance_type", "spot_interruption_percent_per_month", "credits"}
        return InstanceType(
            **self.model_dump(exclude=own),
            name=self.instance_type,
            spot_interruption_rate=None if percent is None else percent / 100,
            credits=None if self.credits is None else _credits(self.credits, self.vcpus),
        )


class PriceFile(Entry):
    """A dated snapshot of one region. `sources` says where each column comes from."""

    format: Literal["mark-prices/1"]
    region: Name
    date: Name
    sources: dict[str, str] = Field(min_length=1)
    types: list[PriceEntry] = Field(min_length=1)

    @model_validator(mode="after")
    def _each_type_once(self) -> Self:
        refuse_twice("instance type", [entry.instance_type for entry in self.types])
        return self


class ServicePriceEntry(Entry):
    """A price of a service, USD. `url` says where it was read, `date` when it held."""

    item: ServiceItem
    variant: str = ""
    usd: Positive
    unit: Name
    date: Name
    url: Annotated[str, Field(pattern=r"^https?://")]
    note: str = ""

    @model_validator(mode="after")
    def _in_its_unit(self) -> Self:
        if self.unit != UNITS[self.item]:
            raise ValueError(f"{self.item.value} is priced by the {UNITS[self.item]}, not by the {self.unit}")
        return self


class ServicePriceFile(Entry):
    """Prices of AWS's services beside instances, in one region; `date` is that of the table."""

    format: Literal["mark-service-prices/1"]
    region: Name
    date: Name
    prices: list[ServicePriceEntry] = Field(min_length=1)

    @model_validator(mode="after")
    def _each_price_once(self) -> Self:
        refuse_twice("price", [price_key(entry.item, entry.variant) for entry in self.prices])
        return self


class ModelEntry(Entry):
    """A model: objective and needs. Each rule that is not a quoted number stands beside it in words."""

    name: Name
    latency_ms: Positive
    target_percent: Annotated[float, Field(gt=0, le=100)]
    objective_source: str = ""
    memory_gib: Positive
    memory_source: str = ""
    payload_mib: Positive
    payload_source: str = ""
    architectures: tuple[Literal["amd64", "arm64"], ...] = Field(("amd64",), min_length=1)
    accelerators: tuple[str, ...] = ()
    cpu: bool = True
    redispatch: bool = True
    rows_are_items: bool = False
    sizes: str | None = None

    def to_domain(self) -> ModelSpec:
        """The domain's word for it."""
        own = {"latency_ms", "target_percent", "objective_source", "memory_source", "payload_source", "sizes"}
        return ModelSpec(
            **self.model_dump(exclude=own),
            slo=Slo(latency_s=self.latency_ms / _MS_PER_S, target=self.target_percent / 100),
            usual_sizes=self.sizes,
            source=f"objective: {self.objective_source or NOT_STATED}; "
            f"memory: {self.memory_source or NOT_STATED}; "
            f"payload: {self.payload_source or NOT_STATED}",
        )


class ModelFile(Entry):
    """Models by name."""

    format: Literal["mark-models/1"]
    models: list[ModelEntry] = Field(min_length=1)

    @model_validator(mode="after")
    def _each_model_once(self) -> Self:
        refuse_twice("model", [entry.name for entry in self.models])
        return self


class AlsoMeasuredEntry(Entry):
    """Latency of replicas x threads that were measured and not chosen, milliseconds."""

    replicas: int
    threads: int | None = None
    latency_ms_by_batch: dict[int, Positive] = Field(min_length=1)


class ProfileEntry(Entry):
    """Latency by batch size of one model (and variant) on one instance type, milliseconds.

    It holds for `replicas` of the model with `threads` each.
    """

    model: Name
    instance_type: Name
    variant: Name = "base"
    evidence: Evidence
    source: str = ""
    date: str = ""
    machine: str = ""
    formula: str = ""
    unstable_batches: tuple[Annotated[int, Field(gt=0)], ...] = ()
    cv: float | None = None
    accuracy: float | None = None
    replicas: int = 1
    threads: int | None = None
    latency_ms_by_batch: dict[int, Positive] = Field(min_length=1)
    also_measured: list[AlsoMeasuredEntry] = Field(default_factory=list)

    def to_domain(self) -> Profile:
        """The domain's word for it; raises Misconfigured where batches do not rise or a formula is missing."""
        return Profile(
            model=self.model,
            instance_type=self.instance_type,
            variant=self.variant,
            cv=self.cv,
            accuracy=self.accuracy,
            parallelism=Parallelism(self.replicas, self.threads),
            points=_points(self.latency_ms_by_batch),
            provenance=Provenance(
                evidence=self.evidence,
                source=self.source or NOT_STATED,
                date=self.date,
                machine=self.machine,
                formula=self.formula,
                unstable_batches=self.unstable_batches,
                also_measured=tuple(
                    AlsoMeasured(
                        parallelism=Parallelism(one.replicas, one.threads), points=_points(one.latency_ms_by_batch)
                    )
                    for one in self.also_measured
                ),
            ),
        )

    @classmethod
    def from_domain(cls, profile: Profile) -> Self:
        """The file's words for a profile."""
        known = profile.provenance
        return cls(
            model=profile.model,
            instance_type=profile.instance_type,
            variant=profile.variant,
            evidence=known.evidence,
            source=known.source,
            date=known.date,
            machine=known.machine,
            formula=known.formula,
            unstable_batches=known.unstable_batches,
            cv=None if profile.cv is None else round(profile.cv, 4),
            accuracy=None if profile.accuracy is None else round(profile.accuracy, 6),
            replicas=profile.parallelism.replicas,
            threads=profile.parallelism.threads,
            latency_ms_by_batch=_ms_by_batch(profile.points),
            also_measured=[
                AlsoMeasuredEntry(
                    replicas=one.parallelism.replicas,
                    threads=one.parallelism.threads,
                    latency_ms_by_batch=_ms_by_batch(one.points),
                )
                for one in known.also_measured
            ],
        )


def _points(ms_by_batch: Mapping[int, float]) -> tuple[LatencyPoint, ...]:
    return tuple(LatencyPoint(batch=batch, latency_s=ms / _MS_PER_S) for batch, ms in ms_by_batch.items())


def _ms_by_batch(points: Iterable[LatencyPoint]) -> dict[int, float]:
    return {point.batch: round(point.latency_s * _MS_PER_S, _MS_DECIMALS) for point in points}


class ProfileFile(Entry):
    """Profiles, in any order; a model, variant and type stand once."""

    format: Literal["mark-profiles/1"]
    profiles: list[ProfileEntry] = Field(min_length=1)

    @model_validator(mode="after")
    def _each_profile_once(self) -> Self:
        names = [f"{entry.model} ({entry.variant}) on {entry.instance_type}" for entry in self.profiles]
        refuse_twice("profile", names)
        return self


KEPT_FILES = 16
"""Files whose contents are kept: each model of a service reads the same ones."""
File = TypeVar("File", bound=BaseModel)


def parse_file(text: str, schema: type[File], where: str) -> File:
    """A catalogue file from its text; `where` names it in the one line of the error, which has all mistakes."""
    return cast("File", _parsed(text, schema, where))


@lru_cache(KEPT_FILES)
def _parsed(text: str, schema: type[BaseModel], where: str) -> BaseModel:
    try:
        raw = json.loads(text, object_pairs_hook=_refuse_double_keys)
    except (ValueError, RecursionError) as error:
        raise Misconfigured(f"{where}: not readable as JSON: {error}") from error
    try:
        return schema.model_validate(raw)
    except ValidationError as error:
        raise Misconfigured(f"{where}: {mistakes_line(error.errors(), raw, schema)}") from error


@lru_cache(KEPT_FILES)
def parse_profiles(text: str, where: str) -> tuple[Profile, ...]:
    """The profiles of a file, in its order."""
    file = parse_file(text, ProfileFile, where)
    try:
        return tuple(entry.to_domain() for entry in file.profiles)
    except MarkError as error:
        raise Misconfigured(f"{where}: {error}") from error


def format_profiles(profiles: Iterable[Profile]) -> str:
    """The text of a profile file, one profile to a paragraph, its points on one line."""
    paragraphs = []
    for profile in profiles:
        entry = ProfileEntry.from_domain(profile).model_dump(mode="json", exclude_defaults=True)
        paragraphs.append("    {" + _joined_lines(entry, indent=5) + "}")
    return f'{{"format": "{PROFILE_FORMAT}",\n  "profiles": [\n' + ",\n".join(paragraphs) + "]}\n"


def _joined_lines(entry: dict[str, object], *, indent: int) -> str:
    pairs = (f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in entry.items())
    return (",\n" + " " * indent).join(pairs)


def _credits(entry: CreditsEntry, vcpus: int) -> BurstCredits:
    return BurstCredits(
        vcpus=vcpus,
        earn_per_hour=entry.earn_credits_per_hour,
        max_balance=entry.max_credits,
        baseline=entry.baseline_percent / 100,
        launch_credits=entry.launch_credits_per_vcpu * vcpus,
        keeps_when_stopped=entry.keeps_when_stopped,
        unlimited=entry.unlimited,
        surplus_usd_per_vcpu_hour=entry.surplus_usd_per_vcpu_hour,
    )


def refuse_twice(kind: str, names: list[str]) -> None:
    """Refuse a file in which a name stands twice."""
    if len({*names}) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{kind} {twice} stands twice")


def _refuse_double_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    refuse_twice("key", [key for key, _ in pairs])
    return dict(pairs)
