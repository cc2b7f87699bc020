"""Runs that never ran: plausible results, consistent in their sums, for tests and for looking at the page."""

# ruff: noqa: E501 - tables of fields read better in one line
from __future__ import annotations

import numpy as np

from mark.catalog.billing import Load
from mark.domain.billing.costs import CostUsd
from mark.domain.models.objective import Slo
from mark.report.runs.comparison import ComparedRun
from mark.simulator import results
from mark.simulator.results import Latency, MinuteSeries, RunResult, SecondSeries, ServedCounts

POLICIES = ("mark", "greedy-oracle", "sagemaker", "reactive", "static-peak", "lambda-only")
OFFERINGS = (
    "c5.2xlarge:on-demand",
    "c5.large:on-demand",
    "c5.xlarge:on-demand",
    "p2.xlarge:on-demand",
    "t2.xlarge:on-demand",
)
CAPACITY_RPS = np.array([9.2, 2.4, 4.8, 28.0, 4.4])
USD_PER_HOUR = np.array([0.34, 0.085, 0.17, 0.90, 0.1856])
LOOSE = {
    "mark": 1.12,
    "greedy-oracle": 1.05,
    "sagemaker": 1.9,
    "reactive": 1.25,
    "static-peak": 0.0,
    "lambda-only": 0.0,
}
MISS = {
    "mark": 0.008,
    "greedy-oracle": 0.004,
    "sagemaker": 0.012,
    "reactive": 0.06,
    "static-peak": 0.0006,
    "lambda-only": 0.0023,
}
MIX = {
    "mark": (0, 1, 2, 4),
    "greedy-oracle": (0, 1, 3),
    "sagemaker": (2,),
    "reactive": (1,),
    "static-peak": (2,),
    "lambda-only": (),
}


def fake_run(policy: str = "mark", *, duration_s: int = 900, seed: int = 7, **changed: object) -> ComparedRun:
    """One policy on a load that depends on `seed` alone; `changed` replaces fields of the RunResult."""
    load = _load(duration_s, np.random.default_rng(seed))
    rng = np.random.default_rng([seed, len(policy), ord(policy[0])])
    arrivals = np.random.default_rng([seed, 1]).poisson(load).astype(np.int64)
    seconds = _seconds(policy, load, arrivals, rng)
    minutes = _minutes(policy, load, rng)
    served = _served(policy, seconds)
    cost, bill = _costs(policy, minutes, served)
    fields: dict[str, object] = {
        "policy": policy, "market": "on-demand", "model": "inception-v3", "trace": "twitter_2021_08_d01_07_1s.csv.gz",
        "seed": seed, "start_at": 432_000.0, "duration_s": float(duration_s), "slo": Slo(latency_s=0.6, target=0.98),
        "served": served, "attained": 1 - float(seconds.missed.sum()) / max(1, int(seconds.arrivals.sum())),
        "latency": _latency(policy, rng), "cost": cost, "bill": bill,
        "cold_starts": served.lambda_ // 400, "lambda_invocations": served.lambda_, "throttled": 0,
        "assumed_profiles": ("t2.xlarge from t3.xlarge", "Lambda 3 GiB from c5.large x 1.8"),
        "stand_in_profiles": (), "uses_truth": policy == "greedy-oracle",
        "launches": int(np.maximum(0, np.diff(minutes.ready, axis=0)).sum()), "refusals": 1, "interruptions": 0, "wakes": 2,
        "wall_s": 3.2, "load": Load(duration_s=float(duration_s)), "seconds": seconds, "minutes": minutes,
        "notes": ("The Lambda account limit of 1,000 at once was reached for 41 s.",) if policy == "lambda-only" else (),
    }  # fmt: skip
    base = float(np.cumsum(load)[-1]) * 5.6e-6
    return ComparedRun(result=RunResult(**{**fields, **changed}), reference_usd=base, floor_usd=0.93 * base)


