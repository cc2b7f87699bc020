"""The service as `mark status` and the status page show it: one status, made from the store alone.

It needs no controller to be alive; what a controller alone knows (plan, forecast, requested launches) is what the
last acting one said.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

import numpy as np

from mark.accounting.client_totals import answers_by_client
from mark.accounting.compaction import rolled_up
from mark.accounting.daily_costs import own_lines, standing_lines
from mark.accounting.ledger import (
    SECONDS_PER_HOUR,
    crossed_requests,
    joined,
    live_bill,
    rent_usd_per_hour,
    running_now,
    unpriced,
    unpriced_words,
)
from mark.accounting.shortfall import shortfall
from mark.accounting.usage import IncrementalUsage
from mark.catalog.billing import cost_of
from mark.controller.demand_units import window_speeds
from mark.dispatch.objective import attainment
from mark.domain.billing.costs import FleetUsage
from mark.domain.billing.footprint import Footprint
from mark.domain.billing.shared_rent import divide_rent
from mark.domain.billing.spending import SpendingLimit
from mark.domain.demand import WINDOW_S
from mark.domain.errors import RetryLater
from mark.domain.fleet.host_spec import SHARED
from mark.domain.fleet.instances import InstanceState
from mark.domain.fleet.member import Member, MemberState
from mark.domain.load.traffic import LATENCY_BIN_S, ModelTraffic
from mark.domain.models.versions import rollout_notes
from mark.live.background.failures import failure_lines
from mark.live.clock import adopt_wall
from mark.live.local.run_dir import process_of
from mark.live.rollout_progress import progress_of
from mark.report.live.overview import make_overview, says_mean
from mark.report.live.service_status import (
    AnswerCounts,
    ArrivalRates,
    ControllerStatus,
    CounterfactualStatus,
    FleetStatus,
    GatewayShare,
    HourlyStatus,
    LambdaStatus,
    LatencyStatus,
    ModelStatus,
    ObjectiveStatus,
    ObservedInstance,
    OfferingCapacity,
    OverheadStatus,
    Overview,
    ReplaysStatus,
    ServiceStatus,
    SharedInstanceStatus,
    SharedStatus,
    SpentStatus,
    StoreStatus,
    TenancyStatus,
    TenantStatus,
)
from mark.service_spec import ServedModel, ServiceSpec
from mark.serving.gateway.central.shares import assign_gateways, kinds_of
from mark.steady_time import steady_time
from mark.store.published_status import (
    ALERTS,
    ARCHIVE,
    BACKGROUND,
    BUDGET,
    COMPARED,
    HOSTS,
    MODEL,
    NIGHTLY,
    PROCESSES,
    SPEND,
    BackgroundStatus,
    LoadSeries,
    NightlyStatus,
    ProcessesStatus,
    PublishedHosts,
    PublishedInstance,
    PublishedModel,
    SpendHistory,
)
from mark.store.service import ServiceStore

RATE_WINDOWS = 12
QUANTILES = (("p50", 0.5), ("p95", 0.95), ("p98", 0.98), ("p99", 0.99))


class LiveView:
    """Reads the store; keeps the last status for a store that is unreachable."""

    def __init__(self, store: ServiceStore, service: str) -> None:
        self._store = store
        self._service = service
        self._spec: ServiceSpec | None = None
        self._books: dict[str, IncrementalUsage] = {}
        self._last = ServiceStatus(service=service, now=steady_time())

    def status(self, *, until: float = math.inf) -> ServiceStatus:
        """The service as it is now; what it costs is counted to `until`, service time, where that has passed."""
        try:
            self._last = self._made(until)
        except RetryLater:
            return replace(self._last, store=StoreStatus(reachable=False))
        return self._last

    def _made(self, until: float) -> ServiceStatus:
        store = self._store
        if self._spec is None:
            adopt_wall(store)
            self._spec = store.spec()
        anchor, wall = store.clock(), steady_time()
        now, speed = min(anchor.service_time(wall), until), anchor.speed_at(wall)
        holder = store.leases.held_by()
        background = BACKGROUND.read(store, holder) if holder else None
        failing = failure_lines(background or BackgroundStatus(), wall)
        published = [MODEL.read(store, served.name) or PublishedModel() for served in self._spec.models]
        ticked_at = max((known.at for known in published), default=0.0)
        processes = PROCESSES.read(store) or ProcessesStatus()
        budget = BUDGET.read(store)
        is_limited = budget is not None and budget.limited_by is not SpendingLimit.NONE
        members = store.members()
        shared = self._shared(self._spec, members, now)
        models = tuple(
            self._model(
                served,
                known,
                now,
                failing,
                self._spec.footprint,
                members={one.instance: one for one in members if one.model == served.name and not one.is_tenant},
                shared=_tenancies(served.name, members, shared),
                is_limited=is_limited,
            )
            for served, known in zip(self._spec.models, published, strict=True)
        )
        if shared is not None:
            models, shared = _divided(models, shared)
        commitments_usd = 0.0 if budget is None else budget.commitments_usd
        overhead = _overhead(self._spec.footprint, published, now, commitments_usd)
        overview = make_overview(models, overhead, shared)
        life_s = _life_s(published, now)
        return ServiceStatus(
            service=self._service,
            now=now,
            speed=speed,
            clock_stands=speed == 0.0,
            behind_wall_s=time.time() - now,
            controller=ControllerStatus(
                holder=process_of(holder), silent_s=max(0.0, now - ticked_at) if ticked_at else None
            ),
            restarts=processes.restarts,
            down=processes.down,
            account=processes.account,
            clock_set_by_s=processes.clock_set_by_s,
            budget=budget,
            replays=_replays(NIGHTLY.read(store)),
            compared=COMPARED.read(store),
            counterfactual=_counterfactual(self._spec, models, overhead, overview, now, life_s)
            if self._spec.observed
            else None,
            hours=(SPEND.read(store) or SpendHistory()).hours,
            alerts=ALERTS.read(store),
            archive=ARCHIVE.read(store),
            overhead=overhead,
            shared=shared,
            overview=overview,
            models=models,
        )

    def _shared(self, spec: ServiceSpec, members: Sequence[Member], now: float) -> SharedStatus | None:
        """The instances that models share, as the last tick saw them and their agents announce them since."""
        served = spec.shared
        if served is None:
            return None
        store = self._store
        known, usage = MODEL.read(store, SHARED) or PublishedModel(), self._usage(SHARED, now)
        cost, hourly, lacking = _spend(served, ModelTraffic(model=SHARED), known, usage, now, spec.footprint)
        booked = {item.instance: item.usd_per_hour for item in running_now(usage, now)}
        hosts = {member.instance: member for member in members if member.model == SHARED}
        wanted = {host.id: host.wanted for host in (HOSTS.read(store) or PublishedHosts()).hosts}
        return SharedStatus(
            instances=tuple(
                SharedInstanceStatus(**asdict(row), tenants=_tenants(row.id, members, wanted.get(row.id, ())))
                for row in _observed(known.observed, hosts, booked, now)
            ),
            cost_usd=cost,
            usd_per_hour=_usd_per_hour(hourly),
            notes=tuple(lacking),
        )

    def _model(
        self,
        served: ServedModel,
        known: PublishedModel,
        now: float,
        failing: Sequence[str],
        footprint: Footprint | None,
        *,
        members: Mapping[str, Member],
        shared: tuple[TenancyStatus, ...],
        is_limited: bool,
    ) -> ModelStatus:
        """members: of its own instances. shared: its places on shared ones."""
        store, name = self._store, served.name
        traffic = store.traffic(name)
        usage = self._usage(name, now)
        cost, hourly, lacking = _spend(served, traffic, known, usage, now, footprint)
        booked = {item.instance: item.usd_per_hour for item in running_now(usage, now)}
        observed = _observed(known.observed, members, booked, now)
        return ModelStatus(
            name=name,
            policy=known.policy,
            market=known.market,
            rates=self._rates(name, now),
            series=known.series or LoadSeries(),
            assumed=known.assumed,
            trained=known.trained,
            objective=_objective(served, traffic, known.attained_lately),
            latency_ms=_latency_ms(traffic.latency_counts, traffic.latency_sum_s),
            first_byte_ms=_latency_ms(traffic.first_byte_counts, traffic.first_byte_sum_s),
            by=AnswerCounts(
                instance=traffic.instance, standby=traffic.standby, lambda_=traffic.lambda_, shed=traffic.shed
            ),
            failed=traffic.failed,
            failures=traffic.failures,
            rejected=traffic.rejected,
            redispatched=traffic.redispatched,
            crossed=traffic.crossed,
            clients=answers_by_client(
                traffic.clients, serving_usd=cost.serving + traffic.shared_usd, answered=traffic.answered
            ),
            lambda_=LambdaStatus(
                answers=served.overflow is not None and not is_limited,
                in_flight=traffic.lambda_in_flight,
                # gateways that have nothing to report do not say what is warm: then the last tick's belief stands
                warm=max(traffic.lambda_warm, known.lambda_warm),
                invocations=traffic.invocations,
                cold=traffic.cold,
            ),
            fleet=FleetStatus(planned=known.planned, requested=known.requested, observed=observed),
            shared=shared,
            shared_usd=traffic.shared_usd,
            capacity=_capacity(served, observed, shared),
            cost_usd=cost,
            usd_per_hour=_usd_per_hour(hourly),
            usd_per_hour_by=hourly,
            gateways=self._shares(served, members) if served.has_central_queue else (),
            plan=known.plan,
            pool=known.pool,
            decisions=known.decisions,
            notes=(*failing, *lacking, *self._rollout(served, traffic, now), *known.notes),
        )

    def _rollout(self, served: ServedModel, traffic: ModelTraffic, now: float) -> tuple[str, ...]:
        """Notes on the model's rollout as it stands, not as it stood at the controller's last tick."""
        versions = self._store.versions(served.name)
        if versions is None:
            return ()
        return rollout_notes(versions, progress_of(served, versions, traffic.versions, now))

    def _shares(self, served: ServedModel, members: Mapping[str, Member]) -> tuple[GatewayShare, ...]:
        """Each gateway's share of the agents: found as they find it, from the same members and gateways."""
        gateways = {peer.name: peer.zone for peer in self._store.gateways()}
        if not gateways:
            return ()
        type_of = {offering.name: offering.instance_type.name for offering in served.offerings}
        versions = self._store.versions(served.name)
        takes = {
            name: (member.offering, member.version)
            for name, member in members.items()
            if member.state is MemberState.READY and not (versions and versions.is_retired(member.version))
        }
        zone_of = {name: member.zone for name, member in members.items()}
        owner_of = assign_gateways(kinds_of(takes, type_of), gateways, zone_of)
        counts = {name: Counter[str]() for name in gateways}
        for agent, owner in owner_of.items():
            counts[owner][takes[agent][0]] += 1
        return tuple(GatewayShare(gateway=name, agents=dict(sorted(counts[name].items()))) for name in gateways)

    def _usage(self, model: str, now: float) -> FleetUsage:
        """Time that the model's instances have run and slept, by the ledger."""
        book = self._books.setdefault(model, IncrementalUsage())
        record = self._store.ledger(model)
        return joined(book.before(record.transitions, now), rolled_up(record.rollups, now))

    def _rates(self, name: str, now: float) -> ArrivalRates:
        """Requests/s of the last whole window, and mean and maximum of the last twelve."""
        last = math.floor(now / WINDOW_S)
        counts = self._store.arrivals(name, last - RATE_WINDOWS, last - 1)
        speeds = window_speeds(self._store.clocks(), last - RATE_WINDOWS, last - 1)
        rates = [count * speed / WINDOW_S for count, speed in zip(counts, speeds, strict=True)]
        return ArrivalRates(now_rps=rates[-1], last_minute_rps=sum(rates) / len(rates), max_rps=max(rates))


