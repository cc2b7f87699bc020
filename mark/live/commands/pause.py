"""`mark pause`: the service ends its instances, calls no Lambda, and keeps all that it knows until it goes on."""

from __future__ import annotations

import time
from collections.abc import Callable

import typer

from mark.config.service import ServiceSettings
from mark.config.settings import Settings
from mark.domain.billing.spending import LimitCause
from mark.live.clock import adopt_wall
from mark.live.service_session import service_store
from mark.report.terminal import note, progress, show, show_json
from mark.steady_time import steady_time
from mark.store.published_status import BUDGET, PAUSE, PauseRequest
from mark.store.service import ServiceStore

ENDED = ("shutting-down", "terminated")
POLL_S = 0.25
ACKNOWLEDGED_WITHIN_S = 15.0
"""Time that the controller that acts has to acknowledge."""
ENDED_S = 180.0
"""Time that instances have to answer what they hold and to end."""
NOT_DONE = 1
"""The exit status where what was asked has not come about."""


def pause(settings: Settings, *, on: bool, as_json: bool) -> None:
    """Pause or go on, and wait until the controller has done so.

    Raises Misconfigured where no such service is up, and typer.Exit where it has not come about, having said so.
    """
    store, _ = service_store(settings)
    service = settings.service.name
    adopt_wall(store)
    PAUSE.write(store, PauseRequest(on=on, at=store.clock().service_time(steady_time())))
    with progress() as report:
        report("telling the controller", 0.0)
        acknowledged = _until(lambda: _is_acknowledged(store, on=on), ACKNOWLEDGED_WITHIN_S)
        if on and acknowledged:
            report("instances answer what they hold and end", 0.0)
            _until(lambda: _left(store) == 0, ENDED_S)
    left = _left(store)
    outside = acknowledged and not on and _limit_cause(store) is LimitCause.OUTSIDE
    if as_json:
        show_json(_document(store, service, on=on, acknowledged=acknowledged, left=left))
    elif acknowledged and not (on and left) and not outside:
        _show(service, on=on)
    if not acknowledged:
        note(
            f"nothing has changed: no controller of {service} heard of it within "
            f"{ACKNOWLEDGED_WITHIN_S:g} s; one that acts later will. `mark status` says whether any does"
        )
    elif on and left:
        note(
            f"the service {service} is pausing, but has instances that did not end within {ENDED_S:g} s: {left}; "
            "`mark status` says which"
        )
    elif outside:
        goes_on = f"mark pause --aws --off{flags_of(service)}"
        note(f"the service {service} is paused from outside, too; `{goes_on}` ends that")
    if not acknowledged or (on and left) or outside:
        raise typer.Exit(NOT_DONE)


def flags_of(service: str) -> str:
    """The flag that names this service to a command, where it needs one."""
    return "" if service == ServiceSettings().name else f" --name {service}"


def _show(service: str, *, on: bool) -> None:
    if on:
        show(f"the service {service} is paused: 0 instances left; `mark pause --off{flags_of(service)}` goes on")
    else:
        show(f"the service {service} goes on: the next plan rents what it needs")


def _document(store: ServiceStore, service: str, *, on: bool, acknowledged: bool, left: int) -> dict[str, object]:
    """The document of `mark pause --json` (docs/json.md)."""
    budget = BUDGET.read(store)
    return {
        "service": service,
        "paused": on,
        "heard": acknowledged,
        "instances_left": left,
        "budget": budget and BUDGET.dump(budget),
    }


def _is_acknowledged(store: ServiceStore, *, on: bool) -> bool:
    """True where a controller acts and follows the request. One that has gone left its last status behind."""
    if store.leases.held_by() is None:
        return False
    cause = _limit_cause(store)
    return cause is not None and (cause is LimitCause.PAUSE) == on


def _limit_cause(store: ServiceStore) -> LimitCause | None:
    """The cause of the spending limit as it was published last."""
    budget = BUDGET.read(store)
    return None if budget is None else budget.limit_cause


def _left(store: ServiceStore) -> int:
    """Instances that have not ended, shared ones too, by the ledger."""
    names = [model.name for model in store.spec().billed]
    changes = (change for name in names for change in store.transitions(name) if not change.is_reading)
    last = {change.instance: change.state for change in changes}
    return sum(1 for state in last.values() if state not in ENDED)


def _until(check: Callable[[], bool], seconds: float) -> bool:
    until = time.monotonic() + seconds
    while not check():
        if time.monotonic() > until:
            return False
        time.sleep(POLL_S)
    return True
