"""The verdict of replays of a model."""

from __future__ import annotations

from collections.abc import Sequence

from mark.policies.overrides import OWN_POLICIES
from mark.policies.present import SAGEMAKER, Present
from mark.report.runs.comparison import ComparedRun, headline_run, mean_rps
from mark.report.runs.rivals import a_month, usd_per_month
from mark.report.verdict import GuessedLambda, Verdict
from mark.report.verdict_options import PolicyFigures, options_of
from mark.simulator.results import RunResult


def verdict_of(runs: Sequence[ComparedRun], now: Present = SAGEMAKER) -> Verdict:
    """The verdict of the runs on the headline's load. Misconfigured when nothing ran."""
    lead = headline_run(runs)
    results = [run.result for run in runs if not run.result.uses_truth and _same_load(run, lead)]
    is_ours = lead.result.policy in OWN_POLICIES and lead.result in results
    rps, guess = mean_rps(lead.result), lead.result.lambda_guess
    return Verdict(
        slo=lead.result.slo,
        options=options_of(map(_figures, results), now=now, ours=_figures(lead.result) if is_ours else None),
        break_even_rps=lead.break_even_rps,
        mean_rps=rps,
        lambda_guess=None if guess is None or rps is None else GuessedLambda.of([(guess, rps, lead.result.slo)]),
        requests=lead.result.requests,
        is_assumed=bool(lead.result.assumed_profiles),
        around_usd_per_month=a_month(lead.result.cost.overhead, lead.result.duration_s) if is_ours else None,
    )


def _same_load(run: ComparedRun, lead: ComparedRun) -> bool:
    return (run.result.model, run.result.trace) == (lead.result.model, lead.result.trace)


def _figures(result: RunResult) -> PolicyFigures:
    asked = result.served.total > result.served.in_flight
    return PolicyFigures(
        policy=result.policy,
        usd_per_month=usd_per_month(result),
        attained=result.attained if asked else None,
        lacking=result.slo.target - result.attained,
    )
