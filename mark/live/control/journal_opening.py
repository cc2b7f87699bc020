"""Opening of a model's journal at a takeover: folded, continued under another policy, or begun anew.

It goes on in the last segment where all of that can be read and was written under the policy of today, in the
form of today. Where the settings have changed, or the form, a segment follows whose header has the policy of today
and all that the fold gave. Where a line
cannot be read, the segments are left as they are, and one follows that begins with the demand and the age that the
readable lines tell; it has a run of its own, so that none of its orders bears the token of one that nobody knows.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from mark.aws.account.quotas import read_quotas
from mark.aws.session import Aws
from mark.config.footprint import front_machines
from mark.config.served import served_models
from mark.config.settings import Settings
from mark.controller.hosts.placement_journal import Decided, decided, read_placements
from mark.controller.journal import BrokenLine, Header, Tick, header_line, read_journal, same_policy
from mark.controller.recovery import Recovered, checkpoint_of, continue_under, recover, salvage, start_anew
from mark.domain.demand import KEEP_HISTORY, Demand
from mark.domain.errors import Misconfigured
from mark.domain.fleet.host_spec import SHARED
from mark.domain.fleet.lease import Lease
from mark.domain.offerings.quota import Quotas, quotas_beside
from mark.live.background.archive import may_drop
from mark.live.models import LiveModel
from mark.store.journal import StoreJournal
from mark.store.published_status import MODEL
from mark.store.service import ServiceStore

log = logging.getLogger(__name__)

Read = Callable[[Iterable[Tick]], Iterator[Tick]]
"""Passes the ticks on, noting on the way what it needs of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedJournal:
    """A model's journal, and where the controller before us stopped."""

    header: Header
    journal: StoreJournal
    recovered: Recovered | None
    history: Demand
    began_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A segment that was read: `is_whole` where it is the last one and no line of it is broken."""

    header: Header
    recovered: Recovered | None
    is_whole: bool


def open_journal(
    model: LiveModel,
    settings: Settings,
    *,
    store: ServiceStore,
    lease: Lease,
    now: float,
    read: Read,
    quotas: Callable[[], Quotas | None],
) -> OpenedJournal:
    """The journal to write to. LeaseLost where another controller acts.

    quotas: asks for what is left of the account's; where it is told none, those of the segment before stay.
    """

    def opened(header: Header) -> StoreJournal:
        return store.open_journal(
            model.name, header_line(header), lease, may_drop=lambda segment: may_drop(store, model.name, segment)
        )

    if not store.journal_segments(model.name):
        header = _new_header(model, settings, now, quotas() or ())
        journal = opened(header)
        return _opened(model, header, journal, None)
    found = _read_last(store, model.name, read)
    if found is not None and found.is_whole:
        header, recovered = found.header, found.recovered
        journal = opened(header)
        today = replace(model.bundle.controller, quotas=header.policy.quotas)
        if same_policy(header.policy, today):
            return _opened(model, header, journal, recovered)
        log.info(
            "the settings or this program are new: the journal goes on in a new segment",
            extra={"model": model.name},
        )
        recovered, run = recovered and continue_under(recovered, today), header.run
    else:
        recovered, run = _start_anew(store, model.name, found), uuid.uuid4().hex
        why = "the journal begins anew: some of it cannot be read"
        log.warning(why, extra={"model": model.name, "run": run})
    read_now = quotas()
    header = replace(_new_header(model, settings, now, _known(found) if read_now is None else read_now), run=run)
    if recovered is not None:
        history = header.history if found is None else _history(model, found.header, recovered)
        recovered = replace(recovered, units=())
        header = replace(header, history=history, checkpoint=checkpoint_of(recovered))
    journal = opened(header)
    journal.rotate(header_line(header))
    return _opened(model, header, journal, recovered)


def _read_last(store: ServiceStore, model: str, read: Read) -> _Found | None:
    """The last segment whose header can be read, and what there is in it; None: no header can."""
    segments = store.journal_segments(model)
    for number in reversed(segments):
        broken: list[BrokenLine] = []
        try:
            header, ticks = read_journal(store.journal_lines(model, number), skip=broken.append)
        except Misconfigured as error:
            _warn(model, number, str(error))
            continue
        listed = list(read(ticks))
        for line in broken:
            _warn(model, number, line.words)
        whole = number == segments[-1] and not broken
        recovered = recover(header, listed) if whole else salvage(header, listed)
        return _Found(header=header, recovered=recovered, is_whole=whole)
    return None


def last_decided(store: ServiceStore) -> Decided:
    """The last decision of the journal of placements, from its last segment whose header can be read."""
    for number in reversed(store.journal_segments(SHARED)):
        broken: list[BrokenLine] = []
        try:
            found = decided(*read_placements(store.journal_lines(SHARED, number), skip=broken.append))
        except Misconfigured as error:
            _warn(SHARED, number, str(error))
            continue
        for line in broken:
            _warn(SHARED, number, line.words)
        return found
    return Decided()


def _warn(model: str, segment: int, why: str) -> None:
    log.warning(
        "an unreadable part of the journal is left out",
        extra={"model": model, "segment": segment, "why": why},
    )


def _start_anew(store: ServiceStore, model: str, found: _Found | None) -> Recovered | None:
    """Salvage what can be read; without any journal the age is that of the last status."""
    if found is not None and found.recovered is not None:
        return found.recovered
    told = MODEL.read(store, model)
    return None if told is None or told.began_at is None else start_anew(told.began_at)


def _known(found: _Found | None) -> Quotas:
    """The account's quotas as a segment knew them last."""
    if found is None:
        return ()
    read = found.recovered.state.quotas if found.recovered else None
    return found.header.policy.quotas if read is None else read


def _history(model: LiveModel, header: Header, recovered: Recovered | None) -> Demand:
    """All demand that is known where the journal stopped.

    The header's is what the model's own fleet was to carry then; where it is cut short, today's is longer.
    """
    is_whole = header.checkpoint or len(header.history) >= len(model.setup.history)
    before = header.history if is_whole else model.history(header.history.end_at)
    return recovered.history(before, KEEP_HISTORY) if recovered else before


def _opened(model: LiveModel, header: Header, journal: StoreJournal, recovered: Recovered | None) -> OpenedJournal:
    history = _history(model, header, recovered)
    return OpenedJournal(
        header=header,
        journal=journal,
        recovered=recovered,
        history=history,
        began_at=recovered.first_at if recovered else history.end_at,
    )


def fleet_quotas(aws: Aws, settings: Settings) -> Quotas:
    """The account's vCPU quotas, less what the machines before the fleet take. Errors as AWS has them."""
    front = front_machines(settings, models=len(served_models(settings)))
    return quotas_beside(read_quotas(aws), front.instance_type.name, front.vcpus)


def _new_header(model: LiveModel, settings: Settings, now: float, quotas: Quotas) -> Header:
    bundle = model.bundle
    trace = settings.trace.file
    return Header(
        policy=replace(bundle.controller, quotas=quotas),
        catalogue=f"{model.prices.region} {model.prices.date}",
        seed=settings.seed,
        history=model.history(now).last(bundle.controller.history_units),
        dispatch=bundle.dispatch,
        forecaster=bundle.forecaster,
        model=model.name,
        trace="live" if trace is None else f"live after {Path(trace).name}",
        market=bundle.controller.offerings[0].market.value if bundle.controller.offerings else "",
        run=uuid.uuid4().hex,
    )
