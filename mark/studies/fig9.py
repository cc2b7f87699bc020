"""MArk's figure 9: what an unforeseen surge (a-c) and the loss of spot instances (d) do to latency.

(a-c) LSTM-ptb, a constant load that rises by 50, 75 and 100 % within two minutes, MArk beside SageMaker. (d)
Inception-v3 on 20 spot instances, of which a share gets its two minutes' notice at once, with standbys and
without. The paper draws latencies over time; its text states the script, which is followed here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from mark.domain.demand import HORIZON, Demand, point_forecast
from mark.domain.errors import Misconfigured
from mark.domain.offerings.offering import Market, Offering
from mark.domain.plan import PlanRequest
from mark.planner.greedy import plan_greedy
from mark.policies.spec import Overrides
from mark.simulator.experiment import Experiment
from mark.simulator.faults import FaultScript, Interrupt
from mark.simulator.results import Ints, RunResult
from mark.simulator.traces.generators import constant, surge
from mark.simulator.traces.trace import Trace
from mark.simulator.workload import Workload
from mark.studies.measures import (
    Where,
    attained_between,
    latency_over_time,
    latency_rows,
    longest_ms,
    unanswered,
)
from mark.studies.plot import Curve, Plot
from mark.studies.published import (
    LOST_SHARES,
    NOTICE_MINUTE,
    ONDEMAND,
    REPLACED_MINUTE,
    SAGEMAKER,
    SPOT_FLEET,
    SURGE_MINUTE,
    SURGE_RISE_S,
    SURGES,
)
from mark.studies.setups import SETUPS, Setup, assumptions, experiment, run_notes
from mark.studies.study import Row, Study, StudyContext, View

SURGE_MODEL, SPOT_MODEL = "lstm-ptb", "inception-v3"
SPOT_TYPE = "c5.large"
SURGE_SYSTEMS = (
    (ONDEMAND, "mark", "last-value"),
    (f"{ONDEMAND}, LSTM of a calm day", "mark", "lstm-vanilla"),
    (SAGEMAKER, "sagemaker", None),
)
"""Figure 9a-c: name, policy and forecaster. See `mark_fig9` for why MArk runs with two."""
STANDBYS = {"with standbys": 1.0, "without standbys": 0.0}
"""Two cases of figure 9d: the share of the planned capacity that standbys can carry."""
STEP_S = 10
"""Plots show the mean latency of every ten seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fig9Parameters:
    """The load before the surge and the lengths; the script itself is the paper's.

    `history_s` of constant load are there to learn from before the run.
    """

    surges: tuple[float, ...] = SURGES
    lost: tuple[float, ...] = LOST_SHARES
    base_rps: float = 400.0
    surge_run_s: float = 1800.0
    spot_run_s: float = 1500.0
    history_s: float = 86400.0


def mark_fig9(context: StudyContext, parameters: Fig9Parameters | None = None) -> Study:
    """Run it.

    A load that was constant for a day teaches an LSTM a constant: it never sees the surge, and Lambda carries it.
    The paper's LSTM had learnt from months of moving load. MArk therefore forecasts the last minute's load here,
    which sees a surge once it is there and no sooner; the LSTM of a calm day is run beside it.
    """
    asked = parameters or Fig9Parameters()
    surges = [_surge(context, asked, place) for place in range(len(asked.surges))]
    spot = _spot(context, asked)
    parts = (*surges, spot)
    setups = (SETUPS[SURGE_MODEL], _spot_setup())
    return Study(
        name="mark-fig9",
        title="MArk, figure 9: surges and spot interruptions",
        rows=tuple(row for part in parts for row in part.rows),
        assumptions=(
            "The paper draws the latencies of figure 9 and states no number: none stands beside ours.",
            (
                f"Surges: {asked.base_rps:g} requests/s before (unstated in the paper), on-demand market; they "
                f"begin after {SURGE_MINUTE} minutes."
            ),
            *spot.remarks,
            (
                f"Before each run: {asked.history_s / 3600:g} h of constant load. An LSTM that learns from it "
                "forecasts that load whatever comes, so under a surge MArk forecasts the last minute's load "
                "(and, for comparison, with that LSTM); under a loss of instances it runs with the LSTM."
            ),
            *assumptions(setups),
            *dict.fromkeys(f"Assumed profile: {formula}" for part in parts for formula in part.assumed),
        ),
        views=_VIEWS,
        series=tuple(plot for part in parts for plot in part.plots),
    )


