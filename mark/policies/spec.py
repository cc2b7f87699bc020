"""What is asked of a model's policies: values that settings and replays fill in, and `Assembly` reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from mark.catalog.load import PriceSnapshot
from mark.cloudmodel.world import IDEAL, World
from mark.controller.policy import COVER_SHARE
from mark.dispatch.policy import Late, Routing
from mark.dispatch.variants.qos import QosPool
from mark.dispatch.variants.qos_policy import QosNetwork
from mark.dispatch.variants.serving import VariantDispatch
from mark.domain.billing.footprint import Footprint
from mark.domain.load.announced_events import Events
from mark.domain.load.size_window import WINDOW
from mark.domain.models.objective import ModelSpec, Slo
from mark.domain.offerings.offering import Market
from mark.domain.plans.capacity_schedule import CapacityWindow
from mark.policies.bundles import MANAGED_CPU_FACTOR, MANAGED_GPU_FACTOR
from mark.policies.overrides import Tuning
from mark.policies.supply import USUAL_LIMITS, OverflowLimits
from mark.policies.tuning import Setting


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySpec:
    """A request for the policies of one model."""

    model: ModelSpec
    slo: Slo
    market: Market
    #: Names of instance types that may be rented; empty for all that are priced and profiled.
    types: tuple[str, ...] = ()
    #: Further profiles: paths of files, or names of assumed sets.
    profile_sets: tuple[str | Path, ...] = ()
    #: None takes the cheapest burstable type that is profiled and meets the objective, or else the cheapest type.
    standby_type: str | None = None
    #: How much of the planned capacity standbys can bridge; 0 for none.
    standby_share: float = COVER_SHARE
    overflow: bool = True
    late: Late = Late.SERVE
    #: How far the cloud departs from its averages: what policies expect, and what a replay does.
    world: World = IDEAL
    managed_cpu_factor: float = MANAGED_CPU_FACTOR
    managed_gpu_factor: float = MANAGED_GPU_FACTOR
    #: What a team changes in our own policies.
    tuning: Tuning = field(default_factory=dict)
    #: The Lambda that all policies share.
    overflow_limits: OverflowLimits = USUAL_LIMITS
    #: What stands around the fleet, and what AWS's services cost.
    footprint: Footprint
    #: False leaves what stands around the fleet out of the bill.
    overhead: bool = True
    #: None for the prices that are shipped.
    prices: PriceSnapshot | None = None
    #: Variants of the model that may answer; None for the one variant of a model that has no others.
    variants: VariantWishes | None = None
    #: Bounds of planned capacity by the clock: for baselines, too, as a team would set them there.
    capacity: tuple[CapacityWindow, ...] = ()
    #: Announced events of the model.
    events: Events = ()
    #: Where the clock that policies see is 0, epoch seconds: bounds and events are told by date.
    clock_at: float = 0.0
    #: What a pool of the policy `kairos` may cost; None without one.
    budget_usd_per_hour: float | None = None
    #: Requests whose sizes it remembers; 0 for those of the model.
    size_window: int = WINDOW


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantWishes:
    """A team's wishes for a model's variants.

    dispatch: None for the usual rule. accuracy_floor: share that a variant must answer right; plans then count on
    the least accurate variant that does, and without a floor on the most accurate one.
    """

    dispatch: VariantDispatch | None = None
    accuracy_floor: float | None = None
    #: Deadlines of an answer's quality; None for the objective, and for twice the soft one.
    soft_s: float | None = None
    hard_s: float | None = None
    #: Reads the weights of the learned rule for a pool; Misconfigured where they do not fit. None where that rule
    #: does not serve.
    read_policy: Callable[[QosPool], QosNetwork] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """Parts of a policy that are replaced for one run; one that knows the load to come keeps its forecaster."""

    forecaster: str | None = None
    #: Whether that forecaster knows the load to come.
    uses_truth: bool = False
    routing: Routing | None = None
    #: What an autoscaler was tuned to.
    setting: Setting | None = None