def _load(duration_s: int, rng: np.random.Generator) -> np.ndarray:
    """A day's curve with noise and two floods, requests/s."""
    at = np.arange(duration_s)
    day = 65 + 28 * np.sin(2 * np.pi * (at / max(duration_s, 1) - 0.35))
    walk = np.repeat(rng.normal(0, 5, duration_s // 60 + 1), 60)[:duration_s]
    floods = sum(70 * np.exp(-(((at - share * duration_s) / (0.006 * duration_s)) ** 2)) for share in (0.41, 0.77))
    return np.maximum(1.0, day + walk + floods)


def _seconds(policy: str, load: np.ndarray, arrivals: np.ndarray, rng: np.random.Generator) -> SecondSeries:
    surge = np.clip((load - 95) / 60, 0, 1)
    odds = np.clip(MISS.get(policy, 0.01) * (0.15 + 14 * surge) * np.exp(rng.normal(0, 0.6, load.size)), 0, 0.9)
    missed = rng.binomial(arrivals, odds).astype(np.int64)
    if policy == "lambda-only":
        to_lambda = arrivals.copy()
    elif policy in ("mark", "greedy-oracle"):
        to_lambda = rng.binomial(arrivals, np.clip(0.01 + 0.3 * surge, 0, 1)).astype(np.int64)
    else:
        to_lambda = np.zeros_like(arrivals)
    return SecondSeries(
        arrivals=arrivals, answered=arrivals.copy(), missed=missed, to_lambda=to_lambda,
        latency_sum_s=arrivals * 0.31, latency_max_s=np.full(load.size, 0.9),
    )  # fmt: skip


def _minutes(policy: str, load: np.ndarray, rng: np.random.Generator) -> MinuteSeries:
    starts = np.arange(0, load.size, 60)
    peak = np.maximum.reduceat(load, starts)
    wanted = np.full(starts.size, 1.2 * load.max()) if policy == "static-peak" else LOOSE.get(policy, 1.2) * peak
    ready = np.zeros((starts.size, len(OFFERINGS)), dtype=np.int64)
    columns = MIX.get(policy, (0,))
    for column in columns:
        weight = {0: 0.6, 1: 0.2, 4: 0.05}.get(column, 0.2) if len(columns) > 1 else 1.0
        ready[:, column] = np.ceil(weight * wanted / CAPACITY_RPS[column])
    forecast = 1.06 * peak * np.exp(rng.normal(0, 0.04, starts.size))
    forecast[:5] = np.nan
    if policy not in ("mark", "greedy-oracle"):
        forecast[:] = np.nan
    return MinuteSeries(
        offerings=OFFERINGS, ready=ready, capacity_rps=ready * CAPACITY_RPS, forecast_max_rps=forecast
    )


def _served(policy: str, seconds: SecondSeries) -> ServedCounts:
    total, lambdas = int(seconds.arrivals.sum()), int(seconds.to_lambda.sum())
    standby = total // 500 if policy == "mark" else 0
    flight = min(3, total - lambdas - standby)
    return ServedCounts(
        instance=total - lambdas - standby - flight, standby=standby, lambda_=lambdas, shed=0, in_flight=flight
    )


def _costs(policy: str, minutes: MinuteSeries, served: ServedCounts) -> tuple[CostUsd, tuple[object, ...]]:
    hours = minutes.ready.sum(axis=0) / 60
    premium = 1.2 if policy == "sagemaker" else 1.0
    lines = [
        results.BillLine(component="instances", item=name, quantity=float(h), unit="instance-hours", usd=float(h * price) * premium)
        for name, h, price in zip(OFFERINGS, hours, USD_PER_HOUR, strict=True) if h > 0
    ]  # fmt: skip
    instances = sum(line.usd for line in lines)
    lambda_usd, standby = served.lambda_ * 3.1e-5, 0.42 if policy == "mark" else 0.0
    overhead = 0.0 if policy == "sagemaker" else 2.9
    if served.lambda_:
        lines.append(
            results.BillLine(
                component="lambda",
                item="Lambda duration",
                quantity=served.lambda_ * 1.8,
                unit="GiB-s",
                usd=lambda_usd,
            )
        )
    if standby:
        lines.append(
            results.BillLine(
                component="standby", item="t2.xlarge disks asleep", quantity=192.0, unit="GiB-hours", usd=standby
            )
        )
    if overhead:
        lines.append(
            results.BillLine(
                component="overhead",
                item="gateways, load balancer, store",
                quantity=24.0,
                unit="hours",
                usd=overhead,
            )
        )
    cost = CostUsd(instances=instances, standby=standby, lambda_=lambda_usd, overhead=overhead)
    return cost, tuple(lines)


def _latency(policy: str, rng: np.random.Generator) -> Latency:
    body = rng.lognormal(np.log(0.24), 0.28, 20_000)
    late = rng.random(body.size) < MISS.get(policy, 0.01)
    answers = np.sort(
        np.where(
            late, 0.6 + rng.exponential(1.1 if policy != "reactive" else 9.0, body.size), np.minimum(body, 0.59)
        )
    )
    share = 1 - np.arange(1, answers.size + 1) / answers.size
    p50, p95, p99 = (float(np.quantile(answers, q)) for q in (0.5, 0.95, 0.99))
    return Latency(mean_s=float(answers.mean()), p50_s=p50, p95_s=p95, p99_s=p99, ccdf_s=answers, ccdf_share=share)
