"""Metrics that controllers send to CloudWatch each minute, as lines of its embedded metric format in their log.

Burn rate is the share of requests that were late, shed or failed over the share that may be: 1 lasts exactly.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from mark.dispatch.objective import burn_rate
from mark.domain.documents import json_text
from mark.domain.errors import RetryLater, failure_words
from mark.domain.fleet.host_spec import SHARED
from mark.domain.fleet.instances import InstanceState
from mark.domain.load.traffic import ModelTraffic
from mark.service_spec import ServedModel
from mark.store.published_status import MODEL, PublishedModel
from mark.store.service import ServiceStore

log = logging.getLogger(__name__)

EACH_S = 60.0
LARGEST_BURN = 1e6
"""CloudWatch takes no infinity, which a miss is where the target is 1."""
NOT_BILLED = (InstanceState.PENDING, InstanceState.STOPPED, InstanceState.GONE)
NAMESPACE = "MArk"
BURN, SPEND, OVERFLOW, GATEWAYS = "BurnRate", "UsdPerHour", "OverflowShare", "Gateways"
FAILED_TRAININGS = "FailedTrainings"


def metric_line(
    service: str, before: ModelTraffic, now: ModelTraffic, *, target: float, usd_per_hour: float, at: float
) -> str:
    """One line for the time between two totals of a model's traffic. at: epoch seconds. target: in (0, 1]."""
    answered = now.answered - before.answered
    burn = burn_rate(now.missed - before.missed, now.finished - before.finished, target)
    values = {GATEWAYS: float(now.gateways), SPEND: usd_per_hour}
    if burn is not None:
        values[BURN] = min(burn, LARGEST_BURN)
    if answered > 0:
        values[OVERFLOW] = (now.lambda_ - before.lambda_) / answered
    return _line({"service": service, "model": now.model}, values, at)


def service_line(
    service: str, *, usd_per_hour: float, failed_trainings: int, at: float, beside: Mapping[str, float]
) -> str:
    """One line for all models of a service. at: epoch seconds. beside: further metrics.

    failed_trainings: models whose forecaster's last training failed. None is not sent: a metric costs while it is.
    """
    values = {SPEND: usd_per_hour, **beside}
    if failed_trainings:
        values[FAILED_TRAININGS] = float(failed_trainings)
    return _line({"service": service}, values, at)


def _line(dimensions: Mapping[str, str], values: Mapping[str, float], at: float) -> str:
    described = {
        "Namespace": NAMESPACE,
        "Dimensions": [list(dimensions)],
        "Metrics": [{"Name": name} for name in values],
    }
    head = {"_aws": {"Timestamp": round(at * 1000), "CloudWatchMetrics": [described]}}
    return json_text({**head, **dimensions, **values}, compact=True, allow_nan=True)


def watch_metrics(
    service: str,
    models: Sequence[ServedModel],
    store: ServiceStore,
    *,
    holder: str,
    stop: threading.Event,
    shared: ServedModel | None = None,
    beside: Callable[[float], Mapping[str, float]] = lambda _: {},
    record: Callable[[str | None], None] = lambda _: None,
) -> Iterator[str]:
    """A line for each model each minute while `holder` acts, and one for all of them, until `stop`.

    A minute that fails has no line, which is what an alarm waits for. `shared`: what models share, as it is
    billed, which counts in the line for all. `beside`: further metrics of that line, at epoch seconds, which go
    out while another acts, too.
    `record` gets the reason, None on success.
    """
    before: dict[str, ModelTraffic] = {}
    while True:
        lines: list[str] = []
        try:
            lines, before = _minute(service, models, store, holder, before, shared, beside)
        except RetryLater as error:
            record(str(error))
        except Exception as error:  # whatever it is: it would end the metrics for good
            log.exception("the minute's metrics cannot be computed")
            record(failure_words(error))
        else:
            record(None)
        yield from lines
        if stop.wait(EACH_S):
            return


def _minute(
    service: str,
    models: Sequence[ServedModel],
    store: ServiceStore,
    holder: str,
    before: Mapping[str, ModelTraffic],
    shared: ServedModel | None,
    beside: Callable[[float], Mapping[str, float]],
) -> tuple[list[str], dict[str, ModelTraffic]]:
    """The lines of a minute, and the totals at its end; `before`: those at its start."""
    acts = store.leases.held_by() == holder
    now = {model.name: store.traffic(model.name) for model in models}
    told = {model.name: MODEL.read(store, model.name) for model in models}
    at = time.time()
    own = beside(at)
    if not acts and own:  # a node that stands by is as near its end as the one that acts
        return [_line({"service": service}, own, at)], now
    if not (acts and before):
        return [], now
    spent = {model.name: spend(model, told[model.name]) for model in models}
    lines = [
        metric_line(
            service,
            before[model.name],
            now[model.name],
            target=model.slo.target,
            usd_per_hour=spent[model.name],
            at=at,
        )
        for model in models
    ]
    failed = sum(_training_failed(known) for known in told.values())
    shared_usd = 0.0 if shared is None else spend(shared, MODEL.read(store, SHARED))
    total = service_line(
        service,
        usd_per_hour=sum(spent.values()) + shared_usd,
        failed_trainings=failed,
        at=at,
        beside=own,
    )
    return [*lines, total], now


def _training_failed(told: PublishedModel | None) -> bool:
    """True from a training of the model's forecaster that failed to one that does not, wherever it is trained."""
    return told is not None and told.trained is not None and told.trained.failed is not None


def spend(model: ServedModel, told: PublishedModel | None) -> float:
    """USD an hour of the instances that were published as running; a stopped one costs its disk.

    One that was published without its price counts at its offering's.
    """
    prices = {offering.name: offering.usd_per_hour for offering in model.offerings}
    running = () if told is None else (one for one in told.observed if one.state not in NOT_BILLED)
    return sum(prices.get(one.offering, 0.0) if one.usd_per_hour is None else one.usd_per_hour for one in running)
