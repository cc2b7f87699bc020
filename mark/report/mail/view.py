"""View of a cost report for its mail: texts and tables, the same for HTML and text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mark.domain.billing.costs import BillLine, CostUsd
from mark.domain.figures import figure
from mark.domain.models.versions import shown
from mark.report.cost.cost_report import CostReport, ModelReport, spend_by_day, spend_by_item
from mark.report.cost.cost_verdict import nearest_baseline, service_verdict
from mark.report.formatting import MISSING, format_duration, pays_from, percent
from mark.report.live.chart import ChartSeries, describe, describe_spend
from mark.report.mail.formatting import (
    DAY_S,
    Money,
    format_burn,
    format_instant,
    format_own_policy,
    format_period,
    format_replayed,
    format_stretch,
    money_of,
    signed,
)

COMPONENTS = (
    ("instances", "Instances"),
    ("standby", "Standby"),
    ("lambda_", "Lambda"),
    ("overhead", "Overhead"),
)
WORDS = (("total", "Total"), *COMPONENTS)
"""The sum first: a telephone shows the first columns of a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """A figure that is seen first. `bad` where somebody should do something about it."""

    label: str
    value: str
    beside: str = ""
    bad: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of words as wide as `columns`; the last one is a sum where `summed` says so."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    summed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of the mail: sentences, bullets, a table, and the name of a plot, as far as it has them."""

    title: str
    text: tuple[str, ...] = ()
    bullets: tuple[str, ...] = ()
    table: Table | None = None
    plot: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MailView:
    """A whole mail in words."""

    subject: str
    title: str
    #: What to run, by the replays of the service's days; empty without any.
    verdict: str
    #: How to follow it; empty where MArk does, or without any.
    how: str
    headline: str
    tiles: tuple[Tile, ...]
    sections: tuple[Section, ...]


def mail_view(report: CostReport) -> MailView:
    """All that is said, in the order in which it is read; parts without anything to say are left out."""
    money = money_of(report.cost)
    parts = (
        _advice(report),
        _by_day(report, money),
        _by_model(report, money),
        _by_hour(report),
        _by_item(report, money),
        *_baselines(report, money),
        _break_even(report),
        _objective(report),
        *_accuracy(report),
        _answers(report),
        _clients(report, money),
        *_versions(report, money),
        _fleet(report),
        *_ahead(report),
        _forecasts(report),
        *_decisions(report),
        _reconciliation(report, money),
        _notes(report),
    )
    headline, verdict = _headline(report, money), service_verdict(report)
    return MailView(
        subject=f"{report.service}: {headline[0].lower()}{headline[1:]}",
        title=f"{report.service}, {format_period(report)}",
        verdict="" if verdict is None else verdict.sentence,
        how="" if verdict is None else verdict.how,
        headline=f"{headline}.",
        tiles=_tiles(report, money) if report.has_data else (),
        sections=tuple(part for part in parts if part is not None),
    )


def _headline(report: CostReport, money: Money) -> str:
    if not report.has_data:
        return "Nothing was spent and no request arrived"
    verb = "Would have cost" if report.observed else "Cost"
    words = f"{verb} {money(report.cost.total)} USD in {format_stretch(report.until - report.since)}"
    missed = [model.name for model in report.models if (model.answers.burn(model.slo.target) or 0) > 1]
    if missed:
        return f"{words}, and {' and '.join(missed)} missed the objective"
    used = any(model.answers.finished for model in report.models)
    return f"{words}, and the objective held" if used else words


