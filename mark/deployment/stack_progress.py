"""Stacks while they change: waiting for what is under way, showing events, refusing a bad end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from mark.aws.names import name_of
from mark.aws.stacks.cloudformation import StackEvent, Stacks, first_failure
from mark.deployment.show import EventLog
from mark.domain.errors import Misconfigured
from mark.report.terminal import note


def settle(stacks: Stacks, service: str) -> None:
    """Wait for what an earlier, killed rollout left under way: the lock is ours, so nobody else watches it."""
    for state in stacks.named(name_of(service, "")):
        if state.busy:
            note(f"{state.name} is {state.status}, left by an earlier rollout; waiting for it")
            for _ in stacks.follow(state.name):
                pass


def logged(events: Iterable[StackEvent], log: EventLog) -> Iterator[StackEvent]:
    """The events, each shown as it comes."""
    for event in events:
        log.event(event)
        yield event


def finish(stacks: Stacks, name: str, events: Sequence[StackEvent], *, gone: bool = False) -> None:
    """Misconfigured, with the first failure, where the stack did not end as it should."""
    state = stacks.state(name)
    good = state is None if gone else state is not None and state.status in ("CREATE_COMPLETE", "UPDATE_COMPLETE")
    if good:
        return
    failure = first_failure(events, name)
    what = f"{failure.resource} ({failure.type}): {failure.reason}" if failure else "its events say why"
    status = state.status if state else "gone"
    after = {
        "UPDATE_ROLLBACK_COMPLETE": "CloudFormation took it back: it is as it was before",
        "ROLLBACK_COMPLETE": "CloudFormation took it back: only its name is left; deploying again replaces it",
        "UPDATE_ROLLBACK_FAILED": "CloudFormation could not take it back; `mark deploy` says what to do",
        "DELETE_FAILED": "what is left of it is still there; mend that, and do it again",
    }.get(status, f"it is {status}")
    raise Misconfigured(f"{name} failed at {what.rstrip('.')}. {after[0].upper()}{after[1:]}")
