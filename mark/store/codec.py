"""Values as bytes: JSON by pydantic, infinities included."""

from __future__ import annotations

from typing import Generic, TypeVar

from pydantic import ValidationError
from pydantic_core import to_json

from mark.adapters import adapter_of
from mark.domain.billing.costs import Transition
from mark.domain.clients import ClientDirectory
from mark.domain.clock import ClockAnchor
from mark.domain.documents import plain
from mark.domain.errors import Misconfigured
from mark.domain.fleet.host_spec import HostSpec
from mark.domain.fleet.listing import ListedInstance
from mark.domain.fleet.member import Member, Peer
from mark.domain.load.traffic import Warmed
from mark.domain.models.versions import ModelVersions
from mark.service_spec import AgentSpec, ServiceSpec

Value = TypeVar("Value")


class Codec(Generic[Value]):
    """One type's way into bytes and back."""

    def __init__(self, kind: type[Value]) -> None:
        self._kind = kind

    def encode(self, value: Value) -> bytes:
        """The value as JSON; equal values give equal bytes."""
        return to_json(value, inf_nan_mode="constants", fallback=plain)

    def decode(self, data: bytes) -> Value:
        """The value again. Misconfigured where another version of this program wrote something else."""
        try:
            return adapter_of(self._kind).validate_json(data)
        except ValidationError as error:
            where = error.errors()[0]
            place = ".".join(map(str, where["loc"]))
            raise Misconfigured(
                f"the store holds a {self._kind.__name__} that this program cannot read "
                f"({place}: {where['msg']}); use a store of its own, or the program that wrote it"
            ) from error


SPEC = Codec(ServiceSpec)
AGENT_SPEC = Codec(AgentSpec)
CLIENTS = Codec(ClientDirectory)
CLOCK = Codec(ClockAnchor)
MEMBER = Codec(Member)
PEER = Codec(Peer)
HOST_SPEC = Codec(HostSpec)
LISTED = Codec(dict[str, ListedInstance])
TRANSITION = Codec(Transition)
VERSIONS = Codec(ModelVersions)
WARMED = Codec(Warmed)
