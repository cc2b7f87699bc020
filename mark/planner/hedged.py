"""The hedged planner: capacity is rented level by level, while it is worth more than what else would serve.

`hedging/rates.py` gives the share of time in which each level of load will be busy, `shortfall_cost.py` the price
of a request at that level when no planned instance carries it, `miss_penalty.py` that price where no backup
answers in time. An instance on the levels from z to z + c saves in unit t

    saved_t = integral over its levels of  price(level) x P(rate_t > level)      USD

against a rent, which contains the price of its risk: on spot, interruptions per hour times the cost of backup
capacity during one. Whether it is worth *launching* is an optimal stopping problem of two states with the launch
as the price of switching on: an instance ordered now serves from its boot on, and may be given back at the end of
any unit:

    on_t  = saved_t - rent + max(on_{t+1}, off_{t+1}),    off_t = max(off_{t+1}, on_{t+1} - launch)

from the lead on, when what is ordered now serves. One that is there is kept while on beats off; so a dip that is
shorter than what a new launch would cost is sat out, and no rule of patience is needed. (This is the newsvendor's
ratio, rent over the price of the alternative, for every level and every stretch of time; with a perfect forecast
it is the reference of `yardsticks.py`, in whole instances.) What is there and not wanted from the lead on stays
until then while it earns its rent, and the step drains nothing before what replaces it is ready.

Which offering serves which levels is a knapsack from level 0 upwards, solved by dynamic programming over the cells
of the table: what is there already comes without its launch, each instance once. Fleets of thousands grow in
blocks, no finer than a cell. Everything is compiled; prices only enter as ratios.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from mark.domain.figures import figure
from mark.domain.models.objective import Slo
from mark.domain.offerings.offering import Offering, cheapest_per_request
from mark.domain.plan import CostParts, Excuse, Plan, PlannedCount, PlanRequest
from mark.planner.hedging.miss_penalty import (
    LONG_HISTORY_S,
    MissLimit,
    fewest_instances,
    recent_load,
    with_miss_price,
)
from mark.planner.hedging.rates import Cases, RateTable, expect_rates, expected_cases
from mark.planner.hedging.savings_bound import is_surely_empty
from mark.planner.hedging.shortfall_cost import Shortfall, expected_shortfall, standby_target, wake_delay_s
from mark.planner.hedging.small_fleet import derate_small_fleets, surely_within_s
from mark.planner.hedging.spot_pools import diversify_spot

WAIT_SHARE = 0.5
"""Of the objective: the rest is the answer's own time. It is MArk's default for the mean latency, too."""
LEAST_WAIT_SHARE = 0.1
"""Of the objective, where an answer takes nearly all of it: a request still finds an instance that is idle."""
SAME_WORTH = 1e-9
"""Fleets whose worth is this close, relatively, are equal."""
SAME_SCORE = 1e-12
"""Of states of the knapsack: some thousand roundings of a double."""

DEAREST, PRICE_STEPS = 10.0, 8
"""The price of a miss is looked for up to so many times what pays for any one instance, in so many halvings."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class FleetChoice(NamedTuple):
    """A fleet, its instances by offering in the order of `Terms`."""

    #: USD.
    worth: float
    new: Ints
    kept: Ints

    @property
    def counts(self) -> Ints:
        """Instances of each offering."""
        return self.new + self.kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Savings and costs of all offerings, in the order of their names: shape (offerings,) where not said."""

    offerings: tuple[Offering, ...]
    #: Levels of load, requests/s, shape (levels,).
    levels: Floats
    #: Savings of capacity up to each level in each unit, USD, shape (units, levels).
    saved: Floats
    #: USD a unit, risk included.
    rent: Floats
    #: USD; infinite where a launch is refused.
    launch: Floats
    #: Units until an instance ordered now serves.
    lead: Ints
    #: Requests/s of one instance.
    capacity: Floats
    #: Instances that exist or are on their way, and owned ones, which cost no launch either.
    there: Ints


def plan_hedged(request: PlanRequest) -> Plan:
    """The fleet whose every instance is worth its rent against Lambda, standbys and later launches."""
    if not request.explained:
        cases = expected_cases(request.forecast)
        if is_surely_empty(request, cases):
            return _empty_plan(request, cases)
    table = expect_rates(
        request.forecast, wait_s=wait_s(request.offerings, request.slo), past=recent_load(request)
    )
    load_rps = float(table.carried[min(request.lead_units, len(request.forecast) - 1), -1])
    request = replace(request, offerings=tuple(derate_small_fleets(request.offerings, load_rps, request.slo)))
    left = expected_shortfall(request, table)
    backup, limit = with_miss_price(replace(request, offerings=request.rented), table)
    request = replace(request, backup=backup)
    terms = terms_of(request, table, left)
    fleet = choose_fleet(terms)
    if limit is not None:
        terms, fleet = _within_limit(limit, request, table, left, terms, fleet)
        fleet = _at_least(fewest_instances(request, _offerings_of(terms, fleet)), limit, terms, fleet)
    worth, new, kept = fleet
    unlaunched = request.unlaunched
    present = terms.there - np.array([unlaunched.get(item.name, 0) for item in terms.offerings], np.int64)
    serving = np.minimum(kept, present)
    kept += _keep_until_lead(
        float(terms.levels[1]), terms.saved, terms.rent, terms.lead, terms.capacity, present - serving,
        float(serving @ terms.capacity),
    )  # fmt: skip
    counts = _diversified(
        request, terms, {item.name: int(new[i] + kept[i]) for i, item in enumerate(terms.offerings)}
    )
    capacity_rps = sum(item.count * item.usable_rps for item in counts)
    kept_rps = sum(item.kept * item.usable_rps for item in counts)
    tau = min(request.lead_units, len(request.forecast) - 1)
    expected = float(table.carried[tau, -1])
    carried = float(np.interp(capacity_rps, table.levels, table.carried[tau]))
    return Plan(
        at=request.forecast.start_at + tau * request.forecast.unit_s,
        counts=counts,
        required_rps=expected,
        capacity_rps=capacity_rps,
        shortfall_rps=max(0.0, expected - carried),
        excuses=_excuses(request, terms, {item.offering for item in counts}),
        reason=_reason(
            counts, expected, carried, capacity_rps, worth, len(request.forecast) * request.forecast.unit_s
        ),
        standbys_awake=_standbys_awake(request, table, kept_rps),
        standby_target=standby_target(
            request.history,
            request.backup,
            request.launchable if limit is None else (),
            alone_rps=_alone_rps(counts),
        ),
        wake_delay_s=wake_delay_s(request.history, request.backup, kept_rps),
    )


def _empty_plan(request: PlanRequest, cases: Cases) -> Plan:
    """The plan of a request that `is_surely_empty`, as the search would find it. cases: those of the forecast."""
    forecast = request.forecast
    tau = min(request.lead_units, len(forecast) - 1)
    may_wait_s = wait_s(request.offerings, request.slo)
    expected = cases.carried_at_most(tau, unit_s=forecast.unit_s, wait_s=may_wait_s)
    launchable = derate_small_fleets(request.launchable, expected, request.slo)
    names = sorted(item.name for item in request.offerings)
    return Plan(
        at=forecast.start_at + tau * forecast.unit_s,
        counts=(),
        required_rps=expected,
        capacity_rps=0.0,
        shortfall_rps=expected,
        excuses=tuple(Excuse(offering=name, reason="no load that is expected pays for it") for name in names),
        reason=_reason((), expected, 0.0, 0.0, 0.0, len(forecast) * forecast.unit_s),
        standby_target=standby_target(request.history, request.backup, launchable),
        wake_delay_s=wake_delay_s(request.history, request.backup, 0.0),
    )


def saved_usd_per_hour(request: PlanRequest, capacities_rps: Sequence[float], window_s: float) -> Floats:
    """Savings of capacity up to each of these, USD an hour: the mean of the window that begins now.

    Nothing is launched later: under a cap there is no room for it.
    """
    none_later = tuple((item.name, 0) for item in request.offerings)
    request = replace(request, launches_left=none_later)
    table = expect_rates(
        request.forecast, wait_s=wait_s(request.offerings, request.slo), past=recent_load(request)
    )
    backup, _ = with_miss_price(replace(request, offerings=request.rented), table)
    units = max(1, round(window_s / table.unit_s))
    usd = expected_shortfall(request, table).usd(backup.lambda_usd)[:units].mean(axis=0)
    saved = np.concatenate(([0.0], np.cumsum(usd))) * 3600.0 / table.unit_s
    return np.interp(np.asarray(capacities_rps, np.float64), table.levels, saved)


def _alone_rps(counts: Sequence[PlannedCount]) -> float:
    """Capacity of a fleet of one instance, requests/s; 0 for any other."""
    return counts[0].usable_rps if sum(item.count for item in counts) == 1 else 0.0


def wait_s(offerings: Sequence[Offering], slo: Slo) -> float:
    """Seconds that a request may wait: WAIT_SHARE of the objective, less where answers leave less of it.

    The answers are those of the type that is cheapest for a request: most of a fleet is of it. Where they vary,
    the objective is what `small_fleet.py` makes of it: a wait ends with the answer before, which varies as well.
    """
    half_s = WAIT_SHARE * slo.latency_s
    if not offerings:
        return half_s
    usual = cheapest_per_request(offerings)
    return min(half_s, max(LEAST_WAIT_SHARE * slo.latency_s, surely_within_s(usual, slo) - usual.latency_s))


def _within_limit(
    limit: MissLimit, request: PlanRequest, table: RateTable, left: Shortfall, terms: Terms, fleet: FleetChoice
) -> tuple[Terms, FleetChoice]:
    """The fleet at the lowest price of a miss at which whole instances keep to the limit."""
    if limit.is_kept_by(_capacity_of(terms, fleet)):
        return terms, fleet
    low = request.backup.lambda_usd
    high = DEAREST * max(low, *(limit.usd_that_pays_for(item, table.unit_s) for item in terms.offerings))
    found = _fleet_at(high, request, table, left)
    for _ in range(PRICE_STEPS):
        middle = math.sqrt(low * high)
        tried = _fleet_at(middle, request, table, left)
        if limit.is_kept_by(_capacity_of(*tried)):
            high, found = middle, tried
        else:
            low = middle
    return found


def _fleet_at(
    miss_usd: float, request: PlanRequest, table: RateTable, left: Shortfall
) -> tuple[Terms, FleetChoice]:
    terms = terms_of(replace(request, backup=replace(request.backup, lambda_usd=miss_usd)), table, left)
    return terms, choose_fleet(terms)


def _at_least(fewest: int, limit: MissLimit, terms: Terms, fleet: FleetChoice) -> FleetChoice:
    """The fleet with so many instances at least: what is there first, then the cheapest that can serve alone."""
    worth, new, kept = fleet.worth, fleet.new.copy(), fleet.kept.copy()
    able = [i for i, item in enumerate(terms.offerings) if limit.is_kept_by(item.capacity_rps)]
    while new.sum() + kept.sum() < fewest:
        spare = [i for i in range(len(kept)) if kept[i] < terms.there[i]]
        to_launch = [i for i in able or range(len(new)) if math.isfinite(terms.launch[i])]
        if not spare and not to_launch:
            break
        taken, choice = (kept, spare) if spare else (new, to_launch)
        taken[min(choice, key=lambda i: (i not in able, terms.rent[i]))] += 1
    return FleetChoice(worth, new, kept)


def _capacity_of(terms: Terms, fleet: FleetChoice) -> float:
    return float(fleet.counts @ terms.capacity)


def _offerings_of(terms: Terms, fleet: FleetChoice) -> list[Offering]:
    """The offerings of the fleet; all where it is empty, since one of them will be its first instance."""
    return [item for item, count in zip(terms.offerings, fleet.counts, strict=True) if count] or [*terms.offerings]


def _diversified(request: PlanRequest, terms: Terms, wanted: dict[str, int]) -> tuple[PlannedCount, ...]:
    """The fleet diversified over spot pools, in the order of names."""
    offerings = {item.name: item for item in terms.offerings}
    there, unlaunched = dict(request.running), request.unlaunched
    fleet = diversify_spot(
        {name: count for name, count in wanted.items() if count}, offerings, frozenset(request.refused)
    )
    capacity_rps = sum(count * offerings[name].capacity_rps for name, count in fleet.items())
    kept = {
        name: min(count, max(0, there.get(name, 0) - unlaunched.get(name, 0))) for name, count in fleet.items()
    }
    return tuple(
        PlannedCount(
            offering=name,
            count=count,
            kept=kept[name],
            usable_rps=offerings[name].capacity_rps,
            usd_per_hour=offerings[name].usd_per_hour,
            launch_usd=offerings[name].launch_usd,
            parts=_parts(
                terms,
                [*offerings].index(name),
                count=count,
                launched=count - kept[name],
                base_rps=capacity_rps - count * offerings[name].capacity_rps,
                unit_s=request.forecast.unit_s,
            ),
        )
        for name, count in sorted(fleet.items())
    )


def terms_of(request: PlanRequest, table: RateTable, left: Shortfall) -> Terms:
    """Prices and savings of a request. left: its shortfall, which no price of a miss changes."""
    offerings = tuple(sorted(request.offerings, key=lambda item: item.name))
    unit_h = table.unit_s / 3600.0
    saved = np.zeros_like(table.carried)
    if offerings:
        np.cumsum(left.usd(request.backup.lambda_usd), axis=1, out=saved[:, 1:])
    hazards = dict(request.hazards)
    risk = [hazards.get(item.name, item.hazard_per_hour) * _loss_usd(item, request) for item in offerings]
    running = dict(request.running)
    return Terms(
        offerings=offerings,
        levels=table.levels,
        saved=saved,
        rent=np.array([item.usd_per_hour * unit_h for item in offerings]) + np.array(risk) * unit_h,
        launch=np.array([math.inf if item.name in request.refused else item.launch_usd for item in offerings]),
        lead=np.array([_lead(item, request) for item in offerings], np.int64),
        capacity=np.array([item.capacity_rps for item in offerings]),
        there=np.array([max(0, running.get(item.name, 0)) for item in offerings], np.int64),
    )


def choose_fleet(terms: Terms) -> FleetChoice:
    """The fleet that is worth most."""
    step, count = float(terms.levels[1]), len(terms.rent)
    best = _knapsack(step, terms.saved, terms.rent, terms.launch, terms.lead, terms.capacity, terms.there)
    for i in range(count if count > 1 else 0):  # the knapsack is not exact: never worse than the best type alone
        launch, there = np.full(count, np.inf), np.zeros(count, np.int64)
        launch[i], there[i] = terms.launch[i], terms.there[i]
        alone = _knapsack(step, terms.saved, terms.rent, launch, terms.lead, terms.capacity, there)
        if alone[0] > best[0] * (1.0 + SAME_WORTH):
            best = alone
    worth, new, kept = best
    return FleetChoice(float(worth), new, kept)


def worth_of(terms: Terms, layout: Sequence[tuple[int, bool]]) -> float:
    """Worth of a fleet whose instances serve in this order from level 0 on, USD; (offering, is it new)."""
    total, reached, part = 0.0, 0.0, np.empty(len(terms.saved))
    for i, is_new in layout:
        top = reached + float(terms.capacity[i])
        _between(terms.saved, float(terms.levels[1]), reached, top, part)
        total += _worth(part, terms.rent[i], terms.launch[i], terms.lead[i], is_new)
        reached = top
    return float(total)


def _lead(item: Offering, request: PlanRequest) -> int:
    """Whole units that a launch of this takes."""
    return min(math.ceil(item.boot_s / request.forecast.unit_s), len(request.forecast) - 1)


def _loss_usd(item: Offering, request: PlanRequest) -> float:
    """Cost of an interruption, USD: another launch, and backup capacity while it boots."""
    usd = request.backup.lambda_usd
    standby = request.backup.standby
    if standby is not None and request.backup.standbys:
        usd = min(usd, standby.usd_per_request)
    return item.launch_usd + (item.boot_s * item.capacity_rps * usd if math.isfinite(usd) else 0.0)


@njit(cache=True)
def _worth(saved: Floats, rent: float, launch: float, lead: int, is_new: bool) -> float:  # pragma: no cover
    """Worth of an instance from the lead on, USD; minus infinity where doing without it for now is worth more.

    One that is there also loses what it idles until then; what it earns until then is no reason to keep it longer.
    saved: shape (units,), USD.
    """
    on = off = 0.0
    for t in range(len(saved) - 1, lead - 1, -1):
        on, off = saved[t] - rent + max(on, off), max(off, on - launch)
    worth = on - launch if is_new else on + min(0.0, saved[:lead].sum() - rent * lead)
    return worth if worth > off else -np.inf


@njit(cache=True)
def _keep_until_lead(
    step: float, saved: Floats, rent: Floats, lead: Ints, capacity: Floats, left: Ints, reached: float
) -> Ints:  # pragma: no cover - compiled
    """Count those that the fleet to come does without, yet which are worth their rent until it serves.

    left: those that it does without; they serve above `reached`, cheapest first.
    """
    stay = np.zeros_like(left)
    part = np.empty(saved.shape[0])
    for i in np.argsort(rent / capacity, kind="mergesort"):  # equal ones by name
        while stay[i] < left[i]:
            _between(saved, step, reached, reached + capacity[i], part)
            if part[: max(1, lead[i])].sum() <= rent[i] * max(1, lead[i]):
                break
            stay[i] += 1
            reached += capacity[i]
    return stay


@njit(cache=True)
def _between(saved: Floats, step: float, low: float, high: float, out: Floats) -> None:  # pragma: no cover
    """Savings of the levels from low to high in each unit. saved: shape (units, levels), evenly `step` apart."""
    last = saved.shape[1] - 1
    at_low, at_high = min(low / step, last), min(high / step, last)
    i, j = min(int(at_low), last - 1), min(int(at_high), last - 1)
    for t in range(saved.shape[0]):
        upper = saved[t, j] + (saved[t, j + 1] - saved[t, j]) * (at_high - j)
        out[t] = upper - saved[t, i] - (saved[t, i + 1] - saved[t, i]) * (at_low - i)


@njit(cache=True)
def _knapsack(
    step: float,
    saved: Floats,
    rent: Floats,
    launch: Floats,
    lead: Ints,
    capacity: Floats,
    there: Ints,
) -> tuple[float, Ints, Ints]:  # pragma: no cover - compiled
    """The knapsack: its worth in USD, and per offering how many are new and how many of those there are kept.

    A state is a cell of levels that the fleet reaches up to; it remembers the best fleet that does, as if all
    reached up to its middle: what one reaches further, the others could have of the cheapest type, too. (Else
    savings on half a cell would pay for any type, however dear, while cheap ones are left.)
    """
    cells, count = saved.shape[1] - 1, len(rent)
    extended_usd = _extended_usd(step, saved, rent, launch, capacity, there)
    value, score = np.full(cells + 1, -np.inf), np.full(cells + 1, -np.inf)
    reached = np.zeros(cells + 1)
    new, kept = np.zeros((cells + 1, count), np.int64), np.zeros((cells + 1, count), np.int64)
    value[0] = best = 0.0
    best_new, best_kept = new[0].copy(), kept[0].copy()
    part = np.empty(saved.shape[0])
    for cell in range(cells):
        if value[cell] == -np.inf:
            continue
        for i in range(count):
            block = math.ceil(step / capacity[i])  # of a cell at least: each takes one
            for is_new in (False, True):
                size = block if is_new else min(block, there[i] - kept[cell, i])
                if size == 0 or (is_new and launch[i] == np.inf):
                    continue
                top = reached[cell] + size * capacity[i]
                _between(saved, step, reached[cell], top, part)
                gained = value[cell] + _worth(part, size * rent[i], size * launch[i], lead[i], is_new)
                if gained > best * (1.0 + SAME_SCORE):  # even where another takes its cell
                    best = gained
                    best_new[:], best_kept[:] = new[cell], kept[cell]
                    if is_new:
                        best_new[i] += size
                    else:
                        best_kept[i] += size
                to = min(cells, max(cell + 1, int(top / step + 0.5)))
                scored = gained + (to * step - top) * extended_usd[to]
                if scored > score[to] + SAME_SCORE * abs(scored):
                    value[to], score[to], reached[to] = gained, scored, top
                    new[to], kept[to] = new[cell], kept[cell]
                    if is_new:
                        new[to, i] += size
                    else:
                        kept[to, i] += size
    return best, best_new, best_kept


@njit(cache=True)
def _extended_usd(
    step: float, saved: Floats, rent: Floats, launch: Floats, capacity: Floats, there: Ints
) -> Floats:  # pragma: no cover - compiled
    """Savings of each request a second more beyond its cost, USD, shape (levels,); 0 where it saves less.

    It costs what it does of the cheapest type that can be launched; if none can, of the cheapest that is there.
    """
    units, levels = saved.shape
    launched = kept = np.inf
    for i in range(len(rent)):
        launched = min(launched, (units * rent[i] + launch[i]) / capacity[i])
        if there[i] > 0:
            kept = min(kept, units * rent[i] / capacity[i])
    cost = launched if launched < np.inf else kept
    found = np.zeros(levels)
    for cell in range(1, levels):
        low = cell - 1
        found[cell] = max(0.0, (saved[:, cell].sum() - saved[:, low].sum()) / step - cost)
    return found


def _standbys_awake(request: PlanRequest, table: RateTable, kept_rps: float) -> int:
    """Standbys to wake before a forecast surge: those that save more than they cost once they serve."""
    backup = request.backup
    if backup.standby is None or not math.isfinite(backup.lambda_usd):
        return 0
    if len(request.history) * request.history.unit_s < LONG_HISTORY_S:  # no surge is forecast then
        return 0
    item = backup.standby
    first = min(int(backup.wake_s // table.unit_s), len(table.carried) - 1)
    last = min(first + max(1, math.ceil(item.boot_s / table.unit_s)), len(table.carried))
    hours = (last - first) * table.unit_s / 3600.0
    usd = item.usd_per_hour * (hours + backup.wake_s / 3600.0)
    carried = table.carried[first:last].sum(axis=0) * table.unit_s
    count = 0
    while count < backup.standbys:
        low = kept_rps + count * item.capacity_rps
        served = np.interp([low, low + item.capacity_rps], table.levels, carried)
        if (served[1] - served[0]) * backup.lambda_usd <= usd:
            break
        count += 1
    return count


def _parts(terms: Terms, at: int, *, count: int, launched: int, base_rps: float, unit_s: float) -> CostParts:
    """Costs and savings of `count` instances of an offering, serving the levels above `base_rps`."""
    item = terms.offerings[at]
    part = np.empty(len(terms.saved))
    _between(terms.saved, float(terms.levels[1]), base_rps, base_rps + count * item.capacity_rps, part)
    units_per_hour = 3600.0 / unit_s
    return CostParts(
        rent_usd_per_hour=count * item.usd_per_hour,
        risk_usd_per_hour=count * max(0.0, float(terms.rent[at]) * units_per_hour - item.usd_per_hour),
        launch_usd=launched * item.launch_usd,
        saved_usd_per_hour=float(part.mean()) * units_per_hour,
    )


def _excuses(request: PlanRequest, terms: Terms, taken: set[str]) -> tuple[Excuse, ...]:
    """One for each offering that was not taken, by name: what the first of it would save, and cost."""
    excuses = []
    for i, item in enumerate(terms.offerings):
        if item.name in taken:
            continue
        if item.name in request.refused:
            excuses.append(Excuse(offering=item.name, reason="refused just now"))
            continue
        parts = _parts(terms, i, count=1, launched=1, base_rps=0.0, unit_s=request.forecast.unit_s)
        reason = (
            f"from the first request on it would save {figure(parts.saved_usd_per_hour)} USD/h and cost "
            f"{figure(parts.rent_usd_per_hour + parts.risk_usd_per_hour)}, {figure(parts.launch_usd)} to launch; "
            "others serve that for less"
        )
        excuses.append(Excuse(offering=item.name, reason=reason, parts=parts))
    return tuple(excuses)


def _reason(
    counts: tuple[PlannedCount, ...],
    expected: float,
    carried: float,
    capacity_rps: float,
    worth: float,
    horizon_s: float,
) -> str:
    load = f"{figure(expected)} requests/s expected"
    if not counts:
        return f"{load}: no instance saves what its rent costs"
    fleet = ", ".join(item.words for item in counts)
    shortfall = max(0.0, expected - carried)
    rest = f"; to rent for the other {figure(shortfall)}, too, costs more than it saves" if shortfall else ""
    return (
        f"{load}: {fleet} take up to {figure(capacity_rps)}, worth {figure(worth)} USD beyond rent and launches "
        f"in the next {horizon_s / 60:g} minutes{rest}"
    )
