"""`Ec2Cloud`: the Cloud port on EC2, for one model of a service."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mark.aws.guard import Guard
from mark.aws.inbox import EventInbox
from mark.domain.fleet import FleetView, Role
from mark.domain.offering import Offering
from mark.domain.orders import Fact, Order
from mark.ports import Clock, Ledger, Membership

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSetup:
    """What a model's fleet is made of.

    `run`: names this life of the service, so that tokens of an earlier one mean nothing. `offerings`: by name.
    `templates`: the launch template of each role. `subnets`: (zone, subnet), none for the default network.
    """

    service: str
    model: str
    run: str
    offerings: Mapping[str, Offering]
    templates: Mapping[Role, str]
    subnets: tuple[tuple[str, str], ...] = ()
    drain_limit_s: float = 600.0
    silent_limit_s: float = 1800.0
    resend_limit_s: float = 600.0
    stale_limit_s: float = 120.0


class Ec2Cloud:
    """Instances of one model: observed, ordered, and what happened to them."""

    def __init__(
        self,
        setup: FleetSetup,
        *,
        ec2: EC2Client,
        clock: Clock,
        membership: Membership,
        ledger: Ledger,
        inbox: EventInbox,
        guard: Guard,
        warm: Callable[[int], object] | None = None,
    ) -> None: ...

    def observe(self) -> FleetView:
        """All instances that are not gone."""
        raise NotImplementedError

    def facts(self) -> Sequence[Fact]:
        """What happened since the last call."""
        raise NotImplementedError

    def submit(self, order: Order) -> None:
        """Ask; the result is seen by a later `observe` or `facts`."""
        raise NotImplementedError

    def close(self) -> None:
        """End the warm-up thread."""
