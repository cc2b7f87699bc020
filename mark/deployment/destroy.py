"""`mark destroy`: no instance is left behind, and it says what stays.

Controllers and the group of gateways go first, since they would launch anew; then the instances end, by the tag of
the service; then everything else goes, in the reverse of the order in which it came. Instances are looked for once
more when nothing is left that could launch one. The archive (bucket and logs) and disks that outlived their
instances stay, unless all is to go. Images in ECR stay: others may run them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from mark.aws.dns import remove_addresses, remove_all_addresses
from mark.aws.ec2.inventory import loose_volumes, remove_volumes
from mark.aws.ec2.tags import SERVICE
from mark.aws.names import name_of
from mark.aws.objects import empty_bucket
from mark.aws.outside_pause import remove_pause
from mark.aws.provision import end_instances
from mark.aws.stacks.cloudformation import StackState
from mark.aws.stacks.lock import RolloutLock
from mark.aws.tagged import tagged_resources
from mark.config.rollout import node_name
from mark.config.settings import Settings
from mark.deployment.account import Account, lock, open_account
from mark.deployment.deployment_plan import STAYS
from mark.deployment.images import delete_command, images_of
from mark.deployment.show import EventLog
from mark.deployment.stack_progress import finish, logged, settle
from mark.domain.errors import MarkError, RetryLater
from mark.domain.figures import plural
from mark.report.terminal import agreed, show

ORDER = (
    "watch",
    "control",
    "gateways",
    "nodes",
    "reports",
    "functions",
    "events",
    "state",
    "launch",
    "network",
)
"""Parts as they go. A stack that is unknown here, of another version, goes after those that launch."""
BUCKET = "Bucket"
"""Its logical name in the archive's stack."""
LAUNCHING = ORDER[:4]
"""Those that launch, and the alarms, which import from them and would ring."""
END_S, POLL_S = 600.0, 2.0
"""Time that instances may take to end."""


def destroy(settings: Settings, *, yes: bool, everything: bool = False) -> None:
    """Remove the service from the account, after a confirmation. everything: its archive and loose disks, too."""
    service = settings.service.name
    with open_account(settings) as account, lock(account, service) as held:
        settle(account.stacks, service)
        stays = name_of(service, STAYS)
        going = in_order(account.stacks.named(name_of(service, "")), service)
        where = f"account {account.id}, region {account.region}"
        archive = _archive(account, service) if everything else None
        if going:
            show(f"goes: its instances, and {', '.join(state.name for state in going)}")
        if archive is not None:
            show(f"goes for good: {stays}, with all reports, journals and logs")
        _say_what_stays(account, stays, settings, goes=everything)
        if (going or everything) and not (yes or agreed(f"Remove {service} from {where}?")):
            show("nothing was changed")
            return
        remove_stacks(account, going, settings, held)
        remove_pause(account.aws, service)
        if archive is not None:
            remove_archive(account, archive)
        if everything:
            remove_volumes(account.aws, loose_volumes(account.aws, service))
        show(f"the service {service} is gone from {where}" if going else f"nothing of {service} stands in {where}")
        _say_what_is_left(account, service, stays)


def in_order(found: Sequence[StackState], service: str) -> list[StackState]:
    """The stacks of the service that go, in the order in which they do."""
    stays = name_of(service, STAYS)
    going = (state for state in found if state.name != stays and state.tags.get(SERVICE) == service)
    return sorted(going, key=lambda state: _place(state, service))


def remove_stacks(account: Account, going: Sequence[StackState], settings: Settings, held: RolloutLock) -> None:
    """Remove these stacks, and the service's instances as soon as nothing launches any."""
    log, service = EventLog(len(going)), settings.service.name
    launching = tuple(name_of(service, part) for part in LAUNCHING)
    ended = False
    for state in going:
        held.confirm()
        if not ended and state.name not in launching:
            _end(account, service, log)
            ended = True
        log.stack(state.name, "delete")
        if state.name.endswith("-state"):
            _forget_name(account, settings, state)
        finish(account.stacks, state.name, list(logged(account.stacks.remove(state), log)), gone=True)
        if state.name.endswith("-launch"):
            _end(account, service, log)
    _end(account, service, log)


