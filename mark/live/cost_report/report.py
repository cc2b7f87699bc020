"""`mark report`: the cost report of a service, printed, written, and mailed."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from mark.aws.costs import daily_usd
from mark.aws.ec2.tags import SERVICE
from mark.aws.mail import send_mail
from mark.config.settings import Settings
from mark.domain.errors import Misconfigured, RetryLater, unknown
from mark.live.clock import adopt_wall
from mark.live.cost_report.from_archive import open_archive
from mark.live.cost_report.replays import replay_days
from mark.live.local.run_dir import RunFolder, not_up
from mark.live.local.running import Running
from mark.live.service_session import service_aws
from mark.policies.bundles import reported_policies
from mark.report.cost.archive_reader import ArchiveReader
from mark.report.cost.cost_report import report_document
from mark.report.cost.read import Period, read_cost_report, report_period
from mark.report.files import check_file, write_whole
from mark.report.mail.message import Mail, mime, render, standalone
from mark.report.mail.text import mail_text
from mark.report.mail.view import mail_view
from mark.report.terminal import note, progress, show, show_json
from mark.steady_time import steady_time
from mark.store.connect import connect
from mark.store.service import ServiceStore

ROLE = "report"
"""Role in the table of AWS calls."""
UNITS_S = {"m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
_PERIOD = re.compile(r"(\d+(?:\.\d+)?)([mhdw])")
NO_REPLAYS = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """Flags of `mark report`. No `policies`: no replays but those that are kept; None: the settings'.

    `archive`: a folder with what the service's bucket keeps, read in place of its store.
    """

    period_s: float
    policies: tuple[str, ...] | None
    email: tuple[str, ...] = ()
    to: Path | None = None
    reconcile: bool = False
    archive: Path | None = None


def parse_period(text: str) -> float:
    """Seconds of `7d`, `12h`, `90m` or `2w`."""
    found = _PERIOD.fullmatch(text.strip())
    seconds = float(found[1]) * UNITS_S[found[2]] if found else 0.0
    if not (math.isfinite(seconds) and seconds > 0):
        raise Misconfigured(f"--since {text!r} must be a number with m, h, d or w behind it, such as 7d")
    return seconds


def chosen_policies(names: Sequence[str] | None) -> tuple[str, ...] | None:
    """Policies to replay; `none` for none, None for those of the settings."""
    if names is None:
        return None
    if list(names) == [NO_REPLAYS]:
        return ()
    for name in names:
        if name not in reported_policies():
            raise unknown("policy", name, (*reported_policies(), NO_REPLAYS))
    return tuple(dict.fromkeys(names))


def report_service(settings: Settings, options: ReportOptions, *, as_json: bool) -> None:
    """Make the report, and print, write or mail it as asked."""
    if options.to is not None:
        check_file(options.to)
    store, own, wall_at = _opened(settings, options.archive)
    sender = _sender(settings, own) if options.email else ""
    period = report_period(store, period_s=options.period_s, wall_at=wall_at)
    policies = own.service.report.policies if options.policies is None else options.policies
    with progress() as progress_:
        replays = replay_days(store, own, period, policies, progress_) if policies else None
        progress_("reading ledger and journal", 0.0)
        report = read_cost_report(
            store,
            period_s=options.period_s,
            wall_at=wall_at,
            aws_usd=_aws_usd(own, store.spec().name, period) if options.reconcile else None,
            replays=replays,
        )
        if options.to is not None or options.email:
            progress_("drawing", 0.0)
            _hand_out(render(report), own, options, sender)
    if as_json:
        show_json(report_document(report))
    elif options.to is None and not options.email:
        show(mail_text(mail_view(report)).rstrip("\n"))
    else:
        where = [f"report: {options.to}"] if options.to else []
        show(mail_view(report).headline, *where, *(f"mailed to {address}" for address in options.email))


def _hand_out(mail: Mail, settings: Settings, options: ReportOptions, sender: str) -> None:
    """Write it first: a mail that cannot be sent loses nothing."""
    if options.to is not None:
        write_whole(options.to, standalone(mail))
    if options.email:
        message = mime(mail, sender, options.email)
        with closing(service_aws(settings, ROLE)) as aws:
            send_mail(aws.mail, message, sender=sender, to=options.email)


def _sender(given: Settings, own: Settings) -> str:
    """From whom: an identity that SES has verified."""
    sender = given.rollout.report.sender or own.rollout.report.sender
    if sender is None:
        raise Misconfigured(
            "--email needs rollout.report.sender in the settings: an address or domain that SES has verified"
        )
    return sender


def _opened(settings: Settings, archive: Path | None) -> tuple[ArchiveReader, Settings, float]:
    """Source of the report, its settings, and the end of its period, wall time: now, or all that was kept."""
    if archive is not None:
        kept = open_archive(settings, archive)
        return kept, settings, kept.at
    running, own = _found(settings)
    store = ServiceStore(connect(running.store), running.name)
    adopt_wall(store)
    return store, own, steady_time()


def _found(settings: Settings) -> tuple[Running, Settings]:
    """The service: the one that runs on this machine, or the one whose store the settings name."""
    service = settings.service
    folder = RunFolder.of(service.name)
    running = folder.running()
    if running is not None and running.ready:
        return running, folder.settings()
    if service.store is None:
        raise not_up(
            service.name,
            "`mark up --detach` starts one, or name the store of one that runs elsewhere with service.store in "
            "--config",
        )
    return Running(name=service.name, pid=0, store=service.store), settings


def _aws_usd(settings: Settings, service: str, period: Period) -> Mapping[date, float] | None:
    """Bill from Cost Explorer for the days that are over, by the service's tag; None where it may not be asked."""
    first = datetime.fromtimestamp(period.since, UTC).date()
    last = datetime.fromtimestamp(period.until, UTC).date()
    until = max(last, first + timedelta(days=1))
    with closing(service_aws(settings, ROLE)) as aws:
        try:
            return daily_usd(aws, first, until, {SERVICE: service})
        except (Misconfigured, RetryLater) as error:
            note(f"the ledger is not reconciled with Cost Explorer: {error}")
            return None
