"""Policies: named bundles of planner, forecaster, dispatch, overflow, monitor and standbys.

`mark` and `greedy-oracle` are the paper and no more; each baseline gets what the real thing has and no more
(docs/decisions/0002-policies.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from mark.cloudmodel.noise import SUREST
from mark.controller.breaker import BreakerPolicy
from mark.controller.policy import ControllerPolicy, MonitorPolicy, StandbyPolicy
from mark.dispatch.policy import Bounced, DispatchPolicy, Late, Routing
from mark.domain.demand import Demand
from mark.domain.errors import Misconfigured, unknown
from mark.domain.objective import Slo
from mark.domain.offering import BatchPolicy, LambdaOffering, Market, Offering
from mark.planner.baselines import cheapest_type, peak_count, single_rps

WEEK_UNITS = 7 * 24 * 60
"""What the hedged planner looks back on: the surges of a week."""
WARM_SHARE = 0.25
"""Environments kept warm for unforecast surges: a cold one answers too late (some cents a day)."""
SCALE_IN_COOLDOWN_S = 360.0
"""Scale-in cool-down where nothing takes late requests away, as in mark."""
MANAGED_CPU_FACTOR, MANAGED_GPU_FACTOR = 1.2, 1.4
"""The price premium of a managed service (SageMaker's list, 2026)."""
LEAST_CONFIDENCE = 0.5
"""Of admission, where service times vary: the expected finish. `hedged` asks for the objective's own target."""
MONITOR_TYPE = "c5.large"
"""T of the SLO monitor where it meets the objective (MArk section 4.4)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyBundle:
    """One policy, ready to run.

    Prices are multiplied by `cpu_price_factor` or, for types with an accelerator, `gpu_price_factor`; `overhead`
    says whether what stands around the fleet is billed beside (a managed price contains it).
    `uses_truth`: whether its forecaster knows the load to come, which nobody can rent.
    """

    controller: ControllerPolicy
    dispatch: DispatchPolicy
    forecaster: str
    cpu_price_factor: float = 1.0
    gpu_price_factor: float = 1.0
    overhead: bool = True
    uses_truth: bool = False

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
    surge_standby: StandbyPolicy | None = None
    late: Late = Late.SERVE
    managed_cpu_factor: float = MANAGED_CPU_FACTOR
    managed_gpu_factor: float = MANAGED_GPU_FACTOR


def _mark(given: Ingredients) -> PolicyBundle:
    return PolicyBundle(
        controller=ControllerPolicy(
            name="mark",
            planner="greedy",
            slo=given.slo,
            offerings=given.offerings,
            fallbacks=given.on_demand if given.market is Market.SPOT else (),
            overflow=given.overflow,
            standby=given.standby if given.market is Market.SPOT else None,
            monitor=MonitorPolicy(offering=_monitor_type(given)),
        ),
        dispatch=DispatchPolicy(
            routing=Routing.WEIGHTED, bounced=Bounced.LAMBDA, admission_factor=1.0, late=given.late
        ),
        forecaster="lstm-vanilla",
    )


def _greedy_oracle(given: Ingredients) -> PolicyBundle:
    bundle = _mark(given)
    named = replace(bundle.controller, name="greedy-oracle")
    return replace(bundle, controller=named, forecaster="oracle", uses_truth=True)


def _milp(given: Ingredients) -> PolicyBundle:
    bundle = _mark(given)
    return replace(bundle, controller=replace(bundle.controller, name="milp", planner="milp"))


def _unbatched(offering: Offering) -> Offering:
    """The same instances serving one request at a time: batching is MArk's."""
    single = BatchPolicy(max_batch=1, max_wait_s=0.0)
    return replace(offering, batch=single, capacity_rps=single_rps(offering))


def _autoscaled(given: Ingredients, name: str, planner: str) -> PolicyBundle:
    """A baseline on one type and on demand, without Bouncer, overflow, monitor or standbys."""
    return PolicyBundle(
        controller=ControllerPolicy(
            name=name,
            planner=planner,
            slo=given.slo,
            offerings=(_unbatched(cheapest_type(given.on_demand, given.slo)),),
            horizon=1,
            cooldown_s=0.0,
            keep_observed=False,
            warm_lambda=False,
        ),
        dispatch=DispatchPolicy(routing=Routing.LEAST_OUTSTANDING, bounced=Bounced.NOWHERE, admission_factor=None),
        forecaster="last-value",
    )


def _sagemaker(given: Ingredients) -> PolicyBundle:
    return replace(
        _autoscaled(given, "sagemaker", "target-tracking"),
        cpu_price_factor=given.managed_cpu_factor,
        gpu_price_factor=given.managed_gpu_factor,
        overhead=False,
    )


def _reactive(given: Ingredients) -> PolicyBundle:
    bundle = _autoscaled(given, "reactive", "two-windows")
    return replace(bundle, controller=replace(bundle.controller, period_s=5.0))


def _static_peak(given: Ingredients) -> PolicyBundle:
    if not len(given.history):
        raise Misconfigured("static-peak sizes for the highest minute before the run: give a --start-s above 0")
    bundle = _autoscaled(given, "static-peak", "static")
    count = peak_count(given.history, single_rps(bundle.controller.offerings[0]))
    return replace(bundle, controller=replace(bundle.controller, static_count=count))


def _lambda_only(given: Ingredients) -> PolicyBundle:
    if given.overflow is None:
        raise Misconfigured(
            "lambda-only needs the model on Lambda: name a profile set that has it, such as assumed-lambda"
        )
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
        ),
        dispatch=DispatchPolicy(
            routing=Routing.LEAST_FINISH,
            bounced=Bounced.LAMBDA,
            admission_factor=0.98,
            admission_confidence=min(max(given.slo.target, LEAST_CONFIDENCE), SUREST),
            late=given.late,
        ),
        forecaster="mixture",
    )


_BUNDLES: dict[str, Callable[[Ingredients], PolicyBundle]] = {
    "hedged": _hedged,
    "mark": _mark,
    "greedy-oracle": _greedy_oracle,
    "milp": _milp,
    "sagemaker": _sagemaker,
    "reactive": _reactive,
    "static-peak": _static_peak,
    "lambda-only": _lambda_only,
}


def policy_names() -> tuple[str, ...]:
    """All policies, ours first."""
    return tuple(_BUNDLES)


def make_bundle(name: str, given: Ingredients) -> PolicyBundle:
    """The policy of that name. Misconfigured for an unknown one, or when something it needs is missing."""
    if name not in _BUNDLES:
        raise unknown("policy", name, _BUNDLES)
    return _BUNDLES[name](given)


def _monitor_type(given: Ingredients) -> str:
    """T: c5.large, or the cheapest type per hour that meets the objective."""
    able = [o for o in given.offerings if o.latency_s <= given.slo.latency_s]
    for offering in able:
        if offering.instance_type.name == MONITOR_TYPE:
            return offering.name
    if not able:
        raise Misconfigured(f"no type answers within {given.slo.latency_s * 1000:g} ms; raise the objective")
    return min(able, key=lambda o: (o.usd_per_hour, o.name)).name
