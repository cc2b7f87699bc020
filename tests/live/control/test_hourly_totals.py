"""Hours are written down once, whoever acts, and what came while nobody acted is not lost."""

from __future__ import annotations

from typing import Any

from mark.accounting.hourly_totals import load_marks, marks_key, versions_between
from mark.accounting.load_history import load_key, read_load, start_of
from mark.domain.demand import Demand
from mark.domain.load.traffic import ModelTraffic
from mark.live.control.hourly_totals import HourlyTotalsWriter

BEGAN = 500_000 * 3600.0 + 600.0


class Store:
    """Documents, and what gateways counted so far."""

    def __init__(self) -> None:
        self.documents: dict[str, dict[str, Any]] = {}
        self.written: list[str] = []
        self.counted = 0

    def status(self, name: str) -> dict[str, Any] | None:
        return self.documents.get(name)

    def put_status(self, name: str, document: dict[str, Any]) -> None:
        self.documents[name] = document
        self.written.append(name)

    def traffic(self, model: str) -> ModelTraffic:
        return ModelTraffic(model=model, instance=self.counted)


def history(minutes: int) -> Demand:
    """An hour that was assumed, then a request a second."""
    rates = (9.0,) * 60 + (1.0,) * minutes
    return Demand(end_at=BEGAN + 60.0 * minutes, mean_rps=rates, max_rps=rates)


def live(store: Store, book: HourlyTotalsWriter, first: int, last: int, *, stable: str = "") -> None:
    """Ticks at the ends of these minutes. stable: the version."""
    for minute in range(first, last + 1):
        store.counted = 60 * minute
        book.keep(history(minute), BEGAN + 60.0 * minute + 0.3, stable)


def test_an_hour_is_written_once_and_the_next_controller_goes_on() -> None:
    store = Store()
    live(store, HourlyTotalsWriter(store, "m", began_at=BEGAN), 0, 100)  # type: ignore[arg-type]
    assert store.written.count(marks_key("m")) == 2  # its beginning, and the hour that ended 50 minutes later
    live(store, HourlyTotalsWriter(store, "m", began_at=BEGAN), 240, 250)  # type: ignore[arg-type]  # nobody acted meanwhile

    marks = load_marks(store.status(marks_key("m")))
    assert [round((mark.at - BEGAN) / 60) for mark in marks] == [0, 50, 240]
    assert [mark.totals.instance for mark in marks] == [0, 3000, 14_400]
    assert [round(mark.totals.requests) for mark in marks] == [0, 3000, 14_400]
    assert marks[-1].peak_rps == 1.0  # what was assumed is not counted


def test_the_load_is_kept_from_the_beginning_on_without_what_was_assumed() -> None:
    store = Store()
    live(store, HourlyTotalsWriter(store, "m", began_at=BEGAN), 0, 120)  # type: ignore[arg-type]
    load = read_load(store.status(load_key("m")))
    assert load is not None
    assert start_of(load) == BEGAN
    assert set(load.mean_rps) == {1.0}
    assert len(load) == 110  # to the hour that ended last


def test_a_promotion_is_written_down_when_it_is_seen() -> None:
    store = Store()
    live(store, HourlyTotalsWriter(store, "m", began_at=BEGAN), 0, 10, stable="old")  # type: ignore[arg-type]
    book = HourlyTotalsWriter(store, "m", began_at=BEGAN)  # type: ignore[arg-type]
    live(store, book, 11, 20, stable="old")
    live(store, book, 21, 55, stable="new")

    marks = load_marks(store.status(marks_key("m")))
    assert [(round((mark.at - BEGAN) / 60), mark.stable) for mark in marks] == [
        (0, "old"),
        (21, "new"),
        (50, "new"),
    ]
    came = versions_between(marks, BEGAN, BEGAN + 3000.3)
    assert {version: round(totals.answered) for version, totals in came.items()} == {"old": 1260, "new": 1740}
