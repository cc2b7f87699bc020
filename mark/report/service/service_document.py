"""The JSON of a service's replays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from mark.policies.present import SAGEMAKER, Present
from mark.report.formatting import cost_document, finite
from mark.report.runs.run_documents import AttainmentObject, served_document
from mark.report.service.service_verdict import service_replay_verdict, usd_per_month
from mark.report.verdict import VerdictObject, verdict_document
from mark.simulator.services.service_run import ModelRun, ServiceRun
from mark.simulator.services.shared_instances import SharedInstance


class ServiceModelObject(TypedDict):
    """One model of a service under a policy."""

    model: str
    requests: int
    slo: AttainmentObject
    #: Without shared instances and what stands around all fleets.
    cost_usd: dict[str, float | None]
    #: Requests by who answered: `instance`, `standby`, `lambda`, `shed`, `in_flight`.
    served: dict[str, int]
    #: Of its own, rented and ready, in the mean over time.
    instances_rented: float | None
    #: Requests that instances took which it shares with others.
    on_shared: int
    #: Its part of their rent, by the time that it took of their devices; not in `cost_usd`.
    shared_usd: float | None
    notes: list[str]


class StayObject(TypedDict):
    """One model on a shared instance."""

    model: str
    #: After the start of the run.
    from_s: float | None
    to_s: float | None


class SharedInstanceObject(TypedDict):
    """One shared instance while it was billed."""

    instance: str
    offering: str
    #: After the start of the run.
    from_s: float | None
    to_s: float | None
    #: Rent.
    usd: float | None
    #: Share of its time that its tenants were expected to take, in the mean.
    busy: float | None
    tenants: list[StayObject]


class ServiceRunObject(TypedDict):
    """A service under a policy."""

    policy: str
    duration_s: float | None
    cost_usd: dict[str, float | None]
    usd_per_month: float | None
    #: Of the total: instances that several models share, and what stands around all fleets.
    hosts_usd: float | None
    around_usd: float | None
    #: Of `hosts_usd`, what no model took: idle time, disks and addresses.
    idle_usd: float | None
    #: The account's commitments: their price less what they cover of the rest; 0 where it has none.
    commitments_usd: float | None
    #: Rented and ready for all models together, in the mean over time.
    instances_rented: float | None
    models: list[ServiceModelObject]
    #: Instances that several models share, and who was on them when.
    shared: list[SharedInstanceObject]


class ServiceSimulateDocument(TypedDict):
    """The document of `mark simulate --json` for a service of several models."""

    #: What to run; null where nothing ran.
    verdict: VerdictObject | None
    #: The least that serves every request at once with the traces known, in whole instances that models share,
    #: USD of serving; null where nothing can.
    reference_usd: float | None
    #: One run a policy.
    runs: list[ServiceRunObject]


def service_document(runs: Sequence[ServiceRun], now: Present = SAGEMAKER) -> ServiceSimulateDocument:
    """The verdict, then one object a run, in the given order."""
    return {
        "verdict": verdict_document(service_replay_verdict(runs, now)) if runs else None,
        "reference_usd": finite(runs[0].reference_usd) if runs else None,
        "runs": [service_run_document(run) for run in runs],
    }


def service_run_document(run: ServiceRun) -> ServiceRunObject:
    """The object of one run."""
    return {
        "policy": run.policy,
        "duration_s": finite(run.duration_s),
        "cost_usd": cost_document(run.cost),
        "usd_per_month": finite(usd_per_month(run)),
        "hosts_usd": finite(run.hosts_usd),
        "around_usd": finite(run.around_usd),
        "idle_usd": finite(run.idle_usd),
        "commitments_usd": finite(run.commitments_usd),
        "instances_rented": finite(run.instances_rented),
        "models": [_model(model) for model in run.models],
        "shared": [_shared(one) for one in run.shared],
    }


def _shared(one: SharedInstance) -> SharedInstanceObject:
    return {
        "instance": one.name,
        "offering": one.offering,
        "from_s": finite(one.from_s),
        "to_s": finite(one.to_s),
        "usd": finite(one.usd),
        "busy": finite(one.busy),
        "tenants": [
            {"model": stay.model, "from_s": finite(stay.from_s), "to_s": finite(stay.to_s)} for stay in one.stays
        ],
    }


def _model(model: ModelRun) -> ServiceModelObject:
    return {
        "model": model.model,
        "requests": int(model.served.total),
        "slo": {
            "latency_ms": round(model.slo.latency_s * 1000, 9),
            "target": finite(model.slo.target),
            "attained": finite(model.attained),
        },
        "cost_usd": cost_document(model.cost),
        "served": served_document(model.served),
        "instances_rented": finite(model.instances),
        "on_shared": model.on_shared,
        "shared_usd": finite(model.shared_usd),
        "notes": list(model.notes),
    }
