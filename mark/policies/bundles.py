"""Policies: named bundles of planner, forecaster, dispatch, overflow, monitor and standbys.

`mark` and `greedy-oracle` are the paper and no more; each baseline gets what the real thing has and no more
(docs/decisions/0002-policies.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from mark.cloudmodel.noise import SUREST
from mark.controller.limits.launch_breaker import LaunchBreakerPolicy
from mark.controller.limits.spot_breaker import BreakerPolicy
from mark.controller.policy import HOUR_S, OWN, ControllerPolicy, MonitorPolicy, StandbyPolicy
from mark.dispatch.policy import Bounced, DispatchPolicy, Late, Routing
from mark.dispatch.variants.serving import VariantServing
from mark.domain.billing.service_prices import ServiceItem
from mark.domain.demand import HORIZON, UNIT_S, Demand
from mark.domain.errors import Misconfigured, PlanInfeasible, unknown
from mark.domain.load.sizes import SizeDistribution
from mark.domain.models.objective import Slo
from mark.domain.offerings.offering import (
    ANY_ZONE,
    BatchPolicy,
    LambdaOffering,
    Market,
    Offering,
    cheapest_per_request,
)
from mark.domain.plans.pool_policy import PoolPolicy
from mark.planner.baselines import cheapest_type, peak_count, single_rps
from mark.planner.batching import tune_batching
from mark.planner.kairos.budget_pool import check_budget
from mark.planner.rivals.pod_sizes import PodSize, choose_size, usual_rps
from mark.plugins.load import is_own_policy, load_policy
from mark.policies.present import STATIC, static_count
from mark.policies.tuning import DAY_S, Setting, grid

DAY_UNITS = 24 * 60
LEAST_PERIOD_S = 5.0
"""The shortest period of a user's own policy: rates are measured in windows of 5 s."""
WEEK_UNITS = 7 * DAY_UNITS
"""What the hedged planner looks back on: the surges of a week."""
WARM_SHARE = 0.25
"""Environments kept warm for unforecast surges: a cold one answers too late (some cents a day)."""
SCALE_IN_COOLDOWN_S = 360.0
"""Scale-in cool-down where nothing takes late requests away, as in mark."""
LONGEST_UNAVAILABLE_S = 3600.0
"""Longest time that an offering which is refused again and again is left out: what AWS has changes by the hour."""
EQUIVALENT_PRICE_FACTOR = 1.1
"""Price of a type that a launch takes in place of a scarce one, at most: dearer ones are the plan's affair."""
MANAGED_CPU_FACTOR, MANAGED_GPU_FACTOR = 1.2, 1.4
"""The price premium of a managed service (SageMaker's list, 2026)."""
LEAST_CONFIDENCE = 0.5
"""Of admission, where service times vary: the expected finish. A Bouncer asks for the objective's own target."""
MANAGED_INSTANCES_FACTOR = 1.15
"""Lambda Managed Instances: the on-demand price and a management fee of 15 % (AWS Lambda pricing, 2026)."""
PROVISIONED, PROVISIONED_UTILISATION = "provisioned-concurrency", 0.7
"""Rule and target of provisioned concurrency, as Application Auto Scaling's examples have it."""
PING_EVERY_S = 300.0
"""Of a scheduled ping (serverless-plugin-warmup, default schedule: five minutes)."""
MOST_POOLS = 5
"""Instance pools of a SageMaker endpoint."""
FOR_GOOD_S = 7 * DAY_S
"""SpotHedge sets no time after which an interrupted zone is trusted again: a week stands for that."""
MONITOR_TYPE = "c5.large"
"""T of the SLO monitor where it meets the objective (MArk section 4.4)."""
COMPONENTS = "sagemaker-components"
"""SageMaker's inference components: copies of models on the instances of one endpoint."""
MULTI_MODEL = "sagemaker-mme"
"""SageMaker's multi-model endpoint: like instances, which load models as they are asked for."""
MANAGED = ("sagemaker", "sagemaker-fast", "sagemaker-tuned", "sagemaker-pools", COMPONENTS, MULTI_MODEL)
"""Policies that rent a managed service."""
PERIOD_S = {
    "concurrency-tracking": 10.0,
    "ema-headroom": 60.0,
    "nothing": 60.0,
    "managed-instances": 10.0,
    "pod-autoscaler": 15.0,
    "predictive-scaling": 60.0,
    "spothedge": 20.0,
    "static": 60.0,
    "target-tracking": 60.0,
    "two-windows": 5.0,
    OWN: 60.0,
}
"""Seconds between two plans of an autoscaler: as often as its metric comes."""
PACKED = ("kubernetes-packed", "kubernetes-packed-spill", COMPONENTS, MULTI_MODEL)
"""Policies of services alone: models share instances by other rules than ours."""
ON_LAMBDA = "nothing"
"""Rule of a model that its users leave to Lambda: the planner that rents nothing."""
STATIC_PEAK = "static-peak"
PREDICTIVE_SCALING = "predictive-scaling"
"""The planner of EC2's predictive scaling."""
KAIROS = "kairos"
"""The policy of a pool within a budget; the rule of a central queue has the same name."""
PATIENT = DispatchPolicy(routing=Routing.LEAST_OUTSTANDING, bounced=Bounced.NOWHERE, admission_factor=None)
"""A queue without a limit: late requests wait, and make others late."""
QUEUE_LIMIT = replace(PATIENT, admission_factor=1.0, late=Late.SHED)
"""A queue as long as can be answered in time: what could only be answered late is refused, which is a miss."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePolicy:
    """How nodes with the pods of several models are kept.

    Each of them may go once nothing on it has changed for `settle_s`; of an endpoint one that is not empty only
    once nothing on any has, and all its nodes of a family are of one type.
    """

    settle_s: float
    #: Whether a cheaper new node may take the place of others.
    replaces: bool = True
    #: Nodes that go at once at most; None for any number.
    most: int | None = None
    is_endpoint: bool = False
    #: Whether what runs beside a node is billed; no where its price contains that.
    overhead: bool = True


KARPENTER = NodePolicy(settle_s=60.0)
"""Karpenter with a budget of all nodes and `consolidateAfter: 1m`: teams set more than its default of 0 s where
pods come and go by the minute (karpenter.sh, "Disruption", read 2026-11-28)."""
ENDPOINT_COOLDOWN_S = 300.0
"""CooldownInMinutes of a SageMaker endpoint's consolidation: the least that can be set (its API reference,
ManagedInstanceScalingScaleInPolicy, read 2026-11-28)."""
ENDPOINT_STEP = 100
"""MaximumStepSize, the most that can be set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pods:
    """The pods of a model, on nodes that other models' pods share.

    offerings: what nodes may be rented of, at the price that is billed.
    """

    size: PodSize
    offerings: tuple[Offering, ...]
    nodes: NodePolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A model of a multi-model endpoint, which is scaled for all of its models at once.

    offerings: what answers the model in time, without batches, at the price that is billed; usual_rps: its load of
    the last day; utilisation: of an instance, where target tracking sets in.
    """

    offerings: tuple[Offering, ...]
    usual_rps: float
    utilisation: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyBundle:
    """One policy, ready to run.

    Prices are multiplied by `cpu_price_factor` or, for types with an accelerator, `gpu_price_factor`; `overhead`
    says whether what stands around the fleet is billed beside. A managed price contains it; `charges` are what
    such a service takes for requests and their bytes.
    `uses_truth`: whether its forecaster knows the load to come, which nobody can rent.
    """

    controller: ControllerPolicy
    dispatch: DispatchPolicy
    forecaster: str
    cpu_price_factor: float = 1.0
    gpu_price_factor: float = 1.0
    overhead: bool = True
    charges: tuple[ServiceItem, ...] = ()
    uses_truth: bool = False
    #: How the model's variants are served, where it has several.
    variants: VariantServing | None = None
    #: In a service of several models: whether they may share instances.
    shares: bool = False
    #: Its pods, where its controller plans pods; None where it plans instances.
    pods: Pods | None = None
    #: Its part of a multi-model endpoint; its own controller plans nothing then.
    endpoint: Endpoint | None = None

    @property
    def is_packed(self) -> bool:
        """True where what is rented is the service's, and billed once."""
        return self.pods is not None or self.endpoint is not None

    @property
    def name(self) -> str:
        """The policy's name."""
        return self.controller.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingredients:
    """The ingredients of bundles. `offerings` are of the asked market, `on_demand` the same types on demand.

    The premium of a managed service is `managed_cpu_factor` and `managed_gpu_factor`.
    """

    slo: Slo
    market: Market
    offerings: tuple[Offering, ...]
    on_demand: tuple[Offering, ...]
    overflow: LambdaOffering | None
    standby: StandbyPolicy | None
    history: Demand
    #: Zones of a spot pool each; one without a name where they are not told apart.
    spot_zones: tuple[str, ...] = ("",)
    surge_standby: StandbyPolicy | None = None
    late: Late = Late.SERVE
    managed_cpu_factor: float = MANAGED_CPU_FACTOR
    managed_gpu_factor: float = MANAGED_GPU_FACTOR
    #: Sizes of requests in items; None where each is one.
    sizes: SizeDistribution | None = None
    #: The budget of a pool and what it may be made of; None and nothing without a budget.
    pool: PoolPolicy | None = None
    pool_offerings: tuple[Offering, ...] = ()
    #: Memory that the model takes.
    memory_gib: float = 0.0


