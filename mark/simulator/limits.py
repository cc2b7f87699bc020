"""Limits that a run hit: a figure that a quota has shaped carries a note."""

from __future__ import annotations

from collections.abc import Iterator

from mark.controller.policy import ControllerPolicy
from mark.controller.runner import Journal
from mark.controller.state import Decision, NoteKind, Observation
from mark.domain.billing.footprint import Gateways
from mark.domain.figures import figure
from mark.domain.fleet.instances import FleetView
from mark.simulator.results import RunResult

SHED_SHARE = 0.001
"""Share of shed requests from which on a run carries a note."""


class LimitWatch:
    """Passes ticks on to the journal and counts those at which the limit of instances cut what was wanted."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.fleet_full = 0

    def append(self, before: FleetView, seen: Observation, decision: Decision) -> None:
        """Pass one tick on."""
        self._journal.append(before, seen, decision)
        self.fleet_full += any(note.kind is NoteKind.INSTANCE_LIMIT for note in decision.notes)


def limit_notes(
    result: RunResult, policy: ControllerPolicy, watch: LimitWatch, gateways: Gateways
) -> tuple[str, ...]:
    """One sentence for each limit that was hit."""
    return (*_limit_notes(result, policy, watch), *_gateway_notes(result, gateways))


def _gateway_notes(result: RunResult, gateways: Gateways) -> Iterator[str]:
    """Note where the load takes more of them than are deployed, or can be."""
    most = gateways.count if gateways.most is None else gateways.most
    if result.gateways is None or result.gateways <= most:
        return
    if gateways.most is None:
        remedy = "are deployed: set rollout.peak_rps to the highest rate of all models"
    else:
        remedy = "are deployed at most: take rollout.shape: ha, or a larger rollout.node.instance_type"
    yield f"the load takes {result.gateways} {gateways.name}, and {most} {remedy}"


def _limit_notes(result: RunResult, policy: ControllerPolicy, watch: LimitWatch) -> Iterator[str]:
    overflow = policy.overflow
    if result.throttled and overflow is not None:
        yield (
            f"Lambda refused {result.throttled:,} call{'' if result.throttled == 1 else 's'}: "
            f"a model may have {overflow.concurrency:,} at once, "
            f"or {overflow.burst:,} new environments in {overflow.burst_window_s:g} s"
        )
    if watch.fleet_full:
        yield f"the limit of {policy.max_instances:,} instances cut what was wanted ({watch.fleet_full} times)"
    if result.refusals:
        yield f"EC2 refused {result.refusals:,} launch{'' if result.refusals == 1 else 'es'}"
    shed = result.served.shed / result.requests if result.requests else 0.0
    if shed > SHED_SHARE:
        yield f"sheds {figure(shed * 100, digits=2)} %, more than {SHED_SHARE * 100:g} %"
