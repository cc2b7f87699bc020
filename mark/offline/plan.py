"""One plan, with its cost terms and an Excuse for each offering that was not taken."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.table import Table

from mark.catalog.billing import SECONDS_PER_HOUR, gateway_count
from mark.catalog.commitment_bill import HourlyUsage, left_by_standing
from mark.config.footprint import ShapeAdvice, advise_shape, commitment_remarks, footprint_of
from mark.config.policies import chosen_policies, chosen_variants, sized_model
from mark.config.prices import chosen_prices, list_prices
from mark.config.served import as_rolled_out
from mark.config.settings import Settings
from mark.domain.billing.footprint import Footprint
from mark.domain.commitments.applied import apply
from mark.domain.commitments.eligible import Usage
from mark.domain.commitments.owned import Commitments
from mark.domain.demand import HORIZON, UNIT_S, Demand, Forecast, point_forecast
from mark.domain.errors import Misconfigured, unknown
from mark.domain.figures import figure
from mark.domain.offerings.offering import Market, Offering
from mark.domain.plan import LEAD_UNITS, Excuse, Plan, PlanRequest
from mark.offline.trace_source import TraceReading, read_place
from mark.planner.greedy import CostTerms, plan_greedy, scores
from mark.planner.owned_capacity import owned_capacity, planned_with_owned
from mark.policies.assemble import profiles_and_variants
from mark.policies.supply import Supply, find_supply
from mark.report.formatting import finite, rate_words
from mark.report.overhead import (
    overhead_line,
    overhead_of_month,
    overhead_usd_per_month,
    shape_document,
    shape_line,
)
from mark.report.tables import Column, make_table, texts
from mark.report.terminal import note, show, show_json, show_prose
from mark.simulator.traces.formats.bins import MAX_RPS
from mark.simulator.traces.trace import Trace

MINUTE_HEADER = ("minute", "rate")
MINUTE_HEADER_CHARS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A plan, what it was chosen by, and what a service costs around it."""

    settings: Settings
    supply: Supply
    plan: Plan
    terms: tuple[CostTerms, ...]
    footprint: Footprint
    advice: ShapeAdvice
    #: Use of the account's commitments by an hour of the fleet, USD; None without any.
    covered: dict[str, float] | None
    #: Constant load, requests/s, below which Lambda alone costs less; None where it does not.
    pays_from_rps: float | None
    #: List price of the offerings for which the account pays another, USD an hour.
    list_usd_per_hour: dict[str, float]
    notes: tuple[str, ...]

    @property
    def excuses(self) -> tuple[Excuse, ...]:
        """Why offerings were not taken, or cannot be."""
        return (*self.plan.excuses, *self.supply.excuses)


def plan_settings(
    settings: Settings, *, rate_rps: float | None, forecast: str | None, running: Sequence[str], as_json: bool
) -> None:
    """Plan for a rate, or for the rates in a file, and print it."""
    planned = plan_for(settings, _forecast(rate_rps, forecast, TraceReading.of(settings)), running)
    for text in planned.notes:
        note(text)
    if as_json:
        show_json(plan_document(planned))
        return
    _show(planned.plan, planned.terms, planned.excuses, supply=planned.supply)
    price = {item.name: item.usd_per_hour for item in planned.supply.offerings}
    for name, usd in planned.list_usd_per_hour.items():
        show_prose(f"{name} costs you {figure(price[name])} USD/h, the list price is {figure(usd)}.")
    if planned.covered is not None:
        show_prose(covered_sentence(planned.covered), "The plan's prices are what is paid beyond.")
    show_prose(overhead_line(planned.footprint), shape_line(planned.advice))
    if planned.pays_from_rps is not None:
        show_prose(
            f"At less than {rate_words(planned.pays_from_rps)} of a constant load Lambda alone would cost less."
        )