FLEET_PER_MODEL = "fleet-per-model"
"""`hedged` without shared instances."""
LEARNING = {"hedged": "mixture", FLEET_PER_MODEL: "mixture", "mark": "lstm-vanilla", "milp": "lstm-vanilla"}
"""Forecasters of the policies that have one that is trained."""


def _mark(given: Ingredients) -> PolicyBundle:
    return PolicyBundle(
        controller=ControllerPolicy(
            name="mark",
            planner="greedy",
            equivalent_price_factor=EQUIVALENT_PRICE_FACTOR,
            slo=given.slo,
            offerings=given.offerings,
            fallbacks=given.on_demand if given.market is Market.SPOT else (),
            overflow=given.overflow,
            standby=given.standby if given.market is Market.SPOT else None,
            monitor=MonitorPolicy(offering=_monitor_type(given)),
            unavailable_longest_s=LONGEST_UNAVAILABLE_S,
            launch_breaker=LaunchBreakerPolicy(),
        ),
        dispatch=DispatchPolicy(
            routing=Routing.WEIGHTED, bounced=Bounced.LAMBDA, admission_factor=1.0, late=given.late
        ),
        forecaster=LEARNING["mark"],
    )


def _greedy_oracle(given: Ingredients) -> PolicyBundle:
    bundle = _mark(given)
    named = replace(bundle.controller, name="greedy-oracle")
    return replace(bundle, controller=named, forecaster="oracle", uses_truth=True)


