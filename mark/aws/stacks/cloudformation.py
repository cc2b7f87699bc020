"""CloudFormation: a stack's state, change sets, the events of one operation, and why it failed.

One operation at a time: whoever changes stacks holds the lock of `lock.py`. Every wait has a deadline.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

import yaml
from botocore.exceptions import ClientError

from mark.aws.errors import code_of, translated
from mark.aws.session import Aws
from mark.domain.errors import MarkError, Misconfigured, RetryLater

if TYPE_CHECKING:
    from mypy_boto3_cloudformation.type_defs import (
        ChangeTypeDef,
        CreateChangeSetInputTypeDef,
        DescribeChangeSetOutputTypeDef,
        ResourceChangeTypeDef,
    )

LONGEST_BODY = 51_200
"""Bytes of a template that a call may carry (CloudFormation quotas)."""
CHANGE_SET_S, STACK_S = 300.0, 3600.0
"""Time that a change set and a stack may take; an ElastiCache takes a quarter of an hour."""
NOTHING = ("didn't contain changes", "No updates are to be performed", "no changes")
"""CloudFormation's messages that a change set is empty."""
IN_PROGRESS = "_IN_PROGRESS"
FAILED_NEW = ("ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "CREATE_FAILED", "DELETE_FAILED")
"""A stack that never stood, or half of one that was to go: it has to be removed before it can be made."""
STANDS = ("CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE", "IMPORT_COMPLETE")
STUCK = ("UPDATE_ROLLBACK_FAILED", "UPDATE_FAILED")


class _RoleGiven(TypedDict, total=False):
    RoleARN: str


class StackResource(TypedDict):
    """A resource of a template. The kind, `AWS::SQS::Queue`, says which properties it has."""

    Type: str
    Properties: NotRequired[Mapping[str, Any]]


class StackTemplate(TypedDict, total=False):
    """A template, as far as it is read here; each section is by name."""

    Description: str
    Parameters: Mapping[str, Mapping[str, object]]
    Mappings: Mapping[str, Mapping[str, Mapping[str, str]]]
    Resources: Mapping[str, StackResource]
    Outputs: Mapping[str, Mapping[str, object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StackState:
    """A stack as it is now. `exports`: by name.

    `resolved`: parameter -> public parameter of Systems Manager, and what that was when the stack last changed.
    """

    name: str
    id: str
    status: str
    reason: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    exports: Mapping[str, str] = field(default_factory=dict)
    resolved: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def busy(self) -> bool:
        """True while an operation on it is under way; a change set that waits for review is none."""
        return self.status.endswith(IN_PROGRESS) and self.status != "REVIEW_IN_PROGRESS"

    @property
    def stands(self) -> bool:
        """True where it can be updated."""
        return self.status in STANDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One resource that changes. `replaced`: True, False or Conditional, as change sets say; `differs`: where."""

    action: str
    resource: str
    type: str
    replaced: str = ""
    differs: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSet:
    """A change set that can be carried out."""

    stack: str
    id: str
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StackEvent:
    """Something that happened to a resource."""

    id: str
    at: float
    resource: str
    type: str
    status: str
    reason: str


class Stacks:
    """The stacks of an account. `poll_s`: seconds between two looks.

    `role`: the ARN of the role in which CloudFormation acts; empty: it acts as whoever asks.
    """

    def __init__(self, aws: Aws, *, poll_s: float = 2.0, role: str = "") -> None:
        self._role: _RoleGiven = {"RoleARN": role} if role else {}
        self._client = aws.stacks
        self._poll_s = poll_s

    def state(self, name: str) -> StackState | None:
        """The stack of that name (or id), None where there is none."""
        try:
            with translated():
                found = self._client.describe_stacks(StackName=name)["Stacks"]
        except MarkError as error:
            if _is_absent(error):
                return None
            raise
        if not found or found[0]["StackStatus"] == "DELETE_COMPLETE":
            return None
        stack = found[0]
        outputs = stack.get("Outputs") or []
        return StackState(
            name=stack["StackName"],
            id=stack.get("StackId", ""),
            status=stack["StackStatus"],
            reason=stack.get("StackStatusReason", "") or "",
            tags={tag["Key"]: tag["Value"] for tag in stack.get("Tags", [])},
            exports={
                o["ExportName"]: o["OutputValue"] for o in outputs if "ExportName" in o and "OutputValue" in o
            },
            resolved={
                p["ParameterKey"]: (p["ParameterValue"], p["ResolvedValue"])
                for p in stack.get("Parameters") or []
                if "ResolvedValue" in p
            },
        )

    def named(self, prefix: str) -> tuple[StackState, ...]:
        """All stacks whose names begin so, by name."""
        with translated():
            pages = self._client.get_paginator("describe_stacks").paginate()
            names = sorted(s["StackName"] for page in pages for s in page["Stacks"])
        states = (self.state(name) for name in names if name.startswith(prefix))
        return tuple(state for state in states if state is not None)

    def template(self, name: str) -> StackTemplate:
        """The template that the stack was last made from; CDK's command line sends the same as YAML."""
        with translated():
            body: Any = self._client.get_template(StackName=name, TemplateStage="Original")["TemplateBody"]
        found: StackTemplate = yaml.safe_load(body) if isinstance(body, str) else body
        return found

    def resources(self, name: str) -> dict[str, str]:
        """The resources of a stack: logical name -> physical id."""
        with translated():
            pages = self._client.get_paginator("list_stack_resources").paginate(StackName=name)
            rows = [row for page in pages for row in page["StackResourceSummaries"]]
        gone = "DELETE_COMPLETE"
        return {
            r["LogicalResourceId"]: r.get("PhysicalResourceId", "") for r in rows if r["ResourceStatus"] != gone
        }

    def prepare(
        self, name: str, template: StackTemplate, *, tags: Mapping[str, str], url: str = ""
    ) -> ChangeSet | None:
        """A change set from what is there to `template`; None where nothing would change.

        `url`: where the template lies, for one that is too long for a call.
        """
        state = self.state(name)
        creates = state is None or state.status == "REVIEW_IN_PROGRESS"
        body = json.dumps(template, separators=(",", ":"))
        asked: CreateChangeSetInputTypeDef = {
            "StackName": name,
            "ChangeSetName": f"mark-{time.time_ns()}",
            "ChangeSetType": "CREATE" if creates else "UPDATE",
            "Capabilities": ["CAPABILITY_NAMED_IAM"],
            "Tags": [{"Key": key, "Value": value} for key, value in sorted(tags.items())],
            **self._role,
            **({"TemplateURL": url} if url else {"TemplateBody": body}),  # type: ignore[typeddict-item]
        }
        with translated():
            made = self._client.create_change_set(**asked)["Id"]
        return self._prepared(name, made)

    def _prepared(self, name: str, made: str) -> ChangeSet | None:
        until = time.monotonic() + CHANGE_SET_S
        while True:
            with translated():
                told = self._client.describe_change_set(StackName=name, ChangeSetName=made)
            status, reason = told["Status"], told.get("StatusReason", "") or ""
            if status == "CREATE_COMPLETE":
                break
            if status == "FAILED":
                self.discard(name, made)
                if any(words in reason for words in NOTHING):
                    return None
                raise Misconfigured(f"{name} cannot be changed so: {reason}")
            if time.monotonic() > until:
                raise RetryLater(f"{name}: the change set is {status} after {CHANGE_SET_S:g} s")
            time.sleep(self._poll_s)
        changes = [self._change(change["ResourceChange"]) for change in self._all_changes(name, made, told)]
        return ChangeSet(stack=name, id=made, changes=tuple(changes))

    def _all_changes(self, name: str, made: str, told: DescribeChangeSetOutputTypeDef) -> Iterator[ChangeTypeDef]:
        yield from told.get("Changes", [])
        while told.get("NextToken"):
            with translated():
                told = self._client.describe_change_set(
                    StackName=name, ChangeSetName=made, NextToken=told["NextToken"]
                )
            yield from told.get("Changes", [])

    @staticmethod
    def _change(told: ResourceChangeTypeDef) -> Change:
        return Change(
            action=str(told.get("Action", "")),
            resource=str(told.get("LogicalResourceId", "")),
            type=str(told.get("ResourceType", "")),
            replaced=str(told.get("Replacement", "") or ""),
        )

    def discard(self, name: str, change_set: str) -> None:
        """Remove a change set that is not to be carried out, and the empty stack of one that would create it."""
        with translated():
            self._client.delete_change_set(StackName=name, ChangeSetName=change_set)
        state = self.state(name)
        if state is not None and state.status == "REVIEW_IN_PROGRESS":
            with translated():
                self._client.delete_stack(StackName=name, **self._role)

    def carry_out(self, change_set: ChangeSet) -> Iterator[StackEvent]:
        """Carry it out; the events until the stack has settled. `settled` gives its end."""
        seen = self._event_ids(change_set.stack)
        with translated():
            self._client.execute_change_set(StackName=change_set.stack, ChangeSetName=change_set.id)
        yield from self.follow(change_set.stack, seen)

    def remove(self, state: StackState) -> Iterator[StackEvent]:
        """Delete a stack; the events until it is gone."""
        seen = self._event_ids(state.id)
        with translated():
            self._client.delete_stack(StackName=state.name, **self._role)
        yield from self.follow(state.id or state.name, seen)

    def follow(self, name: str, seen: set[str] | None = None) -> Iterator[StackEvent]:
        """Events that are not in `seen`, oldest first, until nothing is under way. RetryLater after an hour.

        A look that AWS throttles, or that does not reach it, is made again: what is under way goes on.
        """
        known, until = set() if seen is None else seen, time.monotonic() + STACK_S
        while True:
            try:
                state, found = self.state(name), self.events(name, known)
            except RetryLater:
                if time.monotonic() > until:
                    raise
            else:
                known.update(event.id for event in found)
                yield from found
                if state is None or not state.busy:
                    return
                if time.monotonic() > until:
                    raise RetryLater(f"{name} is {state.status} after {STACK_S:g} s")
            time.sleep(self._poll_s)

    def events(self, name: str, known: Set[str] = frozenset()) -> tuple[StackEvent, ...]:
        """Events of the stack that are not `known`, oldest first; none where there is no such stack.

        AWS gives the newest first, a page a call: with what is known it ends, so that following a stack that has
        stood for long asks for one page.
        """
        rows = []
        try:
            with translated():
                for page in self._client.get_paginator("describe_stack_events").paginate(StackName=name):
                    new = [row for row in page["StackEvents"] if row["EventId"] not in known]
                    rows += new
                    if len(new) < len(page["StackEvents"]):
                        break
        except MarkError as error:
            if _is_absent(error):
                return ()
            raise
        found = [
            StackEvent(
                id=row["EventId"],
                at=row["Timestamp"].timestamp(),
                resource=row.get("LogicalResourceId", ""),
                type=row.get("ResourceType", ""),
                status=row.get("ResourceStatus", ""),
                reason=row.get("ResourceStatusReason", "") or "",
            )
            for row in reversed(rows)
        ]
        return tuple(sorted(found, key=lambda event: event.at))

    def _event_ids(self, name: str) -> set[str]:
        return {event.id for event in self.events(name)}


CANCELLED = ("Resource creation cancelled", "Resource update cancelled", "Resource deletion cancelled")


def first_failure(events: Sequence[StackEvent], stack: str) -> StackEvent | None:
    """The first failure: the oldest failure but for cancelled work, a resource's before the stack's."""
    failed = [
        event
        for event in events
        if event.status.endswith("_FAILED") and not any(word in event.reason for word in CANCELLED)
    ]
    own = [event for event in failed if event.resource != stack]
    told = own or failed or [event for event in events if "ROLLBACK" in event.status and event.reason]
    return told[0] if told else None


def _is_absent(error: MarkError) -> bool:
    """CloudFormation has no code of its own for a stack that is not there."""
    cause = error.__cause__
    said = str(cause.response["Error"].get("Message", "")) if isinstance(cause, ClientError) else ""
    return code_of(error) in ("ValidationError", "StackNotFoundException") and "does not exist" in said