def plan_for(settings: Settings, forecast: Forecast, running: Sequence[str] = ()) -> Planned:
    """What Algorithm 1 would rent for a forecast. running: instances that run, such as `c5.large=3`."""
    settings = as_rolled_out(settings)
    model = sized_model(settings)
    chosen = replace(chosen_policies(settings), model=model, variants=chosen_variants(settings))
    prices = chosen_prices(settings)
    supply = find_supply(
        model,
        slo=chosen.slo,
        market=chosen.market,
        prices=prices,
        profiles=profiles_and_variants(chosen)[0],
        types=chosen.types,
        world=chosen.world,
        limits=chosen.overflow_limits if chosen.overflow else None,
    )
    counts = _running(running, settings.market, supply)
    footprint = footprint_of(settings)
    owned = footprint.commitments.active_at(time.time())
    request = PlanRequest(
        now=0.0,
        history=Demand(end_at=0.0, mean_rps=(), max_rps=()),
        forecast=forecast,
        offerings=_candidates(supply, counts),
        running=counts,
        slo=supply.slo,
        lead_units=LEAD_UNITS if settings.policy.lead_min is None else settings.policy.lead_min,
        owned=owned_capacity(
            left_by_standing(owned, footprint),
            (*supply.offerings, *supply.on_demand),
            running=dict(counts),
            refused=(),
        ),
    )
    plan = planned_with_owned(plan_greedy, request)
    return Planned(
        settings=settings,
        supply=supply,
        plan=plan,
        terms=scores(request),
        footprint=footprint,
        advice=advise_shape(settings, max(max(row) for row in forecast.max_rps)),
        covered=_covered(plan, supply, footprint, owned) if owned else None,
        pays_from_rps=supply.break_even_rps(footprint, model),
        list_usd_per_hour=list_prices(settings, supply.offerings),
        notes=(*supply.warnings, *commitment_remarks(settings, owned, prices.names)),
    )


def plan_document(planned: Planned) -> dict[str, object]:
    """The document of `mark plan --json` (docs/json.md)."""
    plan, supply, settings = planned.plan, planned.supply, planned.settings
    month = overhead_of_month(planned.footprint)
    return {
        "model": settings.model,
        "market": settings.market.value,
        "at_s": plan.at,
        "required_rps": plan.required_rps,
        "capacity_rps": plan.capacity_rps,
        "spill_rps": plan.shortfall_rps,
        "usd_per_hour": plan.usd_per_hour,
        "launch_usd": plan.launch_usd,
        "counts": [
            {
                "offering": item.offering,
                "count": item.count,
                "kept": item.kept,
                "usable_rps": item.usable_rps,
                "usd_per_hour": item.usd_per_hour,
                "launch_usd": item.launch_usd,
            }
            for item in plan.counts
        ],
        "scores": [
            {
                "offering": term.offering,
                "usable_rps": term.usable_rps,
                "span_min": term.span_units,
                "covered_requests": term.covered_requests,
                "rent_usd": term.rent_usd,
                "launch_usd": term.launch_usd,
                "usd_per_million": finite(term.usd_per_million),
                "usd_per_million_running": finite(term.usd_per_million_running),
            }
            for term in planned.terms
        ],
        "excuses": [{"offering": item.offering, "reason": item.reason} for item in planned.excuses],
        "reason": plan.reason,
        "assumed_profiles": list(supply.assumed),
        "stand_in_profiles": list(supply.stand_ins),
        "overhead_usd_per_month": overhead_usd_per_month(planned.footprint),
        "overhead_month": [
            {"item": one.item, "quantity": one.quantity, "unit": one.unit, "usd": one.usd} for one in month
        ],
        "break_even_rps": planned.pays_from_rps,
        "rollout": shape_document(planned.advice),
        "commitments": planned.covered,
        "list_usd_per_hour": planned.list_usd_per_hour,
    }


