"""Mail through SES: one raw message out, and what to do where SES refuses it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mark.aws.errors import code_of, translated
from mark.domain.errors import MarkError, Misconfigured

if TYPE_CHECKING:
    from mypy_boto3_sesv2 import SESV2Client

MOST_RECIPIENTS = 50
MOST_BYTES = 40 * 1024 * 1024
"""SES takes no more of either in a message."""
_TO_DO = {
    "AccountSuspendedException": "SES has suspended the account's sending; ask AWS support why",
    "LimitExceededException": "the day's quota of mails is used up; ask for more in Service Quotas",
    "MailFromDomainNotVerifiedException": "verify the sender's MAIL FROM domain in SES",
    "MessageRejected": (
        "verify the addresses that it names (aws sesv2 create-email-identity --email-identity ADDRESS); in the "
        "sandbox that is every recipient too, until the account has production access"
    ),
    "SendingPausedException": "sending is paused; switch it on again (aws sesv2 put-account-sending-attributes)",
}
"""SES's refusals that no retry mends, by code: the advice."""


def send_mail(ses: SESV2Client, message: bytes, *, sender: str, to: Sequence[str]) -> str:
    """Send a whole message (MIME) and give SES's id of it.

    RetryLater where SES throttles or cannot be reached; Misconfigured says what to do where it refuses.
    """
    if not 1 <= len(to) <= MOST_RECIPIENTS:
        raise Misconfigured(f"a mail goes to 1 to {MOST_RECIPIENTS} addresses, not {len(to)}")
    if len(message) > MOST_BYTES:
        raise Misconfigured(f"a mail of {len(message)} bytes is larger than SES takes ({MOST_BYTES})")
    try:
        with translated():
            answer = ses.send_email(
                FromEmailAddress=sender,
                Destination={"ToAddresses": list(to)},
                Content={"Raw": {"Data": message}},
            )
    except MarkError as error:
        advice = _TO_DO.get(code_of(error))
        if advice is None:
            raise
        raise Misconfigured(f"{error}; {advice}") from error.__cause__
    return answer["MessageId"]