def _divided(models: Sequence[ModelStatus], shared: SharedStatus) -> tuple[tuple[ModelStatus, ...], SharedStatus]:
    """Models with their parts of the rent of shared instances, and these with the rent of their idle time."""
    used_usd = {model.name: model.shared_usd for model in models}
    hours = {model.name: model.usd_per_hour_by.mean_over_s / SECONDS_PER_HOUR for model in models}
    means = {name: usd / hours[name] if hours[name] else 0.0 for name, usd in used_usd.items()}
    so_far = divide_rent(shared.cost_usd.instances, used_usd)
    an_hour = divide_rent(shared.usd_per_hour or 0.0, means)
    divided = tuple(
        replace(
            model,
            shared_usd=so_far.by_model[model.name],
            shared_usd_per_hour=an_hour.by_model[model.name],
        )
        for model in models
    )
    idle = None if shared.usd_per_hour is None else an_hour.idle_usd
    return divided, replace(shared, idle_usd=so_far.idle_usd, idle_usd_per_hour=idle)


def _overhead(
    footprint: Footprint | None, published: Sequence[PublishedModel], now: float, commitments_usd: float
) -> OverheadStatus:
    """What models share, as in `shared_bill`, since the first of them began.

    Gateways are billed for their peaks together. commitments_usd: as the controller counted it last.
    """
    life_s = _life_s(published, now)
    lines = standing_lines(footprint, sum(known.peak_rps for known in published), life_s)
    usd = sum(line.usd for line in lines) + commitments_usd
    return OverheadStatus(usd=usd, usd_per_hour=usd * SECONDS_PER_HOUR / life_s if says_mean(life_s) else None)


