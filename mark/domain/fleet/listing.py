"""The fleet as controllers list it, and which agents gateways take for it.

All agents are one user of the store, and each may announce whom it likes, wherever it likes. What AWS lists, no
agent can write: an agent is taken where AWS lists its instance, for its model and version, at its address.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mark.domain.fleet.host_spec import SHARED, HostSpec
from mark.domain.fleet.member import Member


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedInstance:
    """An instance as AWS lists it: its private address, and the model's version that it was launched for."""

    host: str
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The instances of a service: `models` by model and id, and what each shared one is told to hold in `held`."""

    models: Mapping[str, Mapping[str, ListedInstance]] = field(default_factory=dict)
    held: Mapping[str, HostSpec] = field(default_factory=dict)

    def updated(self, newer: Listing) -> Listing:
        """Go on with what is newer; where a store that lost its data says nothing, with what was known."""
        models = {**self.models, **newer.models}
        shared, held = models.get(SHARED, {}), {**self.held, **newer.held}
        return Listing(models=models, held={name: held[name] for name in held.keys() & shared.keys()})

    def of(self, members: Iterable[Member]) -> tuple[Member, ...]:
        """Those of the members that are listed."""
        return tuple(filter(self.has, members))

    def has(self, member: Member) -> bool:
        """True where the member is listed; also where no controller has listed its model's instances yet.

        An instance that is told to hold a model may show it in two versions, while one takes over from the other.
        """
        instances = self.models.get(SHARED if member.is_tenant else member.model)
        if instances is None:
            return True
        found = instances.get(member.instance)
        if found is None or found.host != member.host:
            return False
        if member.is_tenant:
            held = self.held.get(member.instance, HostSpec())
            return any(one.model == member.model for one in held.tenants)
        return found.version in {"", member.version}