def _milp(given: Ingredients) -> PolicyBundle:
    bundle = _mark(given)
    return replace(bundle, controller=replace(bundle.controller, name="milp", planner="milp"))


def unbatched(offering: Offering, sizes: SizeDistribution | None) -> Offering:
    """The same instances serving one request at a time: batching is MArk's."""
    single = BatchPolicy(max_batch=1, max_wait_s=0.0)
    return replace(offering, batch=single, capacity_rps=single_rps(offering, sizes))


def _autoscaled(
    name: str, planner: str, slo: Slo, offerings: tuple[Offering, ...], dispatch: DispatchPolicy = QUEUE_LIMIT
) -> PolicyBundle:
    """An autoscaler on one type: the first of `offerings`, the others stand in where that is refused.

    It has no forecast, Bouncer, overflow, monitor or standbys.
    """
    return PolicyBundle(
        controller=ControllerPolicy(
            name=name,
            planner=planner,
            slo=slo,
            offerings=offerings[:1],
            fallbacks=offerings[1:],
            horizon=1,
            period_s=PERIOD_S[planner],
            cooldown_s=0.0,
            keep_observed=False,
            warm_lambda=False,
        ),
        dispatch=dispatch,
        forecaster="last-value",
    )


def _single(given: Ingredients) -> tuple[Offering, ...]:
    """The type cheapest per request without batches, on demand."""
    return (unbatched(cheapest_type(given.on_demand, given.slo, given.sizes), given.sizes),)


def _sagemaker(given: Ingredients, name: str = "sagemaker", planner: str = "target-tracking") -> PolicyBundle:
    return replace(
        _autoscaled(name, planner, given.slo, _single(given)),
        cpu_price_factor=given.managed_cpu_factor,
        gpu_price_factor=given.managed_gpu_factor,
        overhead=False,
        charges=(ServiceItem.SAGEMAKER_BYTES,),
    )


