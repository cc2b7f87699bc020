"""Hourly totals for reports: at each hour's end what gateways had counted, and the load.

`mark.accounting.hourly_totals` and `mark.accounting.load_history` say how.
"""

from __future__ import annotations

from mark.accounting.hourly_totals import dump_marks, first_mark, is_due, load_marks, marks_key, next_mark
from mark.accounting.load_history import dump_load, joined, latest, load_key, read_load
from mark.domain.demand import Demand
from mark.store.service import ServiceStore


class HourlyTotalsWriter:
    """One model's marks and load, written by the controller that acts; the one before left them in the store."""

    def __init__(self, store: ServiceStore, model: str, *, began_at: float) -> None:
        self._store, self._model, self._began_at = store, model, began_at
        self._marks = load_marks(store.status(marks_key(model)))
        self._is_kept = False

    def keep(self, history: Demand, now: float, stable: str) -> None:
        """Write down an hour that has ended; `history` is all demand that was seen. stable: the version."""
        if not self._marks:
            self._marks = (first_mark(self._began_at, stable),)
        if is_due(self._marks, now, stable):
            self._marks = (
                *self._marks,
                next_mark(self._marks[-1], self._store.traffic(self._model), history, now, stable),
            )
            kept = read_load(self._store.status(load_key(self._model)))
            load = joined(kept, latest(history, self._began_at))
            self._store.put_status(load_key(self._model), dump_load(load))
        elif self._is_kept:
            return
        self._store.put_status(marks_key(self._model), dump_marks(self._marks))
        self._is_kept = True
