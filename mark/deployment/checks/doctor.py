"""`mark doctor`: what an account needs before the service can stand in it, each finding with what to do."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from types import MappingProxyType

from rich.table import Table

from mark.aws.account.preflight import (
    caller,
    configuration_set,
    has_secret,
    image_gib,
    is_verified,
    machine_image,
    mail_account,
    manifest_type,
)
from mark.aws.outside_pause import read_pause
from mark.aws.prices import type_facts
from mark.aws.session import Aws
from mark.catalog.load import PriceSnapshot, load_prices
from mark.catalog.refreshed import age_days
from mark.config.disks import COMPRESSED, system_gib, with_disks
from mark.config.settings import Settings
from mark.deployment.checks.deep import check_deep
from mark.deployment.checks.doctor_quotas import check_lambda, check_plan, check_vcpus
from mark.deployment.checks.findings import Finding, State
from mark.deployment.images import OF_ONE_PROCESSOR, remedy_of, rollout_images, unfit_for_processors
from mark.deployment.refresh_prices import refresh_prices
from mark.deployment.show import offerings_line
from mark.deployment.synth import draft
from mark.deployment.zones import any_zones, check_types_by_zone, check_way_out, check_zones
from mark.domain.errors import MarkError, Misconfigured, RetryLater
from mark.live.models import LiveModel, make_live_models
from mark.live.service_session import service_aws
from mark.report.tables import Column, make_table, texts
from mark.report.terminal import note, progress, show, show_json

ERRORS_FOUND = 1
"""Exit status where something must be fixed."""
PARTITION = "aws"
"""AWS's commercial regions."""
OLD_DAYS = 30
"""Prices of AWS change some times a year, spot prices in days: after so long they are said to be old."""


MEANS: Mapping[State, str] = MappingProxyType(
    {
        "error": "will fail",
        "warning": "will cost",
        "unknown": "not checked",
        "ok": "fine",
        "skipped": "not asked for",
    }
)
"""Consequences of findings for a deploy, worst first. A warning costs money, time or requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorOptions:
    """Flags of `mark doctor`. `prices`: a price file to write or to renew. `deep`: check the role that stands."""

    prices: Path | None = None
    deep: bool = False


def examine(settings: Settings, options: DoctorOptions, *, as_json: bool) -> int:
    """Ask everything, say it, and return the exit status."""
    today = datetime.now(UTC).date()
    models = make_live_models(_where_prices_are(settings))
    aws = service_aws(settings, "doctor")
    try:
        with progress() as report:
            findings = list(
                _findings(settings, models, aws, today, lambda what: report(what, 0.0), deep=options.deep)
            )
            if options.prices is not None and findings[0].state == "ok":
                report("prices", 0.0)
                findings.append(refresh_prices(aws, load_prices(settings.prices), options.prices, today))
    finally:
        aws.close()
    failed = any(finding.state == "error" for finding in findings)
    if as_json:
        show_json(_document(settings, aws, findings, ok=not failed))
    else:
        show(_table(findings))
        _show(findings)
    return ERRORS_FOUND if failed else 0


def _where_prices_are(settings: Settings) -> Settings:
    """The settings in the region of the prices: that they are of another than the service's is a finding."""
    aws = settings.service.aws.model_copy(update={"region": load_prices(settings.prices).region})
    return settings.model_copy(update={"service": settings.service.model_copy(update={"aws": aws})})


def _findings(
    settings: Settings,
    models: Sequence[LiveModel],
    aws: Aws,
    today: date,
    report: Callable[[str], None],
    *,
    deep: bool,
) -> Iterator[Finding]:
    """One check after another; without credentials the account is asked nothing."""
    report("credentials")
    who = check_credentials(settings, aws)
    yield who
    prices = load_prices(settings.prices)
    yield check_prices(prices, settings.service.aws.region, today)
    if who.state != "ok":
        return
    checks: tuple[tuple[str, Callable[[], Iterator[Finding]]], ...] = (
        ("offerings", lambda: check_offerings(models)),
        ("zones", lambda: check_zones(settings, aws)),
        ("egress", lambda: check_way_out(settings, aws)),
        ("plan", lambda: check_plan(settings, models, aws)),
        ("vCPU quotas", lambda: check_vcpus(settings, models, aws)),
        ("Lambda", lambda: check_lambda(settings, models, aws)),
        ("instance types", lambda: check_types(prices, models, aws)),
        ("types by zone", lambda: check_types_by_zone(settings, types_of(models), aws)),
        ("image", lambda: check_image(settings, models, aws)),
        ("disks", lambda: check_disks(settings, aws)),
        ("machine images", lambda: check_machine_images(settings, aws)),
        ("certificate", lambda: iter((check_certificate(settings),))),
        ("mail", lambda: check_mail(settings, aws)),
        ("webhook", lambda: check_webhook(settings, aws)),
        ("pause", lambda: check_pause(settings, aws)),
        ("template sizes", lambda: check_sizes(settings)),
        *((("deep", lambda: check_deep(settings, models, aws, caller(aws))),) if deep else ()),
    )
    for what, check in checks:
        report(what)
        try:
            yield from check()
        except MarkError as error:
            unreachable = isinstance(error, RetryLater)
            remedy = (
                "try again later" if unreachable else "allow the role of mark.aws.permissions.policies: doctor"
            )
            yield Finding(check=what, state="unknown", message=str(error), remedy=remedy)


