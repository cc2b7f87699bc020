"""What the store keeps of a service, read: its spec, its clock, its members."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from mark.domain.clock import ClockAnchor
from mark.domain.errors import Misconfigured
from mark.domain.fleet.member import Member
from mark.service_spec import ServiceSpec
from mark.store.codec import CLOCK, MEMBER, SPEC, Codec
from mark.store.keys import Keys

_log = logging.getLogger(__name__)
Value = TypeVar("Value")

MEMBER_TTL_S = 3.0
"""After how long a silent agent is gone, in wall seconds; they announce themselves each second."""


def ttl_ms(seconds: float) -> int:
    """Seconds as the scripts take them."""
    return round(1000 * seconds)


def spec_of(keys: Keys, data: bytes | None) -> ServiceSpec:
    """The stored spec; Misconfigured where there is none."""
    if data is None:
        raise Misconfigured(f"the store knows no service named {keys.service!r}; start it first (mark up)")
    return SPEC.decode(data)


def clock_of(data: bytes | None) -> ClockAnchor:
    """The stored clock; the wall's own where there is none."""
    return ClockAnchor() if data is None else CLOCK.decode(data)


def decoded(found: Mapping[bytes, bytes], codec: Codec[Value]) -> dict[str, Value]:
    """A hash of encoded values, by name."""
    return {name.decode(): codec.decode(data) for name, data in sorted(found.items())}


def members_of(answer: Sequence[bytes]) -> tuple[Member, ...]:
    """Stored members by name, but for those that cannot be read: what one agent writes stops nobody."""
    return tuple(sorted(_readable(answer), key=lambda member: member.name))


def _readable(answer: Sequence[bytes]) -> Iterator[Member]:
    for data in answer:
        try:
            yield MEMBER.decode(data)
        except Misconfigured as error:
            _log.warning("an agent announced itself in a way that cannot be read, and is left out: %s", error)
