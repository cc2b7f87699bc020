"""A running service as one value: its addresses, its keys and its processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypedDict


class RunningModel(TypedDict):
    """A model that the service serves, as clients need it."""

    name: str
    #: A request's body with zeros.
    example: Mapping[str, object]
    latency_ms: float
    #: Share of the requests that must be in time.
    target: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A running service: addresses of its parts and their processes.

    `step`: what it is doing while it starts, since `began_at` (epoch seconds). `store`: the URL for controllers
    and commands; `stores`: those for other users of it, where it tells them apart.
    """

    name: str
    pid: int
    started: str = ""
    ready: bool = False
    step: str = ""
    began_at: float = 0.0
    gateway: str = ""
    #: host and port, as gRPC's clients take them; empty where none is spoken
    grpc: str = ""
    status_page: str = ""
    aws_endpoint: str = ""
    aws_access_key_id: str = ""
    aws_secret_access_key: str = field(default="", repr=False)
    store: str = ""
    stores: Mapping[str, str] = field(default_factory=dict)
    token: str | None = None
    models: tuple[RunningModel, ...] = ()
    processes: dict[str, int] = field(default_factory=dict)

    def store_for(self, user: str) -> str:
        """The store's URL for a user of it: his own, or the one that everybody has."""
        return self.stores.get(user, self.store)