def check_credentials(settings: Settings, aws: Aws) -> Finding:
    """Check the credentials, and that they are of the account that the settings name."""
    try:
        who = caller(aws)
    except MarkError as error:
        remedy = "sign in: `aws configure sso`, AWS_PROFILE, or a role; service.aws.region names the region"
        return Finding(check="credentials", state="error", message=str(error), remedy=remedy)
    if (partition := who.arn.split(":")[1]) != PARTITION:
        detail = f"{who.arn} is of {partition}, and MArk knows endpoints and prices of {PARTITION} alone"
        remedy = "use an account of AWS's commercial regions: neither GovCloud nor China"
        return Finding(check="credentials", state="error", message=detail, remedy=remedy)
    wanted = settings.rollout.account
    if wanted is not None and wanted != who.account:
        detail = f"these are of account {who.account}, rollout.account is {wanted}"
        return Finding(check="credentials", state="error", message=detail, remedy="use a profile of that account")
    return Finding(check="credentials", state="ok", message=f"account {who.account}, {who.arn}")


def check_prices(prices: PriceSnapshot, region: str, today: date) -> Finding:
    """Check the region and the age of the prices."""
    renew = "`mark doctor --prices prices.json` writes AWS's of today; name the file as prices in the settings"
    detail = f"of {prices.region}, {prices.date}, {age_days(prices, today)} days old"
    if prices.region != region:
        return Finding(
            check="prices", state="error", message=f"{detail}; the service is in {region}", remedy=renew
        )
    if age_days(prices, today) > OLD_DAYS:
        return Finding(check="prices", state="warning", message=detail, remedy=renew)
    return Finding(check="prices", state="ok", message=detail)


def check_certificate(settings: Settings) -> Finding:
    """Check that the certificate, or the secret that holds it, is of the region. AWS itself is not called."""
    rollout, region = settings.rollout, settings.service.aws.region
    lean = rollout.shape == "lean"
    key, arn = ("node.certificate", rollout.node.certificate) if lean else ("certificate", rollout.certificate)
    wanted, makes = (
        ("secretsmanager", "secretsmanager create-secret") if lean else ("acm", "acm request-certificate")
    )
    if lean and rollout.node.self_signed:
        return Finding(check="certificate", state="ok", message="nodes make it; no client can check it")
    if arn is None:
        return Finding(check="certificate", state="skipped", message=f"rollout.{key} is not set")
    _, _, service, where, *_ = arn.split(":")
    if (service, where) != (wanted, region):
        detail = f"{arn} is of {service} in {where or 'no region'}, the service is in {region}"
        remedy = f"make one in {region} (`aws {makes} --region {region}`)"
        return Finding(check="certificate", state="error", message=detail, remedy=remedy)
    return Finding(check="certificate", state="ok", message=f"of {region}")


def check_offerings(models: Sequence[LiveModel]) -> Iterator[Finding]:
    """The types that each model may rent, and why no other is. AWS itself is not called."""
    for model in models:
        yield Finding(check=f"offerings {model.name}", state="ok", message=offerings_line(model))


def types_of(models: Sequence[LiveModel]) -> list[str]:
    """Instance types that may be rented."""
    return sorted({item.instance_type.name for model in models for item in model.served.offerings})


