"""Values as bytes: JSON by pydantic, infinities included."""

from __future__ import annotations

from typing import Generic, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from mark.domain.billing.costs import Transition
from mark.domain.clients import ClientDirectory
from mark.domain.clock import ClockAnchor
from mark.domain.documents import plain
from mark.domain.errors import Misconfigured
from mark.domain.load.traffic import Warmed
from mark.domain.member import Member, Peer
from mark.domain.models.versions import ModelVersions
from mark.service_spec import AgentSpec, ServiceSpec

Value = TypeVar("Value")


class Codec(Generic[Value]):
    """One type's way into bytes and back."""

    def __init__(self, kind: type[Value]) -> None:
        self._name = kind.__name__
        self._adapter = TypeAdapter(kind)

    def encode(self, value: Value) -> bytes:
        """The value as JSON; equal values give equal bytes."""
        return to_json(value, inf_nan_mode="constants", fallback=plain)

    def decode(self, data: bytes) -> Value:
        """The value again. Misconfigured where another version of this program wrote something else."""
        try:
            return self._adapter.validate_json(data)
        except ValidationError as error:
            where = error.errors()[0]
            place = ".".join(map(str, where["loc"]))
            raise Misconfigured(
                f"the store holds a {self._name} that this program cannot read ({place}: {where['msg']}); "
                "use a store of its own, or the program that wrote it"
            ) from error


SPEC = Codec(ServiceSpec)
AGENT_SPEC = Codec(AgentSpec)
CLIENTS = Codec(ClientDirectory)
CLOCK = Codec(ClockAnchor)
MEMBER = Codec(Member)
PEER = Codec(Peer)
TRANSITION = Codec(Transition)
VERSIONS = Codec(ModelVersions)
WARMED = Codec(Warmed)
