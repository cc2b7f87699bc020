"""What is held back from a live service: by its budget, or because somebody paused it (`mark pause`)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from mark.accounting.budget import Budget, Verdict, day_start, judge, month_start, spent_usd
from mark.accounting.daily_costs import ModelLedger
from mark.accounting.hourly_totals import TallyMark, book_marks, book_name, first_mark
from mark.accounting.ledger import FleetUsage, unpriced, unpriced_words
from mark.accounting.usage import UsageBook
from mark.config.budget import BudgetSettings
from mark.controller.service import ServedModel
from mark.controller.spending_limit import SpendingLimit
from mark.domain.costs import Transition
from mark.domain.errors import RetryLater
from mark.live.clock import ServiceClock
from mark.store.service import ServiceStore
from mark.telemetry.status_document import BUDGET, MODEL, PAUSE, BudgetStatus, PublishedModel

log = logging.getLogger(__name__)

LOOK_S = 1.0
"""How often the acting controller looks whether it was paused."""
RECKON_S = 20.0
"""How often it reckons what was spent."""


class RestraintWatch:
    """Looks again and again, on a thread of its own; `restraint` is what it saw last."""

    def __init__(
        self,
        asked: BudgetSettings,
        served: Sequence[ServedModel],
        *,
        store: ServiceStore,
        clock: ServiceClock,
        wake: Callable[[], None],
    ) -> None:
        """`wake` is called when something else is held back than before."""
        self._budget = Budget(
            daily_usd=asked.daily_usd, monthly_usd=asked.monthly_usd, when_reached=asked.when_reached
        )
        self._served, self._store, self._clock, self._wake = served, store, clock, wake
        self._verdict = Verdict(restraint=SpendingLimit.NONE, reasons=())
        self._day_usd = self._month_usd = 0.0
        self._looks = 0
        self._unpriced: dict[str, tuple[str, ...]] = {}
        self._books = {model.name: UsageBook() for model in served}

    def restraint(self) -> SpendingLimit:
        """What is held back."""
        return self._verdict.restraint

    def run(self, over: threading.Event) -> None:
        """Look until it is over; where the store is away, what was seen last stays."""
        while not over.wait(LOOK_S):
            try:
                self.look()
            except RetryLater as error:
                log.warning("what is spent is not known", extra={"why": str(error)})

    def look(self) -> None:
        """Look once, and tell everybody."""
        if self._looks % round(RECKON_S / LOOK_S) == 0:
            self._reckon()
        self._looks += 1
        verdict = judge(self._budget, day_usd=self._day_usd, month_usd=self._month_usd)
        paused = PAUSE.read(self._store)
        if paused is not None and paused.on:
            verdict = Verdict(restraint=SpendingLimit.PAUSE, reasons=("paused by hand", *verdict.reasons))
        before, self._verdict = self._verdict, verdict
        BUDGET.write(self._store, self._document())
        if verdict.reasons != before.reasons:
            log.warning("held back", extra={"what": verdict.restraint.value, "why": "; ".join(verdict.reasons)})
        if verdict.restraint is not before.restraint:
            self._wake()

    def _reckon(self) -> None:
        now = self._clock.now()
        ledgers = [self._ledger(served, now) for served in self._served]
        self._warn_of_unpriced(ledgers, now)
        self._day_usd = spent_usd(ledgers, day_start(now), now)
        self._month_usd = spent_usd(ledgers, month_start(now), now)

    def _warn_of_unpriced(self, ledgers: Sequence[ModelLedger], now: float) -> None:
        """Say once which offerings have no price: what they cost is part of no budget."""
        found = {one.served.name: unpriced(one.served, one.usage(now).usages) for one in ledgers}
        for model, names in found.items():
            if names != self._unpriced.get(model, ()):
                log.warning("not priced", extra={"model": model, "why": unpriced_words(names)})
        self._unpriced = found

    def _ledger(self, served: ServedModel, now: float) -> ModelLedger:
        """What the model's bill is made of, with a mark of this instant."""
        store, name = self._store, served.name
        began_at = (MODEL.read(store, name) or PublishedModel()).began_at
        marks = book_marks(store.status(book_name(name))) or (first_mark(now if began_at is None else began_at),)
        traffic, last = store.traffic(name), marks[-1]
        totals = replace(last.totals, billed=traffic.billed, gib_s=traffic.gib_s)
        here = TallyMark(at=now, counted_to=last.counted_to, peak_rps=last.peak_rps, totals=totals)
        return ModelLedger(
            served=served, record=store.ledger(name), marks=(*marks, here), used=self._used(name, now)
        )

    def _used(self, name: str, now: float) -> Callable[[tuple[Transition, ...], float], FleetUsage]:
        """How its usage is counted: day and month begin at instants that are asked for again."""
        book = self._books[name]
        return lambda transitions, at: (book.before if at == now else book.before_past)(transitions, at)

    def _document(self) -> BudgetStatus:
        return BudgetStatus(
            day_usd=self._day_usd,
            month_usd=self._month_usd,
            daily_usd=self._budget.daily_usd,
            monthly_usd=self._budget.monthly_usd,
            when_reached=self._budget.when_reached,
            held_back=self._verdict.restraint,
            reasons=self._verdict.reasons,
        )
