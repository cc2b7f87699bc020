"""The verdict on a service of several models, by replays of all of them."""

from __future__ import annotations

from collections.abc import Sequence

from mark.domain.figures import plural
from mark.policies.overrides import OWN_POLICIES
from mark.policies.present import SAGEMAKER, Present
from mark.report.runs.comparison import HEADLINE_POLICIES
from mark.report.runs.rivals import a_month
from mark.report.verdict import GuessedLambda, Verdict
from mark.report.verdict_options import PolicyFigures, options_of
from mark.simulator.services.service_run import ServiceRun


def lead_run(runs: Sequence[ServiceRun]) -> ServiceRun:
    """The run that the others are compared with: ours, else the cheapest."""
    for policy in HEADLINE_POLICIES:
        for run in runs:
            if run.policy == policy:
                return run
    return min(runs, key=lambda run: (run.cost.total, run.policy))


def usd_per_month(run: ServiceRun) -> float:
    """Total cost of a month (730 h) that is like the run."""
    return a_month(run.cost.total, run.duration_s)


def service_replay_verdict(runs: Sequence[ServiceRun], now: Present = SAGEMAKER) -> Verdict:
    """The verdict of the runs; there is one at least."""
    lead = lead_run(runs)
    ours = _figures(lead) if lead.policy in OWN_POLICIES else None
    return Verdict(
        slo=None,
        options=options_of(map(_figures, runs), now=now, ours=ours, our_words=f"MArk{_mix(lead)}"),
        lambda_guess=_guessed(lead),
        requests=sum(model.served.total for model in lead.models),
        is_assumed=any(model.is_assumed for model in lead.models),
        unsure=tuple(model.model for model in lead.models if model.served.total and not model.is_sure),
        around_usd_per_month=None if ours is None else a_month(lead.around_usd, lead.duration_s),
    )


def _guessed(run: ServiceRun) -> GuessedLambda | None:
    """Lambda for the models that nobody measured there; None where there is none."""
    found = {
        model.model: (model.lambda_guess, model.mean_rps, model.slo)
        for model in run.models
        if model.lambda_guess is not None
    }
    return GuessedLambda.of(tuple(found.values()), models=tuple(found)) if found else None


def _figures(run: ServiceRun) -> PolicyFigures:
    shares = [
        (model.slo.target, model.attained) for model in run.models if model.attained is not None and model.is_sure
    ]
    return PolicyFigures(
        policy=run.policy,
        usd_per_month=usd_per_month(run),
        attained=min((attained for _, attained in shares), default=None),
        lacking=max((target - attained for target, attained in shares), default=0.0),
    )


def _mix(run: ServiceRun) -> str:
    """` (14 models on Lambda, 6 together on 1 instance, 2 on instances of their own)`."""
    on_lambda = sum(model.is_on_lambda for model in run.models)
    together = sum(model.is_shared for model in run.models)
    hosts = max(1, round(run.hosts))
    told = (
        (on_lambda, "on Lambda"),
        (together, f"together on {plural(hosts, 'instance')}"),
        (len(run.models) - on_lambda - together, "on instances of their own" if together else "on instances"),
    )
    parts = [(count, where) for count, where in told if count]
    words = [f"{count if place else plural(count, 'model')} {where}" for place, (count, where) in enumerate(parts)]
    return f" ({', '.join(words)})"