def _sagemaker_fast(given: Ingredients) -> PolicyBundle:
    return _sagemaker(given, "sagemaker-fast", "concurrency-tracking")


def _sagemaker_tuned(given: Ingredients) -> PolicyBundle:
    return _sagemaker(given, "sagemaker-tuned")


def _sagemaker_pools(given: Ingredients) -> PolicyBundle:
    """SageMaker's instance pools: a type that is refused, or at its quota, is replaced by the next of the list.

    Its users list types that carry what the first one does, for SageMaker's metric counts instances, whatever they
    carry. A scale-in begins with the last of the list (SageMaker developer guide, "Deploy to multiple instance
    types with instance pools", and AWS's announcement of 2026-05-04, read 2026-11-28).
    """
    (first,) = _single(given)
    able = (unbatched(item, given.sizes) for item in given.on_demand if item.name != first.name)
    as_fast = [item for item in able if item.capacity_rps >= first.capacity_rps]
    others = sorted(as_fast, key=lambda item: (item.usd_per_hour, item.name))[: MOST_POOLS - 1]
    pools = (first, *(replace(item, capacity_rps=first.capacity_rps) for item in others))
    bundle = _sagemaker(given, "sagemaker-pools")
    return replace(bundle, controller=replace(bundle.controller, offerings=pools, by_priority=True))


def _reactive(given: Ingredients) -> PolicyBundle:
    return _autoscaled("reactive", "two-windows", given.slo, _single(given))


def _batched(given: Ingredients) -> tuple[Offering, ...]:
    """The type cheapest per batched request in the market, then its on-demand twin.

    Batches are of a size of which two fit into the objective, the usual rule of a server with a queue: who comes
    while one runs is in the next. Where no type has such a size, the sizes are those of every policy.
    """
    halved = []
    for item in given.offerings:
        batch = tune_batching(item.profile, given.slo.latency_s / 2, given.sizes)
        if batch is not None:
            halved.append(replace(item, batch=batch.batch, capacity_rps=batch.capacity_rps))
    kind = cheapest_per_request(halved or given.offerings)
    twins = (
        replace(twin, batch=kind.batch, capacity_rps=kind.capacity_rps)
        for twin in given.on_demand
        if twin.instance_type.name == kind.instance_type.name and twin.name != kind.name
    )
    return (kind, *twins)


def _autoscaler(given: Ingredients) -> PolicyBundle:
    return _autoscaled("autoscaler", "two-windows", given.slo, _batched(given))


def _autoscaler_spill(given: Ingredients) -> PolicyBundle:
    """The autoscaler with our Bouncer, and Lambda for what it bounces, kept warm as ours is."""
    if given.overflow is None:
        raise Misconfigured("autoscaler-spill needs the model on Lambda: `mark profile --as lambda` measures it")
    bundle = _autoscaled("autoscaler-spill", "two-windows", given.slo, _batched(given), _bouncer(given))
    spilling = replace(bundle.controller, overflow=given.overflow, warm_lambda=True, warm_share=WARM_SHARE)
    return replace(bundle, controller=spilling)


def _predictive(given: Ingredients) -> PolicyBundle:
    """EC2 Auto Scaling's predictive scaling; like the real thing it forecasts nothing before a day is known."""
    bundle = _autoscaled("predictive", PREDICTIVE_SCALING, given.slo, _batched(given))
    return replace(bundle, controller=replace(bundle.controller, history_units=14 * DAY_UNITS))


def _ema_headroom(given: Ingredients) -> PolicyBundle:
    """The usual load by hour of day, and headroom: what a team without a forecaster schedules."""
    bundle = _autoscaled("ema-headroom", "ema-headroom", given.slo, _batched(given))
    return replace(bundle, controller=replace(bundle.controller, history_units=14 * DAY_UNITS))


def _spothedge(given: Ingredients) -> PolicyBundle:
    """SkyServe's SpotHedge: spot over zones, some to spare, and on demand for what is not ready of them.

    Nothing is launched in a zone in which an instance was interrupted until fewer than two others are left: then
    all are trusted again.
    """
    kind, *twins = _batched(given)
    zones = tuple(replace(kind, zone=zone or ANY_ZONE) for zone in given.spot_zones)
    bundle = _autoscaled("spothedge", "spothedge", given.slo, (kind,))
    return replace(
        bundle,
        controller=replace(
            bundle.controller,
            offerings=(*zones, *twins) if kind.market is Market.SPOT else (kind,),
            breaker=BreakerPolicy(share=0.0, count=1, open_s=FOR_GOOD_S, longest_s=FOR_GOOD_S, least_closed=2),
            history_units=3 * 60,
        ),
    )


