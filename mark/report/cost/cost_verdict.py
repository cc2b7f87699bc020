"""A service beside what would have served the same requests: replays of its days, and the verdict of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mark.policies.present import SAGEMAKER, Present
from mark.report.cost.cost_report import CostReport, ModelReport
from mark.report.runs.rivals import MONTH_S, best_of
from mark.report.verdict import Verdict
from mark.report.verdict_options import PolicyFigures, options_of


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
    return best_of(
        service_baselines(report),
        lacking=lambda one: one.lacking,
        usd=lambda one: one.usd,
        name=lambda one: one.policy,
    )


def service_verdict(report: CostReport) -> Verdict | None:
    """The verdict on a service's own load, by the replays of its days; None without any."""
    found = service_baselines(report)
    if not found or not report.models:
        return None
    return Verdict(
        slo=report.models[0].slo,
        options=options_of(map(_figures, found), now=_now(report), ours=_measured(report, found[0])),
    )


def _now(report: CostReport) -> Present:
    """The fleet that serves where a service only observes it, else SageMaker as its users set it up."""
    if report.existing_usd is None:
        return SAGEMAKER
    usd_per_month = report.existing_usd / (report.until - report.since) * MONTH_S
    return Present(words="the fleet that serves now", usd_per_month=usd_per_month)


def _measured(report: CostReport, beside: ServiceBaseline) -> PolicyFigures:
    """The service itself, over the time that `beside` was replayed."""
    pairs = [(model, one) for model in report.models for one in model.baselines if one.policy == beside.policy]
    return PolicyFigures(
        policy=report.models[0].policy,
        usd_per_month=beside.measured_usd / beside.replayed_s * MONTH_S,
        attained=beside.measured_attained,
        lacking=max(_lacking(model, one.measured_attained) for model, one in pairs),
    )


def _figures(found: ServiceBaseline) -> PolicyFigures:
    return PolicyFigures(
        policy=found.policy,
        usd_per_month=found.usd / found.replayed_s * MONTH_S,
        attained=found.attained,
        lacking=found.lacking,
    )


def _lacking(model: ModelReport, attained: float | None) -> float:
    return 0.0 if attained is None else model.slo.target - attained


def _least(shares: Iterable[float | None]) -> float | None:
    return min((share for share in shares if share is not None), default=None)
