"""Plan of a rollout: for each stack nothing, a change set, or its making; in order of deployment.

`diff` compares templates alone and touches nothing; `deploy` asks CloudFormation for a change set of each stack
that stands, which also says what would be replaced. A new stack's resources are read from its template: it takes
values of stacks that do not exist yet.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from mark.aws.ec2.tags import SERVICE
from mark.aws.names import name_of
from mark.aws.stacks.cloudformation import (
    FAILED_NEW,
    LONGEST_BODY,
    STUCK,
    Change,
    ChangeSet,
    Stacks,
    StackState,
    StackTemplate,
)
from mark.deployment.machine_images import image_changes
from mark.deployment.synth import Synthesis
from mark.domain.documents import json_text
from mark.domain.errors import Misconfigured

Act = Literal["create", "create again", "update", "keep", "delete"]
TEMPLATES = "templates/"
"""Prefix in the bucket of templates that are too long for a call."""
STAYS = "archive"
"""The stack that outlives the service: bucket and logs."""
FUNCTION, IMAGE, ZIP = "AWS::Lambda::Function", "Image", "Zip"
ZONE = "AWS::Route53::HostedZone"
SECTIONS: tuple[tuple[Literal["Resources", "Outputs", "Parameters"], str], ...] = (
    ("Resources", ""),
    ("Outputs", "Output"),
    ("Parameters", "Parameter"),
)
"""Sections that are compared, and what a change in one is called; a resource's is its type."""
STORE_PASSWORD = re.compile(r"-password-[a-z]+(?:-(\d+))?$")
"""Name of a secret with a password of the store's, and its number (`infra/stacks/state.py`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackPlan:
    """Planned change of one stack. `change_set`: for one that stands and changes; `state`: as it was found.

    `images`: machine images that are newer than the stack's; any change of its template brings them.
    """

    name: str
    act: Act
    changes: tuple[Change, ...] = ()
    images: tuple[Change, ...] = ()
    state: StackState | None = None
    change_set: ChangeSet | None = None


def compare(
    stacks: Stacks,
    synthesis: Synthesis,
    service: str,
    newest: Callable[[str], str] | None = None,
    *,
    new_images: bool = False,
) -> tuple[StackPlan, ...]:
    """Differences between the account and the templates; changes nothing.

    newest: the machine image that a public parameter names now; None: nobody asks. new_images: stacks whose image
    is not the newest are updated for that alone.
    """
    there = {state.name: state for state in stacks.named(name_of(service, ""))}
    _refuse_reshaped(there, synthesis, service)
    extra = (state for state in there.values() if state.name not in synthesis.templates)
    plans = [_leftover(state) for state in extra if state.tags.get(SERVICE) == service]  # `shop` is not `shop-b`
    for name, template in synthesis.templates.items():
        state = there.get(name)
        if state is None or state.status == "REVIEW_IN_PROGRESS":
            plans.append(StackPlan(name=name, act="create", changes=_additions(template), state=state))
        elif state.status in FAILED_NEW:
            plans.append(StackPlan(name=name, act="create again", changes=_additions(template), state=state))
        else:
            before = stacks.template(name)
            _refuse_repacked(before, template)
            _refuse_renamed(before, template)
            _refuse_skipped(before, template)
            changes = tuple(template_changes(before, template))
            images = tuple(image_changes(state, newest)) if newest is not None else ()
            if changes or (images and new_images):
                plans.append(
                    StackPlan(name=name, act="update", changes=(*changes, *images), images=images, state=state)
                )
            else:
                plans.append(StackPlan(name=name, act="keep", images=images, state=state))
    return tuple(plans)


def with_change_sets(
    plans: tuple[StackPlan, ...], stacks: Stacks, synthesis: Synthesis, tags: Mapping[str, str]
) -> Iterator[StackPlan]:
    """The plans, with CloudFormation's change sets for stacks that are to be updated.

    A template that is too long for a call is prepared later, when it lies in the bucket.
    """
    for plan in plans:
        if plan.act != "update" or is_long(synthesis.templates[plan.name]):
            yield plan
            continue
        made = stacks.prepare(plan.name, synthesis.templates[plan.name], tags=tags)
        if made is None:  # what differs has no effect
            yield StackPlan(name=plan.name, act="keep", state=plan.state)
        else:
            differs = {change.resource: change.differs for change in plan.changes}
            changes = tuple(replace(change, differs=differs.get(change.resource, "")) for change in made.changes)
            yield replace(plan, changes=(*changes, *plan.images), change_set=made)


def is_long(template: StackTemplate) -> bool:
    """True where a template is so long that it must be uploaded to the bucket."""
    return len(json_text(template, compact=True).encode()) > LONGEST_BODY


def template_changes(before: StackTemplate, after: StackTemplate) -> Iterator[Change]:
    """Resources and outputs that differ between two templates, and parameters; by name."""
    for section, kind in SECTIONS:
        old, new = before.get(section) or {}, after.get(section) or {}
        for name in sorted({*old, *new}):
            if old.get(name) == new.get(name):
                continue
            action = "Add" if name not in old else "Remove" if name not in new else "Modify"
            changes = kind or str((new.get(name) or old[name]).get("Type", ""))
            yield Change(action=action, resource=name, type=changes, differs=_which(old.get(name), new.get(name)))


def _which(old: Any, new: Any) -> str:
    """The properties that differ, for a resource that is modified."""
    if not (isinstance(old, dict) and isinstance(new, dict)) or "Properties" not in old or "Properties" not in new:
        return ""
    was, becomes = old["Properties"], new["Properties"]
    return ", ".join(key for key in sorted({*was, *becomes}) if was.get(key) != becomes.get(key))


def _additions(template: StackTemplate) -> tuple[Change, ...]:
    made = template.get("Resources", {}).items()
    return tuple(Change(action="Add", resource=name, type=resource["Type"]) for name, resource in made)


def _refuse_repacked(before: StackTemplate, after: StackTemplate) -> None:
    """Misconfigured where a function would become an image, or a zip again: Lambda lets none change."""
    old = before.get("Resources", {})
    for name, resource in after.get("Resources", {}).items():
        if resource["Type"] != FUNCTION or name not in old:
            continue
        was, becomes = (one.get("Properties", {}).get("PackageType", ZIP) for one in (old[name], resource))
        if was != becomes:
            called = resource["Properties"]["FunctionName"]
            raise Misconfigured(
                f"the function {called} is {'an image' if was == IMAGE else 'a zip'}, and Lambda makes of none "
                "the other (rollout.functions.infer_image): deploy once with offerings: {overflow: false} of its "
                "model, which removes it, then as you want it"
            )


def _refuse_renamed(before: StackTemplate, after: StackTemplate) -> None:
    """Misconfigured where the nodes' own zone would change: nodes use it, and it holds their address."""
    was, becomes = (_zones(one) for one in (before, after))
    if was != becomes:
        had, gets = (" and ".join(zones) or "none" for zones in (was, becomes))
        raise Misconfigured(
            f"the service stands with a hosted zone of its own for {had}, and would get {gets}: rollout.node.name "
            "and node.zone cannot change while it stands, also where a trial chose the name. `mark destroy`, then "
            "deploy anew; the archive stays"
        )


