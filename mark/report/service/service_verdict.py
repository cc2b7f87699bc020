"""The verdict on a service of several models, by replays of all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mark.domain.figures import plural
from mark.policies.overrides import OWN_POLICIES
from mark.policies.present import SAGEMAKER, Present
from mark.report.runs.comparison import HEADLINE_POLICIES
from mark.report.runs.rivals import MONTH_S, best_of
from mark.report.verdict import LAMBDA_ONLY, Option, Role, Verdict, usual_words
from mark.simulator.service_run import ServiceRun


def lead_run(runs: Sequence[ServiceRun]) -> ServiceRun:
    """The run that the others are compared with: ours, else the cheapest."""
    for policy in HEADLINE_POLICIES:
        for run in runs:
            if run.policy == policy:
                return run
    return min(runs, key=lambda run: (run.cost.total, run.policy))


def usd_per_month(run: ServiceRun) -> float:
    """Total cost of a month (730 h) that is like the run."""
    return run.cost.total / run.duration_s * MONTH_S


def service_replay_verdict(runs: Sequence[ServiceRun], now: Present = SAGEMAKER) -> Verdict:
    """The verdict of the runs; there is one at least."""
    lead = lead_run(runs)
    by_policy = {run.policy: run for run in runs}
    others = [run for run in runs if run.policy not in {*OWN_POLICIES, LAMBDA_ONLY, now.policy}]
    found = (
        _now(by_policy, now),
        _option(Role.TUNED, _best(others)),
        _option(Role.LAMBDA, by_policy.get(LAMBDA_ONLY) if now.policy != LAMBDA_ONLY else None),
        _option(Role.MARK, lead if lead.policy in OWN_POLICIES else None, f"MArk{_mix(lead)}"),
    )
    return Verdict(
        slo=None,
        options=tuple(option for option in found if option is not None),
        requests=sum(model.served.total for model in lead.models),
    )


def _now(by_policy: dict[str, ServiceRun], now: Present) -> Option | None:
    if not now.policy:
        return Option.told(now.words, now.usd_per_month)
    return _option(Role.NOW, by_policy.get(now.policy), now.words)


def _best(runs: Iterable[ServiceRun]) -> ServiceRun | None:
    return best_of(
        runs,
        lacking=lambda run: 0.0 if run.keeps_objectives else 1.0,
        usd=lambda run: run.cost.total,
        name=lambda run: run.policy,
    )


def _option(role: Role, run: ServiceRun | None, words: str = "") -> Option | None:
    if run is None:
        return None
    return Option(
        role=role,
        words=words or usual_words(role, run.policy),
        policy=run.policy,
        usd_per_month=usd_per_month(run),
        attained=min((one.attained for one in run.models if one.attained is not None), default=None),
        keeps_objective=run.keeps_objectives,
    )


def _mix(run: ServiceRun) -> str:
    """` (14 models on Lambda, 6 on instances)`."""
    on_lambda = sum(model.is_on_lambda for model in run.models)
    rented = len(run.models) - on_lambda
    parts = [f"{plural(on_lambda, 'model')} on Lambda"] if on_lambda else []
    if rented:
        parts.append(f"{rented if parts else plural(rented, 'model')} on instances")
    return f" ({', '.join(parts)})"
