"""Members of a service: agents and gateways as they announce themselves."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from mark.domain.fleet.instances import Role


class MemberState(StrEnum):
    """starting -> ready -> draining; an agent whose last request is answered leaves.

    broken: its model answers no more; the agent ends and is started again.
    """

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One agent as it announced itself: a model on an instance, or an instance that several models share.

    `host`, `port`: where it takes frames. `batch_s`: seconds that a batch of 1, 2, ... `max_batch` takes now, as
    measured (the profile's at first). `terminates_at`: service time after which a spot notice takes it away.
    `epoch` counts its starts: frames of an earlier life are void.
    """

    instance: str
    #: SHARED (`host_spec.py`) for a shared instance itself: each of its tenants is a member beside it.
    model: str
    offering: str
    role: Role
    host: str
    port: int
    state: MemberState
    max_batch: int
    batch_s: tuple[float, ...]
    capacity_rps: float
    terminates_at: float | None = None
    credits: float | None = None
    #: vCPU seconds beyond its credits since the agent began, which an unlimited type is billed for.
    surplus_vcpu_s: float = 0.0
    epoch: int = 0
    #: Secret of this start, which a gateway and it prove to each other that they know (`protocols/handshake.py`).
    wire_key: str = field(default="", repr=False)
    #: SHA-256 of the certificate that its port for frames shows, in hex; empty where frames come without TLS.
    certificate: str = ""
    #: The model's version that it serves; empty where versions are not told apart.
    version: str = ""
    #: The availability zone that its instance stands in; empty where it is not known.
    zone: str = ""
    #: Of a tenant: requests/s that it takes before the model's own instances are asked; None for any other member.
    share_rps: float | None = None
    #: Of a tenant: seconds of the device's time that its batches took since it was loaded.
    busy_s: float = 0.0
    #: Of a tenant: which of those of its model and version it is, where its instance loads one beside another.
    generation: int = 0

    @property
    def is_tenant(self) -> bool:
        """True for a model on a shared instance."""
        return self.share_rps is not None

    @property
    def name(self) -> str:
        """The name that no other member has: its instance's, and a tenant's with its model."""
        if not self.is_tenant:
            return self.instance
        name = f"{self.instance}/{self.model}/{self.version}" if self.version else f"{self.instance}/{self.model}"
        return f"{name}~{self.generation}" if self.generation else name


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A gateway as it announced itself to the others. `host`, `port`: where it, and no other, takes requests."""

    name: str
    host: str
    port: int
    #: The availability zone that it stands in; empty where it is not known.
    zone: str = ""
    #: SHA-256 of the certificate that the port shows, in hex; empty where it takes requests without TLS.
    certificate: str = ""
    #: Requests/s that come in there lately, of the models that share instances.
    loads: tuple[tuple[str, float], ...] = ()
