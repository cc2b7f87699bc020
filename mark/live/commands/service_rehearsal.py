"""A rehearsal of a service of several models: a slice of their traces, live and beside it replayed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mark.config.settings import Settings
from mark.controller.hosts.placement_journal import (
    PlacementDecision,
    PlacementHeader,
    PlacementJournal,
    read_placements,
)
from mark.domain.demand import UNIT_S
from mark.domain.fleet.host_spec import SHARED
from mark.live.commands.rehearsal import drive
from mark.live.commands.up import service_up
from mark.live.local.running import Running
from mark.live.status.watch import view_of
from mark.offline.experiments import warm_engine
from mark.offline.service_members import check_same_span, replay_members, service_members
from mark.offline.workloads import each_seeded
from mark.report.live.service_rehearsal import ServiceComparison, placed_by_tick
from mark.report.live.service_status import ServiceStatus
from mark.report.terminal import note, progress
from mark.simulator.services.service_replay import ServiceJournals
from mark.simulator.services.service_run import ServiceRun
from mark.store.connect import connect
from mark.store.service import ServiceStore


class DecisionLog(list[PlacementDecision]):
    """A journal of placements that keeps its lines."""

    @contextmanager
    def open(self, _header: PlacementHeader) -> Iterator[PlacementJournal]:
        """Begin."""
        yield self


def rehearse_service(settings: Settings, *, show_live: bool = True) -> ServiceComparison:
    """Replay the slice that the settings describe, then drive it through the live service.

    Misconfigured where the models' slices differ.
    """
    replay, replayed = replay_slice(settings)
    with service_up(settings, hold=True) as running:
        began_at = ServiceStore(connect(running.store), running.name).clock().service_at
        loads = drive(running, [own for own, _ in each_seeded(settings)], show_live=show_live)
        status = view_of(running).status(until=began_at + replay.duration_s)
        decisions = live_decisions(running)
    ticks = round(replay.duration_s / UNIT_S)
    here = placed_by_tick(decisions, began_at, ticks)
    there = placed_by_tick(replayed, replayed[0].at if replayed else 0.0, ticks)
    parts = _live_parts(status)
    return ServiceComparison(
        total_usd=(sum(parts.values()), replay.cost.total),
        parts_usd={name: (parts[name], usd) for name, usd in _replayed_parts(replay).items()},
        attained={
            run.model: (load["attained"] or 0.0, run.attained or 0.0)
            for load, run in zip(loads, replay.models, strict=True)
        },
        placed=tuple(zip(here, there, strict=True)),
    )


def replay_slice(settings: Settings) -> tuple[ServiceRun, list[PlacementDecision]]:
    """The replay of the slice, and who was to share instances in it."""
    members = service_members(settings)
    check_same_span(members)
    log = DecisionLog()
    with progress() as report:
        warm_engine(members[0].experiment, report)
        run, _ = replay_members(
            settings,
            members,
            settings.policies[0],
            journals=ServiceJournals(open_placements=log.open),
            progress=report,
        )
    return run, log


def live_decisions(running: Running) -> list[PlacementDecision]:
    """Those of the live controllers, one after the other, from their journal."""
    store = ServiceStore(connect(running.store), running.name)
    segments = (store.journal_lines(SHARED, segment) for segment in store.journal_segments(SHARED))
    read = (read_placements(lines, skip=lambda line: note(line.words))[1] for lines in segments)
    return [decision for decisions in read for decision in decisions]


def _live_parts(status: ServiceStatus) -> dict[str, float]:
    """The bill by what is compared, USD."""
    models = {model.name: model.cost_usd.total for model in status.models}
    shared_usd = 0.0 if status.shared is None else status.shared.cost_usd.total
    return {**models, "shared instances": shared_usd, "around all": status.overhead.usd}


def _replayed_parts(run: ServiceRun) -> dict[str, float]:
    models = {model.model: model.cost.total for model in run.models}
    return {**models, "shared instances": run.hosts_usd, "around all": run.around_usd + run.commitments_usd}