def _archive(account: Account, service: str) -> StackState | None:
    """The stack of the service's archive; one of that name without its tag is somebody else's."""
    state = account.stacks.state(name_of(service, STAYS))
    return state if state is not None and state.tags.get(SERVICE) == service else None


def remove_archive(account: Account, state: StackState) -> None:
    """Remove bucket and logs for good. Interrupted, it goes on when it is called again."""
    log = EventLog(1)
    log.stack(state.name, "delete")
    bucket = account.stacks.resources(state.name).get(BUCKET)
    if bucket:
        log.show_line(f"{bucket}: removed {plural(empty_bucket(account.aws, bucket), 'object')}")
    finish(account.stacks, state.name, list(logged(account.stacks.remove(state), log)), gone=True)


def _forget_name(account: Account, settings: Settings, state: StackState) -> None:
    """Remove the nodes' name: nobody keeps it any more, and a hosted zone that has one cannot be removed."""
    rollout, service = settings.rollout, settings.service.name
    own = state.exports.get(name_of(service, "zone"))
    if own:  # today's settings may have another name than those that it was deployed with: a trial's, say
        remove_all_addresses(account.aws.names, own)
    elif rollout.shape == "lean" and rollout.node.zone:
        remove_addresses(account.aws.names, rollout.node.zone, node_name(rollout, service))


def _end(account: Account, service: str, log: EventLog) -> None:
    """End all instances of the service and wait until they are gone: groups and networks cannot go before."""
    until, has_said = time.monotonic() + END_S, False
    while left := end_instances(account.aws, service):
        if not has_said:
            first = f"{', '.join(left[:5])}{' ...' if len(left) > 5 else ''}"
            log.show_line(f"ending {plural(len(left), 'instance')}: {first}")
            has_said = True
        if time.monotonic() > until:
            raise RetryLater(f"{len(left)} instances have not ended after {END_S:g} s; destroy again")
        time.sleep(POLL_S)


def _place(state: StackState, service: str) -> int:
    part = state.name.removeprefix(name_of(service, ""))
    return ORDER.index(part) if part in ORDER else len(LAUNCHING)


def _say_what_is_left(account: Account, service: str, stays: str) -> None:
    """Name volumes that outlived their instances, and whatever else has the tag and is not meant to stay."""
    loose = loose_volumes(account.aws, service)
    if loose:
        count = plural(len(loose), "volume")
        show(f"left behind and billed: {count} of ended instances; these commands remove them:")
        show(*(f"  aws ec2 delete-volume --volume-id {name}" for name in loose))
    try:
        tagged = tagged_resources(account.aws, service)
    except MarkError as error:
        show(f"AWS does not say what else has the tag {SERVICE}={service}: {error}")
        return
    archive = account.stacks.resources(stays) if _archive(account, service) is not None else {}
    kept = {stays, *loose, *filter(None, archive.values())}
    others = [arn for arn in tagged if not kept & names_in(arn)]
    if others:
        show(f"AWS still lists, with the tag {SERVICE}={service} (what was just removed stays there for hours):")
        show(*(f"  {arn}" for arn in others))


def names_in(arn: str) -> set[str]:
    """The names that CloudFormation may have for a resource: its ARN, the end of it, and parts of that."""
    last = arn.split(":", 5)[-1]
    return {arn, last, *re.split("[:/]", last), last.partition(":")[2]}


def _say_what_stays(account: Account, stays: str, settings: Settings, *, goes: bool = False) -> None:
    """Name the images of the settings, and the archive. goes: the archive does not stay."""
    if commands := [delete_command(image) for image in images_of(settings.rollout)]:
        show("stays: images in ECR, which cost what their size costs. These commands remove them:")
        show(*(f"  {command}" for command in commands))
    if goes:
        return
    if _archive(account, settings.service.name) is None:
        show("stays of the stacks: nothing")
        return
    kept = [physical for _, physical in sorted(account.stacks.resources(stays).items()) if physical]
    shown = "\n".join(f"  {name}" for name in dict.fromkeys(kept))
    show(f"stays: the stack {stays}, which costs what its contents cost. A later deploy goes on with it.\n{shown}")
    show("to remove that too, for good: mark destroy --all")
