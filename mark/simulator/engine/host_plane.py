"""Instances that several models share, as a simulated cloud asks for them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from mark.domain.billing.shared_rent import device_usd
from mark.domain.offerings.offering import Offering
from mark.simulator.engine.shared_plane import ModelEngine, SharedPlane


class HostPlane:
    """Shared instances as a cloud asks for them: a slot is a device, whose tenants are rows of the plane.

    redispatch: whether what a lost instance held may be sent elsewhere, by model.
    """

    def __init__(self, plane: SharedPlane, redispatch: Sequence[bool]) -> None:
        self._plane = plane
        self._redispatch = redispatch
        self._rows: dict[int, dict[int, int]] = {}
        self._zones: dict[int, str] = {}
        self._goes_at: dict[int, float] = {}
        self._usd_per_hour: dict[int, float] = {}
        #: Rent of the device time that models took which are gone, by number.
        self._used_usd = defaultdict[int, float](float)

    @property
    def now(self) -> float:
        """The plane's clock."""
        return self._plane.now

    def add(self, offering: Offering, *, standby: bool, balance: float = 0.0, zone: str = "") -> int:  # noqa: ARG002
        """A device without tenants."""
        device = self._plane.new_device()
        self._rows[device], self._zones[device] = {}, zone
        self._usd_per_hour[device] = offering.usd_per_hour
        return device

    def used_usd(self, model: int) -> float:
        """Rent of the device time that a model has taken by now."""
        here = (self._row_usd(device, model) for device, rows in self._rows.items() if model in rows)
        return self._used_usd[model] + sum(here)

    def _row_usd(self, device: int, model: int) -> float:
        busy_s = self._plane.engines[model].busy_s(self._rows[device][model])
        return device_usd(busy_s, self._usd_per_hour[device])

    def tenants(self, device: int) -> frozenset[int]:
        """Models on the device, by number."""
        return frozenset(self._rows[device])

    def accepts(self, device: int, model: int) -> bool:
        """True where it takes new requests there: not while it answers its last ones."""
        return self._rows[device][model] in self._plane.engines[model].accepting

    def place(self, device: int, model: int, offering: Offering, share_rps: float) -> None:
        """This model takes requests there from now on, share_rps of them before its own instances are asked."""
        row = self._plane.engines[model].place(offering, device, share_rps=share_rps, zone=self._zones[device])
        self._rows[device][model] = row
        if device in self._goes_at:
            self._plane.engines[model].will_go(row, self._goes_at[device])

    def keep(self, device: int, model: int, share_rps: float) -> None:
        """It takes so much there from now on, also where it was to go and is not gone."""
        engine, row = self._plane.engines[model], self._rows[device][model]
        engine.accept(row)
        engine.give_share(row, share_rps)

    def has_own(self, model: int) -> bool:
        """True where an instance of the model's own takes requests."""
        return self._plane.engines[model].own > 0

    def hand_over(self, device: int, model: int) -> None:
        """Count its requests there as load of its own fleet to come, until it is evicted."""
        self._plane.engines[model].give_share(self._rows[device][model], 0.0)

    def evict(self, device: int, model: int) -> bool:
        """It takes no more requests there; whether it is gone already."""
        engine, row = self._plane.engines[model], self._rows[device][model]
        engine.stop_accepting(row)
        if not engine.is_idle(row):
            return False
        self._used_usd[model] += self._row_usd(device, model)
        engine.remove(row, redispatch=True)
        del self._rows[device][model]
        return True

    def shared_rps(self, model: int) -> float:
        """Requests/s of a model that shared instances took in the last minute."""
        return self._plane.engines[model].shared_rps()

    def stop_accepting(self, slot: int) -> None:
        """Give the instance no new requests."""
        for engine, row in self._tenants(slot):
            engine.stop_accepting(row)

    def will_go(self, slot: int, at: float) -> None:
        """The instance goes at `at`."""
        self._goes_at[slot] = at
        for engine, row in self._tenants(slot):
            engine.will_go(row, at)

    def drained_at(self, slot: int) -> float:
        """Instant at which all its queues are empty, at the earliest."""
        return max((engine.drained_at(row) for engine, row in self._tenants(slot)), default=self.now)

    def is_idle(self, slot: int) -> bool:
        """True where it holds no request."""
        return all(engine.is_idle(row) for engine, row in self._tenants(slot))

    def credits(self, _slot: int) -> float:
        """None: types with credits are not shared."""
        return 0.0

    def surplus_vcpu_s(self, _slot: int) -> float:
        """None, likewise."""
        return 0.0

    def remove(self, slot: int, *, redispatch: bool) -> None:
        """The instance is gone; what it held is sent elsewhere, or shed where its model forbids that."""
        self.stop_accepting(slot)
        for model, row in self._rows[slot].items():
            self._used_usd[model] += self._row_usd(slot, model)
            self._plane.engines[model].remove(row, redispatch=redispatch and self._redispatch[model])
        del self._rows[slot]
        self._goes_at.pop(slot, None)
        self._plane.end_device(slot)

    def warm(self, concurrency: int, *, are_there: bool = False) -> None:
        """Lambda is each model's own."""

    def _tenants(self, slot: int) -> list[tuple[ModelEngine, int]]:
        return [(self._plane.engines[model], row) for model, row in self._rows[slot].items()]
