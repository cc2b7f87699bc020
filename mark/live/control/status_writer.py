"""The status writer: a model's document after each tick, for the status page and `mark status`."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from mark.accounting.load_history import latest
from mark.controller.policy import ControllerPolicy
from mark.controller.pool_change import BudgetLimit
from mark.controller.runner import Controller
from mark.controller.state import Decision, State
from mark.dispatch.objective import attainment
from mark.domain.demand import Demand
from mark.domain.figures import plural
from mark.domain.fleet.instances import FleetView, Instance, InstanceState
from mark.domain.fleet.orders import Launch, Order, WarmLambda, Withdraw
from mark.domain.plans.capacity_schedule import next_bounds
from mark.live.clock import ServiceClock
from mark.live.control.hourly_totals import HourlyTotalsWriter
from mark.live.models import LiveModel
from mark.planner.kairos.budget_pool import pool_sizes
from mark.steady_time import steady_time
from mark.store.published_status import (
    MODEL,
    AssumedLoad,
    ForecasterStatus,
    LoadSeries,
    OrderStatus,
    PlanStatus,
    PoolStatus,
    PublishedInstance,
    PublishedModel,
)
from mark.store.service import ServiceStore

MINUTES = 60
DECISIONS = 12
EVENTS = 4
"""Announced events that a status names."""
MEDIAN = 0.5
FAN = (0.1, 0.25, 0.75, 0.9)
"""Half of what comes is expected within the inner two, four fifths within the outer."""


class ModelStatusWriter:
    """Writes one model's status document."""

    def __init__(
        self,
        model: LiveModel,
        *,
        store: ServiceStore,
        clock: ServiceClock,
        began_at: float,
        trained: Callable[[], ForecasterStatus | None],
        troubles: Callable[[], Sequence[str]] = tuple,
        usd_per_hour: Callable[[Instance], float | None] = lambda _instance: None,
        stable: Callable[[], str] = str,
    ) -> None:
        """`trained` gives the forecaster's last training, and the one that runs; `troubles` what AWS refuses.

        `usd_per_hour` gives an instance's price of now, None where nobody knows it; `stable` the
        model's stable version.
        The last hour's entries of the controller before this one are kept.
        """
        self._began_at, self._trained, self._troubles = began_at, trained, troubles
        self._usd_per_hour, self._stable = usd_per_hour, stable
        self._served, self._bundle, self._notes = model.served, model.bundle, model.notes
        self._assumed_rps = model.assumed_rps
        self._store, self._clock = store, clock
        self._hourly_totals = HourlyTotalsWriter(store, self._served.name, began_at=began_at)
        before = MODEL.read(store, self._served.name) or PublishedModel()
        self._decisions = deque(before.decisions, maxlen=DECISIONS)
        self._capacity = deque(_told_capacity(before.series), maxlen=MINUTES)

    @property
    def model(self) -> str:
        """The model's name."""
        return self._served.name

    def publish(self, controller: Controller, decision: Decision) -> None:
        """Write the document of a tick, and the hourly totals."""
        self._remember(controller, decision)
        MODEL.write(self._store, self._document(controller, decision), self.model)
        self._hourly_totals.keep(controller.history.whole, self._clock.now(), self._stable())

    def _remember(self, controller: Controller, decision: Decision) -> None:
        now = self._clock.now()
        for order in decision.orders:
            self._decisions.appendleft(_decision(order, now))
        fleet, history = controller.fleet, controller.history
        offered = {offering.name: offering.capacity_rps for offering in self._served.offerings}
        capacity = sum(offered.get(i.offering, 0.0) for i in fleet if i.state is InstanceState.READY)
        if not self._capacity or self._capacity[-1][0] != history.end_at:
            self._capacity.append((history.end_at, capacity))

    def _document(self, controller: Controller, decision: Decision) -> PublishedModel:
        state, desired, now = decision.state, decision.state.desired, self._clock.now()
        requested = Counter[str]()
        for item in state.requested:
            requested[item.offering] += item.count
        came = latest(controller.history.whole, self._began_at)
        offerings = controller.policy.offerings
        return PublishedModel(
            at=now,
            tick=state.tick,
            speed=self._clock.anchor.speed_at(steady_time()),
            policy=self._bundle.name,
            market=offerings[0].market.value if offerings else "none",
            planned=dict(desired[-1].counts) if desired else {},
            requested=dict(sorted(requested.items())),
            observed=tuple(PublishedInstance.of(one, self._usd_per_hour(one)) for one in controller.fleet),
            lambda_warm=controller.lambda_warm,
            attained_lately=attainment(state.error_budget.missed, state.error_budget.finished),
            series=self._series(controller, came),
            requests=round(sum(came.mean_rps) * came.unit_s),
            peak_rps=max(came.max_rps, default=0.0),
            began_at=self._began_at,
            assumed=AssumedLoad(rps=self._assumed_rps, until=self._began_at) if self._assumed_rps else None,
            trained=self._trained(),
            plan=_plan(decision),
            pool=pool_status(controller.policy, controller.fleet, state),
            decisions=tuple(self._decisions),
            notes=(
                *self._troubles(),
                *stand_in_notes(controller),
                *announced_notes(controller, now),
                *bounds_notes(controller, now),
                *self._notes,
                *(note.text for note in decision.notes),
            ),
        )

    def _series(self, controller: Controller, came: Demand) -> LoadSeries:
        """The last hour of what came: what was assumed before never did."""
        forecast = controller.forecast
        minutes = min(MINUTES, len(came))
        start_at = came.end_at - minutes * came.unit_s
        known = dict(self._capacity)
        fan = fan_levels(forecast.quantiles) if forecast else ()
        return LoadSeries(
            start_at=start_at,
            unit_s=came.unit_s,
            mean_rps=came.mean_rps[len(came) - minutes :],
            max_rps=came.max_rps[len(came) - minutes :],
            capacity_rps=tuple(known.get(start_at + (place + 1) * came.unit_s) for place in range(minutes)),
            forecast_start_at=forecast.start_at if forecast else came.end_at,
            forecast_max_rps=tuple(forecast.max_at(0.5)) if forecast else (),
            fan_levels=fan,
            fan_max_rps=tuple(forecast.max_at(level) for level in fan) if forecast else (),
            forecaster=self._forecaster(controller),
        )

    def _forecaster(self, controller: Controller) -> str:
        """The name of what made the last forecast."""
        if controller.forecast is None:
            return self._bundle.forecaster
        failed = controller.forecast_failed
        return controller.forecast.label + (f", in place of {failed.forecaster}" if failed else "")