def _life_s(published: Sequence[PublishedModel], now: float) -> float:
    """Seconds since the first model began."""
    began = (known.began_at for known in published if known.began_at is not None)
    return max(0.0, now - min(began, default=now))


def _counterfactual(
    spec: ServiceSpec,
    models: Sequence[ModelStatus],
    overhead: OverheadStatus,
    overview: Overview,
    now: float,
    life_s: float,
) -> CounterfactualStatus:
    """What it would have cost, and what would have been missed, beside the fleet that serves."""
    usd = overhead.usd + sum(model.cost_usd.total for model in models)
    existing_usd = spec.existing_usd(life_s)
    series = (model.series for model in models)
    short = [shortfall(one.mean_rps, one.max_rps, one.capacity_rps) for one in series]
    came = sum(one.came for one in short)
    return CounterfactualStatus(
        since=now - life_s,
        existing_usd_per_hour=spec.existing_usd_per_hour,
        existing_usd=existing_usd,
        usd_per_hour=overview.usd_per_hour,
        usd=usd,
        saved_usd=None if existing_usd is None else existing_usd - usd,
        minutes=max((one.minutes for one in short), default=0),
        beyond_least=sum(one.least for one in short) / came if came else None,
        beyond_most=sum(one.most for one in short) / came if came else None,
    )