def _tiles(report: CostReport, money: Money) -> tuple[Tile, ...]:
    name = "Would have been spent" if report.observed else "Spent"
    days = (report.until - report.since) / DAY_S
    tiles = [Tile(label=name, value=f"{money(report.cost.total)} USD", beside=_a_day(report, money, days))]
    if report.month is not None and report.month.usd > 0:
        ahead = report.month.projected_usd
        beside = "" if ahead is None else f"about {money(ahead)} by its end, as the last days went"
        tiles.append(Tile(label="This month", value=f"{money(report.month.usd)} USD", beside=beside))
    each, fleet = report.usd_per_million, report.fleet_usd_per_million
    if each is not None and fleet is not None:
        beside = f"{_format_rate(fleet)} of it instances, standbys and Lambda"
        tiles.append(Tile(label="A million requests", value=f"{_format_rate(each)} USD", beside=beside))
    if report.observed and report.existing_usd is not None:
        saved = report.existing_usd - report.cost.total
        beside = f"the fleet that serves cost {money(report.existing_usd)}"
        tiles.append(
            Tile(label="Would have been saved", value=f"{money(saved)} USD", beside=beside, bad=saved < 0)
        )
    if not report.observed:
        alone = len(report.models) == 1
        tiles += [_objective_tile(model, alone=alone) for model in report.models]
        tiles += [
            _accuracy_tile(model, alone=alone) for model in report.models if model.answers.accuracy is not None
        ]
    best = nearest_baseline(report)
    if best is not None:
        usd, own, replayed = best.usd, best.measured_usd, format_stretch(best.replayed_s)
        missed = "" if best.kept else "; no rival kept the objective, this one came nearest"
        tiles.append(
            Tile(
                label=f"Against {best.policy}",
                value=f"{(own - usd) / usd:+.0%}".replace("%", " %"),
                beside=f"{money(usd)} USD, this service {money(own)}, in the {replayed} replayed{missed}",
                bad=own > usd,
            )
        )
    return tuple(tiles)


def _a_day(report: CostReport, money: Money, days: float) -> str:
    return f"{money(report.cost.total / days)} a day" if days >= 1 else ""


def _objective_tile(model: ModelReport, *, alone: bool) -> Tile:
    attained, burn = model.answers.attained, model.answers.burn(model.slo.target)
    return Tile(
        label="In time" if alone else f"{model.name} in time",
        value=MISSING if attained is None else percent(attained, digits=2),
        beside=f"target {percent(model.slo.target)}, {format_burn(burn)} of the error budget used",
        bad=(burn or 0) > 1,
    )


def _accuracy_tile(model: ModelReport, *, alone: bool) -> Tile:
    return Tile(
        label="Accuracy" if alone else f"{model.name} accuracy",
        value=_format_accuracy(model),
        beside="mean of the variants that answered",
    )


def _format_accuracy(model: ModelReport) -> str:
    accuracy = model.answers.accuracy
    return MISSING if accuracy is None else percent(accuracy, digits=2)


def _advice(report: CostReport) -> Section | None:
    return Section(title="What to look at", bullets=report.advice) if report.advice else None


def _by_day(report: CostReport, money: Money) -> Section | None:
    days = spend_by_day(report.lines)
    if not days:
        return None
    rows = [(f"{day:%a %-d %b}", *_cells(cost, money)) for day, cost in days.items()]
    table = Table(
        columns=("Day", *(name for _, name in WORDS)),
        rows=(*rows, ("All", *_cells(report.cost, money))),
        summed=True,
    )
    return Section(title="Spend by day, USD", table=table, plot="spend")


def _by_model(report: CostReport, money: Money) -> Section | None:
    """A row a model with its part of the instances that they share, where they share some."""
    if report.idle_usd is None:
        return None
    rows = [
        (model.name, money(model.cost.total), money(model.shared_usd), money(model.usd)) for model in report.models
    ]
    models_usd, idle_usd = sum(model.usd for model in report.models), report.idle_usd
    overhead_usd = report.cost.total - models_usd - idle_usd
    rows += [
        ("Idle time of shared instances", "", money(idle_usd), money(idle_usd)),
        ("Overhead of all", "", "", money(overhead_usd)),
        ("All", "", "", money(report.cost.total)),
    ]
    table = Table(columns=("Model", "Its own", "Shared instances", "USD"), rows=tuple(rows), summed=True)
    text = "A model pays for the time that it took of shared instances' devices."
    return Section(title="Spend by model, USD", text=(text,), table=table)


