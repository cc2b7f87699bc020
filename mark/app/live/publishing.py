"""What the acting controller tells of a model after each tick, for the status page and `mark status`."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Any

from mark.app.live.clock import ServiceClock
from mark.app.live.models import LiveModel
from mark.app.live.tallying import HourBook
from mark.controller.load_book import latest
from mark.controller.runner import Controller
from mark.controller.state import Decision
from mark.domain.demand import Demand
from mark.domain.fleet import Instance, InstanceState
from mark.domain.orders import Launch, Order, WarmLambda
from mark.store.service import ServiceStore
from mark.telemetry.steady_time import steady_time

MINUTES = 60
DECISIONS = 12


class Publisher:
    """Writes one model's status document."""

    def __init__(
        self,
        model: LiveModel,
        *,
        store: ServiceStore,
        clock: ServiceClock,
        began_at: float,
        trained: Callable[[], dict[str, Any] | None],
    ) -> None:
        """`trained` says what the forecaster was trained on last, and what is being trained.

        What the controller before this one told of the last hour is still told.
        """
        self._began_at, self._trained = began_at, trained
        self._served, self._bundle, self._notes = model.served, model.bundle, model.notes
        self._assumed_rps = model.assumed_rps
        self._store, self._clock = store, clock
        self._book = HourBook(store, self._served.name, began_at=began_at)
        before = store.status(f"model:{self._served.name}") or {}
        self._decisions: deque[dict[str, Any]] = deque(before.get("decisions", ()), maxlen=DECISIONS)
        self._capacity = deque(_told_capacity(before.get("series")), maxlen=MINUTES)

    @property
    def model(self) -> str:
        """The model's name."""
        return self._served.name

    def publish(self, controller: Controller, decision: Decision) -> None:
        """Tell what was seen and decided."""
        self._remember(controller, decision)
        self._store.put_status(f"model:{self.model}", self._document(controller, decision))
        self._book.keep(controller.history, self._clock.now())

    def _remember(self, controller: Controller, decision: Decision) -> None:
        now = self._clock.now()
        for order in decision.orders:
            self._decisions.appendleft(_decision(order, now))
        fleet, history = controller.fleet, controller.history
        offered = {offering.name: offering.capacity_rps for offering in self._served.offerings}
        capacity = sum(offered.get(i.offering, 0.0) for i in fleet if i.state is InstanceState.READY)
        if not self._capacity or self._capacity[-1][0] != history.end_at:
            self._capacity.append((history.end_at, capacity))

    def _document(self, controller: Controller, decision: Decision) -> dict[str, Any]:
        state, plan = decision.state, decision.state.plan
        requested = Counter[str]()
        for item in state.requested:
            requested[item.offering] += item.count
        return {
            "at": self._clock.now(),
            "tick": state.tick,
            "speed": self._clock.anchor.speed_at(steady_time()),
            "policy": self._bundle.name,
            "market": controller.policy.offerings[0].market.value if controller.policy.offerings else "none",
            "planned": dict(state.wanted[-1].counts) if state.wanted else {},
            "requested": dict(sorted(requested.items())),
            "observed": [_observed(instance) for instance in controller.fleet],
            "lambda_warm": controller.lambda_warm,
            "series": self._series(controller),
            **self._asked(controller.history),
            "began_at": self._began_at,
            "assumed": self._assumed_rps and {"rps": self._assumed_rps, "until": self._began_at},
            "trained": self._trained(),
            "plan": plan
            and {
                "at": plan.at,
                "made_at": state.wanted[-1].at if state.wanted else plan.at,
                "required_rps": plan.required_rps,
                "capacity_rps": plan.capacity_rps,
                "usd_per_hour": plan.usd_per_hour,
                "reason": plan.reason,
            },
            "decisions": list(self._decisions),
            "notes": [*stand_in_notes(controller), *self._notes, *decision.notes],
        }

    def _asked(self, history: Demand) -> dict[str, float]:
        """Requests since it began, and their largest rate."""
        came = latest(history, self._began_at)
        requests = round(sum(came.mean_rps) * came.unit_s)
        return {"requests": requests, "peak_rps": max(came.max_rps, default=0.0)}

    def _series(self, controller: Controller) -> dict[str, Any]:
        """The last hour, no further back than the service began: what was assumed before never came."""
        history, forecast = latest(controller.history, self._began_at), controller.forecast
        minutes = min(MINUTES, len(history))
        start_at = history.end_at - minutes * history.unit_s
        known = dict(self._capacity)
        ends = [start_at + (place + 1) * history.unit_s for place in range(minutes)]
        return {
            "start_at": start_at,
            "unit_s": history.unit_s,
            "mean_rps": list(history.mean_rps[-minutes:]) if minutes else [],
            "max_rps": list(history.max_rps[-minutes:]) if minutes else [],
            "capacity_rps": [known.get(end) for end in ends],
            "forecast_start_at": forecast.start_at if forecast else history.end_at,
            "forecast_max_rps": list(forecast.max_at(0.5)) if forecast else [],
            "forecaster": self._forecaster(controller),
        }

    def _forecaster(self, controller: Controller) -> str:
        """Who made the last forecast."""
        if controller.forecast is None:
            return self._bundle.forecaster
        failed = controller.forecast_failed
        return controller.forecast.source + (f", in place of {failed.forecaster}" if failed else "")


def _told_capacity(series: Mapping[str, Any] | None) -> list[tuple[float, float]]:
    """(end of the minute, requests/s) as an earlier document told them."""
    if series is None:
        return []
    told = enumerate(series["capacity_rps"], 1)
    return [(series["start_at"] + place * series["unit_s"], rps) for place, rps in told if rps is not None]


def stand_in_notes(controller: Controller) -> tuple[str, ...]:
    """That the last forecast is not the forecaster's own, and why."""
    failed, forecast = controller.forecast_failed, controller.forecast
    if failed is None or forecast is None:
        return ()
    why = " ".join(failed.error.split())
    return (f"the forecaster {failed.forecaster} failed, {forecast.source} stands in for it: {why}",)


def _observed(instance: Instance) -> dict[str, Any]:
    return {
        "id": instance.id,
        "offering": instance.offering,
        "role": instance.role.value,
        "state": instance.state.value,
        "interrupt_at": instance.interrupt_at,
        "credits": instance.credits,
    }


def _decision(order: Order, now: float) -> dict[str, Any]:
    match order:
        case Launch():
            what = f"{order.count} {order.offering}"
        case WarmLambda():
            what = f"{order.concurrency} environments"
        case _:
            what = ", ".join(order.instances)
    return {"at": now, "kind": order.kind, "what": what, "reason": order.reason}
