"""The verdict of replays: which run stands for which way to serve the load."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mark.policies.overrides import OWN_POLICIES
from mark.policies.present import SAGEMAKER, Present
from mark.report.runs.comparison import ComparedRun, headline_run, mean_rps
from mark.report.runs.rivals import best_run, keeps_objective, total_usd, usd_per_month
from mark.report.verdict import LAMBDA_ONLY, Option, Role, Verdict, usual_words
from mark.simulator.results import RunResult


def verdict_of(runs: Sequence[ComparedRun], now: Present = SAGEMAKER) -> Verdict:
    """The verdict of the runs on the headline's load. Misconfigured when nothing ran."""
    lead = headline_run(runs)
    results = [run.result for run in runs if not run.result.uses_truth and _same_load(run, lead)]
    found = (
        _now(results, now),
        _option(Role.TUNED, _tuned(results, now)),
        _option(Role.LAMBDA, _of(LAMBDA_ONLY, results) if now.policy != LAMBDA_ONLY else None),
        _option(Role.MARK, lead.result if lead.result.policy in OWN_POLICIES and lead.result in results else None),
    )
    return Verdict(
        slo=lead.result.slo,
        options=tuple(option for option in found if option is not None),
        break_even_rps=lead.break_even_rps,
        mean_rps=mean_rps(lead.result),
        lambda_guess=lead.lambda_guess,
        requests=lead.result.requests,
        is_assumed=bool(lead.result.assumed_profiles),
    )


def _of(policy: str, results: Iterable[RunResult]) -> RunResult | None:
    return next((one for one in results if one.policy == policy), None)


def _same_load(run: ComparedRun, lead: ComparedRun) -> bool:
    return (run.result.model, run.result.trace) == (lead.result.model, lead.result.trace)


def _now(results: Iterable[RunResult], now: Present) -> Option | None:
    if not now.policy:
        return Option.told(now.words, now.usd_per_month)
    return _option(Role.NOW, _of(now.policy, results), now.words)


def _tuned(results: Iterable[RunResult], now: Present) -> RunResult | None:
    """The best of what somebody else could have built."""
    others = {*OWN_POLICIES, LAMBDA_ONLY, now.policy}
    return best_run([one for one in results if one.policy not in others], total_usd)


def _option(role: Role, result: RunResult | None, words: str = "") -> Option | None:
    if result is None:
        return None
    asked = result.served.total > result.served.in_flight
    return Option(
        role=role,
        words=words or usual_words(role, result.policy),
        policy=result.policy,
        usd_per_month=usd_per_month(result),
        attained=result.attained if asked else None,
        keeps_objective=keeps_objective(result),
    )
