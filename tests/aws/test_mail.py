"""Mail through SES: what is sent, and what its refusals tell people to do."""

from __future__ import annotations

from collections.abc import Iterator

import boto3
import pytest
from botocore.config import Config
from botocore.stub import Stubber

from mark.aws.mail import MOST_BYTES, send_mail
from mark.domain.errors import Misconfigured, RetryLater


@pytest.fixture
def ses() -> Iterator[Stubber]:
    client = boto3.client(
        "sesv2",
        region_name="us-east-1",
        aws_access_key_id="testing",
        aws_secret_access_key="testing",
        config=Config(retries={"total_max_attempts": 1}),
    )
    with Stubber(client) as stub:
        yield stub
    client.close()


def send(ses: Stubber, message: bytes = b"Subject: s\r\n\r\nt", *to: str) -> str:
    return send_mail(ses.client, message, sender="a@a.example", to=to or ("b@b.example",))


def test_the_message_goes_as_it_is(ses: Stubber) -> None:
    asked = {
        "FromEmailAddress": "a@a.example",
        "Destination": {"ToAddresses": ["b@b.example", "c@b.example"]},
        "Content": {"Raw": {"Data": b"m"}},
    }
    ses.add_response("send_email", {"MessageId": "id"}, asked)
    assert send(ses, b"m", "b@b.example", "c@b.example") == "id"


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("MessageRejected", "aws sesv2 create-email-identity"),
        ("MailFromDomainNotVerifiedException", "MAIL FROM"),
        ("SendingPausedException", "paused"),
        ("AccountSuspendedException", "AWS support"),
        ("LimitExceededException", "quota"),
        ("BadRequestException", "SendEmail: BadRequestException: no"),
    ],
)
def test_a_refusal_says_what_to_do(ses: Stubber, code: str, says: str) -> None:
    ses.add_client_error("send_email", code, "no", 400)
    with pytest.raises(Misconfigured, match=says) as refused:
        send(ses)
    assert f"SendEmail: {code}: no" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_throttled_is_later(ses: Stubber) -> None:
    ses.add_client_error("send_email", "TooManyRequestsException", "slow down", 429)
    with pytest.raises(RetryLater):
        send(ses)


def test_what_ses_would_not_take_is_not_asked(ses: Stubber) -> None:
    with pytest.raises(Misconfigured, match="1 to 50 addresses, not 51"):
        send(ses, b"m", *(f"{number}@b.example" for number in range(51)))
    with pytest.raises(Misconfigured, match="larger than SES takes"):
        send(ses, b"m" * (MOST_BYTES + 1))
