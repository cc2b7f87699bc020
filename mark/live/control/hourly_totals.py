"""Keeps for reports, at each hour's end, what gateways had counted and the load that came.

`mark.accounting.hourly_totals` and `mark.accounting.load_history` say how.
"""

from __future__ import annotations

from mark.accounting.hourly_totals import book_document, book_marks, book_name, first_mark, is_due, next_mark
from mark.accounting.load_history import joined, latest, load_document, load_name, load_of
from mark.domain.demand import Demand
from mark.store.service import ServiceStore


class HourBook:
    """One model's marks and load, written by the controller that acts; the one before left them in the store."""

    def __init__(self, store: ServiceStore, model: str, *, began_at: float) -> None:
        self._store, self._model, self._began_at = store, model, began_at
        self._marks = book_marks(store.status(book_name(model))) or (first_mark(began_at),)
        self._is_kept = False

    def keep(self, history: Demand, now: float) -> None:
        """Write down an hour that has ended; `history` is all demand that was seen."""
        if is_due(self._marks, now):
            self._marks = (
                *self._marks,
                next_mark(self._marks[-1], self._store.traffic(self._model), history, now),
            )
            kept = load_of(self._store.status(load_name(self._model)))
            load = joined(kept, latest(history, self._began_at))
            self._store.put_status(load_name(self._model), load_document(load))
        elif self._is_kept:
            return
        self._store.put_status(book_name(self._model), book_document(self._marks))
        self._is_kept = True
