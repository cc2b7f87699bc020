"""`mark diff` and `mark deploy`.

The stacks come one after the other; the first that fails ends it, after CloudFormation has taken it back.
Deploying again goes on from whatever is found: nothing is remembered here that the stacks do not say themselves.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence

from mark.aws.account.linked_roles import linked_services, make_linked_roles
from mark.aws.account.name_taken import require_name_is_free
from mark.aws.account.preflight import manifest_type
from mark.aws.errors import cause_of, code_of, translated
from mark.aws.names import name_of
from mark.aws.objects import holds_object, put_file
from mark.aws.outside_pause import read_pause
from mark.aws.session import Aws
from mark.aws.stacks.cloudformation import Stacks, StackTemplate
from mark.aws.stacks.lock import RolloutLock
from mark.config.served import served_models
from mark.config.service import Mode
from mark.config.settings import Settings
from mark.deployment.account import Account, lock, open_account, tags_of
from mark.deployment.checks.doctor_quotas import require_quota_of_front
from mark.deployment.deployment_plan import (
    STAYS,
    TEMPLATES,
    StackPlan,
    compare,
    is_long,
    refuse_stuck,
    with_change_sets,
)
from mark.deployment.images import remedy_of, rollout_images, unfit_for_processors
from mark.deployment.machine_images import newest_image
from mark.deployment.show import EventLog, offerings_line, plan_document, plan_table
from mark.deployment.spending import end_lines, refuse_past, spending_line
from mark.deployment.stack_progress import finish, logged, settle
from mark.deployment.synth import Synthesis, check_settings, synthesise
from mark.deployment.zones import in_zones
from mark.domain.documents import json_text
from mark.domain.errors import MarkError, Misconfigured, RetryLater
from mark.domain.fleet.orders import RefusalCause
from mark.domain.models.versions import shown
from mark.domain.offerings.offering import Market
from mark.live.local.first_price import ASK_ABOVE_USD_PER_HOUR, FirstPrice, first_price
from mark.live.models import LiveModel
from mark.live.version_bundles import upload
from mark.report.overhead import overhead_line
from mark.report.terminal import agreed, note, show, show_json


def show_difference(settings: Settings, *, as_json: bool) -> int:
    """Print what a deploy would change, from the templates alone; 1 where it is anything, else 0."""
    check_settings(settings)
    with open_account(settings) as account:
        synthesis = synthesise(in_zones(settings, account.stacks, account.aws))
        plans = _compared(account, synthesis, settings.service.name)
    changed = [plan for plan in plans if plan.act != "keep"]
    _say_images(plans)
    if as_json:
        show_json({"stacks": plan_document(plans)})
    elif changed:
        show(plan_table(changed))
    else:
        show(f"no difference: the {len(plans)} stacks of {settings.service.name} are as the settings say")
    return 1 if changed else 0


def _compared(
    account: Account, synthesis: Synthesis, service: str, *, new_images: bool = False
) -> tuple[StackPlan, ...]:
    """The plan; where AWS does not say which machine images are new, without them."""
    try:
        return compare(account.stacks, synthesis, service, newest_image(account.aws), new_images=new_images)
    except MarkError as error:
        if new_images or not _unanswered(error):
            raise
        note(f"AWS could not be asked which machine images are new: {error}")
        return compare(account.stacks, synthesis, service)


def _unanswered(error: MarkError) -> bool:
    """True where AWS does not answer now, or not whoever deploys: with a policy of an earlier version, say."""
    return isinstance(error, RetryLater) or cause_of(code_of(error)) is RefusalCause.AUTHORIZATION


def _say_images(plans: Sequence[StackPlan]) -> None:
    """Name the stacks that stay on an older machine image."""
    for plan in plans:
        if plan.act == "keep":
            for change in plan.images:
                note(f"{plan.name}: a newer machine image is there, {change.differs}; `mark deploy --new-images`")


def deploy(settings: Settings, *, yes: bool, new_images: bool = False) -> None:
    """Make the account as the settings say, after a confirmation. Misconfigured where CloudFormation refuses.

    new_images: also where nothing but AWS's machine image is new.
    """
    service = settings.service.name
    check_settings(settings)
    _refuse_emulated(settings)
    refuse_past(settings, time.time())
    with open_account(settings) as account, lock(account, service) as held:
        settle(account.stacks, service)
        paused = read_pause(account.aws, service)
        if paused is not None:
            note(f"{service} is {paused.reason}: until then its controllers launch nothing")
        settings = in_zones(settings, account.stacks, account.aws)
        synthesis = synthesise(settings)
        compared = _compared(account, synthesis, service, new_images=new_images)
        refuse_stuck(compared)
        _refuse_taken_name(compared, service, account.aws)
        refuse_images(settings, synthesis.models, account.aws)
        require_quota_of_front(settings, len(synthesis.models), account.aws)
        plans = tuple(with_change_sets(compared, account.stacks, synthesis, tags_of(settings)))
        _say_images(plans)
        work = [plan for plan in plans if plan.act != "keep"]
        price = first_price(settings, synthesis.models)
        end = end_lines(settings, price.usd_per_hour)
        if not work:
            show(f"no difference: the {len(plans)} stacks of {service} are as the settings say", *end)
            return
        offered = (f"{model.name} may rent {offerings_line(model)}" for model in synthesis.models)
        lines = (overhead_line(synthesis.footprint), spending_line(synthesis.spending), *price.lines, *end)
        show(plan_table(work), *offered, *lines)
        try:
            goes_on = yes or agreed(_question(settings, account, price))
        except MarkError:
            _discard(account.stacks, work)
            raise
        if not goes_on:
            _discard(account.stacks, work)
            show("nothing was changed")
            return
        _prepare_account(account, settings, synthesis.models)
        _carry_out(account, settings, synthesis, work, held)
        _say_where(account.stacks, settings)
        show(*end)


def _question(settings: Settings, account: Account, price: FirstPrice) -> str:
    above = price.above(settings.service.aws.ask_above_usd_per_hour or ASK_ABOVE_USD_PER_HOUR)
    return f"{above} Do this in account {account.id}, region {account.region}?".lstrip()


def _refuse_emulated(settings: Settings) -> None:
    """Misconfigured where rented instances would answer zeros. A service that only observes rents none."""
    if settings.service.mode is Mode.OBSERVE:
        return
    emulated = [one.model for one in served_models(settings) if one.backend.kind == "emulated"]
    if emulated:
        raise Misconfigured(
            f"{', '.join(emulated)}: an emulated backend answers zeros, on instances that are paid for; name what "
            "runs the model (service.serve[].backend), or take it out of service.serve"
        )


def _refuse_taken_name(plans: Sequence[StackPlan], service: str, aws: Aws) -> None:
    """Misconfigured where the account has the service in another region."""
    if not any(plan.name == name_of(service, "launch") and plan.act == "create" for plan in plans):
        return
    try:
        require_name_is_free(aws, name_of(service, "agent"))
    except MarkError as error:
        if not _unanswered(error):
            raise
        note(f"IAM could not be asked whether another region has {service}: {error}")


def _prepare_account(account: Account, settings: Settings, models: Sequence[LiveModel]) -> None:
    """Make the roles of AWS's services that the stacks take for granted; where that is refused AWS makes them."""
    spot = any(item.market is Market.SPOT for model in models for item in model.served.offerings)
    services = linked_services(lean=settings.rollout.shape == "lean", spot=spot)
    try:
        made = make_linked_roles(account.aws, services)
    except MarkError as error:
        note(f"service-linked roles cannot be made here, so a first deploy may have to be repeated: {error}")
        return
    if made:
        note(f"made the account's service-linked roles of {', '.join(made)}")