def _refuse_skipped(before: StackTemplate, after: StackTemplate) -> None:
    """Misconfigured where the store would no longer take the passwords that processes have read."""
    had, gets = _password_number(before), _password_number(after)
    if had and gets not in (had, had + 1):
        raise Misconfigured(
            f"the store's passwords stand at number {had}, and would be at {gets}: whoever runs would be locked "
            f"out. Write rollout.store.passwords: {had}, or {had + 1} to replace them"
        )


def _password_number(template: StackTemplate) -> int:
    """Number of the store's newest passwords; 0 where a template makes none."""
    resources = template.get("Resources", {}).values()
    found = (STORE_PASSWORD.search(str(one.get("Properties", {}).get("Name", ""))) for one in resources)
    return max((int(match[1] or 1) for match in found if match), default=0)


def _zones(template: StackTemplate) -> tuple[str, ...]:
    """Names of the hosted zones that a template makes."""
    resources = template.get("Resources", {}).values()
    return tuple(sorted(str(one["Properties"]["Name"]).rstrip(".") for one in resources if one["Type"] == ZONE))


def _refuse_reshaped(there: Mapping[str, StackState], synthesis: Synthesis, service: str) -> None:
    """Misconfigured where a service that stands would get the other shape: its store does not move along."""
    for shape, part, other in (("lean", "nodes", "gateways"), ("ha", "gateways", "nodes")):
        if name_of(service, part) in there and name_of(service, other) in synthesis.templates:
            raise Misconfigured(
                f"the service {service} stands with rollout.shape: {shape}, which cannot change, since its store "
                f"would stay behind: write shape: {shape} to go on with it, or deploy the other shape under "
                "another service.name and move your clients (docs/deploy.md, Move to the other shape)"
            )


def _leftover(state: StackState) -> StackPlan:
    if state.name.endswith("-network"):
        raise Misconfigured("rollout.network.vpc cannot change while the service stands in a network of its own")
    return StackPlan(name=state.name, act="delete", state=state)


def refuse_stuck(plans: tuple[StackPlan, ...]) -> None:
    """Misconfigured where a stack needs a person's decision first."""
    for plan in plans:
        if plan.state is not None and plan.state.status in STUCK:
            raise Misconfigured(
                f"{plan.name} is {plan.state.status}: its last update failed and could not be undone "
                f"({plan.state.reason or 'its events say why'}); mend what it names, then `aws cloudformation "
                f"continue-update-rollback --stack-name {plan.name}` and deploy again"
            )
