"""Keeps what gateways had counted at the end of each hour, for reports: `mark.controller.tally_book` says how."""

from __future__ import annotations

from mark.controller.tally_book import book_document, book_marks, book_name, first_mark, is_due, next_mark
from mark.domain.demand import Demand
from mark.store.service import ServiceStore


class HourBook:
    """One model's marks, written by the controller that acts; the one before it left them in the store."""

    def __init__(self, store: ServiceStore, model: str, *, began_at: float) -> None:
        self._store, self._model = store, model
        self._marks = book_marks(store.status(book_name(model))) or (first_mark(began_at),)
        self._is_kept = False

    def keep(self, history: Demand, now: float) -> None:
        """Make the mark of an hour that has ended; `history` is all demand that was seen."""
        if is_due(self._marks, now):
            self._marks = (
                *self._marks,
                next_mark(self._marks[-1], self._store.traffic(self._model), history, now),
            )
        elif self._is_kept:
            return
        self._store.put_status(book_name(self._model), book_document(self._marks))
        self._is_kept = True