def _packed(
    name: str, planner: str, given: Ingredients, offerings: tuple[Offering, ...], nodes: NodePolicy
) -> PolicyBundle:
    """An autoscaler of pods. Alone each costs its share of a node; in a service the nodes are billed."""
    size = choose_size(offerings, given.slo, memory_gib=given.memory_gib, history=given.history, sizes=given.sizes)
    bundle = _autoscaled(name, planner, given.slo, (size.offering,))
    return replace(bundle, pods=Pods(size=size, offerings=offerings, nodes=nodes))


def _kubernetes_packed(given: Ingredients) -> PolicyBundle:
    """Kubernetes' autoscaler for each model, pods of the size that suits it, and nodes that Karpenter packs.

    On spot nodes may be on demand, too: Karpenter takes what is cheapest of what it can have.
    """
    sold = {item.name: item for item in (*given.offerings, *given.on_demand)}
    return _packed("kubernetes-packed", "pod-autoscaler", given, tuple(sold.values()), KARPENTER)


def _kubernetes_packed_spill(given: Ingredients) -> PolicyBundle:
    """The same with our Bouncer, and Lambda for what it bounces; models that are cheaper there have no pods."""
    if given.overflow is None:
        raise Misconfigured(
            "kubernetes-packed-spill needs the model on Lambda: `mark profile --as lambda` measures it"
        )
    bundle = replace(_kubernetes_packed(given), dispatch=_bouncer(given))
    spilling = replace(
        bundle.controller,
        name="kubernetes-packed-spill",
        overflow=given.overflow,
        warm_lambda=True,
        warm_share=WARM_SHARE,
    )
    return replace(bundle, controller=spilling)


def _sagemaker_components(given: Ingredients) -> PolicyBundle:
    """SageMaker's inference components with BINPACK, managed instance scaling and CONSOLIDATION.

    A model has one copy at least. Components may have none, but an endpoint refuses requests for a model without a
    copy until one is there, minutes later.
    """
    nodes = NodePolicy(
        settle_s=ENDPOINT_COOLDOWN_S,
        replaces=False,
        most=ENDPOINT_STEP,
        is_endpoint=True,
        overhead=False,
    )
    bundle = _packed(COMPONENTS, "target-tracking", given, _managed(given), nodes)
    return replace(bundle, overhead=False, charges=(ServiceItem.SAGEMAKER_BYTES,))


def _managed(given: Ingredients) -> tuple[Offering, ...]:
    """What SageMaker rents, at its prices."""
    factors = {True: given.managed_gpu_factor, False: given.managed_cpu_factor}
    return tuple(
        item.at_price(item.usd_per_hour * factors[bool(item.instance_type.accelerator)])
        for item in given.on_demand
    )


def _sagemaker_mme(given: Ingredients) -> PolicyBundle:
    """SageMaker's multi-model endpoint (`planner/rivals/endpoint.py`).

    Types with CPU credits are none of SageMaker's.
    """
    able = tuple(
        unbatched(item, given.sizes)
        for item in _managed(given)
        if item.instance_type.credits is None and item.profile.latency_s(1) <= given.slo.latency_s
    )
    endpoint = Endpoint(offerings=able, usual_rps=usual_rps(given.history, given.slo.target))
    bundle = _autoscaled(MULTI_MODEL, "nothing", given.slo, ())
    return replace(bundle, endpoint=endpoint, overhead=False, charges=(ServiceItem.SAGEMAKER_BYTES,))


def _managed_instances(given: Ingredients) -> PolicyBundle:
    """Lambda Managed Instances: types without accelerator, one environment each that takes several requests.

    A model that computes all the time gains nothing from taking several: the capacity is that without batches.
    """
    able = [o for o in given.on_demand if not (o.instance_type.accelerator or o.instance_type.credits)]
    if not able:
        raise Misconfigured("managed-instances have no accelerators, and no other type serves this model")
    kind = unbatched(cheapest_type(able, given.slo, given.sizes), given.sizes)
    return replace(
        _autoscaled("managed-instances", "managed-instances", given.slo, (kind,)),
        cpu_price_factor=MANAGED_INSTANCES_FACTOR,
        overhead=False,
        charges=(ServiceItem.LAMBDA_REQUEST,),
    )