def fan_levels(levels: Sequence[float]) -> tuple[float, ...]:
    """The levels that a chart shows around the median: of those that there are the next to each of FAN, rising."""
    beside = [level for level in levels if level != MEDIAN]
    return tuple(sorted({min(beside, key=lambda level: (abs(level - wanted), level)) for wanted in FAN if beside}))


def _told_capacity(series: LoadSeries | None) -> list[tuple[float, float]]:
    """(end of the minute, requests/s) from an earlier document."""
    if series is None:
        return []
    told = enumerate(series.capacity_rps, 1)
    return [(series.start_at + place * series.unit_s, rps) for place, rps in told if rps is not None]


def stand_in_notes(controller: Controller) -> tuple[str, ...]:
    """The note that the last forecast is not the forecaster's own, and why."""
    failed, forecast = controller.forecast_failed, controller.forecast
    if failed is None or forecast is None:
        return ()
    why = " ".join(failed.error.split())
    return (f"the forecaster {failed.forecaster} failed, {forecast.label} stands in for it: {why}",)


def announced_notes(controller: Controller, now: float) -> tuple[str, ...]:
    """A note of each announced event to come or under way, the next EVENTS of them."""
    counted = controller.forecast.events if controller.forecast else ()
    ahead = sorted((event for event in controller.events if event.until > now), key=lambda event: event.at)
    notes = tuple(
        f"announced: {event.name}, {event.expected} from {_utc(event.at)} to {_utc(event.until)} UTC"
        + ("; plans count it" if event in counted else "")
        for event in ahead[:EVENTS]
    )
    more = len(ahead) - EVENTS
    return notes if more <= 0 else (*notes, f"announced: {plural(more, 'more event')}; `mark event list` has all")


def bounds_notes(controller: Controller, now: float) -> tuple[str, ...]:
    """The note of the capacity bounds by the clock that hold next."""
    change = next_bounds(controller.policy.capacity, now)
    if change is None:
        return ()
    at, bounds = change
    least = [f"at least {bounds.min_rps:g}"] if bounds.min_rps else []
    most = [f"at most {bounds.max_rps:g}"] if bounds.max_rps is not None else []
    words = " and ".join((*least, *most))
    return (f"capacity: {f'{words} requests/s' if words else 'no bounds'} from {_utc(at)} UTC on",)


def _utc(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M}"


def pool_status(policy: ControllerPolicy, fleet: FleetView, state: State) -> PoolStatus | None:
    """The pool's cost beside its budget, and the sizes that it is chosen for; None for other policies."""
    pool = policy.pool
    if pool is None:
        return None
    limit = BudgetLimit(policy, fleet, ((item.offering, item.count) for item in state.requested))
    used = pool.budget_usd_per_hour - limit.left_usd
    sizes = pool_sizes(pool, policy.offerings, state.sizes)
    return PoolStatus(
        budget_usd_per_hour=pool.budget_usd_per_hour,
        usd_per_hour=max(0.0, used) if math.isfinite(used) else None,
        sizes=sizes.name,
        measured=0 if sizes is pool.sizes else state.sizes.requests,
        mean_items=sizes.mean,
        target_items=sizes.quantile(policy.slo.target),
        largest_items=sizes.largest,
    )


def _plan(decision: Decision) -> PlanStatus | None:
    plan, desired = decision.state.plan, decision.state.desired
    if plan is None:
        return None
    return PlanStatus(
        at=plan.at,
        made_at=desired[-1].at if desired else plan.at,
        required_rps=plan.required_rps,
        capacity_rps=plan.capacity_rps,
        usd_per_hour=plan.usd_per_hour,
        reason=plan.reason,
    )


def _decision(order: Order, now: float) -> OrderStatus:
    match order:
        case Launch() | Withdraw():
            what = f"{order.count} {order.offering}"
        case WarmLambda():
            what = plural(order.concurrency, "environment")
        case _:
            what = ", ".join(order.instances)
    return OrderStatus(at=now, kind=order.kind, what=what, reason=order.reason)