def _by_hour(report: CostReport) -> Section | None:
    if not report.hours:
        return None
    return Section(title="Spend by hour, USD", text=(describe_spend(report.hours),), plot="hours")


def _ahead(report: CostReport) -> Iterable[Section]:
    """A section a model: what is forecast, over what the plan's fleet carries."""
    for number, model in enumerate(report.models):
        if model.ahead is None:
            continue
        alone = len(report.models) == 1
        title = "Load ahead" if alone else f"Load ahead of {model.name}"
        words = describe(ChartSeries.of(model.ahead.series, model.ahead.planned_rps))
        yield Section(title=title, text=(words,), plot=f"ahead-{number}")


def _cells(cost: CostUsd, money: Money) -> tuple[str, ...]:
    return tuple(money(getattr(cost, name)) for name, _ in WORDS)


def _by_item(report: CostReport, money: Money) -> Section | None:
    lines = spend_by_item(report.lines)
    if not lines:
        return None
    rows = [(_format_item(line), money(line.usd), _format_quantity(line), line.component) for line in lines]
    table = Table(
        columns=("What", "USD", "Quantity", "Component"),
        rows=(*rows, ("All", money(report.cost.total), "", "")),
        summed=True,
    )
    return Section(title="Spend by offering and item", table=table)


def _format_item(line: BillLine) -> str:
    """`Lambda duration`; all other items tell by themselves what they are."""
    return f"Lambda {line.item}" if line.component == "lambda" else line.item


def _format_quantity(line: BillLine) -> str:
    """Requests are whole; of little, as many digits as say that there is some."""
    if line.unit == "requests":
        return f"{line.quantity:,.0f} requests"
    few = 0.0 < abs(line.quantity) < 0.1
    return f"{figure(line.quantity, digits=2) if few else f'{line.quantity:,.2f}'} {line.unit}"


def _baselines(report: CostReport, money: Money) -> Iterable[Section | None]:
    """One part a model: what other policies would have cost on its arrivals."""
    for model in report.models:
        if not model.baselines:
            continue
        rows = [
            (
                one.policy,
                money(one.usd),
                signed(one.usd - one.measured_usd, money),
                _format_attained(one.attained, model),
            )
            for one in model.baselines
        ]
        first = model.baselines[0]
        own = (
            format_own_policy(report, model),
            money(first.measured_usd),
            "",
            _format_attained(first.measured_attained, model),
        )
        yield Section(
            title=f"{_of(report, model)}What other policies would have cost",
            text=(format_replayed(first),),
            table=Table(columns=("Policy", "USD", "Difference", "In time"), rows=(own, *rows)),
            plot=f"baselines-{report.models.index(model)}",
        )


def _break_even(report: CostReport) -> Section | None:
    """From which load the service pays, by model: each by itself would carry all of the overhead."""
    alone, length_s = len(report.models) == 1, report.until - report.since
    said = []
    for model in report.models:
        finished = model.answers.finished
        mean_rps = finished / length_s if finished and length_s > 0 else None
        who = "This service" if alone else f"{model.name} by itself"
        said.append(pays_from(model.break_even_rps, mean_rps=mean_rps, who=who))
    text = tuple(filter(None, said))
    return Section(title="From which load it pays", text=text) if text else None


def _attained(model: ModelReport) -> str:
    return _share_in_time(model.answers.attained)


def _share_in_time(attained: float | None) -> str:
    return MISSING if attained is None else percent(attained, digits=2)


def _format_attained(attained: float | None, model: ModelReport) -> str:
    """`97.10 %, missed` where that is less than the target."""
    missed = attained is not None and attained < model.slo.target
    return f"{_share_in_time(attained)}{', missed' if missed else ''}"


