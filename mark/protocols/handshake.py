"""The handshake of a gateway and an agent: each proves that it knows the agent's key, which itself is never sent.

The agent makes a key at each start and announces it in the store, which gateways read. On a new connection it
sends a Challenge; the gateway answers with a Hello, the agent with a Welcome. A proof is HMAC-SHA256 under the
key, over the version, the prover's role, both nonces (fresh on each connection: a recorded Hello is of no use on
another) and the digest that the Hello carries. Whoever calls draws the nonces.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable

from mark.protocols.frames import NONCE_BYTES, VERSION, Challenge, Frame, FrameError, Hello, Welcome

KEY_BYTES = 32


class Refused(FrameError):
    """The other end is of another version, or has not proved who it is: close the connection."""


def new_key() -> str:
    """A key for an agent's announcement."""
    return secrets.token_hex(KEY_BYTES)


def new_nonce() -> bytes:
    """A number that stands on one connection only."""
    return secrets.token_bytes(NONCE_BYTES)


def token_digest(key: str, token: str | None) -> bytes:
    """Digest of the clients' token in a Hello: the agent can check one, and learns none. Empty without one."""
    return b"" if token is None else hmac.digest(key.encode(), b"mark token" + token.encode(), "sha256")


class AgentHandshake:
    """The agent's side of one connection. A tenant is told by its key, so a Hello need not name it."""

    def __init__(self, nonce: bytes) -> None:
        self._nonce = nonce

    def challenge(self) -> Challenge:
        """The agent's first frame."""
        return Challenge(VERSION, self._nonce)

    def welcome(self, frame: Frame, keys: Iterable[str]) -> tuple[Hello, Welcome, str]:
        """The gateway's Hello, the answer to it, and which of the keys it knows. Errors: Refused."""
        if not isinstance(frame, Hello):
            raise Refused(f"a {type(frame).__name__} came before a Hello")
        if frame.version != VERSION:
            raise Refused(f"the gateway uses frame version {frame.version}, this agent {VERSION}")
        said = (self._nonce, frame.nonce, frame.token_digest)
        for key in keys:
            if hmac.compare_digest(frame.proof, _proof(key, b"gateway", *said)):
                return frame, Welcome(_proof(key, b"agent", *said)), key
        raise Refused("the gateway does not know this agent's key")


class GatewayHandshake:
    """The gateway's side of one connection. token: which its clients must send."""

    def __init__(self, key: str, nonce: bytes, token: str | None) -> None:
        self._key, self._nonce = key, nonce
        self._digest = token_digest(key, token)
        self._agents_nonce: bytes | None = None

    def hello(self, frame: Frame) -> Hello:
        """The answer to the agent's first frame. Errors: Refused."""
        if not isinstance(frame, Challenge):
            raise Refused(f"a {type(frame).__name__} came before a Challenge")
        if frame.version != VERSION:
            raise Refused(f"the agent uses frame version {frame.version}, this gateway {VERSION}")
        self._agents_nonce = frame.nonce
        proof = _proof(self._key, b"gateway", frame.nonce, self._nonce, self._digest)
        return Hello(VERSION, self._nonce, proof, self._digest)

    @property
    def said_hello(self) -> bool:
        """True where the agent's challenge has been answered."""
        return self._agents_nonce is not None

    def check(self, frame: Frame) -> None:
        """Check the agent's answer to the Hello. Errors: Refused."""
        assert self._agents_nonce is not None, "`hello` comes first"
        if not isinstance(frame, Welcome):
            raise Refused(f"a {type(frame).__name__} came before a Welcome")
        expected = _proof(self._key, b"agent", self._agents_nonce, self._nonce, self._digest)
        if not hmac.compare_digest(frame.proof, expected):
            raise Refused("the agent does not know the key that stands in the store")


def _proof(key: str, role: bytes, agents_nonce: bytes, gateways_nonce: bytes, digest: bytes) -> bytes:
    said = b"".join((b"mark wire", VERSION.to_bytes(2, "little"), role, agents_nonce, gateways_nonce, digest))
    return hmac.digest(key.encode(), said, "sha256")
