"""`ShadowCloud`: the Cloud port of a service that only observes. It rents nothing.

What is ordered comes to be at the times that a launch, a wake and the offering's boot take on average, is never
refused and never interrupted, and is written into the ledger: so the bill is that of the fleet that would have
been. Of AWS it asks spot prices alone. What an instance may become is `mark.cloudmodel.lifecycle`'s. The fleet is
kept in the store; whoever acts next goes on with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, assert_never

from mark.adapters import adapter_of
from mark.cloudmodel.lifecycle import DAY_S, Event, Life, Phase, launched, next_due, step, wake, when_drained
from mark.domain.billing.costs import Transition
from mark.domain.fleet.instances import FleetView, Instance, Role
from mark.domain.fleet.orders import (
    Drain,
    Fact,
    Launch,
    Order,
    StartStandby,
    StopStandby,
    Terminate,
    WarmLambda,
    Withdraw,
)
from mark.domain.offerings.offering import SpotPrice, current_usd_per_hour
from mark.domain.offerings.times import CloudTimes
from mark.ports import Clock, Cloud
from mark.service_spec import ServedModel
from mark.store.service import ServiceStore


class LiveCloud(Cloud, Protocol):
    """A Cloud with what a driver asks of it beside the port."""

    @property
    def has_pending_facts(self) -> bool:
        """True where something was refused since facts were drained: the controller should tick at once."""

    @property
    def troubles(self) -> tuple[str, ...]:
        """Orders that AWS refuses and nobody but a person can mend, as sentences."""

    def usd_per_hour(self, instance: Instance) -> float | None:
        """The price of an instance now; None where its offering is not known."""

    def poll_events(self) -> None:
        """Write what has become of instances meanwhile into the ledger."""

    def close(self) -> None:
        """End what runs in the background."""


class SpotPrices(Protocol):
    """Spot prices as AWS says them (`mark.aws.ec2.spot_prices`)."""

    def read(self, now: float) -> None:
        """Ask AWS, where it is time to."""

    def known(self) -> Mapping[str, SpotPrice]:
        """The price of each spot offering, by name."""

    def lowest(self) -> tuple[tuple[str, float], ...]:
        """The price of each spot offering in its cheapest zone, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shadow:
    """An instance that would have been."""

    id: str
    offering: str
    role: Role
    token: str
    launched_at: float
    life: Life

    @property
    def instance(self) -> Instance:
        """As a controller sees it."""
        return Instance(
            id=self.id,
            offering=self.offering,
            state=self.life.seen,
            role=self.role,
            token=self.token,
            launched_at=self.launched_at,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowFleet:
    """Record in the store: the instances, and when launches were ordered, by token."""

    instances: tuple[Shadow, ...] = ()
    launches: dict[str, float] = field(default_factory=dict)


class ShadowCloud:
    """One model's fleet as it would have been.

    `prices`: without them a spot instance costs what its offering says, and with them what it costs in the
    dearest zone, since nobody can say which it would have stood in.
    """

    def __init__(
        self,
        served: ServedModel,
        *,
        store: ServiceStore,
        clock: Clock,
        prices: SpotPrices | None = None,
    ) -> None:
        self._served, self._store, self._clock = served, store, clock
        self._times = CloudTimes()
        self._name = f"shadow:{served.name}"
        self._offerings = {offering.name: offering for offering in served.offerings}
        self._prices = prices
        document = store.status(self._name)
        kept = ShadowFleet() if document is None else adapter_of(ShadowFleet).validate_python(document)
        self._fleet = {shadow.id: shadow for shadow in kept.instances}
        self._launches = kept.launches

    # The Cloud port.

    def observe(self) -> FleetView:
        """The fleet as it would stand now."""
        now = self._clock.now()
        if self._prices is not None:
            self._prices.read(now)
        self._advance(now)
        return FleetView(
            instances=tuple(self._fleet[name].instance for name in sorted(self._fleet)),
            spot_usd_per_hour=() if self._prices is None else self._prices.lowest(),
        )

    def drain_facts(self) -> Sequence[Fact]:
        """None: nothing happens to what is not there."""
        return ()

    def acknowledge(self) -> None:
        """Do nothing: there are no facts."""

    def submit(self, order: Order) -> None:
        """Do as if it had been ordered; asking twice for one token changes nothing."""
        now = self._clock.now()
        self._advance(now)
        match order:
            case Launch():
                self._launch(order, now)
            case Drain():
                self._leave(order.instances, Event.DRAIN, now)
            case Terminate():
                self._leave(order.instances, Event.TERMINATE, now)
            case StartStandby():
                for shadow in self._named(order.instances):
                    woken = wake(shadow.life, now, self._times.wake.mean_s)
                    self._become(shadow, step(woken, Event.RUN, now), now)
            case StopStandby():
                self._leave(order.instances, Event.DRAIN_TO_STOP, now)
            case WarmLambda() | Withdraw():
                return
            case _:
                assert_never(order)
        self._keep()

    # What a driver asks beside it.

    @property
    def has_pending_facts(self) -> bool:
        """Never: nothing is refused."""
        return False

    @property
    def troubles(self) -> tuple[str, ...]:
        """None: nothing is refused."""
        return ()

    def usd_per_hour(self, instance: Instance) -> float | None:
        """The price of an instance now; None where its offering is not known."""
        return self._price(instance.offering)

    def poll_events(self) -> None:
        """Write down what has begun to run meanwhile."""
        self._advance(self._clock.now())

    def close(self) -> None:
        """Nothing runs in the background."""

    # What would have become of it.

    def _launch(self, order: Launch, now: float) -> None:
        """As EC2 does, remember a token for a day: longer than a controller asks again."""
        self._launches = {token: at for token, at in self._launches.items() if at > now - DAY_S}
        if order.token in self._launches:
            return
        self._launches[order.token] = now
        boot_s = self._served.offering(order.offering).boot_s
        for number in range(1, order.count + 1):
            shadow = Shadow(
                id=f"shadow-{order.token}-{number}",
                offering=order.offering,
                role=order.role,
                token=order.token,
                launched_at=now,
                life=launched(now, pending_s=self._times.pending_s, boot_s=boot_s),
            )
            self._fleet[shadow.id] = shadow
            self._note(shadow, now)

    def _leave(self, names: tuple[str, ...], event: Event, now: float) -> None:
        """Stop or end at once: nobody is served by it, so nothing is left to answer."""
        for shadow in self._named(names):
            life = step(shadow.life, event, now)
            if life.phase is Phase.DRAINING:
                life = step(life, when_drained(shadow.role), now)
            self._become(shadow, step(life, Event.PROCESS_ENDED, now), now)

    def _advance(self, now: float) -> None:
        """Let what pends run and become ready; a standby goes to sleep once its first boot is over."""
        changed = False
        for name in list(self._fleet):
            while (due := next_due((shadow := self._fleet[name]).life)) is not None and due[0] <= now:
                at, event = due
                life = step(shadow.life, event, at)
                if shadow.role is Role.STANDBY and shadow.life.phase is Phase.BOOTING:
                    life = step(step(life, Event.STOP, at), Event.PROCESS_ENDED, at)
                self._become(shadow, life, at)
                changed = True
        if changed:
            self._keep()

    def _become(self, shadow: Shadow, life: Life, at: float) -> None:
        """Go on with this life; the ledger is told where an instant leads, not of what it leads through."""
        after = replace(shadow, life=life)
        if life.phase is Phase.GONE:
            del self._fleet[shadow.id]
        else:
            self._fleet[shadow.id] = after
        if life.ec2 != shadow.life.ec2:
            self._note(after, at)

    def _named(self, names: tuple[str, ...]) -> list[Shadow]:
        return [self._fleet[name] for name in names if name in self._fleet]

    def _note(self, shadow: Shadow, at: float) -> None:
        self._store.note(
            Transition(
                instance=shadow.id,
                model=self._served.name,
                offering=shadow.offering,
                role=shadow.role,
                state=shadow.life.ec2,
                at=at,
                usd_per_hour=self._price(shadow.offering),
            )
        )

    def _price(self, name: str) -> float | None:
        offering = self._offerings.get(name)
        spot = {} if self._prices is None else self._prices.known()
        return None if offering is None else current_usd_per_hour(offering, "", spot)

    def _keep(self) -> None:
        kept = ShadowFleet(instances=tuple(self._fleet.values()), launches=self._launches)
        self._store.put_status(self._name, adapter_of(ShadowFleet).dump_python(kept, mode="json"))
