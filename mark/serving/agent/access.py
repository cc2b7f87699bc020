"""Access to an agent's HTTP port: for clients of its gateways, which say by a digest which token counts."""

from __future__ import annotations

import hmac

from mark.protocols.handshake import token_digest


class AgentAccess:
    """Access rule of the HTTP port.

    key: the agent's. digest: of the token, under that key; empty for all comers, None while unknown.
    """

    def __init__(self, key: str, digest: bytes | None = None) -> None:
        self._key, self._digest = key, digest

    def set_digest(self, digest: bytes) -> None:
        """Take what a gateway says; the last one counts."""
        self._digest = digest

    @property
    def is_known(self) -> bool:
        """True once a gateway has said which token counts."""
        return self._digest is not None

    def allows(self, headers: dict[str, bytes]) -> bool:
        """True where a request with these headers may be answered."""
        if not self._digest:
            return self._digest is not None
        scheme, _, token = headers.get("authorization", b"").partition(b" ")
        sent = token_digest(self._key, token.lstrip(b" ").decode("latin-1"))
        return scheme.lower() == b"bearer" and hmac.compare_digest(sent, self._digest)