def check_types(prices: PriceSnapshot, models: Sequence[LiveModel], aws: Aws) -> Iterator[Finding]:
    """Check that the types that may be rented are in the region, and are what the catalogue says."""
    names = types_of(models)
    facts_of = type_facts(aws, names)
    missing = [name for name in names if name not in facts_of]
    if missing:
        detail = f"not in {aws.settings.region}: {', '.join(missing)}"
        yield Finding(
            check="instance types", state="error", message=detail, remedy="leave them out of offerings.types"
        )
    wrong = []
    for name in (name for name in names if name in facts_of):
        known, facts = prices.instance_type(name), facts_of[name]
        gib = round(facts.accelerator_memory_gib, 3)
        pairs = (
            (known.vcpus, facts.vcpus, "vCPUs"),
            (known.memory_gib, facts.memory_gib, "GiB"),
            (known.accelerator_count, facts.accelerator_count, "accelerators"),
            (known.accelerator_memory_gib or gib, gib, "GiB of one accelerator"),  # a file need not say it
        )
        wrong += [f"{name}: {ours:g} {unit}, in AWS {theirs:g}" for ours, theirs, unit in pairs if ours != theirs]
        if known.architecture not in facts.architectures:
            wrong.append(f"{name}: {known.architecture}, in AWS {' and '.join(facts.architectures)}")
    if wrong:
        remedy = "correct the price file that `prices` names"
        yield Finding(check="instance types", state="warning", message="; ".join(wrong), remedy=remedy)
    if not missing and not wrong:
        yield Finding(check="instance types", state="ok", message=f"{len(names)} are as the catalogue says")


def check_image(settings: Settings, models: Sequence[LiveModel], aws: Aws) -> Iterator[Finding]:
    """Check that the images are in ECR, for the processors that they run on."""
    for one in rollout_images(settings, models):
        if one.image is None:
            yield Finding(check=one.key, state="skipped", message=f"rollout.{one.key} is not set")
            continue
        found = manifest_type(aws, one.image)
        if found is None:
            message = f"{one.image} is not in ECR"
            yield Finding(check=one.key, state="error", message=message, remedy=remedy_of(one))
        elif (fault := unfit_for_processors(one, found)) is not None:
            yield Finding(check=one.key, state="error", message=fault, remedy=remedy_of(one))
        else:
            is_one = found in OF_ONE_PROCESSOR and one.architectures
            alone = f", of one processor: it must be {one.architectures[0]}" if is_one else ""
            yield Finding(check=one.key, state="ok", message=f"{one.image} is there{alone}")


def check_disks(settings: Settings, aws: Aws) -> Iterator[Finding]:
    """Check that the images of the instances fit their root disks while they are pulled."""
    rollout = with_disks(settings.rollout, models=max(1, len(settings.service.serve)))
    images = dict.fromkeys(filter(None, (rollout.agent_image or rollout.image, rollout.model_image)))
    size_gib = sum(image_gib(aws, image) for image in images)
    for number, machine in enumerate(rollout.machine_kinds):
        need, disk = math.ceil(system_gib(machine) + COMPRESSED * size_gib), machine.disk_gib or 0
        if need > disk:
            detail = f"{machine.name} has {disk} GiB; system and images, {size_gib:.1f} GiB in ECR, take {need}"
            remedy = f"write rollout.machines[{number}].disk_gib: {need}"
            yield Finding(check="disks", state="error", message=detail, remedy=remedy)


def check_machine_images(settings: Settings, aws: Aws) -> Iterator[Finding]:
    """Check machine images of one's own: AWS's are as the templates take them."""
    rollout = with_disks(settings.rollout, models=max(1, len(settings.service.serve)))
    node = rollout.node
    for key, machine in (
        *((f"machines[{number}]", machine) for number, machine in enumerate(rollout.machine_kinds)),
        *([("node", node.machine)] if rollout.shape == "lean" else []),
    ):
        if machine.ami is None:
            continue
        check, found = f"{key}.ami", machine_image(aws, machine.ami)
        if found is None:
            detail = f"{machine.ami} is not in {aws.settings.region}, or not shared with this account"
            yield Finding(check=check, state="error", message=detail, remedy="name one that is, or leave it out")
            continue
        differ = [
            (name, theirs)
            for name, ours, theirs in (
                ("root_device", machine.root_device, found.root_device),
                ("architecture", machine.architecture, found.architecture),
                ("disk_gib", machine.disk_gib, max(machine.disk_gib or 0, found.root_gib)),
            )
            if ours != theirs
        ]
        if differ:
            detail = ", ".join(f"{name} {theirs}" for name, theirs in differ)
            remedy = " and ".join(f"rollout.{key}.{name}: {theirs}" for name, theirs in differ)
            yield Finding(
                check=check, state="error", message=f"{machine.ami} has {detail}", remedy=f"write {remedy}"
            )
        else:
            yield Finding(check=check, state="ok", message=f"{machine.ami} is as the settings say")


