"""Our policies in Faro's simulator, beside its own: `python -m scripts.judges.faro --faro DIR`.

DIR is a clone of https://github.com/beomyeol/faro. Its stored results are read from it; what is named in
--policies is run, one process a run, and kept in --out: a run that is there is not run again. docs/papers.md says
what came of it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from mark.domain.demand import KEEP_HISTORY, UNIT_S, WINDOW_S, Demand, DemandUnit, unit_of_windows
from mark.domain.models.objective import Slo
from mark.domain.offerings.offering import Market, Offering
from mark.plugins.load import build_forecaster
from mark.policies.bundles import Ingredients, PolicyBundle, make_bundle
from mark.policies.overrides import tuned
from mark.ports import Forecaster, ForecasterSetup
from mark.simulator.rng import stream
from scripts.judges.faro_jobs import (
    WINDOWS_A_UNIT,
    ByWorth,
    FirstCome,
    Given,
    JobsPolicy,
    replica,
)
from scripts.judges.faro_world import OBJECTIVE_MS, PROCESSING_MS, Faro, Outcome, stored

NO_CAP = 90
"""CPUs that no policy uses up; the memory of Faro's node holds no more pods."""
TARGET = 0.99
"""Faro's policies plan for the 99 % point of the latency (`mdc_percentile`)."""
LEAD_MIN = 1
"""A pod starts in 35 s: `policy.lead_min: 1`."""
OURS = ("hedged", "mark")
NHITS = "window_420s/max_latency/nhits/model_{}/idle_timeout_30s"
FAIR_SUM = "hybrid_ai_pred_darts_cobyla_utility_latency_coldstart_mdc0.99_adjust_minmax3/pred_none/" + NHITS
THEIRS = {
    "aiad": "aiad/idle_timeout_30s",
    "oneshot": "oneshot/idle_timeout_30s",
    "faro-mark": "hybrid_ai_pred_darts/pred_max/" + NHITS,
    "faro-fair-sum": FAIR_SUM,
}
"""Faro's policies, by the folder of their configuration."""
STORED_MODEL, SHIPPED_MODELS = 9, {"faro-mark": 8, "faro-fair-sum": 9}
STORED_NO_CAP = 100
QUANTILE = 0.6
"""The quantile of the forecast that Faro's stored runs of MArk and of itself plan for (`model_9.yaml`)."""
FORECAST_BY_DEFAULT = "mixture"


class Task(NamedTuple):
    """One run."""

    policy: str
    cap: int
    seed: int


class Settings(NamedTuple):
    """Settings that all runs have in common."""

    faro: Path
    out: Path
    #: The forecaster of our policies, and of Faro's in place of N-HiTS; empty for each policy's own.
    forecaster: str
    processing_s: float
    #: Minutes that a smaller plan must last before a replica is given back; None for each policy's own.
    cooldown_min: float | None
    #: Whether CPUs that are short go where they are worth most, or to whoever asks first.
    by_worth: bool
    cache: Path


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(prog="scripts.judges.faro", description=__doc__)
    parser.add_argument("--faro", type=Path, required=True, help="a clone of beomyeol/faro")
    parser.add_argument("--policies", default=",".join((*OURS, "aiad")), help=f"of {', '.join((*OURS, *THEIRS))}")
    parser.add_argument("--caps", default=f"{NO_CAP},36,32", help="CPUs of the cluster")
    parser.add_argument("--seeds", default="42", help="seeds of the arrivals; Faro's are 24,32,40,42,62")
    parser.add_argument("--forecaster", default="", help="another than the policy's own")
    parser.add_argument("--processing-ms", type=float, default=PROCESSING_MS, help="what our policies are told")
    parser.add_argument("--cooldown-min", type=float, help="of our policies (policy.cooldown_min)")
    parser.add_argument("--by-worth", action="store_true", help="give CPUs that are short where they spare most")
    parser.add_argument("--out", type=Path, default=Path("faro-runs"))
    asked = parser.parse_args()
    settings = Settings(
        faro=asked.faro.resolve(),
        out=asked.out.resolve(),
        forecaster=asked.forecaster,
        processing_s=asked.processing_ms / 1e3,
        cooldown_min=asked.cooldown_min,
        by_worth=asked.by_worth,
        cache=asked.out.resolve() / "learned",
    )
    settings.cache.mkdir(parents=True, exist_ok=True)
    caps = [int(cap) for cap in asked.caps.split(",")]
    tasks = [
        Task(policy, cap, int(seed))
        for policy in filter(None, asked.policies.split(","))
        for cap in caps
        for seed in asked.seeds.split(",")
    ]
    print_stored(settings.faro, caps)
    for task in tasks:
        print_row(name_of(task, settings), task.cap, outcome_of(task, settings), 1)


