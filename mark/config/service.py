"""Settings of what is promised, what may be rented, and of the live service."""

from __future__ import annotations

import math
import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator
from pydantic_core import PydanticCustomError

from mark.config.capacity import CapacitySchedule
from mark.config.parts import (
    DispatchRule,
    NotNegative,
    Part,
    Positive,
    PositiveInt,
    Share,
    default_of,
)
from mark.config.trace import TraceSettings
from mark.controller.policy import COVER_SHARE
from mark.dispatch.central.policy import TooLate
from mark.dispatch.policy import Late
from mark.domain.models.versions import LONGEST_S, CanaryPolicy, are_steps
from mark.domain.offerings.offering import Market
from mark.domain.plans.service_cap import ServiceCap
from mark.policies.bundles import reported_policies

Port = Annotated[int, Field(ge=0, le=65535)]


def _checked_name(name: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,30}", name):
        raise PydanticCustomError(
            "service_name", "should be a small letter and then at most 30 small letters, digits and dashes"
        )
    return name


ServiceName = Annotated[str, AfterValidator(_checked_name)]
LOCAL_GATEWAYS = 2
"""Gateway processes on this machine."""
RIVALS = ("autoscaler-spill", "sagemaker", "reactive", "static-peak", "lambda-only")
"""Policies that a report compares with where none are named: the hardest to beat of what teams run today, which is
tuned on the day before, and what is cheap to replay beside it."""


class Mode(StrEnum):
    """Mode of a service: it serves, or only says what it would do."""

    SERVE = "serve"
    OBSERVE = "observe"


class Measured(StrEnum):
    """Measure of an objective."""

    ANSWER = "answer"
    FIRST_BYTE = "first_byte"


class ObjectiveSettings(Part):
    """Objective of a model. What is left out is the model's own."""

    latency_ms: Positive | None = Field(None, description="A request is in time when it is answered within this.")
    target: Share | None = Field(None, description="Share of the requests that must be in time.")
    mean_latency_ms: Positive | None = Field(
        None, description="Mean latency that a plan may reach at most; half of latency_ms when left out."
    )
    measured: Measured = Field(
        Measured.ANSWER,
        description="What latency_ms and mean_latency_ms are of: the whole answer, or of a model that streams the "
        "first byte (docs/protocols.md).",
    )
    rest_ms: Positive | None = Field(
        None,
        description="With first_byte, what an answer usually takes from its first byte to its end, ms: plans, "
        "deadlines and replays count it beside latency_ms.",
    )
    late: Late = Field(
        Late.SERVE, description="A request that cannot be served in time is served late, or shed with a 503."
    )
    accuracy_floor: Share | None = Field(
        None,
        description="Share of answers that must be right, for a model with variants (docs/papers.md): no less "
        "accurate variant answers, and plans count on the first that does.",
    )
    soft_deadline_ms: Positive | None = Field(
        None,
        description="In a replay with variants: until when an answer has its full quality (docs/papers.md), ms. "
        "The default is the objective's latency.",
    )
    hard_deadline_ms: Positive | None = Field(
        None,
        description="In a replay with variants: from when on an answer has no quality, ms. The default is twice "
        "the soft deadline.",
    )


class OfferingSettings(Part):
    """Types that may be rented."""

    types: tuple[str, ...] = Field(
        (),
        description="Instance types to choose from, and sets of them: current (all profiled types that AWS still "
        "rents), cpu (of those the ones without an accelerator), paper (what MArk's evaluation rented, p2 among "
        "them). Empty means current.",
    )
    overflow: bool = Field(True, description="Whether Lambda takes what the instances cannot serve in time.")
    standby_type: str | None = Field(
        None,
        description="Type of the standbys; left out, the cheapest burstable type that can serve, or any type; for "
        "hedged the one that carries a surge for least.",
    )
    standby_share: float = Field(
        COVER_SHARE,
        ge=0,
        le=1,
        description="Share of the planned capacity that standbys can bridge on spot; 0 for none. hedged keeps as "
        "many as pay, on either market.",
    )


class BackendSettings(Part):
    """Backend that runs the model behind an agent."""

    kind: Literal["emulated", "python", "oip", "tf-serving", "invocations"] = Field(
        "emulated",
        description="emulated takes the time that the profile states and answers zeros; python loads a class; "
        "the others are servers with the Open Inference Protocol v2, TF Serving's REST or /invocations.",
    )
    target: str = Field("", description="module:attribute or path/file.py:Name for python, else the server's URL.")
    folder: Path | None = Field(
        None,
        description="Folder that a python target's module, and what it imports, is looked for in first; the "
        "file's own folder when left out. In an AWS account it is what the image or the bundle holds.",
    )
    streams: bool = Field(
        False,
        description="Every answer comes in parts and keeps a slot of its instance until it ends: of python a "
        "predict that yields, of oip and invocations what the server streams (docs/protocols.md).",
    )


class Sharing(StrEnum):
    """With whom a model may share instances."""

    ANY = "any"
    TEAM = "team"
    ALONE = "alone"


