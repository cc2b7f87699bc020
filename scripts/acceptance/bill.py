"""The whole bill: what a day of `hedged` costs by its lines, and what crosses between zones.

The constant load and the seeds were used for no choice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from mark.domain.offerings.offering import Market
from mark.simulator.results import RunResult
from mark.simulator.traces.generators import constant
from scripts.acceptance.figures_page import Check, FigureTable, Line, Row
from scripts.acceptance.loads import DAY_S, AcceptanceLoad, experiment_of, spec_of, twitter_day

RPS = 60.0
SEEDS = (11, 12)
CONSTANT = "constant 60/s"
LOADS: Mapping[str, Callable[[], AcceptanceLoad]] = {
    CONSTANT: lambda: AcceptanceLoad(
        label=CONSTANT, trace=constant(RPS, duration_s=2 * DAY_S, seed=SEEDS[0]), start_s=DAY_S
    ),
    "Twitter day 2": lambda: twitter_day(2),
    "Twitter day 6": lambda: twitter_day(6),
}
MOST_USD = {
    (CONSTANT, Market.SPOT): 15.5,
    ("Twitter day 2", Market.SPOT): 0.75 * 27.73,
    ("Twitter day 2", Market.ON_DEMAND): 0.86 * 47.86,
}
"""Total of a day. Twitter's day cost 27.73 USD on spot and 47.86 on demand before requests kept to their zone."""
MOST_CROSSING = 0.08
"""Share of the requests that may cross."""
TARGET = 0.98
HEAD: Row = (
    *("load", "market", "seed", "serving", "disks", "addresses", "between zones", "the rest", "total"),
    *("crossed", "attained", "p99 ms"),
)
TITLE = "The whole bill"
NOTE = f"""A day of `hedged` with two lean nodes, by the lines of its bill, USD, with the seeds {SEEDS[0]} and
{SEEDS[1]}. "Crossed" is the share of requests that an instance in another zone than their gateway's answered.
"""


def of_load(name: str, market: Market) -> FigureTable:
    """A load in a market, with each seed."""
    found = FigureTable()
    for seed in SEEDS:
        run = experiment_of(spec_of(replace(LOADS[name](), seed=seed), market)).run("hedged")
        where = f"{name}, {market.value}"
        found.add(
            FigureTable(
                lines=[Line.of(where, "hedged", run)],
                checks=[*_checks(name, market, run)],
                rows=[(name, market.value, f"{seed}", *_cells(run))],
            )
        )
    return found


def _crossed(run: RunResult) -> float:
    assert run.load.crossed is not None, "the world tells zones apart"
    return run.load.crossed / max(1, run.requests)


def _checks(name: str, market: Market, run: RunResult) -> list[Check]:
    where = f"{name}, {market.value}"
    crossed = _crossed(run)
    found = [
        Check(f"{where}: crossed", f"{crossed:.2%}", f"<= {MOST_CROSSING:.0%}", crossed <= MOST_CROSSING),
        Check(f"{where}: attained", f"{run.attained:.4f}", f">= {TARGET:g}", run.attained >= TARGET),
    ]
    most = MOST_USD.get((name, market))
    if most is not None:
        total = run.cost.total
        found.append(Check(f"{where}: total", f"{total:.2f}", f"<= {most:.2f}", total <= most))
    return found


def _cells(run: RunResult) -> Row:
    usd = {line.item: line.usd for line in run.bill if line.component == "overhead"}
    parts = [usd.pop(item, 0.0) for item in ("disks", "addresses", "traffic between zones")]
    figures = (run.cost.serving, *parts, sum(usd.values()), run.cost.total)
    return (
        *(f"{one:.2f}" for one in figures),
        *(f"{_crossed(run):.2%}", f"{run.attained:.4f}", f"{run.latency.p99_s * 1000:,.0f}"),
    )