def _of(report: CostReport, model: ModelReport) -> str:
    return f"{model.name}: " if len(report.models) > 1 else ""


def _objective(report: CostReport) -> Section | None:
    used = [model for model in report.models if model.answers.finished]
    if not used:
        return None
    rows = tuple(
        (
            model.name,
            f"{percent(model.slo.target)} in {format_duration(model.slo.latency_s)}",
            _attained(model),
            format_burn(model.answers.burn(model.slo.target)),
            f"{model.answers.late:,}",
            f"{model.answers.shed:,}",
            f"{model.answers.failed:,}",
        )
        for model in used
    )
    columns = ("Model", "Objective", "In time", "Budget used", "Late", "Shed", "Failed")
    return Section(title="Objective", table=Table(columns=columns, rows=rows), plot="objective")


def _accuracy(report: CostReport) -> Iterable[Section]:
    """One part a model with variants: accuracy over the load."""
    for number, model in enumerate(report.models):
        if not model.accuracy:
            continue
        means = [item.answered.mean for item in model.accuracy if item.answered is not None]
        length = format_stretch(model.accuracy[0].until - model.accuracy[0].since)
        text = (
            f"Mean of the variants that answered on instances, by {length}: {percent(min(means), digits=2)} to "
            f"{percent(max(means), digits=2)}. Lambda's answers are not in it."
        )
        yield Section(title=f"{_of(report, model)}Accuracy over the load", text=(text,), plot=f"accuracy-{number}")


def _answers(report: CostReport) -> Section | None:
    used = [model for model in report.models if model.answers.came]
    if not used:
        return None
    has_variants = any(model.answers.accuracy is not None for model in used)
    rows = tuple(
        (
            model.name,
            f"{model.answers.finished:,}",
            f"{model.answers.instance:,}",
            f"{model.answers.standby:,}",
            f"{model.answers.lambda_:,}",
            percent(model.answers.overflow or 0.0, digits=2),
            *((_format_accuracy(model),) if has_variants else ()),
        )
        for model in used
    )
    accuracy = ("Accuracy",) if has_variants else ()
    columns = ("Model", "Requests", "Instances", "Standby", "Lambda", "Overflow", *accuracy)
    text = tuple(
        f"{_of(report, model)}{model.answers.rejected:,} more were rejected: wrong in themselves, as the model "
        "said, so no objective counts them."
        for model in used
        if model.answers.rejected
    )
    return Section(title="Served by", text=text, table=Table(columns=columns, rows=rows))


def _clients(report: CostReport, money: Money) -> Section | None:
    rows = tuple(
        (
            _of(report, model) + one.client,
            f"{one.requests:,}",
            MISSING if one.attained is None else percent(one.attained, digits=2),
            f"{one.limited:,}",
            f"{one.shed:,}",
            f"{one.failed:,}",
            money(one.cost_usd),
        )
        for model in report.models
        for one in model.clients
    )
    if not rows:
        return None
    columns = ("Client", "Requests", "In time", "Limited", "Shed", "Failed", "USD")
    said = (
        "USD is a client's part of the cost of serving, by the items that were answered. What its own limits "
        "refused (limited) counts as no miss."
    )
    return Section(title="By client", text=(said,), table=Table(columns=columns, rows=rows))


def _versions(report: CostReport, money: Money) -> Iterable[Section]:
    """One part a model that more than one version served."""
    for model in report.models:
        if not model.versions:
            continue
        calls = any(one.lambda_usd is not None for one in model.versions)
        rows = tuple(
            (
                shown(one.version) or "not told apart",
                f"{one.requests:,}",
                _share_in_time(one.attained),
                f"{one.instance_hours:,.{2 if one.instance_hours < 100 else 0}f}",
                money(one.rent_usd),
                *((money(one.lambda_usd or 0.0),) if calls else ()),
                MISSING if one.usd_per_million is None else _format_rate(one.usd_per_million),
            )
            for one in model.versions
        )
        columns = ("Version", "Requests", "In time", "Hours", "Rent", *(("Lambda",) if calls else ()), "A million")
        text = (
            "Hours and rent are those of a version's instances. Disks of sleeping standbys, provisioned Lambda "
            "environments and the overhead are no version's. What was shed is the stable version's."
        )
        title = f"{_of(report, model)}By version, USD"
        yield Section(title=title, text=(text,), table=Table(columns=columns, rows=rows))