def _spend(
    served: ServedModel,
    traffic: ModelTraffic,
    known: PublishedModel,
    usage: FleetUsage,
    now: float,
    footprint: Footprint | None,
) -> tuple[SpentStatus, HourlyStatus, list[str]]:
    """Spend so far without what models share; spend an hour by part; names without a price."""
    duration_s = 0.0 if known.began_at is None else max(0.0, now - known.began_at)
    bill = live_bill(
        usage,
        traffic,
        served,
        footprint,
        requests=known.requests,
        peak_rps=0.0,
        duration_s=duration_s,
        crossed=crossed_requests(known.requests, traffic, footprint),
    )
    cost = cost_of(own_lines(bill, footprint, duration_s))
    spent = SpentStatus(
        instances=cost.instances,
        standby=cost.standby,
        lambda_=cost.lambda_,
        serving=cost.serving,
        overhead=cost.overhead,
        total=cost.total,
    )
    hours = duration_s / SECONDS_PER_HOUR
    hourly = HourlyStatus(
        instances=rent_usd_per_hour(served, running_now(usage, now)),
        lambda_=cost.lambda_ / hours if hours else 0.0,
        overhead=cost.overhead / hours if hours else 0.0,
        mean_over_s=duration_s,
    )
    names = unpriced(served, usage.usages)
    return spent, hourly, [unpriced_words(names)] if names else []


def _usd_per_hour(hourly: HourlyStatus) -> float | None:
    """The sum of the parts, once their means say something."""
    return hourly.instances + hourly.lambda_ + hourly.overhead if says_mean(hourly.mean_over_s) else None


def _replays(known: NightlyStatus | None) -> ReplaysStatus | None:
    """Progress of the replays of past days."""
    if known is None:
        return None
    return ReplaysStatus(last_day=max(known.days, default=None), running=known.running, failed=known.failed)


def _observed(
    published: Sequence[PublishedInstance],
    members: Mapping[str, Member],
    booked: Mapping[str, float | None],
    now: float,
) -> tuple[ObservedInstance, ...]:
    """The fleet as the last tick saw it, brought up to date by what agents say of themselves since.

    booked: price at which the ledger bills what runs, by instance; what it does not bill yet has that of the tick.
    """
    rows = {
        one.id: ObservedInstance(
            id=one.id,
            offering=one.offering,
            zone=one.zone,
            role=one.role,
            state=one.state.value,
            gone_in_s=_left_s(one.interrupt_at, now),
            credits=one.credits,
            usd_per_hour=_known(booked.get(one.id), one.usd_per_hour),
        )
        for one in published
    }
    for name, member in members.items():
        state = _state(member)
        known = rows.get(name) or ObservedInstance(
            id=name,
            offering=member.offering,
            role=member.role,
            state=state,
            usd_per_hour=booked.get(name),
        )
        gone_in_s = _left_s(member.terminates_at, now) if member.terminates_at else known.gone_in_s
        rows[name] = replace(
            known, state=state, credits=member.credits, gone_in_s=gone_in_s, version=member.version
        )
    return tuple(rows[name] for name in sorted(rows) if rows[name].gone_in_s != 0.0 or name in members)