class ServedSettings(Part):
    """One model of the service. What is left out is taken from the top of the file."""

    model: str = Field(description="The model; `mark models` lists those that are shipped.")
    backend: BackendSettings = Field(BackendSettings(), description="What runs it.")
    objective: ObjectiveSettings | None = Field(None, description="What is promised for it.")
    market: Market | None = Field(None, description="How its instances are bought.")
    offerings: OfferingSettings | None = Field(
        None, description="What may be rented for it; each key that is left out is that of the top of the file."
    )
    profiles: tuple[str, ...] | None = Field(None, description="Its latency profiles: files or shipped sets.")
    policy_name: str | None = Field(None, description="Its policy; `mark policies` lists them.")
    forecaster: str | None = Field(None, description="Replaces its policy's forecaster.")
    dispatch: DispatchRule | None = Field(
        None,
        description="Replaces its policy's rule that routes requests, chooses its variants, or names that of a "
        "central queue.",
    )
    too_late: TooLate | None = Field(
        None, description="With a central queue, a request that no instance can answer in time any more."
    )
    capacity: CapacitySchedule | None = Field(
        None, description="Its bounds of capacity by the clock, in place of those of the top of the file."
    )
    trace: TraceSettings | None = Field(
        None,
        description="Its own traffic: a file, or keys as under `trace`. A key that is left out is that of the top "
        "of the file.",
    )
    sharing: Sharing = Field(
        Sharing.ANY,
        description="Models that may run on the same instance: any of the service's that name no team, those of "
        "the same `team`, or none (alone). docs/live.md says when models share.",
    )
    team: str = Field("", description="Its team, where `sharing` is team.")
    weight: Positive = Field(
        1.0,
        description="Where the models want more than `service.aws` allows them all: what this one's instances "
        "save counts so many times. Its floor is `capacity[].min_rps`, its own limit `capacity[].max_rps`.",
    )
    expected_rps: Positive | None = Field(
        None, description="Load to start with where no trace says what came before; 10 when left out."
    )


class AwsSettings(Part):
    """The AWS that the service rents from."""

    region: str = Field("us-east-1", description="Region.")
    account: Literal["grown", "new", "free"] = Field(
        "grown",
        description="Limits of the emulated AWS: those of a new account are 5 vCPUs, nothing with an accelerator, "
        "10 calls of Lambda at once and functions of 3,008 MB; free is a new one on AWS's Free plan, which may "
        "launch few types.",
    )
    max_usd_per_hour: Positive | None = Field(
        None,
        description="No launch, and no standby's waking, that would take the price of all models' instances above "
        "this. Where they want more, it goes to where it saves most. Left out, `mark deploy` takes twice what the "
        "busiest minute so far costs on demand, and `mark up` no limit.",
    )
    max_vcpus: Positive | None = Field(None, description="The same in vCPUs of all models' instances.")
    max_gpus: Positive | None = Field(None, description="The same in their accelerators.")
    ask_above_usd_per_hour: Positive | None = Field(
        None,
        description="`mark up` asks before it starts a first plan that costs more than this an hour, all in all; "
        "`mark deploy` always asks, and its question then names the price. Left out: 1 USD for `mark deploy`; "
        "`mark up`, whose AWS is emulated, never asks.",
    )

    @property
    def cap(self) -> ServiceCap:
        """What the instances of all models may be together."""
        limits = (self.max_usd_per_hour, self.max_vcpus, self.max_gpus)
        usd, vcpus, gpus = (math.inf if most is None else most for most in limits)
        return ServiceCap(usd_per_hour=usd, vcpus=vcpus, gpus=gpus)


class RetrainSettings(Part):
    """Training of the service's forecasters anew, in the background. Hours are of the service's clock."""

    every_h: Positive | None = Field(24.0, description="Hours between two trainings; null trains by drift alone.")
    drift: Annotated[float, Field(gt=1, allow_inf_nan=False)] | None = Field(
        1.5,
        description="Train at once when the losses of the last 3 h are this many times those of the day before; "
        "null trains by the clock alone.",
    )
    at_least_h: NotNegative = Field(3.0, description="Hours before drift or a failure may ask for another.")
    limit_min: Positive = Field(60.0, description="Real minutes after which a training is aborted.")


UpToAWeek = Annotated[NotNegative, Field(le=LONGEST_S)]


