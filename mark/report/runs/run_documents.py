"""The document of `mark simulate --json`; docs/report.md says what its figures mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from mark.policies.present import SAGEMAKER, Present
from mark.report.formatting import cost_document, finite
from mark.report.runs.comparison import ComparedRun
from mark.report.runs.rivals import usd_per_million, usd_per_month
from mark.report.runs.run_verdict import verdict_of
from mark.report.verdict import VerdictObject, verdict_document
from mark.simulator.results import RunResult, ServedCounts


class AttainmentObject(TypedDict):
    """The objective of a run and how it was kept."""

    latency_ms: float | None
    #: Share of the requests that must be in time.
    target: float | None
    #: Share of the finished requests that were in time; null without any.
    attained: float | None


class TunedObject(TypedDict):
    """The setting of a rival, with its cost and attainment on the load before the run."""

    rule: str
    utilisation: float
    #: Cost of the load before the run.
    cost_usd: float | None
    #: Share in time on the load before the run.
    attained: float | None
    #: Settings that were tried.
    replays: int
    #: Length of the load before the run, seconds.
    load_s: float


class OneVariantObject(TypedDict):
    """The run of the most accurate variant alone that keeps the objective."""

    variant: str
    accuracy: float | None
    #: Share of the finished requests that were in time; null without any.
    attained: float | None
    #: USD by component and sum.
    cost_usd: dict[str, float | None]


class RunDocument(TypedDict):
    """One run of `mark simulate --json`; null stands for what is no finite number."""

    policy: str
    #: What it rents: `spot` or `on-demand`.
    market: str
    model: str
    trace: str
    #: How many times as fast the trace ran; requests count what was sent, costs what it stands for.
    speed: float | None
    #: How kind the cloud was.
    world: str
    #: Seed of all random draws.
    seed: int
    #: Requests that arrived: the sum of `served`.
    requests: int
    #: Over how long.
    duration_s: float | None
    #: `instances`, `standby`, `lambda`, their sum `serving`; `overhead`; `commitments` if there are any; `total`.
    cost_usd: dict[str, float | None]
    #: Serving cost with perfect knowledge; null where no fleet can serve the load in time.
    reference_usd: float | None
    #: Serving cost that no run that meets its objective undercuts.
    floor_usd: float | None
    #: The reference with its disks, its addresses and the least overhead: what totals compare with.
    reference_total_usd: float | None
    #: The total for 730 h like the run.
    usd_per_month: float | None
    #: The total for a million requests.
    usd_per_million: float | None
    cost_over_reference: float | None
    #: Serving cost over the floor; null also where the run misses its objective or is shorter than a day.
    cost_over_floor: float | None
    slo: AttainmentObject
    #: Mean share of right answers of the variants that answered; null for a model without variants.
    accuracy: float | None
    #: Mean of accuracy times the utility of the delay; null for a model without variants.
    quality: float | None
    #: The same policy with one variant alone; null but for the headline's run where variants were asked for.
    most_accurate: OneVariantObject | None
    #: `mean`, `p50`, `p95`, `p99` of what was answered; null where nothing was.
    latency_ms: dict[str, float | None]
    #: Requests by who answered: `instance`, `standby`, `lambda`, `shed`, `in_flight`.
    served: dict[str, int]
    #: Cold starts per Lambda call.
    cold_start_rate: float | None
    #: Calls that Lambda refused.
    throttled: int
    #: Forecasts that were made.
    forecasts: int
    #: Forecasts for which the last value stood in, because the forecaster failed.
    stood_in: int
    #: Profiles that nobody measured, with their formulas.
    assumed_profiles: list[str]
    #: Profiles that were measured on another machine than their type.
    stand_in_profiles: list[str]
    #: Instances started, the first fleet's too, which is there when a replay begins.
    launches: int
    #: Instances taken away.
    interruptions: int
    #: Standbys woken.
    wakes: int
    #: Launches and wakes refused.
    refusals: int
    #: What a rival was set to; null for a policy that nobody tunes.
    tuned: TunedObject | None
    #: What a reader must know: what was cut, replaced, or failed.
    notes: list[str]
    #: Real seconds that the replay took.
    wall_s: float | None


class SimulateDocument(TypedDict):
    """The document of `mark simulate --json`."""

    #: What to run; null where nothing ran.
    verdict: VerdictObject | None
    #: One run a policy.
    runs: list[RunDocument]


def simulate_document(runs: Sequence[ComparedRun], now: Present = SAGEMAKER) -> SimulateDocument:
    """The verdict, then one object a run, in the given order; what is no finite number is null."""
    return {
        "verdict": verdict_document(verdict_of(runs, now)) if runs else None,
        "runs": [run_document(run) for run in runs],
    }


def run_document(run: ComparedRun) -> RunDocument:
    """The object of one run."""
    result, served = run.result, run.result.served
    finished = served.total - served.in_flight
    answered = finished - served.shed
    return {
        "policy": result.policy,
        "market": result.market,
        "model": result.model,
        "trace": result.trace,
        "speed": finite(result.speed),
        "world": str(result.world),
        "seed": int(result.seed),
        "requests": int(result.requests),
        "duration_s": finite(result.duration_s),
        "cost_usd": cost_document(result.cost),
        "reference_usd": finite(run.reference_usd),
        "floor_usd": finite(run.floor_usd),
        "reference_total_usd": finite(run.reference_total_usd),
        "usd_per_month": finite(usd_per_month(result)),
        "usd_per_million": finite(usd_per_million(result)),
        "cost_over_reference": finite(run.cost_over_reference),
        "cost_over_floor": finite(run.cost_over_floor),
        "slo": {
            "latency_ms": _milliseconds(result.slo.latency_s),
            "target": finite(result.slo.target),
            "attained": finite(result.attained) if finished else None,
        },
        "accuracy": finite(result.accuracy),
        "quality": finite(result.quality),
        "most_accurate": _one_variant_object(run),
        "latency_ms": _latency_object(result, answered=bool(answered)),
        "served": served_document(result.served),
        "cold_start_rate": finite(result.cold_start_rate),
        "throttled": int(result.throttled),
        "forecasts": int(result.forecasts),
        "stood_in": int(result.fallback_forecasts),
        "assumed_profiles": list(result.assumed_profiles),
        "stand_in_profiles": list(result.stand_in_profiles),
        "launches": int(result.launches),
        "interruptions": int(result.interruptions),
        "wakes": int(result.wakes),
        "refusals": int(result.refusals),
        "tuned": _tuned_object(result),
        "notes": list(result.notes),
        "wall_s": finite(result.wall_s),
    }


def _tuned_object(result: RunResult) -> TunedObject | None:
    found = result.tuned
    if found is None:
        return None
    return {
        "rule": found.trial.setting.rule,
        "utilisation": found.trial.setting.utilisation,
        "cost_usd": finite(found.trial.cost_usd),
        "attained": finite(found.trial.attained),
        "replays": found.replays,
        "load_s": found.load_s,
    }


def _one_variant_object(run: ComparedRun) -> OneVariantObject | None:
    alone = run.most_accurate
    if alone is None:
        return None
    other = ComparedRun(result=alone.result)
    return {
        "variant": alone.variant,
        "accuracy": finite(alone.result.accuracy),
        "attained": finite(alone.result.attained) if other.finished else None,
        "cost_usd": cost_document(alone.result.cost),
    }


def _latency_object(result: RunResult, *, answered: bool) -> dict[str, float | None]:
    """Milliseconds; null where nobody was answered."""
    known = {name: getattr(result.latency, f"{name}_s") for name in ("mean", "p50", "p95", "p99")}
    return {name: _milliseconds(seconds) if answered else None for name, seconds in known.items()}


def served_document(served: ServedCounts) -> dict[str, int]:
    """Requests by who answered."""
    return {
        "instance": int(served.instance),
        "standby": int(served.standby),
        "lambda": int(served.lambda_),
        "shed": int(served.shed),
        "in_flight": int(served.in_flight),
    }


def _milliseconds(seconds: float) -> float | None:
    # nine digits: 0.6 s is 600.0 ms, not 599.9999999999999
    value = finite(seconds)
    return None if value is None else round(value * 1000, 9)
