"""The specification of a shared instance: its tenants, each as its agent needs to know it."""

from __future__ import annotations

from dataclasses import dataclass

SHARED = "@shared"
"""Name of the shared instances where an instance's model is named: tags, ledger, journal, members."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class TenantSpec:
    """A model that an instance is to hold."""

    model: str
    #: The version of it; empty where versions are not told apart.
    version: str = ""
    #: The instance as the model's offerings name it.
    offering: str
    #: Its longest batch there, in items: neighbours wait for it.
    max_batch: int
    #: Requests/s that it takes there before the model's own instances are asked; 0 while these take over.
    share_rps: float
    #: There is memory to load it beside another version of it; else that one leaves first.
    fits_beside: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSpec:
    """All models that one shared instance is to hold."""

    tenants: tuple[TenantSpec, ...] = ()