def _format_rate(usd: float) -> str:
    """Cents, and three digits of what is less than a dollar."""
    return f"{usd:,.2f}" if usd >= 1 else f"{usd:.3g}"


def _fleet(report: CostReport) -> Section | None:
    journalled = [model for model in report.models if model.journal_since is not None]
    if not journalled:
        return None
    rows = tuple(
        (
            model.name,
            f"{model.interruptions:,}",
            f"{model.launched:,}",
            f"{model.refused_launches:,}",
            MISSING if model.capacity.utilisation is None else percent(model.capacity.utilisation, digits=0),
            f"{model.capacity.idle_hours:,.1f} h",
        )
        for model in journalled
    )
    columns = ("Model", "Interruptions", "Launched", "Refused", "Utilisation", "Idle")
    return Section(title="Fleet", table=Table(columns=columns, rows=rows))


def _forecasts(report: CostReport) -> Section | None:
    rows = tuple(
        (
            model.name,
            model.forecast.forecaster,
            f"{model.forecast.scored:,}",
            _share(model.forecast.error),
            _share(model.forecast.naive_error),
            f"{model.forecast.failed:,}",
        )
        for model in report.models
        if model.forecast.scored or model.forecast.failed
    )
    if not rows:
        return None
    columns = ("Model", "Forecaster", "Minutes", "Error", "Last value's", "Failed")
    text = "Of each minute's largest rate, one planning lead ahead, as a share of what came."
    forecasts = (model.forecast for model in report.models)
    lacking = dict.fromkeys(f"{one.forecaster}: {one.degraded}." for one in forecasts if one.degraded)
    return Section(title="Forecast error", text=(text, *lacking), table=Table(columns=columns, rows=rows))


def _share(value: float | None) -> str:
    return MISSING if value is None else f"{100 * value:.1f} %"


def _decisions(report: CostReport) -> Iterable[Section | None]:
    for model in report.models:
        if not model.decisions:
            continue
        bullets = tuple(
            f"{format_instant(one.at)}: {one.what} ({one.usd_per_hour:+,.2f} USD an hour): {one.reason}"
            for one in model.decisions
        )
        yield Section(title=f"{_of(report, model)}Largest decisions", bullets=bullets)


def _reconciliation(report: CostReport, money: Money) -> Section | None:
    if not report.reconciliation:
        return None
    rows = [
        (
            f"{item.day:%a %-d %b}",
            money(item.ledger_usd),
            MISSING if item.aws_usd is None else money(item.aws_usd),
            MISSING if item.difference_usd is None else signed(item.difference_usd, money),
        )
        for item in report.reconciliation
    ]
    known = [item for item in report.reconciliation if item.aws_usd is not None]
    own, aws = sum(item.ledger_usd for item in known), sum(item.aws_usd or 0.0 for item in known)
    rows.append(("Days that AWS has billed", money(own), money(aws), signed(aws - own, money)))
    table = Table(columns=("Day", "Ledger", "Cost Explorer", "Difference"), rows=tuple(rows), summed=True)
    text = ("Cost Explorer lags by up to a day and knows discounts, taxes and traffic that the ledger does not.",)
    return Section(title="Ledger and Cost Explorer, USD", text=text, table=table)


def _notes(report: CostReport) -> Section | None:
    return Section(title="Notes", bullets=report.notes) if report.notes else None