def _static_peak(given: Ingredients) -> PolicyBundle:
    if not len(given.history):
        raise Misconfigured("static-peak sizes for the highest minute before the run: give a --start-s above 0")
    count = peak_count(given.history, _single(given)[0].capacity_rps)
    return _static(STATIC_PEAK, given, count)


def _static(name: str, given: Ingredients, count: int) -> PolicyBundle:
    """So many instances all the time."""
    bundle = _autoscaled(name, "static", given.slo, _single(given), PATIENT)
    return replace(bundle, controller=replace(bundle.controller, static_count=count))


def _own(name: str, given: Ingredients) -> PolicyBundle:
    """A user's own policy: it plans, over all offerings; what it does not plan is an autoscaler's."""
    factory = load_policy(name)
    period_s, overflows = getattr(factory, "period_s", UNIT_S), getattr(factory, "overflow", False) is True
    if not (isinstance(period_s, int | float) and LEAST_PERIOD_S <= period_s <= HOUR_S):
        raise Misconfigured(
            f"policy {name!r}: period_s must be {LEAST_PERIOD_S:g} to {HOUR_S:g} seconds, not {period_s!r}"
        )
    if overflows and given.overflow is None:
        raise Misconfigured(f"policy {name!r} needs the model on Lambda: `mark profile --as lambda` measures it")
    bundle = _autoscaled(name, OWN, given.slo, given.offerings, _bouncer(given) if overflows else QUEUE_LIMIT)
    return replace(
        bundle,
        controller=replace(
            bundle.controller,
            offerings=given.offerings,
            fallbacks=given.on_demand if given.market is Market.SPOT else (),
            period_s=float(period_s),
            horizon=HORIZON,
            history_units=WEEK_UNITS,
            overflow=given.overflow if overflows else None,
            warm_lambda=overflows,
            warm_share=WARM_SHARE if overflows else 0.0,
        ),
    )


def _lambda_only(given: Ingredients) -> PolicyBundle:
    if given.overflow is None:
        raise Misconfigured("lambda-only needs the model on Lambda: `mark profile --as lambda` measures it")
    return PolicyBundle(
        controller=ControllerPolicy(
            name="lambda-only",
            planner="nothing",
            slo=given.slo,
            offerings=(),
            overflow=given.overflow,
            warm_lambda=False,
        ),
        dispatch=DispatchPolicy(bounced=Bounced.LAMBDA, late=given.late),
        forecaster="last-value",
        overhead=False,
    )


def _lambda_pinged(given: Ingredients) -> PolicyBundle:
    bundle = _lambda_only(given)
    return replace(bundle, controller=replace(bundle.controller, name="lambda-pinged", ping_every_s=PING_EVERY_S))


