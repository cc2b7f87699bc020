"""A service beside what would have served the same requests: replays of its days, and the verdict of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mark.policies.present import SAGEMAKER
from mark.report.cost.cost_report import CostReport, ModelReport
from mark.report.runs.rivals import MONTH_S, best_of
from mark.report.verdict import LAMBDA_ONLY, Option, Role, Verdict, usual_words


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceBaseline:
    """One policy for all models of a service: its cost, ours of the same time, that time, what kept."""

    policy: str
    usd: float
    measured_usd: float
    replayed_s: float
    #: By how much it missed an objective at most; 0 where it kept them all.
    lacking: float
    #: Share of the requests of all models in time, replayed and measured; None where nothing came.
    attained: float | None
    measured_attained: float | None

    @property
    def kept(self) -> bool:
        """True where it kept every model's objective."""
        return self.lacking <= 0.0


def service_baselines(report: CostReport) -> tuple[ServiceBaseline, ...]:
    """The policies that were replayed for every model, without our own and what knew the load to come."""
    own = {model.policy for model in report.models}
    names = {one.policy for model in report.models for one in model.baselines if not one.uses_truth}
    found = []
    for policy in sorted(names - own):
        pairs = [(model, one) for model in report.models for one in model.baselines if one.policy == policy]
        usd = sum(one.usd for _, one in pairs)
        if usd <= 0 or len(pairs) != len(report.models):
            continue
        found.append(
            ServiceBaseline(
                policy=policy,
                usd=usd,
                measured_usd=sum(one.measured_usd for _, one in pairs),
                replayed_s=max(one.replayed_s for _, one in pairs),
                lacking=max(_lacking(model, one.attained) for model, one in pairs),
                attained=_least(one.attained for _, one in pairs),
                measured_attained=_least(one.measured_attained for _, one in pairs),
            )
        )
    return tuple(found)


def nearest_baseline(report: CostReport) -> ServiceBaseline | None:
    """The cheapest baseline that kept every model's objective, else the one that attained most."""
    return _best(service_baselines(report))


def service_verdict(report: CostReport) -> Verdict | None:
    """The verdict on a service's own load, by the replays of its days; None without any."""
    found = {one.policy: one for one in service_baselines(report)}
    tuned = _best(one for name, one in found.items() if name not in (SAGEMAKER.policy, LAMBDA_ONLY))
    any_of = next(iter(found.values()), None)
    if any_of is None or not report.models:
        return None
    kept = all(
        _lacking(model, one.measured_attained) <= 0
        for model in report.models
        for one in model.baselines
        if one.policy == any_of.policy
    )
    ours = Option(
        role=Role.MARK,
        words=usual_words(Role.MARK, ""),
        policy=report.models[0].policy,
        usd_per_month=any_of.measured_usd / any_of.replayed_s * MONTH_S,
        attained=any_of.measured_attained,
        keeps_objective=kept,
    )
    options = (
        _now(report, found.get(SAGEMAKER.policy)),
        _option(Role.TUNED, tuned),
        _option(Role.LAMBDA, found.get(LAMBDA_ONLY)),
        ours,
    )
    return Verdict(slo=report.models[0].slo, options=tuple(one for one in options if one is not None))


def _now(report: CostReport, sagemaker: ServiceBaseline | None) -> Option | None:
    """The fleet that serves where a service only observes it, else SageMaker as its users set it up."""
    if report.existing_usd is None:
        return _option(Role.NOW, sagemaker, SAGEMAKER.words)
    usd_per_month = report.existing_usd / (report.until - report.since) * MONTH_S
    return Option.told("the fleet that serves now", usd_per_month)


def _option(role: Role, found: ServiceBaseline | None, words: str = "") -> Option | None:
    if found is None:
        return None
    return Option(
        role=role,
        words=words or usual_words(role, found.policy),
        policy=found.policy,
        usd_per_month=found.usd / found.replayed_s * MONTH_S,
        attained=found.attained,
        keeps_objective=found.kept,
    )


def _best(found: Iterable[ServiceBaseline]) -> ServiceBaseline | None:
    return best_of(found, lacking=lambda one: one.lacking, usd=lambda one: one.usd, name=lambda one: one.policy)


def _lacking(model: ModelReport, attained: float | None) -> float:
    return 0.0 if attained is None else model.slo.target - attained


def _least(shares: Iterable[float | None]) -> float | None:
    return min((share for share in shares if share is not None), default=None)
