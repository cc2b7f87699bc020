"""The spending limit of a live service: set by its budget, or by a pause (`mark pause`), here or from outside."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from mark.accounting.budget import (
    Budget,
    MonthSpend,
    Verdict,
    day_start,
    judge,
    month_spend,
    month_start,
    spent_usd,
)
from mark.accounting.commitments import commitment_lines, month_commitments
from mark.accounting.hourly_spend import bill_at, hour_edges, spend_by_hour
from mark.accounting.hourly_totals import HourlyMark, first_mark, load_marks, marks_key
from mark.accounting.ledger import unpriced, unpriced_words, usage_before
from mark.accounting.model_ledger import ModelLedger
from mark.accounting.usage import IncrementalUsage
from mark.catalog.commitment_bill import COVERED, FREE_CAPACITY, UNUSED, USED
from mark.config.budget import BudgetSettings
from mark.domain.billing.costs import FleetUsage, Transition
from mark.domain.billing.footprint import Footprint
from mark.domain.billing.spending import LimitCause, OutsidePause, SpendingLimit
from mark.domain.commitments.owned import NO_COMMITMENTS, Commitments
from mark.domain.errors import RetryLater
from mark.live.clock import ServiceClock
from mark.service_spec import ServedModel
from mark.store.published_status import (
    BUDGET,
    MODEL,
    OUTSIDE_PAUSE,
    PAUSE,
    SPEND,
    BudgetStatus,
    CommitmentSpend,
    OutsidePauseStatus,
    PublishedModel,
    SpendHistory,
)
from mark.store.service import ServiceStore

log = logging.getLogger(__name__)

POLL_S = 1.0
"""Real seconds between two polls of the pause."""
SPENDING_EACH_S = 20.0
"""Real seconds between two computations of the spending."""


class BudgetWatch:
    """Polls spending and the pause on a thread of its own; `spending_limit` is the last result."""

    def __init__(
        self,
        asked: BudgetSettings,
        served: Sequence[ServedModel],
        *,
        footprint: Footprint | None,
        commitments: Callable[[], Commitments] = lambda: NO_COMMITMENTS,
        store: ServiceStore,
        clock: ServiceClock,
        outside: Callable[[], OutsidePauseStatus | None],
        wake: Callable[[], None],
    ) -> None:
        """`outside`: the process's last answer about a pause from outside; `wake`: told of another limit.

        `commitments`: those of the account as they were last read.
        """
        self._budget = Budget(
            daily_usd=asked.daily_usd, monthly_usd=asked.monthly_usd, when_reached=asked.when_reached
        )
        self._served, self._store, self._clock, self._wake = served, store, clock, wake
        self._footprint, self._outside, self._commitments = footprint, outside, commitments
        self._verdict = Verdict()
        self._day_usd, self._month = 0.0, MonthSpend()
        self._committed: CommitmentSpend | None = None
        self._commitments_usd = 0.0
        self._polls = 0
        self._edges: tuple[float, ...] = ()
        self._unpriced: dict[str, tuple[str, ...]] = {}
        self._usage = {model.name: IncrementalUsage() for model in served}

    def spending_limit(self) -> SpendingLimit:
        """The limit as last polled."""
        return self._verdict.spending_limit

    def run(self, over: threading.Event) -> None:
        """Poll until `over` is set; while the store is unreachable the last limit stays."""
        while not over.wait(POLL_S):
            try:
                self.poll()
            except RetryLater as error:
                log.warning(
                    "spending cannot be computed while the store is unreachable", extra={"why": str(error)}
                )

    def poll(self) -> None:
        """Poll once and publish the result."""
        if self._polls % round(SPENDING_EACH_S / POLL_S) == 0:
            self._compute_spending()
        self._polls += 1
        verdict = judge(self._budget, day_usd=self._day_usd, month_usd=self._month.usd)
        outside = self._paused_outside()
        if outside is not None:
            verdict = _paused(verdict, LimitCause.OUTSIDE, outside.reason)
        paused = PAUSE.read(self._store)
        if paused is not None and paused.on:
            verdict = _paused(verdict, LimitCause.PAUSE, "paused by hand")
        before, self._verdict = self._verdict, verdict
        BUDGET.write(self._store, self._document())
        if verdict.reasons != before.reasons:
            log.warning(
                "the spending limit has changed",
                extra={"limit": verdict.spending_limit.value, "why": "; ".join(verdict.reasons)},
            )
        if verdict.spending_limit is not before.spending_limit:
            self._wake()

    def _paused_outside(self) -> OutsidePause | None:
        """The pause from outside by the last answer: where this process had none, the one that the store keeps."""
        kept, answer = OUTSIDE_PAUSE.read(self._store), self._outside()
        if answer is None:
            return None if kept is None else kept.pause
        if answer != (kept or OutsidePauseStatus()):
            OUTSIDE_PAUSE.write(self._store, answer)
        return answer.pause

    def _compute_spending(self) -> None:
        now = self._clock.now()
        ledgers = [self._ledger(served, now) for served in self._served]
        self._warn_of_unpriced(ledgers, now)
        self._day_usd = spent_usd(ledgers, day_start(now), now)
        self._month = month_spend(ledgers, now)
        self._committed = self._commitment_spend(ledgers, now)
        self._commitments_usd = sum(line.usd for line in commitment_lines(ledgers, now))
        self._publish_hours(ledgers, now)

    def _commitment_spend(self, ledgers: Sequence[ModelLedger], now: float) -> CommitmentSpend | None:
        """This month's, since the service began at most."""
        began_at = min((ledger.began_at for ledger in ledgers), default=now)
        usd = month_commitments(ledgers, max(began_at, month_start(now)), now)
        if not usd:
            return None
        unused_usd = usd[UNUSED] + usd.get(FREE_CAPACITY, 0.0)
        return CommitmentSpend(
            paid_usd=usd[USED] + unused_usd,
            used_usd=usd[USED],
            unused_usd=unused_usd,
            covered_usd=usd[COVERED],
        )

    def _publish_hours(self, ledgers: Sequence[ModelLedger], now: float) -> None:
        """Publish the spending of each hour that has ended, once an hour.

        All bills are made anew: each begins with the first mark that is kept, so only those of one moment compare.
        """
        began_at = min((ledger.began_at for ledger in ledgers), default=now)
        edges = hour_edges(began_at, now)
        if edges == self._edges:
            return
        plain = [replace(ledger, used=usage_before) for ledger in ledgers]  # the others' caches keep few instants
        SPEND.write(self._store, SpendHistory(hours=spend_by_hour({at: bill_at(plain, at) for at in edges})))
        self._edges = edges

    def _warn_of_unpriced(self, ledgers: Sequence[ModelLedger], now: float) -> None:
        """Say once which offerings have no price: what they cost is part of no budget."""
        found = {one.served.name: unpriced(one.served, one.usage(now).usages) for one in ledgers}
        for model, names in found.items():
            if names != self._unpriced.get(model, ()):
                log.warning(
                    "offerings without a price are left out of the budget",
                    extra={"model": model, "why": unpriced_words(names)},
                )
        self._unpriced = found

    def _ledger(self, served: ServedModel, now: float) -> ModelLedger:
        """The model's ledger for its bill, with a mark of this instant."""
        store, name = self._store, served.name
        began_at = (MODEL.read(store, name) or PublishedModel()).began_at
        marks = load_marks(store.status(marks_key(name))) or (first_mark(now if began_at is None else began_at),)
        traffic, last = store.traffic(name), marks[-1]
        totals = replace(last.totals, billed=traffic.billed, gib_s=traffic.gib_s)
        here = HourlyMark(at=now, counted_to=last.counted_to, peak_rps=last.peak_rps, totals=totals)
        return ModelLedger(
            served=served,
            record=store.ledger(name),
            marks=(*marks, here),
            footprint=self._with_commitments(),
            used=self._used(name, now),
        )

    def _with_commitments(self) -> Footprint | None:
        """The footprint with the account's commitments of now."""
        footprint = self._footprint
        return footprint and replace(footprint, commitments=self._commitments())

    def _used(self, name: str, now: float) -> Callable[[tuple[Transition, ...], float], FleetUsage]:
        """The function that counts its usage: day and month begin at instants that are asked for again."""
        usage = self._usage[name]
        return lambda transitions, at: (usage.before if at == now else usage.before_past)(transitions, at)

    def _document(self) -> BudgetStatus:
        return BudgetStatus(
            day_usd=self._day_usd,
            month_usd=self._month.usd,
            month_projected_usd=self._month.projected_usd,
            daily_usd=self._budget.daily_usd,
            monthly_usd=self._budget.monthly_usd,
            when_reached=self._budget.when_reached,
            limited_by=self._verdict.spending_limit,
            limit_cause=self._verdict.cause,
            reasons=self._verdict.reasons,
            commitments=self._committed,
            commitments_usd=self._commitments_usd,
        )


def _paused(verdict: Verdict, cause: LimitCause, reason: str) -> Verdict:
    """The verdict of a service that is paused besides."""
    return Verdict(spending_limit=SpendingLimit.PAUSE, cause=cause, reasons=(reason, *verdict.reasons))
