"""Alerts as short messages for people: what SNS says of alarms and budgets, and the text that a webhook posts.

SNS hands a function `{"Records": [{"Sns": {"Subject": ..., "Message": ...}}]}`, and the message is what its
publisher wrote: JSON of a CloudWatch alarm (CloudWatch user guide, "Notifying users on alarm changes"), lines of
`Name: value` of AWS Budgets, JSON of SES (SES developer guide, "Amazon SNS notification contents"), JSON of Lambda
about a function that failed, or any text. What is none of these is passed on as it is, cut: a reader rather sees
too much than nothing.

A text is Slack's form, `{"text": ...}` with `&`, `<` and `>` escaped (Slack's documentation, "Formatting message
text"), which Mattermost, Rocket.Chat, and Discord at an address that ends in /slack take, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from types import MappingProxyType

from mark.domain.errors import Misconfigured
from mark.protocols.events import instant, parse_object

UNPOSTED = "webhookfails"
"""The alarm on messages that could not be posted. It is never posted: its own failure would raise it again."""
MOST_CHARACTERS, MOST_DETAIL = 1900, 400
"""Of a whole text, escaped, and of one part of it: Discord takes 2,000 (its developer documentation)."""
ADVICE: Mapping[str, str] = MappingProxyType(
    {
        "burnrate": "`mark status` and `mark explain`: is a launch refused, a quota reached?",
        "deadletters": "read the queue mark-{service}-raw-dead and the log of the function interruption.",
        "overflowshare": "`mark status` and `mark explain`: which instances are missing?",
        "reportfails": "read the log /aws/lambda/mark-{service}-report: may SES still send from the sender?",
        "silent": "read the logs /mark/{service}/controller and /mark/{service}/gateway.",
        "storememory": "take a larger node.instance_type (ha: store.node_type): a full store refuses writes.",
        "certificate": "put the next one into its secret; each node takes it within a day.",
        "trainerrors": "read the log /aws/lambda/mark-{service}-train: was its image built by this version?",
        "trainingfails": "`mark status` says which model and why; the forecaster before goes on.",
        "unreachable": "read the log /mark/{service}/gateway, then look at security groups and subnets.",
        "usdperhour": "`mark report`; `mark pause --aws` ends the fleet.",
    }
)
"""Advice by kind of alarm, its name without service and number. docs/deploy.md, which alarms name, has more."""
ORPHANS_ADVICE = "`mark destroy` if the service is over; else see why no controller acts. docs/deploy.md#orphans"
"""The function `orphans` is the only one whose failures are told."""
BUDGETS_PAGE = "https://console.aws.amazon.com/billing/home#/budgets"
SPENDING_ADVICE = "`mark report --reconcile`; `mark pause --aws` ends the fleet. docs/deploy.md#alarms"


class AlertPhase(StrEnum):
    """Phase of an alert that a message is about."""

    BEGAN = "ALARM"
    ENDED = "RESOLVED"
    NOTICE = "NOTICE"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertMessage:
    """One message for people. Empty texts are left out of it."""

    phase: AlertPhase
    #: Name of the alarm or budget, or the subject of what is neither.
    name: str
    #: What is wrong, or was.
    what: str
    #: When it began or ended, epoch seconds of the wall; None where nobody says.
    at: float | None = None
    #: Its publisher's reason, with figures.
    reason: str = ""
    advice: str = ""
    #: Where to look: a page's address.
    link: str = ""


TEST = AlertMessage(phase=AlertPhase.NOTICE, name="test", what="alarms of MArk are posted here. Nothing is wrong.")
"""The message of `mark alerts test`."""


def slack_body(message: AlertMessage) -> bytes:
    """The body of a request to a webhook: JSON in Slack's form."""
    return json.dumps({"text": _escaped(text_of(message))}).encode()


def text_of(message: AlertMessage) -> str:
    """The message as some lines of text."""
    since = f"{_SINCE[message.phase]} {_utc(message.at)}." if message.at is not None else ""
    lines = (
        f"{message.phase} {message.name}: {message.what}",
        " ".join(part for part in (since, _cut(message.reason)) if part),
        f"To do: {message.advice}" if message.advice else "",
        message.link,
    )
    return "\n".join(line for line in lines if line)


def alarm_message(
    name: str,
    *,
    service: str,
    phase: AlertPhase,
    about: str = "",
    reason: str = "",
    at: float | None = None,
    link: str = "",
) -> AlertMessage:
    """The message of an alarm of a service. Advice is for one that begins."""
    began = phase is AlertPhase.BEGAN
    advice = ADVICE.get(kind_of(name, service), "").format(service=service)
    return AlertMessage(
        phase=phase,
        name=name,
        what=_cut(about or "an alarm of CloudWatch"),
        at=at,
        reason=reason if began else "",
        advice=advice if began else "",
        link=link,
    )


def kind_of(alarm: str, service: str) -> str:
    """Kind of a service's alarm: its name without the service's and the model's number."""
    return alarm.removeprefix(f"mark-{service}-").rstrip("0123456789")


def messages_of(event: Mapping[str, object], service: str) -> Iterator[AlertMessage]:
    """Messages of what SNS hands a function of a service. Misconfigured where it is no event of SNS."""
    records = event.get("Records")
    if not isinstance(records, list):
        raise Misconfigured('the event has no list "Records": subscribe the function to an SNS topic')
    for record in records:
        told = record.get("Sns") if isinstance(record, Mapping) else None
        if not isinstance(told, Mapping):
            raise Misconfigured('a record has no "Sns": subscribe the function to an SNS topic')
        found = read_notification(_text(told, "Subject"), _text(told, "Message"), service)
        if found is not None:
            yield found


