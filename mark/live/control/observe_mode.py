"""`ShadowCloud`: the Cloud port of a service that only observes. It rents nothing and calls nobody.

What is ordered comes to be at the times that a launch, a wake and the offering's boot take on average, is never
refused and never interrupted, and is written into the ledger: so the bill is that of the fleet that would have
been. The fleet is kept in the store; whoever acts next goes on with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, assert_never

from pydantic import TypeAdapter

from mark.controller.service import ServedModel
from mark.domain.costs import Ec2State, Transition
from mark.domain.fleet import FleetView, Instance, InstanceState, Role
from mark.domain.orders import (
    Drain,
    Fact,
    Launch,
    Order,
    StartStandby,
    StopStandby,
    Terminate,
    WarmLambda,
)
from mark.domain.times import CloudTimes
from mark.ports import Clock, Cloud
from mark.store.service import ServiceStore


class LiveCloud(Cloud, Protocol):
    """What a driver asks of a Cloud beside the port."""

    @property
    def has_facts(self) -> bool:
        """Whether something was refused since `facts` was asked: the controller should look at once."""

    def hear(self) -> None:
        """Write down what has become of instances meanwhile."""

    def close(self) -> None:
        """End what runs in the background."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shadow:
    """An instance that would have been: billed from `running_at`, ready at `ready_at`; None while it sleeps."""

    instance: Instance
    running_at: float | None
    ready_at: float | None
    told_running: bool = False


_FLEET = TypeAdapter(tuple[Shadow, ...])


class ShadowCloud:
    """One model's fleet as it would have been."""

    def __init__(
        self, served: ServedModel, *, store: ServiceStore, clock: Clock, times: CloudTimes | None = None
    ) -> None:
        self._served, self._store, self._clock = served, store, clock
        self._times = times or CloudTimes()
        self._name = f"shadow:{served.name}"
        self._usd_per_hour = {offering.name: offering.usd_per_hour for offering in served.offerings}
        document = store.status(self._name)
        kept = () if document is None else _FLEET.validate_python(document["fleet"])
        self._fleet = {shadow.instance.id: shadow for shadow in kept}

    # The Cloud port.

    def observe(self) -> FleetView:
        """The fleet as it would stand now."""
        now = self._clock.now()
        self._advance(now)
        return FleetView(instances=tuple(self._fleet[name].instance for name in sorted(self._fleet)))

    def facts(self) -> Sequence[Fact]:
        """Nothing happens to what is not there."""
        return ()

    def submit(self, order: Order) -> None:
        """Do as if it had been ordered; asking twice for one token changes nothing."""
        now = self._clock.now()
        self._advance(now)
        match order:
            case Launch():
                self._launch(order, now)
            case Drain() | Terminate():
                for name in order.instances:
                    self._end(name, now)
            case StartStandby():
                for name in order.instances:
                    self._wake(name, now)
            case StopStandby():
                for name in order.instances:
                    self._stop(name, now)
            case WarmLambda():
                return
            case _:
                assert_never(order)
        self._keep()

    # What a driver asks beside it.

    @property
    def has_facts(self) -> bool:
        """Never: nothing is refused."""
        return False

    def hear(self) -> None:
        """Write down what has begun to run meanwhile."""
        self._advance(self._clock.now())

    def close(self) -> None:
        """Nothing runs in the background."""

    # What would have become of it.

    def _launch(self, order: Launch, now: float) -> None:
        if any(shadow.instance.token == order.token for shadow in self._fleet.values()):
            return
        boot_s = self._served.offering(order.offering).boot_s
        for number in range(1, order.count + 1):
            instance = Instance(
                id=f"shadow-{order.token}-{number}",
                offering=order.offering,
                state=InstanceState.PENDING,
                role=order.role,
                token=order.token,
                launched_at=now,
            )
            self._fleet[instance.id] = Shadow(
                instance=instance, running_at=now + self._times.pending_s, ready_at=now + boot_s
            )
            self._note(instance, "pending", now)

    def _wake(self, name: str, now: float) -> None:
        shadow = self._fleet.get(name)
        if shadow is None or shadow.instance.state is not InstanceState.STOPPED:
            return
        instance = replace(shadow.instance, state=InstanceState.PENDING)
        ready_at = now + self._times.wake.mean_s
        self._fleet[name] = Shadow(instance=instance, running_at=now, ready_at=ready_at)
        self._advance(now)

    def _stop(self, name: str, now: float) -> None:
        shadow = self._fleet.get(name)
        if shadow is None or shadow.instance.state is InstanceState.STOPPED:
            return
        instance = replace(shadow.instance, state=InstanceState.STOPPED)
        self._fleet[name] = Shadow(instance=instance, running_at=None, ready_at=None)
        self._note(instance, "stopped", now)

    def _end(self, name: str, now: float) -> None:
        """At once: nobody is served by it, so nothing is left to answer."""
        shadow = self._fleet.pop(name, None)
        if shadow is not None:
            self._note(shadow.instance, "terminated", now)

    def _advance(self, now: float) -> None:
        """What pends begins to run and becomes ready; a standby that has never been woken goes to sleep then."""
        changed = False
        for name, shadow in list(self._fleet.items()):
            found = shadow
            if found.running_at is not None and found.running_at <= now and not found.told_running:
                self._note(found.instance, "running", found.running_at)
                found = replace(found, told_running=True)
            pends = found.instance.state is InstanceState.PENDING
            if pends and found.ready_at is not None and found.ready_at <= now:
                found = replace(found, instance=replace(found.instance, state=InstanceState.READY))
            if found is not shadow:
                self._fleet[name] = found
                changed = True
                if found.instance.role is Role.STANDBY and self._is_new(found):
                    assert found.ready_at is not None
                    self._stop(name, found.ready_at)
        if changed:
            self._keep()

    def _is_new(self, shadow: Shadow) -> bool:
        """A standby that has become ready by its launch, not by a wake."""
        launched = shadow.instance.launched_at + self._times.pending_s
        return shadow.instance.state is InstanceState.READY and shadow.running_at == launched

    def _note(self, instance: Instance, state: Ec2State, at: float) -> None:
        self._store.note(
            Transition(
                instance=instance.id,
                model=self._served.name,
                offering=instance.offering,
                role=instance.role,
                state=state,
                at=at,
                usd_per_hour=self._usd_per_hour.get(instance.offering),
            )
        )

    def _keep(self) -> None:
        self._store.put_status(self._name, {"fleet": _FLEET.dump_python(tuple(self._fleet.values()), mode="json")})
