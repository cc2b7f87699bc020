"""The fleet as it is observed; planned and requested instances are the controller's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property


class InstanceState(StrEnum):
    """pending -> ready -> draining -> gone; a standby also ready -> stopped -> pending."""

    PENDING = "pending"
    READY = "ready"
    DRAINING = "draining"
    STOPPED = "stopped"
    GONE = "gone"


class Role(StrEnum):
    """Serving instances follow the plan; standbys are stopped until they are woken."""

    SERVING = "serving"
    STANDBY = "standby"


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One instance as observed."""

    id: str
    #: Its offering's name.
    offering: str
    state: InstanceState
    role: Role = Role.SERVING
    #: The token of the order that launched it.
    token: str = ""
    #: Its availability zone; empty where it is not known, or zones are not told apart.
    zone: str = ""
    #: When it was launched, epoch seconds.
    launched_at: float = 0.0
    #: When a spot notice terminates it, epoch seconds; None without a notice.
    terminates_at: float | None = None
    #: AWS recommends to replace it: it serves until what is wanted is ready without it (`controller/at_risk.py`).
    at_risk: bool = False
    #: CPU credits that it has left; None where it has none or they are not known.
    credits: float | None = None
    #: It was launched as what the rollout no longer launches: with an image of an earlier deploy.
    outdated: bool = False
    #: The model's version that it was launched for; empty where versions are not told apart.
    version: str = ""

    @property
    def stays(self) -> bool:
        """True for an instance that is pending or ready, has no notice and is not to be replaced."""
        return self.serves_on and not self.at_risk

    @property
    def serves_on(self) -> bool:
        """True for an instance that is pending or ready and has no notice."""
        return self.terminates_at is None and self.state in (InstanceState.PENDING, InstanceState.READY)


@dataclass(frozen=True, kw_only=True)  # no slots: counts are kept
class FleetView:
    """All instances that are not gone, ordered by id, and what spot instances cost."""

    instances: tuple[Instance, ...] = ()
    #: USD an hour of each spot offering in its cheapest zone now, by name, and in each zone by its name there.
    #: None where prices are not observed.
    spot_usd_per_hour: tuple[tuple[str, float], ...] = ()

    def __iter__(self) -> Iterator[Instance]:
        return iter(self.instances)

    def __len__(self) -> int:
        return len(self.instances)

    @cached_property
    def awake(self) -> Mapping[str, int]:
        """Instances per offering that are not stopped: what quotas count."""
        return Counter(i.offering for i in self.instances if i.state is not InstanceState.STOPPED)

    @cached_property
    def has_standbys(self) -> bool:
        """True where an instance is a standby, asleep or awake."""
        return any(i.role is Role.STANDBY for i in self.instances)

    @cached_property
    def staying(self) -> Mapping[str, int]:
        """Serving instances per offering that are pending or ready, not about to go and not at risk."""
        return Counter(i.offering for i in self.instances if i.role is Role.SERVING and i.stays)

    @cached_property
    def ready(self) -> Mapping[str, int]:
        """Serving instances per offering that are ready and not about to be interrupted."""
        serving = (i for i in self.instances if i.role is Role.SERVING and i.state is InstanceState.READY)
        return Counter(i.offering for i in serving if i.terminates_at is None)

    @cached_property
    def lasting(self) -> Mapping[str, int]:
        """Serving instances per offering that are ready and stay."""
        ready = (i for i in self.instances if i.role is Role.SERVING and i.state is InstanceState.READY)
        return Counter(i.offering for i in ready if i.stays)

    @cached_property
    def at_risk(self) -> tuple[Instance, ...]:
        """Instances at risk that serve on."""
        return tuple(i for i in self.instances if i.at_risk and i.serves_on)