def read_forecast(place: str, reading: TraceReading) -> Forecast:
    """Rates of the units to come, from `minute,rate` rows (minutes 0, 1, 2 ... from now) or from a trace."""
    name = Path(place).name
    lines = _minute_lines(place)
    if lines is not None:
        rates = [_minutefigure(place, number, line) for number, line in enumerate(lines, start=2)]
        if not rates:
            raise Misconfigured(f"{place} holds no minute; write rows of minute,rate")
        return _point(rates, rates, name)
    return forecast_of_trace(read_place(place, reading), name)


def forecast_of_trace(trace: Trace, name: str) -> Forecast:
    """The rates of a trace, its first minute the next one."""
    per_unit = max(1, round(UNIT_S / trace.bin_s))
    unit_bins = [trace.rates_rps[at : at + per_unit] for at in range(0, len(trace.rates_rps), per_unit)]
    repeat = max(1, round(trace.bin_s / UNIT_S))
    means = [float(bins.mean()) for bins in unit_bins for _ in range(repeat)]
    peaks = [float(bins.max()) for bins in unit_bins for _ in range(repeat)]
    return _point(means, peaks, name)


def _minute_lines(place: str) -> list[str] | None:
    """The lines below the header of a file of minutes; None where it is no such file, but perhaps a trace."""
    try:
        with Path(place).open(encoding="utf-8") as file:
            header = file.readline(MINUTE_HEADER_CHARS)
            if tuple(header.strip().lower().split(",")) != MINUTE_HEADER:
                return None
            return file.read().split()
    except (OSError, UnicodeDecodeError):  # nothing there, a folder, S3, gzip
        return None


def _minutefigure(place: str, number: int, line: str) -> float:
    fields = line.split(",")
    try:
        minute, rate = (float(field) for field in fields)
    except ValueError as error:
        raise Misconfigured(f"{place}, line {number}: {line!r} is not a row of minute,rate") from error
    if minute != number - 2:
        raise Misconfigured(
            f"{place}, line {number}: minute {minute:g} where {number - 2} follows; leave none out"
        )
    if not 0 <= rate <= MAX_RPS:
        raise Misconfigured(f"{place}, line {number}: rate {rate:g}; rates are 0 rps or more, at most {MAX_RPS:g}")
    return rate


def _forecast(rate_rps: float | None, place: str | None, reading: TraceReading) -> Forecast:
    if (rate_rps is None) == (place is None):
        raise Misconfigured("give either --rate or --forecast")
    if place is not None:
        return read_forecast(place, reading)
    assert rate_rps is not None
    return forecast_of_rate(rate_rps)


def forecast_of_rate(rate_rps: float) -> Forecast:
    """A constant load. Misconfigured where it is none."""
    if not 0 <= rate_rps <= MAX_RPS:
        raise Misconfigured(f"--rate must be 0 rps or more, at most {MAX_RPS:g}, not {rate_rps:g}")
    return _point([rate_rps], [rate_rps], "--rate")


def _point(means: Sequence[float], peaks: Sequence[float], source: str) -> Forecast:
    """A forecast over the whole horizon; the last rate stays where fewer are given."""
    missing = max(0, HORIZON - len(means))
    return point_forecast(
        0.0,
        mean_rps=(*means, *[means[-1]] * missing)[:HORIZON],
        max_rps=(*peaks, *[peaks[-1]] * missing)[:HORIZON],
        source=source,
    )


def _covered(plan: Plan, supply: Supply, footprint: Footprint, owned: Commitments) -> dict[str, float]:
    """Use of commitments by an hour of the fleet and of what stands around it, USD."""
    price = {offering.name: offering.usd_per_hour for offering in (*supply.offerings, *supply.on_demand)}
    used = HourlyUsage()
    used.add_footprint(footprint, 0.0, SECONDS_PER_HOUR, gateways=gateway_count(footprint, 0.0))
    for item in plan.counts:
        used.add_running(item.offering, price[item.offering], 0.0, SECONDS_PER_HOUR, count=item.count)
    return covered_document(owned, used.hours()[0])