def _serverless(given: Ingredients, utilisation: float = PROVISIONED_UTILISATION) -> PolicyBundle:
    """Lambda with provisioned concurrency: a schedule by the hour, from the same hours of the day before.

    An hour's environments carry its busiest minute at that utilisation. What is above them meets the others.
    """
    bundle = _lambda_only(given)
    assert given.overflow is not None
    rates, busy_s = given.history.mean_rps[-DAY_UNITS:], given.overflow.latency_s / utilisation
    highest = [0.0] * 24
    for back, rate in enumerate(reversed(rates), start=1):
        hour = int((given.history.end_at - back * UNIT_S) // HOUR_S) % 24
        highest[hour] = max(highest[hour], rate)
    counts = tuple(min(math.ceil(rate * busy_s), given.overflow.concurrency) for rate in highest)
    scheduled = replace(bundle.controller, name="serverless", provisioned_by_hour=counts)
    return replace(bundle, controller=scheduled)


def _hedged(given: Ingredients) -> PolicyBundle:
    """Ours: quantiles priced level by level, surges bridged by standbys, requests sent where they finish first.

    A late request goes to Lambda even if it is cold there: kept, it would make those behind it late, too, and no
    environment would ever be warmed. Where Lambda itself is too late, the planner prices what is missed, and the
    SLO monitor tells it when the forecast was wrong; without any, what waits makes others late, and it is patient.
    """
    spot = given.market is Market.SPOT
    alone = given.overflow is None or given.overflow.latency_s > given.slo.latency_s
    return PolicyBundle(
        controller=ControllerPolicy(
            name="hedged",
            planner="hedged",
            equivalent_price_factor=EQUIVALENT_PRICE_FACTOR,
            slo=given.slo,
            offerings=given.offerings,
            fallbacks=given.on_demand if spot else (),
            overflow=given.overflow,
            standby=given.surge_standby,
            breaker=BreakerPolicy() if spot else None,
            monitor=MonitorPolicy(offering=_monitor_type(given)) if alone else None,
            cooldown_s=0.0 if given.overflow else SCALE_IN_COOLDOWN_S,
            keep_observed=False,
            keep_planned=True,
            warm_share=WARM_SHARE,
            history_units=WEEK_UNITS,
            unavailable_longest_s=LONGEST_UNAVAILABLE_S,
            launch_breaker=LaunchBreakerPolicy(),
        ),
        dispatch=_bouncer(given),
        forecaster=LEARNING["hedged"],
        shares=True,
    )


def _fleet_per_model(given: Ingredients) -> PolicyBundle:
    """Ours, where each model of a service has instances of its own: what sharing is measured by."""
    bundle = _hedged(given)
    return replace(bundle, controller=replace(bundle.controller, name=FLEET_PER_MODEL), shares=False)


def _kairos(given: Ingredients) -> PolicyBundle:
    """A pool of unlike instances within a budget, for a central queue (docs/papers.md, "A budget").

    It follows prices, latencies and sizes, not the load: it has no standbys, monitor or cool-down, and its
    forecast decides nothing.
    """
    if given.pool is None:
        raise Misconfigured(
            "the policy kairos needs a budget: set policy.budget_usd_per_hour, or give --pool-usd-per-hour"
        )
    try:
        check_budget(given.pool_offerings, given.pool, given.slo)
    except PlanInfeasible as error:
        raise Misconfigured(f"{error}; change policy.budget_usd_per_hour, the types or the objective") from error
    return PolicyBundle(
        controller=ControllerPolicy(
            name=KAIROS,
            planner="kairos",
            slo=given.slo,
            offerings=given.pool_offerings,
            overflow=given.overflow,
            pool=given.pool,
            breaker=BreakerPolicy() if given.market is Market.SPOT else None,
            horizon=1,
            cooldown_s=0.0,
            keep_observed=False,
            unavailable_longest_s=LONGEST_UNAVAILABLE_S,
            launch_breaker=LaunchBreakerPolicy(),
        ),
        dispatch=_bouncer(given),
        forecaster="last-value",
    )


def _bouncer(given: Ingredients) -> DispatchPolicy:
    """Requests go where they finish first, and to Lambda where that is too late."""
    return DispatchPolicy(
        routing=Routing.LEAST_FINISH,
        bounced=Bounced.LAMBDA,
        admission_factor=0.98,
        admission_confidence=min(max(given.slo.target, LEAST_CONFIDENCE), SUREST),
        late=given.late,
    )


_BUNDLES: dict[str, Callable[[Ingredients], PolicyBundle]] = {
    "hedged": _hedged,
    FLEET_PER_MODEL: _fleet_per_model,
    "mark": _mark,
    "greedy-oracle": _greedy_oracle,
    "milp": _milp,
    KAIROS: _kairos,
    "sagemaker": _sagemaker,
    "sagemaker-fast": _sagemaker_fast,
    "sagemaker-tuned": _sagemaker_tuned,
    "sagemaker-pools": _sagemaker_pools,
    "reactive": _reactive,
    "autoscaler": _autoscaler,
    "autoscaler-spill": _autoscaler_spill,
    "predictive": _predictive,
    "ema-headroom": _ema_headroom,
    "spothedge": _spothedge,
    "kubernetes-packed": _kubernetes_packed,
    "kubernetes-packed-spill": _kubernetes_packed_spill,
    COMPONENTS: _sagemaker_components,
    MULTI_MODEL: _sagemaker_mme,
    "managed-instances": _managed_instances,
    STATIC_PEAK: _static_peak,
    "serverless": _serverless,
    "lambda-only": _lambda_only,
    "lambda-pinged": _lambda_pinged,
}
_SAGEMAKER_GRID = grid(("concurrency-tracking", "target-tracking"), range(1, 11))
_USUAL_GRID = grid(("two-windows", "target-tracking"), range(3, 11))
_PODS_GRID = grid(("pod-autoscaler",), range(3, 11))
_COMPONENTS_GRID = grid(("concurrency-tracking", "target-tracking"), range(1, 11, 2))
ENDPOINT_GRID = grid(("target-tracking",), range(1, 11, 2))
"""Settings of a multi-model endpoint: it is tuned once, for all models."""
_GRIDS = {
    "autoscaler": _USUAL_GRID,
    "autoscaler-spill": _USUAL_GRID,
    "predictive": grid((PREDICTIVE_SCALING,), range(3, 11)),
    "managed-instances": grid(("managed-instances",), range(1, 11)),
    "serverless": grid((PROVISIONED,), range(3, 11)),
    "sagemaker-tuned": _SAGEMAKER_GRID,
    "sagemaker-pools": _SAGEMAKER_GRID,
    "ema-headroom": grid(("ema-headroom",), range(1, 11), alphas=(0.2, 0.5, 1.0)),
    "spothedge": grid(("spothedge",), range(1, 11), spares=(1, 2)),
    "kubernetes-packed": _PODS_GRID,
    "kubernetes-packed-spill": (*_PODS_GRID, Setting(rule=ON_LAMBDA, utilisation=1.0)),
    COMPONENTS: _COMPONENTS_GRID,
}
"""A rule, and a utilisation by tenths; over-provisioning of up to ten times where a team has no other means."""


def policy_names() -> tuple[str, ...]:
    """All policies, ours first."""
    return tuple(_BUNDLES)


def reported_policies() -> tuple[str, ...]:
    """Policies that a cost report replays, model by model: those that pack pods need all models at once."""
    return tuple(name for name in _BUNDLES if name not in PACKED)


def check_policy(name: str, also: Sequence[str] = ()) -> None:
    """Misconfigured where there is no policy of that name, nor another word; `static:N` is one for any N.

    A user's own is loaded.
    """
    known = (*_BUNDLES, *also)
    if name in known or static_count(name) is not None:
        return
    if not is_own(name):
        raise unknown("policy", name, known)
    load_policy(name)


def is_own(name: str) -> bool:
    """True where that name is a user's own policy, whether or not it loads. MArk's names come first."""
    return name not in _BUNDLES and not name.startswith(STATIC) and is_own_policy(name)


def make_bundle(name: str, given: Ingredients, setting: Setting | None = None) -> PolicyBundle:
    """The policy of that name. Misconfigured for an unknown one, or when something it needs is missing.

    Without `setting` an autoscaler keeps what the real thing documents.
    """
    check_policy(name)
    count = static_count(name)
    if count is not None:
        return _static(name, given, count)
    if setting is not None and setting.rule == PROVISIONED:
        return _serverless(given, setting.utilisation)
    if setting is not None and setting.rule == ON_LAMBDA:
        bundle = _lambda_only(given)
        return replace(bundle, controller=replace(bundle.controller, name=name))
    bundle = _own(name, given) if is_own(name) else _BUNDLES[name](given)
    if setting is None:
        return bundle
    if bundle.endpoint is not None:
        return replace(bundle, endpoint=replace(bundle.endpoint, utilisation=setting.utilisation))
    chosen = replace(
        bundle.controller,
        planner=setting.rule,
        utilisation=setting.utilisation,
        alpha=setting.alpha,
        spare=setting.spare,
        period_s=PERIOD_S[setting.rule],
    )
    return replace(bundle, controller=chosen)


def tuning_grid(name: str) -> tuple[Setting, ...]:
    """The settings that the policy is tuned among, none for one that its users do not tune."""
    return _GRIDS.get(name, ())


def _monitor_type(given: Ingredients) -> str:
    """T: c5.large, or the cheapest type per hour that meets the objective."""
    able = [o for o in given.offerings if o.latency_s <= given.slo.latency_s]
    for offering in able:
        if offering.instance_type.name == MONITOR_TYPE:
            return offering.name
    if not able:
        raise Misconfigured(f"no type answers within {given.slo.latency_s * 1000:g} ms; raise the objective")
    return min(able, key=lambda o: (o.usd_per_hour, o.name)).name