def read_notification(subject: str, text: str, service: str) -> AlertMessage | None:
    """The message of one notification; None for what people need not read.

    That is an alarm that was made a moment ago and finds nothing wrong, and the alarm on messages that could not
    be posted.
    """
    try:
        document = parse_object(text)
    except Misconfigured:
        return _of_budget(text) or _of_text(subject, text)
    if "AlarmName" in document and "NewStateValue" in document:
        return _of_alarm(document, service)
    if isinstance(failure := document.get("responsePayload"), Mapping) and _text(failure, "errorMessage"):
        return _of_function(document, _text(failure, "errorMessage"))
    kind = _text(document, "notificationType") or _text(document, "eventType")
    if kind and "mail" in document:
        return _of_mail(kind, document)
    return _of_text(subject, text)


def _of_alarm(document: Mapping[str, object], service: str) -> AlertMessage | None:
    name, state = _text(document, "AlarmName"), _text(document, "NewStateValue")
    first_look = state == "OK" and document.get("OldStateValue") == "INSUFFICIENT_DATA"
    if first_look or kind_of(name, service) == UNPOSTED:
        return None
    return alarm_message(
        name,
        service=service,
        phase={"ALARM": AlertPhase.BEGAN, "OK": AlertPhase.ENDED}.get(state, AlertPhase.NOTICE),
        about=_text(document, "AlarmDescription"),
        reason=_text(document, "NewStateReason"),
        at=_instant(_text(document, "StateChangeTime")),
        link=_console(_text(document, "AlarmArn")),
    )


def _of_budget(text: str) -> AlertMessage | None:
    """A notification of AWS Budgets: `Budget Name: ...` and the like, a line each."""
    pairs = (line.partition(":") for line in text.splitlines())
    found = {key.strip(): value.strip() for key, colon, value in pairs if colon}
    name = found.get("Budget Name")
    if not name:
        return None
    kind = found.get("Alert Type", "")
    amount = found.get(f"{kind} Amount", "")
    spent = f"{kind.lower()} {amount}".strip() or "spending"
    return AlertMessage(
        phase=AlertPhase.BEGAN,
        name=_cut(name),
        what=_cut(
            f"AWS's own budget: {spent} passes its threshold {found.get('Alert Threshold', '').lstrip('> ')} of "
            f"{found.get('Budgeted Amount', 'the budget')}."
        ),
        advice=SPENDING_ADVICE,
        link=BUDGETS_PAGE,
    )


def _of_function(document: Mapping[str, object], error: str) -> AlertMessage:
    """Words of Lambda about a call that failed (Lambda developer guide, "Capturing records of invocations")."""
    context = document.get("requestContext")
    arn = _text(context, "functionArn") if isinstance(context, Mapping) else ""
    name = arn.partition(":function:")[2].partition(":")[0]
    return AlertMessage(
        phase=AlertPhase.BEGAN,
        name=_cut(name) or "a function",
        what=_cut(error),
        at=_instant(_text(document, "timestamp")),
        advice=ORPHANS_ADVICE,
    )


def _of_mail(kind: str, document: Mapping[str, object]) -> AlertMessage:
    """A notification of SES about a mail that it sent. Addresses are nobody's but the recipients'."""
    mail = document.get("mail")
    subject = _header(mail, "subject") if isinstance(mail, Mapping) else ""
    detail = document.get(kind.lower())
    fields = detail if isinstance(detail, Mapping) else {}
    why = next((found for name in _WHY_OF_MAIL if (found := _text(fields, name))), "")
    return AlertMessage(
        phase=AlertPhase.NOTICE,
        name=f"SES {kind}",
        what=_cut(f"{f'the mail “{subject}”' if subject else 'a mail'}{f': {why}' if why else ''}."),
        at=_instant(_text(fields, "timestamp")),
        advice="" if kind == "Delivery" else "does the address still take mail?",
    )


def _of_text(subject: str, text: str) -> AlertMessage:
    return AlertMessage(
        phase=AlertPhase.NOTICE, name=_cut(subject) or "a message of SNS", what=_cut(text) or "it is empty."
    )


_SINCE = {AlertPhase.BEGAN: "Since", AlertPhase.ENDED: "Over at", AlertPhase.NOTICE: "At"}
_WHY_OF_MAIL = ("bounceType", "complaintFeedbackType", "reason", "delayType")


def _text(fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def _header(mail: Mapping[str, object], name: str) -> str:
    headers = mail.get("commonHeaders")
    return _cut(_text(headers, name)) if isinstance(headers, Mapping) else ""


def _instant(text: str) -> float | None:
    try:
        return instant(text)
    except Misconfigured:
        return None


def _utc(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"


def _console(arn: str) -> str:
    """The alarm's page in CloudWatch's console; empty for an ARN of another kind, or of another partition."""
    found = re.fullmatch(r"arn:aws:cloudwatch:([a-z0-9-]+):\d+:alarm:([\w.-]+)", arn, re.ASCII)
    if found is None:
        return ""
    region, name = found.groups()
    return f"https://{region}.console.aws.amazon.com/cloudwatch/home?region={region}#alarmsV2:alarm/{name}"


def _cut(text: str) -> str:
    one_line = " ".join(text.split())
    return one_line if len(one_line) <= MOST_DETAIL else f"{one_line[: MOST_DETAIL - 4]} ..."


def _escaped(text: str) -> str:
    """The text with no markup of its own: no link under another name, and nobody is called by an @."""
    plain = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("@", "@\u200b")
    return plain if len(plain) <= MOST_CHARACTERS else re.sub(r"&[a-z]*$", "", plain[:MOST_CHARACTERS])