def covered_document(owned: Commitments, hour: Sequence[Usage]) -> dict[str, float]:
    """Use of commitments by an hour, USD."""
    found = apply(owned, hour)
    return {
        "paid_usd_per_hour": found.paid_usd,
        "used_usd_per_hour": found.used_usd,
        "covered_usd_per_hour": found.covered_usd,
    }


def covered_sentence(covered: Mapping[str, float]) -> str:
    """The same in words."""
    paid, used, on_demand = (figure(covered[f"{part}_usd_per_hour"]) for part in ("paid", "used", "covered"))
    return (
        f"Commitments of {paid} USD/h are paid in any case: the fleet and what stands around it use {used} of it, "
        f"for {on_demand} on demand."
    )


def _candidates(supply: Supply, running: Sequence[tuple[str, int]]) -> tuple[Offering, ...]:
    """The market's offerings, and the on-demand twins that run: as the controller chooses them."""
    names = {offering.name for offering in supply.offerings}
    there = {name for name, count in running if count} - names
    return (*supply.offerings, *(twin for twin in supply.on_demand if twin.name in there))


def _running(given: Sequence[str], market: Market, supply: Supply) -> tuple[tuple[str, int], ...]:
    """`c5.large=3` or `c5.large:on-demand=3`; a type alone is of the market that is planned for."""
    known = {offering.name for offering in (*supply.offerings, *supply.on_demand)}
    counts: dict[str, int] = {}
    for item in given:
        name, _, number = item.partition("=")
        if not number.isdigit():
            raise Misconfigured(f"--running {item!r} must read TYPE=NUMBER, such as c5.large=3")
        full = name if ":" in name else f"{name}:{market.value}"
        if full not in known:
            raise unknown("offering in --running", full, known)
        counts[full] = counts.get(full, 0) + int(number)
    return tuple(sorted(counts.items()))


def _show(plan: Plan, terms: Sequence[CostTerms], excuses: Sequence[Excuse], *, supply: Supply) -> None:
    show_prose(
        f"For {figure(plan.required_rps)} requests/s, planned {plan.at / 60:g} minutes ahead: "
        f"{figure(plan.usd_per_hour)} USD/h for {figure(plan.capacity_rps)} requests/s, "
        f"launches {figure(plan.launch_usd)} USD.",
        "",
    )
    if plan.counts:
        show(_fleet_table(plan), "")
    show(_score_table(terms), "")
    if excuses:
        table = _table("not taken", "why")
        for item in excuses:
            table.add_row(item.offering, item.reason)
        show(table)
    for text in supply.assumed:
        show_prose(f"assumed: {text}")
    for text in supply.stand_ins:
        show_prose(f"stand-in: {text}")


def _fleet_table(plan: Plan) -> Table:
    table = _table("planned", "count", "kept", "requests/s each", "USD/h", "launches USD")
    for item in plan.counts:
        launches = item.count - item.kept
        table.add_row(
            item.offering,
            str(item.count),
            str(item.kept),
            figure(item.usable_rps),
            figure(item.count * item.usd_per_hour),
            figure(launches * item.launch_usd),
        )
    return table


def _score_table(terms: Sequence[CostTerms]) -> Table:
    """Table of the scores that Algorithm 1 compares: the cheapest per request covered is taken first."""
    table = _table("score", "requests/s", "minutes", "covers requests", "rent USD", "launch USD", "USD/million")
    for term in sorted(terms, key=lambda item: (item.usd_per_million, item.offering)):
        table.add_row(
            term.offering,
            figure(term.usable_rps),
            str(term.span_units),
            f"{term.covered_requests:,.0f}",
            figure(term.rent_usd),
            figure(term.launch_usd, digits=3),
            figure(term.usd_per_million) if math.isfinite(term.usd_per_million) else "-",
        )
    return table


def _table(*columns: str) -> Table:
    first, *others = columns
    return make_table(
        [
            *texts(first),
            *(Column(title=column, fold=True, is_figure=column != "why") for column in others),
        ],
        gap=1,
    )
