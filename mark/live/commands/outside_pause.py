"""`mark pause --aws`: a pause that needs only credentials, while store, gateways and controllers are dead.

The controllers that live end the fleet as they do under any pause; what they leave, this command ends by its tags.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import typer

from mark.aws.account.preflight import caller
from mark.aws.ec2.batches import call_each
from mark.aws.ec2.inventory import InventoryItem, fleet_of, list_inventory
from mark.aws.outside_pause import remove_pause, write_pause
from mark.aws.provision import AT_ONCE
from mark.aws.session import Aws
from mark.config.footprint import footprint_of
from mark.config.prices import chosen_prices
from mark.config.settings import Settings
from mark.domain.billing.spending import OutsidePause
from mark.domain.errors import MarkError, Misconfigured
from mark.domain.figures import plural
from mark.live.commands.pause import NOT_DONE, flags_of
from mark.live.service_session import service_aws
from mark.live.status.aws_inventory import instance_document, usd_per_hour
from mark.report.overhead import overhead_usd_per_hour
from mark.report.terminal import note, progress, show, show_json

OBEY_S = 90.0
"""Time that controllers have to end the fleet: a poll of theirs, a tick, and what the instances still answer."""
ENDED_S = 180.0
"""Time for this command to end what they left."""
POLL_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The end of a fleet: who ended how much of it, and what runs on."""

    by: str
    #: Ended while controllers had time to.
    ended_there: int
    #: Ids of those that this command ended.
    ended_here: tuple[str, ...]
    #: Why AWS ends the others not, by id.
    refused: dict[str, str]
    running: tuple[InventoryItem, ...]

    @property
    def left(self) -> tuple[InventoryItem, ...]:
        """The part of the fleet that runs on."""
        return fleet_of(self.running)


def pause_outside(settings: Settings, *, on: bool, within_s: float | None, as_json: bool) -> None:
    """Pause or go on. `within_s`: time that controllers have before this command ends the fleet, else OBEY_S.

    Raises typer.Exit where the fleet has not ended, having said so.
    """
    aws = service_aws(settings, "pauser")
    try:
        if on:
            _pause(settings, aws, within_s=OBEY_S if within_s is None else within_s, as_json=as_json)
        else:
            _resume(settings, aws, as_json=as_json)
    finally:
        aws.close()


def _pause(settings: Settings, aws: Aws, *, within_s: float, as_json: bool) -> None:
    by = _who(aws)
    write_pause(aws, settings.service.name, OutsidePause(by=by, at=time.time()))
    outcome = _end_fleet(aws, settings.service.name, by=by, within_s=within_s)
    if as_json:
        show_json(_document(settings, outcome))
    else:
        _show(settings, outcome)
    if outcome.ended_here:
        note(
            f"controllers left {plural(len(outcome.ended_here), 'instance')} after {within_s:g} s. Gateways that "
            "run may call Lambda until a controller tells them of the pause; `mark destroy` ends them too"
        )
    if outcome.left:
        reasons = "; ".join(dict.fromkeys(outcome.refused.values())) or f"they did not end within {ENDED_S:g} s"
        names = ", ".join(one.id for one in outcome.left)
        note(f"{plural(len(outcome.left), 'instance')} of the fleet run on: {names}; {reasons}")
        raise typer.Exit(NOT_DONE)


def _resume(settings: Settings, aws: Aws, *, as_json: bool) -> None:
    service = settings.service.name
    stood = remove_pause(aws, service)
    if as_json:
        show_json({"service": service, "paused": False, "stood": stood})
    elif stood:
        show(
            f"the service {service} goes on: its controllers see it within 20 s. A pause of `mark pause`, or by a "
            "budget, stays"
        )
    else:
        show(f"no pause of {service} from outside stood in {aws.settings.region}")


def _end_fleet(aws: Aws, service: str, *, by: str, within_s: float) -> Outcome:
    """Leave it to the controllers, then end what is left."""
    before = fleet_of(list_inventory(aws, service))
    ended: dict[str, None] = {}
    refused: dict[str, str] = {}
    with progress() as report:
        report("controllers end the fleet", 0.0)
        left, until = before, time.monotonic() + within_s
        while left and time.monotonic() < until:
            time.sleep(POLL_S)
            left = fleet_of(list_inventory(aws, service))
        there = len(before) - len(left)
        until = time.monotonic() + ENDED_S
        while any(one.id not in refused for one in left) and time.monotonic() < until:
            report("ending what they left", 0.0)
            names = [one.id for one in left if one.id not in refused][:AT_ONCE]
            errors = call_each(names, lambda some: aws.ec2.terminate_instances(InstanceIds=some), lambda _: None)
            refused |= {name: str(error) for name, error in errors.items()}
            ended |= dict.fromkeys(name for name in names if name not in errors)
            time.sleep(POLL_S)
            left = fleet_of(list_inventory(aws, service))
    return Outcome(
        by=by,
        ended_there=max(0, there),
        ended_here=tuple(ended),
        refused=refused,
        running=list_inventory(aws, service),
    )


def _who(aws: Aws) -> str:
    """The owner of the credentials; where STS does not answer the pause names nobody, and stands all the same."""
    try:
        return caller(aws).arn
    except MarkError:
        return ""


def _show(settings: Settings, outcome: Outcome) -> None:
    service, running = settings.service.name, outcome.running
    state = "is pausing" if outcome.left else "is paused"
    show(
        f"the service {service} {state} from outside: {plural(outcome.ended_there, 'instance')} ended by its "
        f"controllers, {len(outcome.ended_here)} by this command",
        f"it launches nothing until `mark pause --aws --off{flags_of(service)}`",
    )
    roles = sorted({one.role or "gateway or node" for one in running})
    what = f" ({', '.join(roles)})" if roles else ""
    show(f"still runs: {plural(len(running), 'instance')}{what}, {_usd_per_hour(settings, running):.4f} USD/h")
    around = _around_usd(settings)
    if around is not None:
        show(
            f"still costs: about {around:.2f} USD/h for all that stands around the fleet, gateways and nodes "
            "included; `mark destroy` ends that"
        )


def _usd_per_hour(settings: Settings, rows: Sequence[InventoryItem]) -> float:
    prices = chosen_prices(settings)
    return sum(usd_per_hour(row, prices) for row in rows)


def _around_usd(settings: Settings) -> float | None:
    """USD an hour of what stands around the fleet; None where the settings do not say what that is."""
    try:
        return overhead_usd_per_hour(footprint_of(settings, models=max(1, len(settings.service.serve))))
    except Misconfigured:
        return None


def _document(settings: Settings, outcome: Outcome) -> dict[str, object]:
    """The document of `mark pause --aws --json` (docs/json.md)."""
    return {
        "service": settings.service.name,
        "paused": True,
        "by": outcome.by,
        "ended_by_controllers": outcome.ended_there,
        "ended_here": list(outcome.ended_here),
        "instances_left": len(outcome.left),
        "refused": outcome.refused,
        "running": [instance_document(row) for row in outcome.running],
        "usd_per_hour": _usd_per_hour(settings, outcome.running),
        "around_usd_per_hour": _around_usd(settings),
    }
