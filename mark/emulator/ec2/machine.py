"""One emulated EC2 instance: what it was launched as, and where it is in its life."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

from mark.cloudmodel.lifecycle import Life
from mark.domain.offerings.offering import InstanceType, Market, of_type


class MachineState(IntEnum):
    """EC2's states with their codes."""

    PENDING = 0
    RUNNING = 16
    SHUTTING_DOWN = 32
    TERMINATED = 48
    STOPPING = 64
    STOPPED = 80

    @property
    def label(self) -> str:
        """As the API writes it."""
        return self.name.lower().replace("_", "-")


def tags_for(kind: str, *specifications: Any) -> dict[str, str]:
    """Tags that a request's `TagSpecifications` give to resources of a kind; later ones win."""
    tags: dict[str, str] = {}
    for one in (one for many in specifications for one in many or ()):
        if one.get("ResourceType") == kind:
            tags |= {str(tag["Key"]): str(tag.get("Value", "")) for tag in one.get("Tags", ())}
    return tags


_STATES = {state.label: state for state in MachineState}


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSpec:
    """Parameters of a launch, after template and overrides. `user_data` is base64, as it came."""

    instance_type: InstanceType
    market: Market
    image_id: str
    zone: str
    subnet_id: str
    vpc_id: str
    security_groups: tuple[tuple[str, str], ...] = ()
    user_data: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    shutdown_behavior: str = "stop"
    tags_in_metadata: bool = False
    client_token: str = ""

    @property
    def is_spot(self) -> bool:
        """True for an instance that can be taken away."""
        return self.market is Market.SPOT

    @property
    def offering(self) -> str:
        """Its offering by its type and the one that it is tagged with, else type and market."""
        name = self.instance_type.name
        return of_type(self.tags.get("mark:offering", f"{name}:{self.market.value}"), name)


@dataclass(slots=True, kw_only=True)
class Machine:
    """An instance. Instants are service time."""

    id: str
    spec: LaunchSpec
    address: str
    launched_at: float
    reservation: str
    tags: dict[str, str]
    shutdown_behavior: str
    life: Life
    #: The pool that it was taken from (`mark.cloudmodel.capacity.pool_name`).
    pool: str
    #: See `Capacity.number_launch`.
    number: str = ""
    index: int = 0
    ended_at: float | None = None
    reason_code: str = ""
    reason: str = ""
    #: Nobody may end it by a call (`disableApiTermination`).
    protected: bool = False
    spot_request: str = ""
    #: Its life before its last change, and when that was: what a listing that lags still shows.
    before: tuple[Life, float] | None = None
    xml: str | None = None

    def listed(self, now: float, lag_s: float) -> Machine | None:
        """The instance as a listing shows it that lags; None where it shows none yet."""
        if lag_s <= 0:
            return self
        if now < self.launched_at + lag_s:
            return None
        ends = self.state in (MachineState.SHUTTING_DOWN, MachineState.TERMINATED)
        if not ends or self.before is None or now >= self.before[1] + lag_s:
            return self
        return replace(self, life=self.before[0], reason_code="", reason="", xml=None)

    @property
    def state(self) -> MachineState:
        """EC2's state of it."""
        return _STATES[self.life.ec2]

    @property
    def is_spot(self) -> bool:
        """See `LaunchSpec.is_spot`."""
        return self.spec.is_spot

    @property
    def offering(self) -> str:
        """See `LaunchSpec.offering`."""
        return self.spec.offering
