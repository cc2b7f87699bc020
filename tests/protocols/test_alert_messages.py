"""What SNS says of alarms, budgets and mails, as one short text for people."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.errors import Misconfigured
from mark.protocols.alert_messages import (
    MOST_CHARACTERS,
    UNPOSTED,
    AlertMessage,
    AlertPhase,
    alarm_message,
    messages_of,
    read_notification,
    slack_body,
    text_of,
)

ALARM = {
    "AlarmName": "mark-shop-burnrate0",
    "AlarmDescription": "MArk shop: digits misses its objective. docs/deploy.md says what to do.",
    "AWSAccountId": "123456789012",
    "NewStateValue": "ALARM",
    "NewStateReason": "Threshold Crossed: 5 datapoints were greater than the threshold (14.4).",
    "StateChangeTime": "2026-11-23T14:03:10.123+0000",
    "Region": "US East (N. Virginia)",
    "AlarmArn": "arn:aws:cloudwatch:us-east-1:123456789012:alarm:mark-shop-burnrate0",
    "OldStateValue": "OK",
}
"""As CloudWatch writes it (its user guide); keys that nobody reads are left out."""
ALARM_PAGE = "#alarmsV2:alarm/mark-shop-burnrate0"
BUDGET = """AWS Budget Notification November 23, 2026
AWS Account 123456789012

Dear AWS Customer,

You requested that we alert you when the ACTUAL Cost associated with your mark-shop-spending budget exceeds $80.00
for the current month. The month-to-date ACTUAL Cost associated with this budget is $85.00. You can find additional
details below and by accessing the AWS Budgets dashboard [1].

Budget Name: mark-shop-spending
Budget Type: Cost
Budgeted Amount: $100.00
Alert Type: ACTUAL
Alert Threshold: > $80.00
ACTUAL Amount: $85.00

[1] https://console.aws.amazon.com/billing/home#/budgets
"""
BOUNCE = {
    "notificationType": "Bounce",
    "bounce": {"bounceType": "Permanent", "timestamp": "2026-11-23T07:00:11.000Z"},
    "mail": {"commonHeaders": {"subject": "MArk shop: 12 USD"}, "destination": ["team@example.com"]},
}


def posted(text: str | dict[str, Any], subject: str = "") -> str:
    """The text that is posted of a notification of the service `shop`; empty where none is."""
    found = read_notification(subject, text if isinstance(text, str) else json.dumps(text), "shop")
    return "" if found is None else str(json.loads(slack_body(found))["text"])


def test_an_alarm_says_what_since_when_and_what_to_do() -> None:
    assert posted(ALARM).splitlines() == [
        "ALARM mark-shop-burnrate0: MArk shop: digits misses its objective. docs/deploy.md says what to do.",
        "Since 2026-11-23 14:03 UTC. Threshold Crossed: 5 datapoints were greater than the threshold (14.4).",
        "To do: `mark status` and `mark explain`: is a launch refused, a quota reached?",
        f"https://us-east-1.console.aws.amazon.com/cloudwatch/home?region=us-east-1{ALARM_PAGE}",
    ]


def test_an_alarm_that_is_over_says_since_when() -> None:
    first, second, *_ = posted({**ALARM, "NewStateValue": "OK", "OldStateValue": "ALARM"}).splitlines()
    assert first.startswith("RESOLVED mark-shop-burnrate0: ")
    assert second == "Over at 2026-11-23 14:03 UTC."


def test_an_alarm_that_was_just_made_tells_nothing() -> None:
    assert posted({**ALARM, "NewStateValue": "OK", "OldStateValue": "INSUFFICIENT_DATA"}) == ""


def test_the_alarm_on_messages_that_were_not_posted_is_not_posted() -> None:
    assert posted({**ALARM, "AlarmName": f"mark-shop-{UNPOSTED}"}) == ""
    assert posted({**ALARM, "AlarmName": f"mark-other-{UNPOSTED}"}) != "", "another service's is"


def test_a_budget_says_what_is_spent_of_what() -> None:
    first, second, third = posted(
        BUDGET, "AWS Budgets: mark-shop-spending has exceeded its threshold"
    ).splitlines()
    assert first == (
        "ALARM mark-shop-spending: AWS's own budget: actual $85.00 passes its threshold $80.00 of $100.00."
    )
    assert "mark pause --aws" in second
    assert third == "https://console.aws.amazon.com/billing/home#/budgets"


def test_a_mail_that_bounced_is_told_without_addresses() -> None:
    text = posted(BOUNCE)
    assert text.startswith("NOTICE SES Bounce: the mail “MArk shop: 12 USD”: Permanent.\nAt 2026-11-23 07:00 UTC.")
    assert "team" not in text


def test_what_the_function_orphans_found_is_told() -> None:
    failed = {
        "timestamp": "2026-11-23T14:03:00.000Z",
        "requestContext": {
            "functionArn": "arn:aws:lambda:us-east-1:123456789012:function:mark-shop-orphans:$LATEST",
            "condition": "RetriesExhausted",
        },
        "responsePayload": {
            "errorMessage": "no controller of shop owns i-1; ended: 0",
            "errorType": "OrphansFound",
        },
    }
    first, second, third = posted(failed).splitlines()
    assert first == "ALARM mark-shop-orphans: no controller of shop owns i-1; ended: 0"
    assert second == "Since 2026-11-23 14:03 UTC."
    assert "mark destroy" in third


def test_what_is_none_of_these_is_told_as_it_is() -> None:
    assert posted("the <!channel> & @everyone", "hello") == (
        "NOTICE hello: the &lt;!channel&gt; &amp; @\u200beveryone"
    )
    assert posted("", "") == "NOTICE a message of SNS: it is empty."


@pytest.mark.parametrize("event", [{}, {"Records": "x"}, {"Records": [1]}, {"Records": [{"Sns": None}]}])
def test_what_is_no_event_of_sns_is_refused(event: dict[str, Any]) -> None:
    with pytest.raises(Misconfigured, match="SNS topic"):
        list(messages_of(event, "shop"))


JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
NAMES = st.sampled_from(
    [*ALARM, "mail", "notificationType", "eventType", "bounce", "commonHeaders", "subject", "timestamp"]
)


@given(st.text() | st.dictionaries(NAMES, JSON).map(json.dumps), st.text())
def test_any_notification_is_one_short_text_without_markup(message: str, subject: str) -> None:
    found = read_notification(subject, message, "shop")
    if found is None:
        return
    text = json.loads(slack_body(found))["text"]
    assert 0 < len(text) <= MOST_CHARACTERS
    assert not set("<>") & set(text)
    assert len(text_of(found).splitlines()) <= 4


@given(st.text(alphabet="&<>@", min_size=1, max_size=9))
def test_a_long_text_is_cut_between_its_characters(part: str) -> None:
    message = AlertMessage(phase=AlertPhase.NOTICE, name="n", what=part * MOST_CHARACTERS)
    cut = json.loads(slack_body(message))["text"]
    assert len(cut) <= MOST_CHARACTERS
    assert cut.count("&") == cut.count(";")


def test_an_alarm_of_another_partition_has_no_link() -> None:
    arn = "arn:aws-cn:cloudwatch:cn-north-1:123456789012:alarm:mark-shop-silent0"
    assert "http" not in posted({**ALARM, "AlarmArn": arn})
    plain = alarm_message("mark-shop-silent12", service="shop", phase=AlertPhase.BEGAN)
    assert "/mark/shop/controller" in plain.advice
