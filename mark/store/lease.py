"""The lease on a service in its store (`mark.domain.fleet.lease`)."""

from __future__ import annotations

from mark.domain.fleet.lease import STORE_LEASE, Lease, LeaseLost, LeaseTimes
from mark.store.connect import Link
from mark.store.keys import Keys
from mark.store.scripts import RELEASE, RENEW, TAKE


class Leases:
    """Takes, renews and releases the one lease of a service."""

    times: LeaseTimes = STORE_LEASE

    def __init__(self, link: Link, keys: Keys) -> None:
        self._link = link
        self._keys = (keys.of("lease"), keys.of("epoch"))

    def acquire(self, holder: str, ttl_s: float) -> Lease | None:
        """Acquire the lease; None while another holds it. `holder` is a name that no other process has."""
        epoch = self._link.run(TAKE, self._keys, (holder, _ms(ttl_s)))
        return Lease(holder=holder, epoch=epoch, ttl_s=ttl_s) if epoch else None

    def renew(self, lease: Lease) -> None:
        """Hold it for another `ttl_s`. LeaseLost where another has taken it since."""
        if not self._link.run(RENEW, self._keys, (lease.holder, _ms(lease.ttl_s), lease.epoch)):
            raise LeaseLost(f"{lease.holder} no longer holds the lease (epoch {lease.epoch})")

    def release(self, lease: Lease) -> None:
        """Let the next one have it at once; who has lost it already releases nothing."""
        self._link.run(RELEASE, self._keys, (lease.epoch,))

    def held_by(self) -> str | None:
        """The holder of the lease; None where nobody has it."""
        held = self._link.call("GET", self._keys[0])
        return held.decode() if held is not None else None


def _ms(seconds: float) -> int:
    return max(1, round(1000 * seconds))