def check_mail(settings: Settings, aws: Aws) -> Iterator[Finding]:
    """Check that the report can be mailed."""
    mails = settings.rollout.report
    if mails.sender is None:
        yield Finding(
            check="mail", state="skipped", message="rollout.report.sender is not set: no report is mailed"
        )
        return
    verified = is_verified(aws, mails.sender)
    if verified:
        through = configuration_set(aws, mails.sender)
        more = f", its mail goes through the configuration set {through}" if through else ""
        yield Finding(check="sender", state="ok", message=f"{mails.sender} is verified{more}")
    else:
        detail = "is not verified yet" if verified is False else "is not known to SES"
        remedy = (
            f"`aws sesv2 create-email-identity --email-identity {mails.sender}`, then follow the link in the mail"
        )
        yield Finding(check="sender", state="error", message=f"{mails.sender} {detail}", remedy=remedy)
    account = mail_account(aws)
    if not account.sends:
        remedy = "see SES's account dashboard: sending is paused"
        yield Finding(check="SES", state="error", message="sending is switched off", remedy=remedy)
    elif not account.sandbox:
        yield Finding(check="SES", state="ok", message=f"out of the sandbox, {account.a_day:,.0f} mails a day")
    else:
        yield _sandbox(mails.to, aws)


def _sandbox(to: Sequence[str], aws: Aws) -> Finding:
    """In the sandbox, mail reaches verified addresses only."""
    lacking = [address for address in to if not is_verified(aws, address)]
    remedy = "verify the addresses, or ask for production access (`aws sesv2 put-account-details`)"
    if lacking:
        detail = f"in the sandbox, and {', '.join(lacking)} is not verified: the report would be refused"
        return Finding(check="SES", state="error", message=detail, remedy=remedy)
    return Finding(check="SES", state="warning", message="in the sandbox: verified addresses only", remedy=remedy)


def check_webhook(settings: Settings, aws: Aws) -> Iterator[Finding]:
    """Check that the secret of the webhook is there. What it holds is not read: `mark alerts test` posts."""
    secret = settings.rollout.alarms.webhook
    if secret is None:
        message = "rollout.alarms.webhook is not set: no alarm is posted"
        yield Finding(check="webhook", state="skipped", message=message)
    elif has_secret(aws, secret):
        yield Finding(check="webhook", state="ok", message=f"the secret {secret} is there")
    else:
        yield Finding(
            check="webhook",
            state="error",
            message=f"there is no secret {secret} in {aws.settings.region}, or it is being deleted",
            remedy=f"`aws secretsmanager create-secret --name {secret} --secret-string file://address`, a file "
            "with the webhook's address and nothing else",
        )


def check_pause(settings: Settings, aws: Aws) -> Iterator[Finding]:
    """Warn of a pause from outside: nothing is rented while it stands."""
    paused = read_pause(aws, settings.service.name)
    if paused is not None:
        remedy = f"`mark pause --aws --off --name {settings.service.name}`, when the service is to go on"
        yield Finding(check="pause", state="warning", message=f"the service is {paused.reason}", remedy=remedy)


def check_sizes(settings: Settings) -> Iterator[Finding]:
    """Check that AWS takes the start scripts, the functions' variables and the task. AWS itself is not called."""
    try:
        sizes = draft(any_zones(settings)).sizes
    except Misconfigured as error:
        yield Finding(check="template sizes", state="skipped", message=f"no templates can be made yet: {error}")
        return
    for one in sizes:
        if one.fits:
            yield Finding(check=one.kind, state="ok", message=one.words)
        else:
            yield Finding(check=one.kind, state="error", message=one.words, remedy=one.remedy)


def _document(settings: Settings, aws: Aws, findings: Sequence[Finding], *, ok: bool) -> dict[str, object]:
    """The document of `mark doctor --json` (docs/json.md)."""
    return {
        "service": settings.service.name,
        "region": aws.settings.region,
        "endpoint": aws.settings.endpoint_url,
        "ok": ok,
        "findings": [asdict(finding) for finding in findings],
    }


def _table(findings: Sequence[Finding]) -> Table:
    """The findings by what they mean for a deploy, worst first."""
    table = make_table((Column(title="", whole=True), *texts("check", "found", "to do")))
    for state, means in MEANS.items():
        for number, finding in enumerate(one for one in findings if one.state == state):
            table.add_row("" if number else means, finding.check, finding.message, finding.remedy)
        table.add_section()
    return table


def _show(findings: Sequence[Finding]) -> None:
    errors = sum(1 for finding in findings if finding.state == "error")
    checked = sum(1 for finding in findings if finding.state != "skipped")
    show(f"{errors} of {checked} must be fixed" if errors else f"nothing of {checked} must be fixed")
    if any(finding.state == "unknown" for finding in findings):
        note("what was not checked needs permissions: the calls are in `mark.aws.permissions.calls`, role doctor")