def print_stored(faro: Path, caps: list[int]) -> None:
    """Print the rows of Faro's stored results."""
    print(f"{'policy':40} {'CPUs':>5} {'violations':>10} {'in time':>8} {'replicas':>8} {'at most':>7} seeds")
    for name, path in THEIRS.items():
        for cap in caps:
            at = STORED_NO_CAP if cap == NO_CAP else cap
            outcome, seeds = stored(faro, at, path.format(STORED_MODEL))
            print_row(f"{name} (stored)", cap, outcome, seeds)


def print_row(name: str, cap: int, outcome: Outcome, seeds: int) -> None:
    """Print one row of the table."""
    cpus = "none" if cap == NO_CAP else str(cap)
    print(
        f"{name:40} {cpus:>5} {outcome.violations:>9.2f}% {outcome.in_time:>7.2f}% {outcome.replicas:>8.2f} "
        f"{outcome.most:>7.0f} {seeds:>5}",
        flush=True,
    )


def name_of(task: Task, settings: Settings) -> str:
    """The policy with what is not its own."""
    parts = [task.policy]
    if settings.forecaster or task.policy not in (*OURS, "aiad", "oneshot"):
        parts.append(settings.forecaster or FORECAST_BY_DEFAULT)
    if task.policy in OURS and settings.processing_s * 1e3 != PROCESSING_MS:
        parts.append(f"{settings.processing_s * 1e3:g} ms")
    if task.policy in OURS and settings.cooldown_min is not None:
        parts.append(f"cool-down {settings.cooldown_min:g} min")
    if task.policy in OURS and settings.by_worth:
        parts.append("by worth")
    return ", ".join(parts)


def outcome_of(task: Task, settings: Settings) -> Outcome:
    """The outcome of a run; from the file that it left, where it was run before."""
    name = name_of(task, settings).replace(", ", "+").replace(" ", "")
    path = settings.out / f"{name}-{task.cap}-{task.seed}.json"
    if not path.exists():
        process = multiprocessing.get_context("spawn").Process(target=run_one, args=(task, settings, path))
        process.start()
        process.join()
        if process.exitcode:
            sys.exit(f"{task} failed")
    return Outcome(**json.loads(path.read_text()))


def run_one(task: Task, settings: Settings, path: Path) -> None:
    """Run a policy in a process of its own and write its outcome."""
    faro = Faro(settings.faro)
    config = config_of(task, faro, settings)
    path.write_text(json.dumps(asdict(faro.run(config))) + "\n")


def config_of(task: Task, faro: Faro, settings: Settings) -> dict[str, Any]:
    """The configuration of a run, with our policies and forecasts in their places."""
    if task.policy in THEIRS:
        stand_in_for_nhits(faro, settings)
        config = faro.config(THEIRS[task.policy].format(SHIPPED_MODELS.get(task.policy)), task.cap, task.seed)
        for policy in config["controller_params"].get("policies", ()):
            if "resource_limit" in policy.get("policy_params", {}):
                policy["policy_params"]["resource_limit"]["cpu"] = task.cap
        return config
    config = faro.config(THEIRS["aiad"], task.cap, task.seed)
    config["controller_params"] |= {"policy_name": "ours", "input_rate_bin_size_s": WINDOW_S}
    faro.register("ours", lambda autoscale_config, **_: our_policy(task, faro, settings, autoscale_config))
    return config