def _tenants(instance: str, members: Sequence[Member], wanted: Sequence[str]) -> tuple[TenantStatus, ...]:
    """The models on a shared instance, and those that it was told to hold and that are not there yet."""
    there = [member for member in members if member.instance == instance and member.is_tenant]
    awaited = set(wanted).difference(member.model for member in there)
    found = [
        TenantStatus(
            model=member.model,
            wanted=member.model in wanted,
            state=_state(member),
            share_rps=member.share_rps or 0.0,
            busy=(member.share_rps or 0.0) / member.capacity_rps if member.capacity_rps else 0.0,
            version=member.version,
        )
        for member in there
    ]
    found += [TenantStatus(model=model) for model in awaited]
    return tuple(sorted(found, key=lambda one: (one.model, one.version)))


def _tenancies(model: str, members: Sequence[Member], shared: SharedStatus | None) -> tuple[TenancyStatus, ...]:
    """A model's places on shared instances."""
    offerings = {member.instance: member.offering for member in members if member.model == model}
    return tuple(
        TenancyStatus(
            instance=host.id,
            offering=offerings.get(host.id, host.offering),
            state=one.state,
            share_rps=one.share_rps,
            beside=tuple(dict.fromkeys(other.model for other in host.tenants if other.model != model)),
        )
        for host in (() if shared is None else shared.instances)
        for one in host.tenants
        if one.model == model
    )


def _state(member: Member) -> str:
    """What an agent says of itself, in the words of instances."""
    state = InstanceState.PENDING if member.state is MemberState.STARTING else member.state
    return state.value


def _known(booked: float | None, published: float | None) -> float | None:
    return published if booked is None else booked


def _left_s(taken_at: float | None, now: float) -> float | None:
    return None if taken_at is None else max(0.0, taken_at - now)


def _objective(served: ServedModel, traffic: ModelTraffic, attained_lately: float | None) -> ObjectiveStatus:
    return ObjectiveStatus(
        latency_ms=served.slo.judged_s * 1000,
        measured="answer" if served.slo.first_byte_s is None else "first_byte",
        target=served.slo.target,
        answered=traffic.answered,
        late=traffic.late,
        shed=traffic.shed,
        attained=attainment(traffic.missed, traffic.finished),
        attained_lately=attained_lately,
        accuracy=traffic.accuracy,
        accuracy_now=traffic.recent_accuracy,
    )


def _latency_ms(counted: Sequence[tuple[int, int]], sum_s: float) -> LatencyStatus:
    """Mean and quantiles (upper edge of their bin) of what was answered. counted: by bin."""
    if not counted:
        return LatencyStatus()
    bins, counts = np.array(sorted(counted)).T
    below = np.cumsum(counts)
    edges_ms = (bins + 1) * LATENCY_BIN_S * 1000
    found = {name: float(edges_ms[np.searchsorted(below, q * below[-1])]) for name, q in QUANTILES}
    return LatencyStatus(mean=sum_s / int(below[-1]) * 1000, **found)


def _capacity(
    served: ServedModel, observed: Sequence[ObservedInstance], shared: Sequence[TenancyStatus]
) -> tuple[OfferingCapacity, ...]:
    """The offerings that are there, as the model's own instances or as shared ones."""
    rows = []
    for offering in served.offerings:
        there = [row for row in observed if row.offering == offering.name]
        seats = [seat for seat in shared if seat.offering == offering.name and seat.state == "ready"]
        if not there and not seats:
            continue
        states = [row.state for row in there]
        awake = (row.usd_per_hour for row in there if row.state != "stopped")
        ready = states.count("ready")
        rows.append(
            OfferingCapacity(
                offering=offering.name,
                shared=len(seats),
                ready=ready,
                pending=states.count("pending"),
                draining=states.count("draining"),
                stopped=states.count("stopped"),
                rps=ready * offering.capacity_rps + sum(seat.share_rps for seat in seats),
                usd_per_hour=sum(offering.usd_per_hour if usd is None else usd for usd in awake),
            )
        )
    return tuple(rows)
