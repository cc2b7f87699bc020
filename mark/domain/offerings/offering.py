"""Offerings for rent: instance types, offerings of them, and Lambda."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

from mark.domain.errors import Misconfigured
from mark.domain.models.profile import Profile, Provenance


class Market(StrEnum):
    """The market on which an instance is rented."""

    ON_DEMAND = "on-demand"
    SPOT = "spot"


CREDITED_STARTS_A_DAY = 100
"""T2 launch credits: so many starts a day, account and region (EC2 user guide)."""
SURPLUS_USD_PER_VCPU_HOUR = 0.05
"""CPU credits beyond the balance in unlimited mode, T2, T3 and T3a, Linux (EC2 on-demand pricing)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstCredits:
    """CPU credits of a burstable type (EC2 user guide). One credit is one vCPU at full speed for one minute.

    `launch_credits` come with every start (T2, CREDITED_STARTS_A_DAY of them); `unlimited`
    bills what is used beyond the balance at `surplus_usd_per_vcpu_hour` instead of slowing to `baseline`.
    """

    vcpus: int
    earn_per_hour: float
    max_balance: float
    baseline: float
    launch_credits: float = 0.0
    keeps_when_stopped: bool = False
    unlimited: bool = False
    surplus_usd_per_vcpu_hour: float = SURPLUS_USD_PER_VCPU_HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceType:
    """Facts of an EC2 instance type. `spot_interruption_rate` is the share interrupted in a month.

    `accelerator_memory_gib` is that of one accelerator, or of the part of one that the type has; None without an
    accelerator, and where the price file does not say.
    """

    name: str
    vcpus: int
    memory_gib: float
    architecture: str
    accelerator: str = ""
    accelerator_count: int = 0
    accelerator_memory_gib: float | None = None
    on_demand_usd_per_hour: float
    spot_usd_per_hour: float | None = None
    spot_interruption_rate: float | None = None
    #: AWS's price on demand where the account pays another, and what it pays of AWS's spot price
    #: (`mark.catalog.price_overlay`).
    list_usd_per_hour: float | None = None
    spot_price_factor: float = 1.0
    credits: BurstCredits | None = None

    @property
    def machine(self) -> str:
        """The kind of machine that it is: `amd64`, `arm64`, or one of these with `-nvidia` or `-inferentia`."""
        if not self.accelerator:
            return self.architecture
        return f"{self.architecture}-{'inferentia' if self.accelerator.startswith('Inferentia') else 'nvidia'}"

    @property
    def listed_usd_per_hour(self) -> float:
        """AWS's price on demand."""
        return self.on_demand_usd_per_hour if self.list_usd_per_hour is None else self.list_usd_per_hour

    def usd_per_hour_on(self, market: Market) -> float | None:
        """Its price on a market; None where it is not sold there."""
        return self.spot_usd_per_hour if market is Market.SPOT else self.on_demand_usd_per_hour

    @property
    def spot_hazard_per_hour(self) -> float:
        """Hourly interruption hazard of one instance: -ln(1 - monthly share) / 730."""
        share = self.spot_interruption_rate or 0.0
        return -math.log(1 - share) / 730.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineKind:
    """A kind of machine that can be launched: `InstanceType.machine` says which types are of it."""

    name: str
    #: Whether it starts from an image of the team's own instead of AWS's.
    own_image: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPolicy:
    """N_batch and W_batch (MArk section 4.3): items in a batch, and how long the first may wait for it."""

    max_batch: int
    max_wait_s: float

    def __post_init__(self) -> None:
        if self.max_batch < 1 or self.max_wait_s < 0:
            raise Misconfigured(f"bad batch policy: {self.max_batch} items, {self.max_wait_s} s")


ANY_ZONE = "any"
"""The zone of an offering that may be launched in all of them."""


@dataclass(frozen=True, kw_only=True)  # no slots: the name is kept
class Offering:
    """Instance type x market x zone with what it costs and what it carries.

    `capacity_rps` is the rate at which it is always busy under `batch` (its utilisation cap is the plan's
    affair); `launch_usd` is what a launch costs before the first answer (billed while it boots for `boot_s`).
    `cv` is the coefficient of variation of a batch's time, 0 where every batch takes what the profile says.
    """

    instance_type: InstanceType
    market: Market
    usd_per_hour: float
    profile: Profile
    batch: BatchPolicy
    capacity_rps: float
    boot_s: float
    launch_usd: float
    zone: str = ANY_ZONE
    cv: float = 0.0

    def __post_init__(self) -> None:
        for label, value in (("price", self.usd_per_hour), ("capacity", self.capacity_rps)):
            if not (math.isfinite(value) and value > 0):
                raise Misconfigured(f"{label} of {self.instance_type.name} must be above 0, not {value}")

    @cached_property
    def name(self) -> str:
        """`c5.large:spot`, with the zone behind it where one is fixed."""
        return self.anywhere if self.zone == ANY_ZONE else f"{self.anywhere}:{self.zone}"

    @property
    def anywhere(self) -> str:
        """Its name without a zone."""
        return f"{self.instance_type.name}:{self.market.value}"

    def at_price(self, usd_per_hour: float) -> Offering:
        """The same offering at another price; a launch costs as much more or less."""
        launch_usd = self.launch_usd * usd_per_hour / self.usd_per_hour
        return replace(self, usd_per_hour=usd_per_hour, launch_usd=launch_usd)

    @property
    def latency_s(self) -> float:
        """Seconds that a full batch takes."""
        return self.profile.latency_s(self.batch.max_batch)

    @property
    def usd_per_request(self) -> float:
        """Rent of a request on an instance that is always busy, USD."""
        return self.usd_per_hour / 3600.0 / self.capacity_rps

    @property
    def hazard_per_hour(self) -> float:
        """Interruptions per instance and hour; 0 on demand."""
        return self.instance_type.spot_hazard_per_hour if self.market is Market.SPOT else 0.0