def our_policy(task: Task, faro: Faro, settings: Settings, autoscale_config: object) -> JobsPolicy:
    """One of our policies for all jobs."""
    offering = replica(settings.processing_s)
    given: dict[str, Given] = {}
    for job, rates in faro.training_rates().items():
        history = history_of(job, rates)
        bundle = bundle_of(task.policy, offering, history, settings)
        given[f"{job}-ray-head"] = Given(
            policy=bundle.controller,
            forecaster=forecaster_of(settings.forecaster or bundle.forecaster, history, settings),
            fallback=forecaster_of("last-value", history, settings),
            history=history,
        )
    return JobsPolicy(
        action=faro.action,
        autoscale_config=autoscale_config,
        given=given,
        answers={f"{job}-ray-head": faro.answers_of(job) for job in faro.rates()},
        limit=ByWorth(task.cap) if settings.by_worth else FirstCome(task.cap),
    )


def bundle_of(policy: str, offering: Offering, history: Demand, settings: Settings) -> PolicyBundle:
    """One of our policies where replicas of one kind can be had and nothing else."""
    bundle = make_bundle(
        policy,
        Ingredients(
            slo=Slo(latency_s=OBJECTIVE_MS / 1e3, target=TARGET),
            market=Market.ON_DEMAND,
            offerings=(offering,),
            on_demand=(offering,),
            overflow=None,
            standby=None,
            history=history,
        ),
    )
    tuning = {"lead_min": LEAD_MIN, "cooldown_min": settings.cooldown_min}
    return tuned(bundle, tuning, Market.ON_DEMAND)


def history_of(job: str, rates: tuple[float, ...]) -> Demand:
    """The days before the run, which ends them at 0 s.

    Faro keeps counts of minutes; the windows of 5 s in them are drawn as its load generator spreads them.
    """
    rng = stream(1, f"windows {job}")
    units: list[DemandUnit] = []
    for i, rate in enumerate(rates):
        windows = rng.multinomial(round(rate * UNIT_S), np.full(WINDOWS_A_UNIT, 1.0 / WINDOWS_A_UNIT))
        units.append(unit_of_windows(UNIT_S * (i - len(rates)), windows.tolist()))
    return Demand(
        end_at=0.0,
        mean_rps=tuple(unit.mean_rps for unit in units)[-KEEP_HISTORY:],
        max_rps=tuple(unit.max_rps for unit in units)[-KEEP_HISTORY:],
    )


def forecaster_of(name: str, history: Demand, settings: Settings) -> Forecaster:
    """The forecaster of that name, having learned from the days before the run."""
    return build_forecaster(name, ForecasterSetup(history=history, seed=1, cache_dir=settings.cache))


def stand_in_for_nhits(faro: Faro, settings: Settings) -> None:
    """Give Faro's policies our forecasts: its repository lacks the weights of its N-HiTS models."""
    name = settings.forecaster or FORECAST_BY_DEFAULT
    rates = faro.training_rates()

    class DartsPredictor:
        """Counts of the minutes to come, at a quantile, in the shape of Faro's predictors."""

        def __init__(self, *, head_name: str, window_size_s: int, unit_time_s: int, **_: object) -> None:
            job = head_name.removesuffix("-ray-head")
            self.quantile = QUANTILE
            self._units = round(window_size_s / unit_time_s)
            self._history = history_of(job, rates[job])
            self._forecaster = forecaster_of(name, self._history, settings)

        def update_quantile(self, quantile: float) -> None:
            """Take another quantile."""
            self.quantile = quantile

        def predict(self, input_metrics: tuple[list[int], float] | None, current_ts: float) -> Any:
            """The counts of the units from now on."""
            counts = input_metrics[0] if input_metrics else []
            passed = round((current_ts - self._history.end_at) / UNIT_S)
            for count in ([0] * passed + list(counts))[len(counts) :]:
                unit = DemandUnit(
                    start_at=self._history.end_at,
                    count=count,
                    mean_rps=count / UNIT_S,
                    max_rps=count / UNIT_S,
                )
                self._history = self._history.followed_by(unit, KEEP_HISTORY)
            forecast = self._forecaster.forecast(self._history, self._units)
            rows = [np.interp(self.quantile, forecast.quantiles, row) for row in forecast.mean_rps]
            return np.clip(np.array(rows) * UNIT_S, 1.0, None)

    module = ModuleType("darts_predictor")
    module.DartsPredictor = DartsPredictor  # type: ignore[attr-defined]
    sys.modules["darts_predictor"] = module


if __name__ == "__main__":
    main()
