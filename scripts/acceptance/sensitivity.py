"""Sensitivity of `hedged` to its constants: each at half and at twice its value, on a development day.

A share near 1 is changed by what it leaves: 1 - share at half and at twice. Facts (prices, billing minimums, boot
times) are not among them, nor what the forecaster learns with: the ablation replaces it whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from types import ModuleType
from typing import Any, TypeVar
from unittest.mock import patch

from mark.catalog import standbys
from mark.controller import error_budget, standby, step, surges
from mark.controller.limits import spot_breaker as breaker
from mark.controller.limits.launch_breaker import LaunchBreakerPolicy
from mark.controller.limits.spot_breaker import BreakerPolicy
from mark.controller.policy import ControllerPolicy
from mark.domain.offerings.offering import Market
from mark.planner import hedged
from mark.planner.hedging import full_queue, miss_penalty, rates, shortfall_cost, small_fleet, spot_pools
from mark.policies import bundles
from mark.policies.bundles import PolicyBundle
from mark.simulator.experiment import ExperimentSpec
from mark.simulator.results import RunResult
from scripts.acceptance.ablation import Ablated, Variant
from scripts.acceptance.figures_page import FigureTable, Row, Tables, part_tables
from scripts.acceptance.loads import AcceptanceLoad, Foretold, spec_of, twitter_day

DAYS, MARKETS = (3,), (Market.SPOT,)
FACTORS = (0.5, 2.0)
OTHER_SEEDS = (2, 3)
"""Of the policy as it is: a change within their range is none."""
IN_TIME, LATE, WITHOUT = "Lambda in time", "Lambda too late", "without Lambda"
"""Cases by where a load can spill to: Inception-v3, NASNet, and Inception-v3 with Lambda switched off."""
CASES = (IN_TIME, LATE, WITHOUT)
HEAD: Row = (
    *("day", "market", "case", "constant", "serving x0.5", "serving x2", "attained as it is", "at x0.5", "at x2"),
)
TITLE = "Sensitivity of hedged to its constants"
NOTE = """Serving cost of `hedged` with one constant at half and at twice its value, over that of the policy as
it is, on a development day on spot. "=" means that nothing changes. "Lambda too late" is NASNet. A change
smaller than that of other seeds is noise. `constants` has the source of each value; "ours" means chosen on the
development days.
"""
Policy = TypeVar("Policy", ControllerPolicy, BreakerPolicy, LaunchBreakerPolicy)
DECIDING = (
    *(hedged, full_queue, rates, shortfall_cost, miss_penalty, small_fleet, spot_pools),
    *(error_budget, surges, standby),
)
"""Modules that `hedged` decides by: each number of theirs is changed here, or excused."""
RESOLUTION, UNIT = "resolution of a calculation", "a unit"
EXCUSED = {
    "planner.hedged.SAME_SCORE": RESOLUTION,
    "planner.hedged.SAME_WORTH": RESOLUTION,
    "planner.hedged.PRICE_STEPS": RESOLUTION,
    "planner.hedging.rates.NODES": RESOLUTION,
    "planner.hedging.full_queue.EDGE": RESOLUTION,
    "planner.hedging.full_queue.STEPS": RESOLUTION,
    "planner.hedging.full_queue.ROWS": RESOLUTION,
    "planner.hedging.full_queue.SUMMED": RESOLUTION,
    "planner.hedging.full_queue.NEWTON": RESOLUTION,
    "planner.hedging.miss_penalty.STEPS": RESOLUTION,
    "planner.hedging.miss_penalty.LEAST_SHARE": "a floor that an objective of 100 % alone meets",
    "planner.hedging.miss_penalty.DAY_S": UNIT,
    "planner.hedging.shortfall_cost.MINIMUM_S": "AWS's billing minimum",
}
"""Numbers of those modules that are no choice, and why."""
UNCHANGED = (
    (
        "dispatch.routing.OVERDUE_SHARE",
        "0.08",
        "ours: 0.8 of the deviation of batches, 10 %; machine code has it, so another value is another build",
    ),
)
"""Constants that no run here changes, with what the page says of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A constant of the policy, where its value comes from, and the policy with another value."""

    name: str
    value: float
    source: str
    changed: Callable[[float], Variant]
    case: str = IN_TIME


def constants() -> Iterator[Constant]:
    """All that are changed, planner first."""
    yield _module("WAIT_SHARE", hedged, source="MArk's l, half of the objective (decision 0002)")
    yield _module("LEAST_WAIT_SHARE", hedged, source="ours: some are idle when a request comes", case=LATE)
    yield _module("DEAREST", hedged, source="ours: where the price of a miss is looked for", case=LATE)
    yield _module("LEVELS", rates, source="ours: resolution of a plan in milliseconds", whole=True)
    yield _module("TOP_WAITS", rates, source="ours: little is in excess so far above the highest rate")
    yield _module("DETECTION_S", shortfall_cost, miss_penalty, source="ours: two windows of 5 s")
    yield _module("LONGEST_DELAY_S", shortfall_cost, source="ours: the minute of windows that is kept")
    yield _module("LONGEST_S", shortfall_cost, source="ours: what lasts half an hour is worth a launch")
    yield _module("WORTH_WAKING", shortfall_cost, surges, source="ours: what an excess must fill of an instance")
    yield _module("RUNS_LONGER", shortfall_cost, source="ours (decision 0043): an excess fills half of a launch")
    yield _module("PLAN_LAG_S", shortfall_cost, source="ours: a unit of load, a minute, is known when it is over")
    yield _module("USUAL_S", shortfall_cost, source="ours: two launches long")
    yield _module("SURGE_BASELINE_S", shortfall_cost, source="ours: a plan has rented for what lasts longer")
    yield _module("FEWEST_UNITS", shortfall_cost, source="ours: an hour; less says nothing of surges", whole=True)
    yield _module("UNKNOWN_SHARE", shortfall_cost, source="ours: standbys while no surge is known")
    yield _module("MOST", small_fleet, source="ours: a type that is hardly ever in time", of_rest=True)
    yield _module("MOST_IN_ONE_POOL", spot_pools, source="ours (decision 0011)", of_rest=True)
    yield _module("MOST_PREMIUM", spot_pools, source="ours (decision 0011)")
    yield _module("PRIOR_HOURS", breaker, source="ours: some minutes of a fleet outweigh a month's mean")
    for name in ("share", "count", "window_s", "open_s", "longest_s"):
        yield _field(BreakerPolicy, name, source="ours (decision 0011)")
    for name in ("failures", "of", "open_s", "longest_s"):
        yield _field(LaunchBreakerPolicy, name, source="ours; no launch of a replay fails once it was accepted")
    yield _module("STANDBY_SLACK", standby, source="ours: hysteresis", above_one=True)
    yield _module("SURGE_SHARE", standbys, source="ours: how much of the time a standby is awake")
    yield _module("WARM_QUANTILE", step, source="ours: what is rarer starts cold", of_rest=True)
    yield _module("COLD_SHARE", step, source="ours: a tenth of what may be missed")
    yield _module("LEAST_COLD_SHARE", step, source="ours: for an objective that allows hardly any miss")
    yield _module("WARM_SHARE", bundles, source="ours: for unforecast surges, some cents a day")
    yield _field(ControllerPolicy, "lead_units", source="MArk's tau, 5 min: the 95 % point of a launch")
    yield _field(ControllerPolicy, "history_units", source="ours: a week of surges", value=bundles.WEEK_UNITS)
    yield _field(ControllerPolicy, "unavailable_s", source="ours: some launches long")
    yield _field(
        ControllerPolicy,
        "unavailable_longest_s",
        source="ours: what is refused for hours is asked for each hour",
        value=bundles.LONGEST_UNAVAILABLE_S,
    )
    yield Constant(
        name="1 - admission_factor",
        value=0.02,
        source="ours: rounding and the network",
        changed=lambda value: Variant(label="", bundle=partial(_admitting, value)),
    )
    yield _module(
        "PLANNED_SHARE",
        miss_penalty,
        source="ours: the rest of the budget is for boots and wrong forecasts",
        case=LATE,
    )
    yield _module(
        "MOST_SHARE", miss_penalty, source="ours: caution that a calm week leaves", case=LATE, of_rest=True
    )
    yield _module("LONG_HISTORY_S", miss_penalty, hedged, source="ours: a day, the rhythm of a load", case=LATE)
    yield _module(
        "HOUR_UNITS", miss_penalty, source="ours: the last hour, while less than a day is known", case=LATE
    )
    yield _module("WINDOW_S", error_budget, source="ours: a quarter of the day that a report judges", case=LATE)
    yield _module(
        "AIM",
        error_budget,
        source="ours (decision 0039): the rest is for what comes before plans answer",
        case=LATE,
    )
    yield _module("POWER", error_budget, source="ours (decision 0039): the first power gains half", case=LATE)
    yield _module("MOST_FACTOR", error_budget, source="ours: the caution that a calm week leaves", case=LATE)
    yield _module("LEAST_FACTOR", error_budget, source="ours: the fleet that a bad hour may ask for", case=LATE)
    yield _module(
        "FEWEST", error_budget, source="ours: fewer requests say nothing of a share of misses", case=LATE
    )
    yield _module(
        "LEAST_MISSED", miss_penalty, source="ours: the last request in a thousand is not bought", case=LATE
    )
    yield _module(
        "WARY_SHARE", miss_penalty, source="ours: a late request makes those behind it late", case=WITHOUT
    )
    yield _field(
        ControllerPolicy, "cooldown_s", source="MArk's 6 min", value=bundles.SCALE_IN_COOLDOWN_S, case=WITHOUT
    )


def of_case(day: int, market: Market, case: str) -> FigureTable:
    """Every constant of a case at half and at twice its value; forecasts are made once."""
    load, found, as_it_is = twitter_day(day), FigureTable(), Variant(label="as it is")
    with Foretold(load) as foretold:
        spec, *others = (_specs(replace(load, seed=seed), market)[case] for seed in (load.seed, *OTHER_SEEDS))
        usual = _run(spec, as_it_is, foretold)
        runs = [_run(other, as_it_is, foretold) for other in others]
        where = (f"{day}", market.value, case)
        unchanged = f"none, seeds {' and '.join(map(str, OTHER_SEEDS))}"
        found.add(FigureTable(rows=[(*where, unchanged, *_cells(usual, runs))]))
        for constant in constants():
            if constant.case == case:
                runs = [_run(spec, constant.changed(constant.value * factor), foretold) for factor in FACTORS]
                found.add(FigureTable(rows=[(*where, constant.name, *_cells(usual, runs))]))
    return found


def tables(figures: FigureTable) -> Tables:
    """Tables of the part: where each constant comes from, then what it is worth."""
    head = ("constant", "value", "where the value comes from")
    changed = ((item.name, f"{item.value:g}", item.source) for item in constants())
    return {"constants": [head, *changed, *UNCHANGED], **part_tables(figures, "changes", HEAD)}


def _specs(load: AcceptanceLoad, market: Market) -> dict[str, ExperimentSpec]:
    return {
        IN_TIME: spec_of(load, market),
        LATE: spec_of(load, market, "nasnet"),
        WITHOUT: replace(spec_of(load, market), overflow=False),
    }


def _run(spec: ExperimentSpec, variant: Variant, foretold: Foretold) -> RunResult:
    with variant.around():
        return Ablated(spec, variant, foretold).run("hedged")


def _cells(usual: RunResult, runs: list[RunResult]) -> Row:
    serving = [
        "=" if run.cost == usual.cost and run.attained == usual.attained
        else f"{run.cost.serving / usual.cost.serving:.3f}"
        for run in runs
    ]  # fmt: skip
    return (*serving, *(f"{run.attained:.4f}" for run in (usual, *runs)))


def _module(
    name: str,
    *modules: ModuleType,
    source: str,
    case: str = IN_TIME,
    of_rest: bool = False,
    above_one: bool = False,
    whole: bool = False,
) -> Constant:
    """A constant of a module, and of those that import it. A share may be changed by what it leaves of 1."""

    def back(value: float) -> float:
        value = 1.0 - value if of_rest else 1.0 + value if above_one else value
        return round(value) if whole else value

    own = getattr(modules[0], name)
    shown = 1.0 - own if of_rest else own - 1.0 if above_one else own
    place = f"{modules[0].__name__.removeprefix('mark.')}.{name}"
    return Constant(
        name=f"1 - {place}" if of_rest else f"{place} - 1" if above_one else place,
        value=round(shown, 9),
        source=source,
        changed=lambda value: Variant(label="", around=partial(_patched, name, modules, back(value))),
        case=case,
    )


@contextmanager
def _patched(name: str, modules: tuple[ModuleType, ...], value: float) -> Iterator[None]:
    with ExitStack() as stack:
        for module in modules:
            stack.enter_context(patch.object(module, name, value))
        yield


def _field(
    kind: type[ControllerPolicy | BreakerPolicy | LaunchBreakerPolicy],
    name: str,
    *,
    source: str,
    value: float = math.nan,
    case: str = IN_TIME,
) -> Constant:
    """A field of the controller's policy or of a breaker of its; `value` where it is not the field's default."""
    default = next(field.default for field in fields(kind) if field.name == name)
    own = default if math.isnan(value) else value
    assert isinstance(own, int | float)
    return Constant(
        name=f"{kind.__name__}.{name}",
        value=own,
        source=source,
        changed=lambda to: Variant(
            label="", bundle=partial(_with_field, kind, name, max(1, round(to)) if isinstance(own, int) else to)
        ),
        case=case,
    )


def _with_field(
    kind: type[ControllerPolicy | BreakerPolicy | LaunchBreakerPolicy], name: str, value: float, made: PolicyBundle
) -> PolicyBundle:
    controller = made.controller
    if kind is ControllerPolicy:
        return replace(made, controller=_replaced(controller, name, value))
    if kind is BreakerPolicy and controller.breaker is not None:
        changed = replace(controller, breaker=_replaced(controller.breaker, name, value))
        return replace(made, controller=changed)
    if kind is LaunchBreakerPolicy and controller.launch_breaker is not None:
        changed = replace(controller, launch_breaker=_replaced(controller.launch_breaker, name, value))
        return replace(made, controller=changed)
    return made


def _replaced(policy: Policy, name: str, value: float) -> Policy:
    changed: dict[str, Any] = {name: value}
    return replace(policy, **changed)


def _admitting(slack: float, made: PolicyBundle) -> PolicyBundle:
    return replace(made, dispatch=replace(made.dispatch, admission_factor=1.0 - slack))
