"""The values that a gateway starts from; what it serves it reads from the store.

Settings stay with who starts it: the supervisor on one machine, the templates' environment in AWS.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic_core import to_json

from mark.adapters import adapter_of
from mark.aws.session import AwsSettings

DOCUMENT = "gateway.json"
"""Its file in the folder of a service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayStart:
    """A gateway's service and store, its way in, and the AWS that it calls."""

    service: str
    #: URL of the store, with the gateways' password.
    store: str = field(repr=False)
    host: str
    aws: AwsSettings
    #: Calls of Lambda at once.
    lambda_calls: int
    #: What clients must present; None for all comers.
    token: str | None = field(default=None, repr=False)
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    #: Headers for the collector of traces and metrics.
    collector: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def read(cls, folder: Path) -> GatewayStart:
        """Read it from the folder of a service."""
        return adapter_of(cls).validate_json((folder / DOCUMENT).read_bytes())

    def as_json(self) -> str:
        """The document that `read` takes."""
        return to_json(self).decode()
