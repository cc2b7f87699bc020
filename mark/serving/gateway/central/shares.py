"""Shares of a model's instances among the gateways: each keeps a central queue for its own.

Each instance goes to the gateway with the highest hash for it (rendezvous hashing) that has room left, and room is
what an equal share takes, of each kind and of all (bounded loads: Mirrokni, Thorup, Zadimoghaddam, 2018). Gateways
of the instance's own zone come first: fewer requests cross. So all gateways that know of the same instances and
gateways share them alike, and one that comes or goes moves few.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from hashlib import blake2b


def kinds_of(agents: Mapping[str, tuple[str, str]], type_of: Mapping[str, str]) -> dict[str, str]:
    """Kinds of which each gateway has its share: instances of one type and version.

    agents: offering and version of each instance that takes requests. type_of: by offering; instances of a type
    that is offered no more have no kind.
    """
    return {
        name: f"{type_of[offering]} {version}"
        for name, (offering, version) in agents.items()
        if offering in type_of
    }


def assign_gateways(
    kind_of: Mapping[str, str], gateways: Mapping[str, str], zone_of: Mapping[str, str]
) -> dict[str, str]:
    """The gateway of each instance.

    kind_of: instances and their kinds. gateways: at least one, each with its zone. zone_of: of instances; one that
    is not known is in no gateway's.
    """
    names = sorted(gateways)
    in_all = -(-len(kind_of) // len(names))
    of_kind = {kind: -(-count // len(names)) for kind, count in Counter(kind_of.values()).items()}
    has, has_of_kind = Counter[str](), Counter[tuple[str, str]]()
    owner_of: dict[str, str] = {}
    for instance, kind in sorted(kind_of.items(), key=lambda item: (item[1], item[0])):
        room = [name for name in names if has[name] < in_all]
        of_its_kind = [name for name in room if has_of_kind[name, kind] < of_kind[kind]]
        zone = zone_of.get(instance, "")
        near = [name for name in of_its_kind or room if zone and gateways[name] == zone]
        owner = max(near or of_its_kind or room, key=lambda name: draw(name, instance))
        has[owner] += 1
        has_of_kind[owner, kind] += 1
        owner_of[instance] = owner
    return owner_of


def draw(gateway: str, subject: object) -> bytes:
    """Draw of a gateway for a subject in rendezvous hashing; the highest draw has it."""
    return blake2b(f"{gateway}/{subject}".encode(), digest_size=8).digest()