def refuse_images(settings: Settings, models: Sequence[LiveModel], aws: Aws) -> None:
    """Misconfigured where an image lacks a processor that its processes run on, or is a list that Lambda refuses.

    A registry that cannot be asked is no reason to stop: that is said, and `mark doctor` has the rest.
    """
    for one in rollout_images(settings, models):
        if one.image is None:
            continue
        try:
            found = manifest_type(aws, one.image)
        except MarkError as error:
            note(f"rollout.{one.key}: ECR could not be asked for the processors of {one.image}: {error}")
            continue
        if found is None and one.of_function:
            raise Misconfigured(f"rollout.{one.key}: {one.image} is not in ECR; {remedy_of(one)}")
        if found is None:
            note(f"rollout.{one.key}: {one.image} is not in ECR; what runs it will not start before it is")
        elif (fault := unfit_for_processors(one, found)) is not None:
            raise Misconfigured(f"rollout.{one.key}: {fault}; {remedy_of(one)}")


def _discard(stacks: Stacks, plans: list[StackPlan]) -> None:
    for plan in plans:
        if plan.change_set is not None:
            stacks.discard(plan.name, plan.change_set.id)


def _carry_out(
    account: Account, settings: Settings, synthesis: Synthesis, work: list[StackPlan], held: RolloutLock
) -> None:
    """One stack after the other; what is no longer wanted goes first, since it may hold on to others' values."""
    log, stacks, tags = EventLog(len(work)), account.stacks, tags_of(settings)
    deletes = [plan for plan in work if plan.act == "delete"]
    pending = [*reversed(deletes), *(plan for plan in work if plan.act != "delete")]
    archive = name_of(settings.service.name, STAYS)
    if not any(plan.name == archive for plan in pending):
        _upload(account, archive, synthesis, log)
    for place, plan in enumerate(pending):
        log.stack(plan.name, plan.act)
        try:
            held.confirm()
            if plan.act in ("delete", "create again"):
                assert plan.state is not None
                finish(stacks, plan.name, list(logged(stacks.remove(plan.state), log)), gone=True)
            if plan.act != "delete":
                _change(account, plan, synthesis.templates[plan.name], tags, log)
        except MarkError:
            _discard(stacks, pending[place + 1 :])
            raise
        if plan.name == archive:
            _upload(account, archive, synthesis, log)