SAME_PRICE = 1e-12
"""Prices this close, relatively, are equal: some thousand roundings of a double."""


def cheapest_per_request(offerings: Sequence[Offering]) -> Offering:
    """The one whose requests cost least, on instances that are always busy; of equal ones the first by name."""
    least = min(item.usd_per_request for item in offerings) * (1.0 + SAME_PRICE)
    return min((item for item in offerings if item.usd_per_request <= least), key=lambda item: item.name)


def of_type(offering: str, instance_type: str) -> str:
    """The name of an offering with another type in it: an order that names several brings any of them."""
    _, colon, rest = offering.partition(":")
    return f"{instance_type}:{rest}" if colon and instance_type else offering


def as_tenant(offering: Offering, items: int) -> Offering:
    """The offering of a model on an instance that it shares: one replica, and batches of so many items at most."""
    profile = offering.profile.of_one_replica
    assert profile is not None, "it would not have been placed"
    policy = BatchPolicy(max_batch=items, max_wait_s=offering.batch.max_wait_s)
    return replace(offering, profile=profile, batch=policy, capacity_rps=items / profile.latency_s(items))


LAMBDA_PROFILED_GIB = 3.0
"""The function that MArk measured (Table 2)."""
LAMBDA_USD_PER_REQUEST = 0.20e-6
"""An invocation (AWS Lambda pricing, us-east-1)."""
LAMBDA_PAYLOAD_MIB = 6.0
"""Request or answer of a synchronous invocation (Lambda quotas: 6 MB)."""
OTHER_CALLS = 2
"""Calls at once that the service's own functions may need beside its models'."""
PING_S = 0.1
"""A warm-up ping of Lambda keeps its environment busy for so long, so that the others meet others.

Live it does until the last of its order is sent (`mark.aws.functions.warmup`); replays bill just this.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LambdaOffering:
    """Lambda for one model: its own mean latency, prices and limits. Cold starts are billed for `cold_start_s`.

    `cv` is the coefficient of variation of a call's time.

    `provisioned` environments are kept ready and paid for, called or not.
    """

    latency_s: float
    provenance: Provenance
    cv: float = 0.0
    memory_gib: float = LAMBDA_PROFILED_GIB
    usd_per_request: float = LAMBDA_USD_PER_REQUEST
    usd_per_gib_s: float = 1.66667e-5
    usd_per_provisioned_gib_s: float = 4.1667e-6
    cold_start_s: float = 2.9
    idle_min_s: float = 45 * 60.0
    idle_max_s: float = 60 * 60.0
    concurrency: int = 1000
    burst: int = 1000
    burst_window_s: float = 10.0
    payload_mib: float = LAMBDA_PAYLOAD_MIB
    provisioned: int = 0

    @property
    def usd_per_warm_request(self) -> float:
        """Price of one request that meets a warm environment."""
        return self.usd_per_request + self.memory_gib * self.latency_s * self.usd_per_gib_s

    @property
    def usd_per_cold_start(self) -> float:
        """The price that a cold start adds to its request (MArk section 4.5: 1 USD = 7,000 starts at 3 GB)."""
        return self.memory_gib * self.cold_start_s * self.usd_per_gib_s

    def is_backup(self, latency_s: float) -> bool:
        """True where a warm call answers within this latency: instances need not carry all peaks then."""
        return self.latency_s <= latency_s

    def cold_share(self, rps: float) -> float:
        """Share of the calls that start cold where they come one by one, at random, at this constant rate.

        A call starts cold if none came while the last environment was kept. Calls at once start more.
        """
        return math.exp(-rps * (self.idle_min_s + self.idle_max_s) / 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class LambdaGuess:
    """Lambda for a model that nobody measured there, as if it were as fast as `instance_type`."""

    instance_type: str
    overflow: LambdaOffering

    def usd_per_request(self, rps: float) -> float:
        """Price of a request at that load, cold starts included."""
        overflow = self.overflow
        return overflow.usd_per_warm_request + overflow.cold_share(rps) * overflow.usd_per_cold_start


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotPrice:
    """Price of a spot offering now, USD an hour."""

    by_zone: Mapping[str, float]
    #: In the dearest zone that its launches may use.
    dearest: float


def current_usd_per_hour(offering: Offering, zone: str, spot: Mapping[str, SpotPrice]) -> float:
    """The price of an instance now, USD an hour: the most that it can cost where its zone is not known.

    zone: its availability zone, empty where it is not known. spot: by offering's name; an offering that it lacks
    costs what its list price says.
    """
    price = spot.get(offering.name)
    return offering.usd_per_hour if price is None else price.by_zone.get(zone, price.dearest)


def calls_of_models(concurrency: int) -> int:
    """The calls of Lambda that models may have at once, of those that the account allows, at least one.

    Some are left to the service's other functions: in an account with ten, an overflow that took them all would
    throttle `interruption`, through which spot notices come.
    """
    return max(1, concurrency - OTHER_CALLS)
