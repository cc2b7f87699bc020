"""Formatting of the live status: words and sums that the status page and the terminal share."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from mark.domain.alerts import AlertsStatus
from mark.domain.billing.spending import SpendingLimit
from mark.domain.load.traffic import FailureKind
from mark.domain.models.versions import shown
from mark.report.formatting import MISSING, finite, format_count, format_duration, percent, ratio, usd
from mark.report.live.overview import says_mean
from mark.report.live.service_status import (
    AnswerCounts,
    LatencyStatus,
    ModelStatus,
    ObjectiveStatus,
    ServiceStatus,
    SharedInstanceStatus,
    SharedStatus,
    SpentStatus,
    TenancyStatus,
    TenantStatus,
)
from mark.report.mail.formatting import format_stretch
from mark.store.published_status import AssumedLoad, ForecasterStatus

SILENT_AFTER_S = 180.0
"""Three ticks of service time: the fleet is then no longer steered."""
WORTH_TELLING_S = 20.0
"""A clock that is ahead of the wall's, or was set, by less was only rounded."""
BEHIND_S = 600.0
"""A clock that is behind by less only stood while the service started, which users need not know."""
STATES = ("ready", "pending", "draining", "stopped")
ANSWERERS = (("instance", "instance"), ("standby", "standby"), ("lambda", "Lambda"), ("shed", "shed"))
"""Keys of `by` and the words of the replay's report for them."""
COMPONENTS = (
    ("instances", "instances"),
    ("standby", "standby"),
    ("lambda", "Lambda"),
    ("serving", "serving"),
    ("overhead", "overhead"),
    ("total", "total"),
)
"""Keys of `cost_usd` and the words of the replay's report for them; serving and total are sums."""
OWN_OVERHEAD = "disks and addresses"
"""Words for a model's own part of the overhead."""
SUMS = frozenset({"serving", "total"})
HELD_BACK = {
    SpendingLimit.NONE: "",
    SpendingLimit.FLOOR: " One instance a model stays, and Lambda is not called.",
    SpendingLimit.PAUSE: " Nothing is rented.",
}
TRAINED_WHY = {"first": "first", "schedule": "on schedule", "drift": "drift"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Banner:
    """Something a reader must see first; `bad` when the service is in trouble."""

    text: str
    bad: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorBudget:
    """Error budget: finished requests that missed, and how many may; `used` is their ratio, None without any."""

    finished: int
    missed: int
    allowed: float
    used: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRow:
    """One offering in its three views. `states`, `zones`: observed by these; `leaving`: with a spot notice."""

    offering: str
    planned: int = 0
    requested: int = 0
    states: Mapping[str, int] = field(default_factory=dict)
    leaving: int = 0
    zones: Mapping[str, int] = field(default_factory=dict)
    #: Observed by version, where there are several.
    versions: Mapping[str, int] = field(default_factory=dict)
    #: Shared instances on which the model is ready, beside those observed.
    shared: int = 0
    rps: float = 0.0
    usd_per_hour: float = 0.0

    @property
    def observed(self) -> int:
        """Instances that are there, stopped ones too."""
        return sum(self.states.values())

    @property
    def states_text(self) -> str:
        """`3 ready, 1 pending`."""
        counts = [*self.states.items(), ("shared", self.shared)]
        words = ", ".join(f"{count} {state}" for state, count in counts if count)
        words = f"{words}; {self.leaving} being taken away" if self.leaving else words
        versions = ", ".join(f"{count} of version {shown(version)}" for version, count in self.versions.items())
        return f"{words}; {versions}" if versions else words


def format_rps(value: float | None) -> str:
    """`41.2`, `1,204`."""
    rate = finite(value)
    if rate is None:
        return MISSING
    return f"{rate:,.1f}" if rate < 100 else f"{rate:,.0f}"


def format_ms(value: float | None) -> str:
    """Milliseconds as `8.4` or `1,204`."""
    latency = finite(value)
    if latency is None:
        return MISSING
    return f"{latency:.1f}" if latency < 10 else f"{latency:,.0f}"


def format_share(value: float | None) -> str:
    """A share of 1 as `98.94 %`, rounded down."""
    share = finite(value)
    return MISSING if share is None else percent(share, digits=2)


def format_time(at: float | None, *, seconds: bool = True, date: bool = False) -> str:
    """An instant as `12:04:31`, or `2026-11-28 12:04:31`, UTC."""
    instant = finite(at)
    if instant is None or not 0 <= instant < 253_402_300_800:  # the year 10000, where datetime ends
        return MISSING
    form = ("%Y-%m-%d " if date else "") + ("%H:%M:%S" if seconds else "%H:%M")
    return datetime.fromtimestamp(instant, UTC).strftime(form)


def format_span(seconds: float) -> str:
    """`81 s`, `3 min`, `2 h`: whole units, for spans that pass while one looks."""
    for size in (3600, 60):
        if seconds >= 2 * size:
            return format_duration(seconds // size * size)
    return f"{max(0, math.floor(seconds))} s"


def answerers(by: AnswerCounts) -> list[tuple[str, str, int]]:
    """Key, words and requests of each that may answer."""
    counts = (by.instance, by.standby, by.lambda_, by.shed)
    return [(key, label, count) for (key, label), count in zip(ANSWERERS, counts, strict=True)]


def outcomes(model: ModelStatus) -> list[tuple[str, str, int]]:
    """Key, words and requests of each that answered, of failures, and of what the model refused; none where 0."""
    beside = (("failed", "failed (5xx)", model.failed), ("rejected", "client's mistake (4xx)", model.rejected))
    return [*answerers(model.by), *(row for row in beside if row[2])]


def components(cost: SpentStatus) -> list[tuple[str, str, float]]:
    """Key, words and USD of each component and sum. Of the overhead it has the model's own part."""
    amounts = (cost.instances, cost.standby, cost.lambda_, cost.serving, cost.overhead, cost.total)
    labels = ((key, OWN_OVERHEAD if key == "overhead" else label) for key, label in COMPONENTS)
    return [(key, label, amount) for (key, label), amount in zip(labels, amounts, strict=True)]


def quantiles(latency: LatencyStatus) -> list[tuple[str, float | None]]:
    """Name and milliseconds of the mean and each quantile."""
    values = (latency.mean, latency.p50, latency.p95, latency.p98, latency.p99)
    return list(zip(("mean", "p50", "p95", "p98", "p99"), map(finite, values), strict=True))


def budget_of(model: ModelStatus) -> ErrorBudget:
    """Late, shed and failed requests against what the objective lets miss."""
    objective = model.objective
    finished = objective.answered + objective.shed + model.failed
    missed = objective.late + objective.shed + model.failed
    # nine digits: 2 % of 50 requests is one request, not a hair more
    allowed = round((1 - objective.target) * finished, 9)
    used = None if not finished else missed / allowed if allowed > 0 else math.inf if missed else 0.0
    return ErrorBudget(finished=finished, missed=missed, allowed=allowed, used=used)


def format_budget(budget: ErrorBudget) -> str:
    """`12 % of the error budget used`."""
    if budget.used is None:
        return "nothing finished yet"
    if math.isinf(budget.used):
        return "no request may miss"
    return f"{math.ceil(100 * budget.used - 1e-9):,} % of the error budget used"


def format_accuracy(objective: ObjectiveStatus) -> str:
    """`97.90 % right; 99.20 % in the last 5 s`; empty for a model without variants."""
    if objective.accuracy is None:
        return ""
    now = objective.accuracy_now
    recent = "" if now is None else f"; {format_share(now)} in the last 5 s"
    return f"{format_share(objective.accuracy)} right{recent}"


def judged(model: ModelStatus) -> LatencyStatus:
    """The times that the objective judges."""
    return model.latency_ms if model.objective.measured == "answer" else model.first_byte_ms


def objective_quantile(model: ModelStatus) -> tuple[str, float | None]:
    """The judged latency at the objective's quantile, or the next higher one that is known: `p99` and ms."""
    latency, target = judged(model), model.objective.target
    known = ((0.95, "p95", latency.p95), (0.98, "p98", latency.p98), (0.99, "p99", latency.p99))
    return next(((name, ms) for share, name, ms in known if share >= target), ("p99", latency.p99))


def format_objective(*, target: float, latency_ms: float, measured: str = "answer") -> str:
    """`98 % within 600 ms`, or `98 % begin within 600 ms` of answers that stream."""
    begin = "" if measured == "answer" else "begin "
    return f"{percent(target)} {begin}within {format_duration(latency_ms / 1000)}"


def format_training(model: ModelStatus) -> str:
    """Last training of the forecaster and why, its drift, and a training that runs or failed."""
    trained = model.trained
    if trained is None:
        return ""
    parts = [f"{trained.forecaster}, trained on {_format_learned(trained, model.assumed)}"]
    if trained.drift is not None:
        parts.append(f"losses of late {ratio(trained.drift)} the usual")
    if trained.training is not None:
        since = format_time(trained.training.since, seconds=False)
        parts.append(f"being trained since {since} ({TRAINED_WHY[trained.training.why]})")
    if trained.failed is not None:
        at = format_time(trained.failed.at, seconds=False)
        parts.append(f"could not be trained at {at}: {trained.failed.error}")
    return "; ".join(parts)


def _format_learned(trained: ForecasterStatus, assumed: AssumedLoad | None) -> str:
    """The span that was learned from, and how much of it never came but was assumed."""
    span = format_duration(trained.until - trained.from_)
    why = TRAINED_WHY[trained.why]
    until = format_time(trained.until, seconds=False)
    assumed_s = min(assumed.until, trained.until) - trained.from_ if assumed else 0.0
    if assumed is None or assumed_s <= 0:
        return f"{span} until {until} ({why})"
    if assumed.until >= trained.until:
        return f"{span} of an assumed {assumed.rps:g} requests/s, before any traffic ({why})"
    return f"{span} until {until}, {format_duration(assumed_s)} of them assumed ({why})"


def format_assumed_load(model: ModelStatus) -> str:
    """Assumed load of a service without requests; empty once a request came."""
    counts = (count for _, _, count in answerers(model.by))
    if model.assumed is None or any(counts) or model.failed or model.rejected:
        return ""
    if any(model.series.max_rps) or model.rates.max_rps:
        return ""
    return f"assumed {model.assumed.rps:g} requests/s (expected_rps), nothing seen yet"


def format_plan_times(model: ModelStatus) -> str:
    """Times of the plan: made at, and for, where it looks ahead."""
    if model.plan is None:
        return ""
    at, made_at = (format_time(instant, seconds=False) for instant in (model.plan.at, model.plan.made_at))
    return f"Plan made {made_at}" + (f", for {at}" if at != made_at else "")


def format_hourly(model: ModelStatus) -> str:
    """Parts of the spend of an hour: instances as they are now, the rest as a mean of a named span."""
    parts = model.usd_per_hour_by
    now = f"instances {usd(parts.instances)} now"
    if not says_mean(parts.mean_over_s):
        return f"{now}; too early for the rest"
    means = f"Lambda {usd(parts.lambda_)}, {OWN_OVERHEAD} {usd(parts.overhead)}"
    return f"{now}; {means} as a mean of {format_span(parts.mean_over_s)}"


def format_usd_per_hour(amount: float | None) -> str:
    """USD an hour as `1.20`; `-` where it is too early to say."""
    return MISSING if amount is None else usd(amount)


def format_overhead(status: ServiceStatus) -> str:
    """What models share, once, and the sum of all."""
    overhead, whole = status.overhead.usd_per_hour, status.overview.usd_per_hour
    if overhead is None:
        return "Overhead: too early for USD/h"
    in_all = "" if whole is None else f"; {usd(whole)} USD/h in all"
    return f"Overhead: {usd(overhead)} USD/h for gateways, store, controllers and logs{in_all}"


def format_shared_cost(shared: SharedStatus) -> str:
    """`0.09 USD/h, so far 1.20 USD, 0.70 of it idle` of the instances that models share."""
    so_far = f"so far {usd(shared.cost_usd.total)} USD, {usd(shared.idle_usd)} of it idle"
    return f"{format_usd_per_hour(shared.usd_per_hour)} USD/h, {so_far}"


def format_shared_part(model: ModelStatus) -> str:
    """`, and 0.50 USD of shared instances`; empty where it took none of their time."""
    return f", and {usd(model.shared_usd)} USD of shared instances" if model.shared_usd else ""


def format_tenant(tenant: TenantStatus) -> str:
    """`41.2`, requests/s, or why it takes none."""
    if tenant.state != "ready":
        return tenant.state
    return format_rps(tenant.share_rps) if tenant.wanted else "leaving"


def format_host(host: SharedInstanceStatus) -> str:
    """`c5.large:spot, us-east-1a, ready, 0.04 USD/h`."""
    price = "" if host.usd_per_hour is None else f"{usd(host.usd_per_hour)} USD/h"
    gone = "" if host.gone_in_s is None else f"taken away in {format_span(host.gone_in_s)}"
    return ", ".join(filter(None, (host.offering, host.zone, host.state, gone, price)))


def format_tenancies(model: ModelStatus) -> str:
    """`i-12 with text, vision: 24.1 requests/s`, for each shared instance; empty where it shares none."""
    return "; ".join(map(_format_tenancy, model.shared))


def _format_tenancy(seat: TenancyStatus) -> str:
    beside = f" with {', '.join(seat.beside)}" if seat.beside else ""
    takes = f"{format_rps(seat.share_rps)} requests/s" if seat.state == "ready" else seat.state
    return f"{seat.instance}{beside}: {takes}"


def format_pool_status(model: ModelStatus) -> str:
    """The pool's cost beside its budget, and the sizes that it is chosen for; empty for other policies."""
    pool = model.pool
    if pool is None:
        return ""
    told = f"{pool.sizes}, of the settings"
    source = f"measured of {format_count(pool.measured)} requests" if pool.measured else told
    used = MISSING if pool.usd_per_hour is None else usd(pool.usd_per_hour)
    return (
        f"{used} of {usd(pool.budget_usd_per_hour)} USD/h; chosen for {pool.mean_items:,.4g} items "
        f"a request, {percent(model.objective.target)} up to {format_count(pool.target_items)}, "
        f"{format_count(pool.largest_items)} at most ({source})"
    )


def format_gateway_shares(model: ModelStatus) -> str:
    """Each gateway's share of the agents by offering; empty without a central queue."""
    return "; ".join(
        f"{one.gateway} {', '.join(f'{count} {name}' for name, count in one.agents.items()) or 'no agent'}"
        for one in model.gateways
    )


def fleet_rows(model: ModelStatus) -> tuple[FleetRow, ...]:
    """All offerings that are planned, requested or there, by name."""
    fleet, observed = model.fleet, model.fleet.observed
    capacity = {row.offering: row for row in model.capacity}
    names = {*fleet.planned, *fleet.requested, *capacity, *(row.offering for row in observed)}
    has_versions = len({row.version for row in observed if row.version}) > 1
    rows = []
    for name in sorted(names):
        here = [row for row in observed if row.offering == name]
        counts = Counter(row.state for row in here)
        known = {state: counts[state] for state in STATES}
        rows.append(
            FleetRow(
                offering=name,
                planned=fleet.planned.get(name, 0),
                requested=fleet.requested.get(name, 0),
                states={**known, **{state: counts[state] for state in sorted(counts.keys() - known.keys())}},
                zones=dict(sorted(Counter(row.zone for row in here if row.zone).items())),
                versions=dict(
                    sorted(Counter(row.version for row in here if row.version and has_versions).items())
                ),
                leaving=sum(row.gone_in_s is not None for row in here),
                shared=capacity[name].shared if name in capacity else 0,
                rps=capacity[name].rps if name in capacity else 0.0,
                usd_per_hour=capacity[name].usd_per_hour if name in capacity else 0.0,
            )
        )
    return tuple(rows)


def format_clock(status: ServiceStatus) -> str:
    """What the service's clock shows and how it runs, where it is not the wall's; else when this was read."""
    speed, behind_s = status.speed, status.behind_wall_s
    clock, read_at = (f"{format_time(at, date=True)} UTC" for at in (status.now, status.now + behind_s))
    if status.clock_stands:
        return f"the service's clock stands at {clock} until the load begins"
    if speed != 1:
        return f"the service's clock runs {ratio(speed, digits=0 if speed >= 2 else 2)} and shows {clock}"
    if -WORTH_TELLING_S < behind_s < BEHIND_S:
        return f"updated {read_at}"
    off = f"{format_span(abs(behind_s))} {'behind' if behind_s > 0 else 'ahead'}"
    return f"updated {read_at}; the service's clock is {off}"


def format_failure(failure: FailureKind, now: float) -> str:
    """How often a model failed so, since when, when last, and what it said."""
    last = format_past(failure.at, now)
    if failure.count == 1:
        return f"once, at {last}: {failure.text}"
    return f"{failure.count:,} times since {format_past(failure.since, now)}, last {last}: {failure.text}"


def format_past(at: float, now: float) -> str:
    """An instant as a time, with its date where that is not within the last 12 hours."""
    return format_time(at, date=now - at > 12 * 3600)


def format_controller(status: ServiceStatus) -> str:
    """The acting controller, and the age of its last tick (service time)."""
    holder, silent_s = status.controller.holder, status.controller.silent_s
    if holder is None:
        return "nobody"
    return holder if silent_s is None else f"{holder}, last tick {format_span(silent_s)} ago"


def format_expected_load(model: ModelStatus) -> str:
    """The load that the plan of its own fleet is for, and whether that is to carry it: `planned for 41.2`."""
    if model.plan is None or (model.shared and not model.plan.required_rps):
        return ""
    required = f"{format_rps(model.plan.required_rps)}{' more' if model.shared else ''}"
    if any(model.fleet.planned.values()):
        return f"planned for {required}"
    return f"{required} expected, {'Lambda answers' if model.lambda_.answers else 'no instance planned for it'}"


def format_capacity(model: ModelStatus) -> str:
    """Ready capacity, and the load that the plan expects."""
    if is_lambda_alone(model):
        return format_expected_load(model)
    ready = f"{format_rps(sum(row.rps for row in model.capacity))} requests/s"
    return "; ".join(filter(None, (ready, format_expected_load(model))))


def is_lambda_alone(model: ModelStatus) -> bool:
    """True where no instance is ready or planned, because Lambda answers all requests."""
    has_instances = any(row.rps for row in model.capacity) or any(model.fleet.planned.values())
    return model.plan is not None and model.lambda_.answers and not has_instances


def banners(status: ServiceStatus) -> tuple[Banner, ...]:
    """Warnings at the top of the status, worst first.

    The store unreachable; the controller gone or silent; a budget reached; dead letters and alarms; a journal that
    is not archived; spot instances leaving.
    """
    if not status.store.reachable:
        return (
            Banner(
                text="The store is unreachable; this is the last known status. Gateways and "
                "agents go on serving with the members they last knew.",
                bad=True,
            ),
        )
    found = [banner for banner in (_controller_banner(status), _budget_banner(status)) if banner]
    if status.alerts is not None:
        found += alert_banners(status.alerts)
    if status.archive is not None and status.archive.failed:
        text = f"The journal is not archived, and is tried again: {status.archive.failed}"
        found.append(Banner(text=text, bad=False))
    if status.replays is not None and status.replays.failed is not None:
        failed = status.replays.failed
        text = f"The report lacks the replays of {failed.day}, which are tried again: {failed.error}"
        found.append(Banner(text=text, bad=False))
    fleets = [(model.name, model.fleet.observed) for model in status.models]
    if status.shared is not None:
        fleets.append(("Shared instances", status.shared.instances))
    for name, observed in fleets:
        leaving = [row.gone_in_s for row in observed if row.gone_in_s is not None]
        if leaving:
            soonest = format_span(min(leaving))
            what, when = "1 spot instance is", f"in {soonest}"
            if len(leaving) > 1:
                what, when = f"{len(leaving)} spot instances are", f"the first in {soonest}"
            text = f"{name}: {what} being taken away, {when}."
            found.append(Banner(text=text, bad=False))
    return tuple(found)


def alert_banners(alerts: AlertsStatus) -> list[Banner]:
    """Dead letters, and alarms that ring."""
    found = []
    if alerts.dead_letters:
        what = (
            "1 message about instances is a dead letter"
            if alerts.dead_letters == 1
            else f"{alerts.dead_letters:,} messages about instances are dead letters"
        )
        found.append(Banner(text=f"{what}: queue raw-dead has what nobody could read.", bad=True))
    ringing = alerts.ringing or ()
    found += [Banner(text=f"The alarm {one.name} rings: {one.reason}", bad=True) for one in ringing]
    if alerts.dead_letters is None and alerts.ringing is None:
        found.append(Banner(text=f"AWS does not report which alarms ring: {alerts.unknown}", bad=False))
    return found


def format_spent(status: ServiceStatus) -> str:
    """`1.20 of 50.00 USD today, 12.00 this month`; empty where no budget is set or nothing is reckoned yet."""
    spending = status.budget
    if spending is None or not (spending.daily_usd or spending.monthly_usd):
        return ""
    parts = []
    for spent, limit, when in (
        (spending.day_usd, spending.daily_usd, "today"),
        (spending.month_usd, spending.monthly_usd, "this month"),
    ):
        of = f" of {usd(limit)}" if limit is not None else ""
        parts.append(f"{usd(spent)}{of} USD {when}")
    return ", ".join(parts)


def format_month(status: ServiceStatus) -> str:
    """Spend of the month, where it leads, and what the replayed days saved, in a sentence; empty before any."""
    spending, compared = status.budget, status.compared
    if spending is None:
        return ""
    words = f"{usd(spending.month_usd)} USD this month so far"
    if spending.month_projected_usd is not None:
        words += f", about {usd(spending.month_projected_usd)} by its end as the last days went"
    if (owned := spending.commitments) is not None:
        paid, used, unused = usd(owned.paid_usd), usd(owned.used_usd), usd(owned.unused_usd)
        words += f"; of commitments {paid} paid, {used} used, {unused} unused"
    if compared is None or compared.usd <= 0:
        return f"{words}."
    share = (compared.measured_usd - compared.usd) / compared.usd
    than = f"{percent(abs(share), digits=0)} {'less' if share <= 0 else 'more'} than {compared.policy}"
    rival = "the cheapest rival that keeps the objective" if compared.kept else "the rival that misses it least"
    return f"{words}; {than}, {rival}, in the {format_stretch(compared.replayed_s)} replayed."


def format_counterfactual(status: ServiceStatus) -> str:
    """What runs, what would run, what that would have saved and missed; empty where the service serves itself.

    Empty in the first minute, too, which says nothing of a day.
    """
    beside = status.counterfactual
    if beside is None or beside.usd_per_hour is None:
        return ""
    rows = (row for model in status.models for row in model.fleet.observed if row.state != "stopped")
    counts = sorted(Counter(row.offering for row in rows).items())
    fleet = ", ".join(f"{count} {name}" for name, count in counts) or "no instance"
    words = f"MArk would run {fleet} for {usd(24 * beside.usd_per_hour)} USD a day"
    if beside.existing_usd_per_hour is not None:
        words = f"You run a fleet for {usd(24 * beside.existing_usd_per_hour)} USD a day, {words}"
    words += f". It would have cost {usd(beside.usd)} USD in {format_stretch(status.now - beside.since)}"
    if beside.saved_usd is not None:
        words += f", {usd(abs(beside.saved_usd))} {'less' if beside.saved_usd >= 0 else 'more'} than yours"
    if beside.beyond_least is None or beside.beyond_most is None:
        return f"{words}."
    rounded_up = math.ceil(1e4 * beside.beyond_most - 1e-9) / 1e4
    least, most = (percent(share, digits=2) for share in (beside.beyond_least, rounded_up))
    span = format_stretch(60.0 * beside.minutes)
    return f"{words}; of the requests of the last {span}, {least} to {most} came beyond what it carried."


def _budget_banner(status: ServiceStatus) -> Banner | None:
    spending = status.budget
    if spending is None or not spending.reasons:
        return None
    why = "; ".join(spending.reasons)
    return Banner(
        text=f"{why[:1].upper()}{why[1:]}.{HELD_BACK[spending.limited_by]}",
        bad=spending.limited_by is not SpendingLimit.NONE,
    )


def _controller_banner(status: ServiceStatus) -> Banner | None:
    silent_s = status.controller.silent_s
    if status.controller.holder is None:
        return Banner(text="No controller holds the lease: the fleet stays as it is.", bad=True)
    if silent_s is not None and silent_s > SILENT_AFTER_S:
        return Banner(
            text=f"The controller was silent for {format_span(silent_s)}: the fleet stays as it is.",
            bad=True,
        )
    return None