def _change(
    account: Account, plan: StackPlan, template: StackTemplate, tags: Mapping[str, str], log: EventLog
) -> None:
    stacks = account.stacks
    url = _upload_template(account, plan.name, template) if is_long(template) else ""
    made = plan.change_set or stacks.prepare(plan.name, template, tags=tags, url=url)
    if made is None:
        return
    finish(stacks, plan.name, list(logged(stacks.carry_out(made), log)))


def _upload(account: Account, archive: str, synthesis: Synthesis, log: EventLog) -> None:
    """Bring the bundles that are not there yet."""
    bucket = _bucket(account, archive)
    for bundle in synthesis.bundles:
        if not holds_object(account.aws, bucket, bundle.key):
            put_file(account.aws, bucket, bundle.key, bundle.path)
            log.show_line(f"uploaded {bundle.path.name} as s3://{bucket}/{bundle.key}")
    for model, version in synthesis.versions.items():
        if upload(account.aws, bucket, version):
            log.show_line(f"uploaded version {shown(version.version)} of {model} as s3://{bucket}/{version.key}")


def _upload_template(account: Account, name: str, template: StackTemplate) -> str:
    """Put a template that is too long for a call into the bucket; its URL."""
    service = name.removeprefix("mark-").rpartition("-")[0]
    bucket = _bucket(account, name_of(service, STAYS))
    body = json_text(template, compact=True).encode()
    key = f"{TEMPLATES}{name}-{hashlib.sha256(body).hexdigest()[:16]}.json"
    with translated():
        account.aws.objects.put_object(Bucket=bucket, Key=key, Body=body)
    return f"https://{bucket}.s3.{account.region}.amazonaws.com/{key}"


def _bucket(account: Account, archive: str) -> str:
    state = account.stacks.state(archive)
    exports = state.exports if state is not None else {}
    name = archive.removesuffix(STAYS) + "bucket"
    if name not in exports:
        raise Misconfigured(f"the stack {archive} does not say what its bucket is called; deploy again")
    return exports[name]


def _say_where(stacks: Stacks, settings: Settings) -> None:
    service = settings.service.name
    if settings.rollout.shape == "lean":
        where = f"https://{settings.rollout.node.name}"
    else:
        state = stacks.state(name_of(service, "gateways"))
        address = state.exports.get(name_of(service, "address"), "") if state is not None else ""
        where = f"https://{address} (or the name in your certificate that points there)"
    show(f"the service {service} stands")
    show(f"clients call  {where}")
    if (port := settings.service.grpc_port) is not None:
        show(f"by gRPC       port {port} of the same name, over TLS")
    if settings.rollout.functions.probe:
        show("from here      `mark try` with the same --config sends a request")
    show(f"their token   aws secretsmanager get-secret-value --secret-id {name_of(service, 'token')}")
    recipients = ", ".join(settings.rollout.alarms.to) or "nobody: rollout.alarms.to is empty"
    show(f"alarms        are mailed to {recipients}")
    if settings.rollout.alarms.webhook is not None:
        show("              and posted to the webhook: `mark alerts test` with the same --config posts a message")
