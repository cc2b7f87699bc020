"""Transitions of instances into the ledger, from the `events` queue, or from the listing where the queue lost one.

The queue knows the exact second; the listing only that a state was there at a pass. So a state that is listed is
written down only when the queue has not told of it for NOTIFIED_WITHIN_S. What was there before the first pass was
somebody else's to write, but for the end of instances that had gone by then: nobody else can be there to hear it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mark.aws.ec2.observed import Ec2Row
from mark.domain.billing.costs import Ec2State, Transition
from mark.ports import Ledger

NOTIFIED_WITHIN_S = 120.0
"""The queue tells of a change within so long; after that the listing is believed."""
READ_VCPU_S = 300.0
"""So much more surplus of CPU credits is written down: 0.4 US cents."""
KEEP_GONE_S = 3600.0
"""Time that an instance that is gone is remembered: EC2 lists it as long, and late messages may name it."""


class Transitions:
    """One per cloud of a model. Instants are service time. `usd_per_hour`: what an instance costs now."""

    def __init__(
        self,
        ledger: Ledger,
        model: str,
        *,
        usd_per_hour: Callable[[Ec2Row], float | None] = lambda _: None,
    ) -> None:
        self._ledger = ledger
        self._usd_per_hour = usd_per_hour
        self._model = model
        self._rows: dict[str, Ec2Row] = {}
        self._told: dict[str, tuple[float, Ec2State]] = {}
        self._listed: dict[str, tuple[float, Ec2State]] = {}
        self._gone: dict[str, float] = {}
        self._surplus_vcpu_s: dict[str, float] = {}
        self._first = True

    def knows(self, instance: str) -> bool:
        """True for an instance that is, or lately was, of this model."""
        return instance in self._rows

    def row(self, instance: str) -> Ec2Row:
        """The last row of an instance."""
        return self._rows[instance]

    def launched(self, rows: Mapping[str, Ec2Row]) -> None:
        """Instances that were just rented."""
        for name, row in rows.items():
            self._rows.setdefault(name, row)

    def told(self, instance: str, state: Ec2State, at: float) -> None:
        """The queue said that the instance entered the state at `at`."""
        self._note(instance, state, at)

    def listed(self, rows: Mapping[str, Ec2Row], now: float) -> None:
        """A pass listed these, and all others are gone."""
        if self._first:
            self._take_over(rows)
            self._first = False
        for name in self._rows.keys() - rows.keys():
            self._gone.setdefault(name, now)
        self._rows |= rows
        for name in list(self._rows):
            state: Ec2State = rows[name].state if name in rows else "terminated"
            self._note_listed(name, state, now)
        for name in [name for name, at in self._gone.items() if at <= now - KEEP_GONE_S or name in rows]:
            del self._gone[name]
            if name not in rows:
                self._forget(name)

    def read_surplus(self, surplus_vcpu_s: Mapping[str, float], now: float) -> None:
        """Instances say how much they used beyond their credits since they were started."""
        for name, used in surplus_vcpu_s.items():
            row, before = self._rows.get(name), self._surplus_vcpu_s.get(name, 0.0)
            if used < before:  # it was started again
                self._surplus_vcpu_s[name] = before = 0.0
            if row is not None and row.state == "running" and used >= before + READ_VCPU_S:
                self._ledger.note(
                    Transition(
                        instance=name,
                        model=row.model,
                        offering=row.offering,
                        role=row.role,
                        state="running",
                        at=now,
                        surplus_vcpu_s=used,
                        version=row.version,
                    )
                )
                self._surplus_vcpu_s[name] = used

    def _take_over(self, rows: Mapping[str, Ec2Row]) -> None:
        """Go on where the ledger stands."""
        self._told = {name: (row.launched_at, row.state) for name, row in rows.items()}
        noted = self._ledger.transitions(self._model)
        last = {told.instance: told for told in noted if not told.is_reading}
        for name, told in last.items():
            if name not in rows and told.state != "terminated":
                self._told[name] = (told.at, told.state)
                self._rows.setdefault(name, _row_of(told))

    def _note_listed(self, name: str, state: Ec2State, now: float) -> None:
        if name in self._told and self._told[name][1] == state:
            self._listed.pop(name, None)
            return
        since, listed = self._listed.get(name, (now, None))
        if listed != state:
            since = now
            self._listed[name] = (now, state)
        if now - since >= NOTIFIED_WITHIN_S:
            at = self._rows[name].launched_at if state == "pending" else since
            self._note(name, state, at)

    def _note(self, name: str, state: Ec2State, at: float) -> None:
        row = self._rows[name]
        self._ledger.note(
            Transition(
                instance=name,
                model=row.model,
                offering=row.offering,
                role=row.role,
                state=state,
                at=at,
                usd_per_hour=self._usd_per_hour(row),
                version=row.version,
            )
        )
        before = self._told.get(name)
        if before is None or at >= before[0]:
            self._told[name] = (at, state)
            self._listed.pop(name, None)

    def _forget(self, name: str) -> None:
        for known in (self._rows, self._told, self._listed, self._surplus_vcpu_s):
            known.pop(name, None)


def _row_of(told: Transition) -> Ec2Row:
    """An instance that is no longer listed."""
    return Ec2Row(
        id=told.instance,
        model=told.model,
        offering=told.offering,
        role=told.role,
        token="",
        state=told.state,
        launched_at=told.at,
    )
