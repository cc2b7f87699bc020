"""Ablation study of `hedged`: one part changed at a time, on a development day and on the judged day."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from unittest.mock import patch

from mark.dispatch.policy import Routing
from mark.domain.demand import Demand, Forecast
from mark.domain.offerings.offering import Market
from mark.domain.plan import PlanRequest
from mark.planner.hedging import spot_pools
from mark.policies.bundles import PolicyBundle
from mark.policies.spec import Overrides
from mark.ports import Forecaster, ForecasterSetup
from mark.simulator.engine.compiled import compiled_kernel
from mark.simulator.experiment import Experiment, ExperimentSpec, Yardsticks
from mark.simulator.results import RunResult
from scripts.acceptance.days import JUDGED_DAY
from scripts.acceptance.figures_page import (
    Check,
    FigureTable,
    Tables,
    geometric_mean,
    over_yardsticks,
    part_tables,
    shed_share,
)
from scripts.acceptance.loads import Foretold, experiment_of, spec_of, twitter_day, waking

DEVELOPMENT_DAY = 3
CASES = ((JUDGED_DAY, Market.SPOT), (JUDGED_DAY, Market.ON_DEMAND), (DEVELOPMENT_DAY, Market.SPOT))
SINGLE_FORECASTERS = (
    *("last-value", "moving-mean", "seasonal", "holt-winters", "autoregression", "ridge", "boosted"),
    *("clock-bursts", "lstm", "lstm-vanilla"),
)
PERFECT = "oracle"
MOST_OVER_SINGLE = 1.03
"""Serving cost with the default forecaster over that with the best single one."""
MOST_OVER_SINGLES = 1.01
"""Its geometric mean over all cases."""
BEST_SINGLE = " / best single"
"""Ending of the name of that ratio."""
STANDBY_TYPES = ("c5.2xlarge", "c5.large", "t2.medium")
WAKES_S = (60.0, 90.0)
HEAD = (
    "day",
    "market",
    "changed",
    "serving USD",
    "x reference",
    "x floor",
    "/ as it is",
    "total USD",
    "attained",
    "shed",
    "wakes",
)
TITLE = "What each part of hedged is worth"
NOTE = f"""`hedged` with one part changed, on the judged day {JUDGED_DAY} in both markets, and on Twitter's day
{DEVELOPMENT_DAY} on spot, on which choices were made. "/ as it is" is the serving cost over that of the policy
as it ships. The forecaster `{PERFECT}` knows the load to come. "Launches not counted on": a plan prices what
exceeds it as if nothing were launched for it ([0043](decisions/0043-no-more-than-there-is.md)).
"""


class Ablated(Experiment):
    """An experiment whose policies are changed before they run."""

    def __init__(self, spec: ExperimentSpec, variant: Variant, foretold: Foretold) -> None:
        """As an experiment, with forecasts that are made once."""

        def build(name: str, setup: ForecasterSetup) -> Forecaster:
            made = foretold.build(name, setup)
            return Median(made) if variant.median else made

        super().__init__(variant.spec(spec), kernel=compiled_kernel(spec.cache_dir), build_forecaster=build)
        self._variant = variant

    def bundle(self, policy: str, overrides: Overrides | None = None) -> PolicyBundle:
        """The policy, changed."""
        return self._variant.bundle(super().bundle(policy, overrides))


@dataclass(frozen=True, slots=True)
class Median:
    """Another's forecasts, their medians alone."""

    forecaster: Forecaster

    def forecast(self, history: Demand, horizon: int) -> Forecast:
        """Point forecasts."""
        full = self.forecaster.forecast(history, horizon)
        place = min(range(len(full.quantiles)), key=lambda i: abs(full.quantiles[i] - 0.5))
        return replace(
            full,
            mean_rps=tuple((row[place],) for row in full.mean_rps),
            max_rps=tuple((row[place],) for row in full.max_rps),
            quantiles=(0.5,),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One change: of what is asked, of the policy, of the forecast, or of what a planner takes as given."""

    label: str
    spec: Callable[[ExperimentSpec], ExperimentSpec] = lambda spec: spec
    bundle: Callable[[PolicyBundle], PolicyBundle] = lambda bundle: bundle
    median: bool = False
    #: The forecaster instead of the policy's own.
    forecaster: str = ""
    spot_only: bool = False
    around: Callable[[], AbstractContextManager[object]] = nullcontext


def variants() -> Iterator[Variant]:
    """The policy as it is first, then each change by itself."""
    yield Variant(label="as it is")
    yield Variant(label="median forecast only", median=True)
    yield Variant(label="standbys for interruptions only", bundle=_interruptions_only, spot_only=True)
    yield Variant(label="no standbys", bundle=lambda b: replace(b, controller=replace(b.controller, standby=None)))
    yield Variant(
        label="launches not counted on",
        around=lambda: patch.object(PlanRequest, "launchable", ()),
    )
    for name in STANDBY_TYPES:
        yield Variant(label=f"standbys are {name}", spec=partial(_standing_by, name))
    for wake_s in WAKES_S:
        yield Variant(label=f"standbys serve after {wake_s:g} s", spec=partial(waking, median_s=wake_s))
    for name in (*SINGLE_FORECASTERS, PERFECT):
        yield Variant(label=f"forecaster {name}", bundle=partial(_forecast_by, name), forecaster=name)
    yield Variant(
        label="dispatch by weight",
        bundle=lambda b: replace(b, dispatch=replace(b.dispatch, routing=Routing.WEIGHTED)),
    )
    yield Variant(
        label="no Lambda kept warm",
        bundle=lambda b: replace(b, controller=replace(b.controller, warm_lambda=False)),
    )
    yield Variant(
        label="all in one spot pool",
        spot_only=True,
        around=lambda: patch.object(spot_pools, "MOST_IN_ONE_POOL", 1.0),
    )
    yield Variant(
        label="no breaker for spot pools",
        bundle=lambda b: replace(b, controller=replace(b.controller, breaker=None)),
        spot_only=True,
    )


def on_day(day: int, market: Market) -> FigureTable:
    """All variants on a day in a market, beside the yardsticks of the policy as it is."""
    load, found = twitter_day(day), FigureTable()
    spec = spec_of(load, market)
    known = experiment_of(spec).yardsticks()
    usual: RunResult | None = None
    singles: dict[str, float] = {}
    with Foretold(load) as foretold:
        for variant in variants():
            if variant.spot_only and market is not Market.SPOT:
                continue
            with variant.around():
                run = Ablated(spec, variant, foretold).run("hedged")
            usual = usual or run
            if variant.forecaster in SINGLE_FORECASTERS:
                singles[variant.forecaster] = run.cost.serving
            found.add(FigureTable(rows=[_cells(day, market, variant, run, usual, known)]))
    if usual is not None:
        found.add(beside_singles(f"{load.label}, {market.value}", usual.cost.serving, singles))
    return found


def beside_singles(where: str, usual_usd: float, singles: Mapping[str, float]) -> FigureTable:
    """The default forecaster's serving cost beside the best single one's. singles: USD by forecaster."""
    best = min(singles, key=lambda name: singles[name])
    ratio = usual_usd / singles[best]
    check = Check(
        f"{where}: serving, default forecaster / best single ({best})",
        f"{ratio:.3f}",
        f"<= {MOST_OVER_SINGLE:g}",
        ratio <= MOST_OVER_SINGLE,
    )
    return FigureTable(checks=[check], numbers={f"{where}{BEST_SINGLE}": ratio})


def completed(figures: FigureTable) -> FigureTable:
    """With the default forecaster beside the best single one over all cases."""
    ratios = [value for name, value in figures.numbers.items() if name.endswith(BEST_SINGLE)]
    if not ratios:
        return figures
    mean = geometric_mean(ratios)
    over_all = Check(
        f"serving, default forecaster / best single, geometric mean of {len(ratios)}",
        f"{mean:.3f}",
        f"<= {MOST_OVER_SINGLES:g}",
        mean <= MOST_OVER_SINGLES,
    )
    return replace(figures, checks=[*figures.checks, over_all])


def tables(figures: FigureTable) -> Tables:
    """Tables of the part."""
    return part_tables(figures, "changes", HEAD)


def _standing_by(name: str, spec: ExperimentSpec) -> ExperimentSpec:
    return replace(spec, standby_type=name)


def _forecast_by(name: str, bundle: PolicyBundle) -> PolicyBundle:
    return replace(bundle, forecaster=name, uses_truth=name == "oracle")


def _interruptions_only(bundle: PolicyBundle) -> PolicyBundle:
    standby = bundle.controller.standby
    if standby is None:
        return bundle
    return replace(bundle, controller=replace(bundle.controller, standby=replace(standby, surges=False)))


def _cells(
    day: int, market: Market, variant: Variant, run: RunResult, usual: RunResult, known: Yardsticks
) -> tuple[str, ...]:
    return (
        f"{day}",
        market.value,
        variant.label,
        f"{run.cost.serving:.2f}",
        *over_yardsticks(run, known, digits=3),
        f"{run.cost.serving / usual.cost.serving:.3f}",
        f"{run.cost.total:.2f}",
        f"{run.attained:.4f}",
        f"{shed_share(run):.3%}",
        f"{run.wakes:,}",
    )