class RolloutsSettings(Part):
    """How new versions of models take over, where `mark rollout start` says nothing else (docs/versions.md)."""

    canary: tuple[float, ...] = Field(
        tuple(100 * share for share in default_of(CanaryPolicy, "steps")),
        description="Shares of the requests that the new version answers, in percent, rising to 100; empty: it is "
        "compared alone, by its shadow.",
    )
    dwell_s: UpToAWeek = Field(
        default_of(CanaryPolicy, "dwell_s"),
        description="Seconds of service time for which each share is held at least.",
    )
    least_answers: Annotated[int, Field(ge=1)] | None = Field(
        None,
        description="Answers of the new version for which each share is held, for a week at most, after which the "
        "rollout is aborted. Left out: as many as find out, in 95 % of cases, a version that misses the objective "
        "twice as often as it may (781 for a target of 98 %), or what comes in four dwells.",
    )
    ready_within_s: Annotated[Positive, Field(le=LONGEST_S)] = Field(
        default_of(CanaryPolicy, "ready_within_s"),
        description="Seconds of service time in which a step's instances must be ready.",
    )
    shadow: Annotated[float, Field(ge=0, le=100)] = Field(
        0.0,
        description="Share of the requests, in percent, that is also sent to the new version before its first "
        "step, to compare its answers.",
    )
    shadow_dwell_s: UpToAWeek = Field(
        default_of(CanaryPolicy, "shadow_dwell_s"),
        description="Seconds of service time for which answers are compared at least.",
    )
    most_differing: Annotated[float, Field(ge=0, le=100)] | None = Field(
        None,
        description="Abort where more than this share of the compared answers differs, in percent; left out, "
        "never.",
    )
    tolerance: NotNegative = Field(
        default_of(CanaryPolicy, "tolerance"),
        description="Two floats count as the same where they differ by no more than this times (1 + the stable "
        "version's).",
    )

    @field_validator("canary")
    @classmethod
    def _rises(cls, percents: tuple[float, ...]) -> tuple[float, ...]:
        if not are_steps([percent / 100 for percent in percents]):
            raise PydanticCustomError(
                "canary", "should be percents that rise and end with 100, such as [5, 25, 100]"
            )
        return percents

    @property
    def policy(self) -> CanaryPolicy:
        """The steps, times and bounds. Misconfigured where the steps are none."""
        policy = CanaryPolicy(
            steps=tuple(share / 100 for share in self.canary),
            dwell_s=self.dwell_s,
            least_answers=self.least_answers,
            ready_within_s=self.ready_within_s,
            shadow=self.shadow / 100,
            shadow_dwell_s=self.shadow_dwell_s,
            most_differing=None if self.most_differing is None else self.most_differing / 100,
            tolerance=self.tolerance,
        )
        policy.check()
        return policy


class ReportSettings(Part):
    """Work of the service for its cost report."""

    policies: tuple[str, ...] = Field(
        RIVALS,
        description="Policies that the acting controller replays each past day under, after midnight (UTC) and in "
        "the background, so that every report has what they would have cost; `mark report` replays the same. None "
        "when empty.",
    )

    @field_validator("policies")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name not in reported_policies():
                raise ValueError(f"no policy {name}; known: {', '.join(reported_policies())}")
        return tuple(dict.fromkeys(names))


class ServiceSettings(Part):
    """The live service on this machine."""

    name: ServiceName = Field("mark", description="Its name: several services may run side by side.")
    mode: Mode = Field(
        Mode.SERVE,
        description="serve rents a fleet and answers; observe forecasts and plans beside a fleet that is there, "
        "rents nothing, calls no Lambda, and tells what would have been spent (docs/report.md).",
    )
    existing_usd_per_hour: Positive | None = Field(
        None, description="What the fleet that serves costs an hour where this service only observes."
    )
    serve: tuple[ServedSettings, ...] = Field(
        (),
        description="Its models; empty takes `model`, or without one inception-v3 (emulated) and digits (torch).",
    )
    host: str = Field("127.0.0.1", description="Where the gateway listens; beyond loopback a token is required.")
    port: Port | None = Field(None, description="The gateway's port; left out, 8080 or a free one; 0 a free one.")
    grpc_port: Port | None = Field(
        None,
        description="Port of Open Inference over gRPC (docs/protocols.md), in an account the one clients call. "
        "Left out, none is spoken; 0 a free one. It needs `pip install 'mark-serving[grpc]'`.",
    )
    status_port: Port | None = Field(None, description="The status page's port; left out, 8090 or a free one.")
    gateways: PositiveInt | None = Field(
        None,
        description="Gateway processes on the one port; a second one takes over. Left out, 2 on this machine, and "
        "in the shape ha as many as rollout.peak_rps takes.",
    )
    controllers: PositiveInt = Field(2, description="Controller processes: one acts, the others wait.")
    store: str | None = Field(
        None,
        description="URL of a Redis or Valkey (redis://, rediss://, redis+cluster://, rediss+cluster://); "
        "an embedded one when left out.",
    )
    token_file: Path | None = Field(
        None, description="File with the bearer token that clients must send; none is asked for on loopback."
    )
    tls_certificate: Path | None = Field(None, description="Certificate chain (PEM) of gateway and status page.")
    tls_key: Path | None = Field(None, description="Its private key (PEM).")
    retrain: RetrainSettings = Field(RetrainSettings(), description="When forecasters are trained anew.")
    rollouts: RolloutsSettings = Field(RolloutsSettings(), description="How new versions of models take over.")
    report: ReportSettings = Field(ReportSettings(), description="What is done for the cost report.")
    stress: float = Field(1.0, ge=0, description="Multiplies the hazard of drawn spot interruptions.")
    aws: AwsSettings = Field(AwsSettings(), description="The AWS that the service rents from.")

    @property
    def gateway_count(self) -> int:
        """Gateways of a service whose settings do not leave it open."""
        return self.gateways or LOCAL_GATEWAYS