_VIEWS = (
    View(
        title="(a-c) Surges within two minutes, from minute 11 on",
        index=("case", "system"),
        quantities=(
            "mean_ms",
            "p99_ms",
            "max_ms",
            "attained",
            "attained_after",
            "lambda_share",
            "unanswered",
            "launches",
            "total_usd",
        ),
    ),
    View(
        title="(d) Spot instances lost after a notice in minute 7, ours (published)",
        index=("lost", "system"),
        quantities=(
            "fleet",
            "taken",
            "woken",
            "replaced_minute",
            "mean_ms",
            "p99_ms",
            "max_ms",
            "attained_after",
            "lambda_share",
            "unanswered",
        ),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """One panel of the figure."""

    rows: tuple[Row, ...]
    plots: tuple[Plot, ...]
    assumed: tuple[str, ...]
    remarks: tuple[str, ...] = ()


def _surge(context: StudyContext, asked: Fig9Parameters, place: int) -> _Part:
    plus = asked.surges[place]
    setup, case = SETUPS[SURGE_MODEL], f"{plus:+.0%}"
    rows: list[Row] = []
    curves: list[Curve] = []
    assumed: tuple[str, ...] = ()
    for step, (system, policy, forecaster) in enumerate(SURGE_SYSTEMS):
        context.progress(f"surge {case}: {system}", (place + step / 3) / (2 * len(asked.surges)))
        given = experiment(context, setup, Market.ON_DEMAND, _surge_load(context, asked, plus))
        result = given.run(policy, overrides=Overrides(forecaster=forecaster))
        where: Where = (("case", case), ("system", system))
        rows.extend(_surge_rows(where, given, result))
        rows.extend(_minute_rows(where, result))
        curves.append(latency_over_time(system, result.seconds, STEP_S))
        assumed = given.supply.assumed
    plot = Plot(
        name=f"mark-fig9-surge-{plus:.0%}".rstrip("%"),
        title=f"{SURGE_MODEL}, {case} within two minutes: mean latency of every {STEP_S} s",
        x_label="minute",
        y_label="ms",
        curves=tuple(curves),
        level=(setup.slo.latency_s * 1000, "objective"),
        marks=((float(SURGE_MINUTE), "surge"),),
        log_y=True,
    )
    return _Part(rows=tuple(rows), plots=(plot,), assumed=assumed)


def _surge_load(context: StudyContext, asked: Fig9Parameters, plus: float) -> Workload:
    """The same history before every surge, so that one forecaster is trained for all."""
    rise = surge(
        asked.base_rps,
        plus=plus,
        at_s=SURGE_MINUTE * 60.0,
        rise_s=SURGE_RISE_S,
        duration_s=asked.surge_run_s,
        seed=context.seed,
    )
    return _after_calm(context, asked.base_rps, asked.history_s, rise)


def _after_calm(context: StudyContext, base_rps: float, history_s: float, run: Trace) -> Workload:
    calm = constant(base_rps, duration_s=history_s, seed=context.seed)
    trace = replace(run, rates_rps=np.concatenate((calm.rates_rps, run.rates_rps)))
    return Workload(trace=trace, seed=context.seed, start_s=history_s)


def _surge_rows(where: Where, given: Experiment, result: RunResult) -> Iterator[Row]:
    after_s = SURGE_MINUTE * 60
    yield from _common_rows(where, given, result, after_s)
    yield Row(where, "launches", result.launches)
    yield Row(where, "total_usd", result.cost.total)


def _common_rows(where: Where, given: Experiment, result: RunResult, after_s: int) -> Iterator[Row]:
    """Latencies, what was in time in the ten minutes after the event, and who served."""
    seconds = result.seconds
    yield from latency_rows(where, result)
    yield Row(where, "max_ms", longest_ms(seconds, after_s))
    yield Row(where, "attained_after", attained_between(seconds, after_s, after_s + 600))
    yield Row(
        where,
        "lambda_share",
        int(seconds.to_lambda[after_s:].sum()) / max(1, int(seconds.arrivals[after_s:].sum())),
    )
    yield Row(where, "unanswered", unanswered(result), notes=run_notes(given, result))


def _minute_rows(where: Where, result: RunResult) -> Iterator[Row]:
    """Latency over time, minute by minute; a minute without an answer has none."""
    curve = latency_over_time("", result.seconds, 60)
    for minute, mean_ms in enumerate(curve.y):
        at: Where = (*where, ("minute", minute))
        longest = longest_ms(result.seconds, minute * 60, (minute + 1) * 60)
        yield Row(at, "mean_ms", mean_ms)
        yield Row(at, "max_ms", longest)


def _spot_setup() -> Setup:
    return replace(SETUPS[SPOT_MODEL], types=(SPOT_TYPE,))


def _spot(context: StudyContext, asked: Fig9Parameters) -> _Part:
    setup = _spot_setup()
    calm_rps = _rate_for_fleet(context, SPOT_FLEET)
    workload = Workload(
        trace=constant(calm_rps, duration_s=asked.history_s + asked.spot_run_s, seed=context.seed),
        seed=context.seed,
        start_s=asked.history_s,
    )
    rows: list[Row] = []
    plots: list[Plot] = []
    given: Experiment | None = None
    for place, share in enumerate(asked.lost):
        faults = FaultScript(stress=0.0, interrupts=(Interrupt(at_s=NOTICE_MINUTE * 60.0, share=share),))
        curves: list[Curve] = []
        for system, cover in STANDBYS.items():
            context.progress(f"{share:.0%} of the spot fleet lost, {system}", 0.5 + place / (2 * len(asked.lost)))
            given = experiment(context, setup, Market.SPOT, workload, standby_share=cover, faults=faults)
            result = given.run("mark")
            where: Where = (("lost", f"{share:.0%}"), ("system", system))
            rows.extend(_spot_rows(where, given, result, share))
            rows.extend(_minute_rows(where, result))
            curves.append(latency_over_time(system, result.seconds, STEP_S))
        plots.append(_spot_plot(share, tuple(curves), setup.slo.latency_s * 1000))
    with_standby = experiment(context, setup, Market.SPOT, workload, standby_share=1.0)
    standby = with_standby.assembly.standby
    remarks = (
        (
            f"Spot: {SPOT_FLEET} {SPOT_TYPE} (the paper does not name the type), for which {calm_rps:.1f} "
            "requests/s were found by planning; no other type, no further interruptions are drawn."
        ),
        (
            f"Standbys: {standby.offering.instance_type.name if standby else 'none'}, stopped, able to carry "
            "the whole planned load; the paper does not state how many it kept."
        ),
    )
    return _Part(rows=tuple(rows), plots=tuple(plots), assumed=with_standby.supply.assumed, remarks=remarks)


def _spot_rows(where: Where, given: Experiment, result: RunResult, share: float) -> Iterator[Row]:
    notice_s = NOTICE_MINUTE * 60
    fleet = _spot_ready(result)
    before = int(fleet[NOTICE_MINUTE - 1])
    back = np.flatnonzero(fleet[NOTICE_MINUTE + 2 :] >= before)
    replaced = float(NOTICE_MINUTE + 2 + back[0]) if len(back) else None
    yield Row(where, "fleet", before, published=SPOT_FLEET)
    yield Row(
        where,
        "taken",
        result.interruptions,
        published=round(share * SPOT_FLEET),
        claim=f"section 5.3: {share:.0%} of {SPOT_FLEET} instances get their notice in minute {NOTICE_MINUTE}",
    )
    yield Row(where, "woken", result.wakes)
    yield Row(
        where,
        "replaced_minute",
        replaced,
        published=REPLACED_MINUTE,
        claim="section 5.3: replacements are ready in minute 13",
    )
    yield from _common_rows(where, given, result, notice_s)
    yield Row(where, "total_usd", result.cost.total)


def _spot_ready(result: RunResult) -> Ints:
    """Spot instances that are ready at the start of each minute, shape (minutes,)."""
    spot = [name.endswith(f":{Market.SPOT.value}") for name in result.minutes.offerings]
    ready: Ints = result.minutes.ready[:, spot].sum(axis=1)
    return ready


def _spot_plot(share: float, curves: tuple[Curve, ...], limit_ms: float) -> Plot:
    return Plot(
        name=f"mark-fig9-lost-{share * 100:.0f}",
        title=f"{SPOT_MODEL}, {share:.0%} of {SPOT_FLEET} spot instances lost: mean latency of every {STEP_S} s",
        x_label="minute",
        y_label="ms",
        curves=curves,
        level=(limit_ms, "objective"),
        marks=(
            (float(NOTICE_MINUTE), "notice"),
            (NOTICE_MINUTE + 2.0, "gone"),
            (float(REPLACED_MINUTE), "replaced in the paper"),
        ),
    )


def _rate_for_fleet(context: StudyContext, count: int) -> float:
    """The constant rate for which Algorithm 1 plans `count` spot instances.

    The plan follows the largest 5 s rate of a minute; the rate is the one whose minutes have, on average, the
    middle of the maxima that give this count, so that a forecast slightly off still does.
    """
    probe = Workload(trace=constant(count, duration_s=3600.0, seed=context.seed), seed=context.seed)
    offerings = experiment(context, _spot_setup(), Market.SPOT, probe).supply.offerings
    wanted_rps = _middle_of_count(offerings, count)
    return _bisect(lambda rps: _mean_maximum(rps, context.seed) - wanted_rps, high=wanted_rps)


def _middle_of_count(offerings: tuple[Offering, ...], count: int) -> float:
    """The middle of the rates, requests/s, for which a flat forecast is planned with `count` instances."""
    slo = _spot_setup().slo
    found = []
    for rate in np.linspace(0.5, 1.1, 600) * count * offerings[0].capacity_rps:
        flat = (float(rate),) * HORIZON
        plan = plan_greedy(
            PlanRequest(
                now=0.0,
                history=Demand(end_at=0.0, mean_rps=(), max_rps=()),
                forecast=point_forecast(0.0, mean_rps=flat, max_rps=flat, source="flat"),
                offerings=offerings,
                running=(),
                slo=slo,
            )
        )
        if sum(item.count for item in plan.counts) == count:
            found.append(float(rate))
    if not found:
        raise Misconfigured(f"no constant rate is planned with {count} instances of {offerings[0].name}")
    return (found[0] + found[-1]) / 2


def _mean_maximum(rps: float, seed: int) -> float:
    """Mean over an hour's minutes of the largest 5 s rate under Poisson arrivals at `rps`."""
    demand = Workload(trace=constant(rps, duration_s=3600.0, seed=seed), seed=seed).demand(0.0, 3600.0)
    return sum(demand.max_rps) / len(demand)


def _bisect(function: Callable[[float], float], *, high: float, low: float = 1.0) -> float:
    """Root of a rising function by bisection, to a thousandth of `high`."""
    while high - low > high / 1000:
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) < 0 else (low, middle)
    return (low + high) / 2
