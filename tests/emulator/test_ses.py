"""Mail: verified identities, the sandbox, and an outbox that tests can read."""

from __future__ import annotations

from email.message import EmailMessage

import pytest
from botocore.exceptions import ClientError

from tests.emulator.conftest import World


def mail(sender: str = "from@a.example", to: str = "to@b.example") -> EmailMessage:
    made = EmailMessage()
    made["From"], made["To"], made["Subject"] = f"Us <{sender}>", to, "Spend"
    made.set_content("13.37 USD")
    return made


def send(world: World, made: EmailMessage) -> str:
    content = {"Raw": {"Data": made.as_bytes()}}
    return world.client("sesv2", attempts=1).send_email(Content=content)["MessageId"]


def test_a_mail_arrives_where_sender_and_recipient_are_verified(world: World) -> None:
    client = world.client("sesv2")
    assert client.create_email_identity(EmailIdentity="a.example")["VerifiedForSendingStatus"] is False
    with pytest.raises(ClientError, match=r"MessageRejected.*US-EAST-1: from@a\.example, to@b\.example"):
        send(world, mail())
    world.mark("POST", "mail", {"verify": ["a.example"]})
    assert client.get_email_identity(EmailIdentity="a.example")["VerificationStatus"] == "SUCCESS"
    with pytest.raises(ClientError, match=r"US-EAST-1: to@b\.example"):
        send(world, mail())
    assert client.get_account()["ProductionAccessEnabled"] is False
    world.mark("POST", "mail", {"sandbox": False})

    name = send(world, mail())
    (sent,) = world.mark("GET", "mail")["sent"]
    assert (sent["id"], sent["sender"], sent["to"]) == (name, "from@a.example", ["to@b.example"])
    assert "13.37 USD" in sent["raw"]
    told = client.get_account()
    assert (told["ProductionAccessEnabled"], told["SendQuota"]["SentLast24Hours"]) == (True, 1.0)


def test_a_destination_takes_precedence_over_the_message_s_own(world: World) -> None:
    world.mark("POST", "mail", {"verify": ["a.example", "c.example"]})
    world.client("sesv2").send_email(
        FromEmailAddress="x@a.example",
        Destination={"ToAddresses": ["y@c.example"]},
        Content={"Raw": {"Data": mail().as_bytes()}},
    )
    assert [(one["sender"], one["to"]) for one in world.mark("GET", "mail")["sent"]] == [
        ("x@a.example", ["y@c.example"])
    ]


def test_what_is_not_done_is_refused(world: World) -> None:
    client = world.client("sesv2", attempts=1)
    with pytest.raises(ClientError, match="NotEmulated"):
        client.send_email(
            FromEmailAddress="a@b.example",
            Destination={"ToAddresses": ["a@b.example"]},
            Content={"Simple": {"Subject": {"Data": "s"}, "Body": {"Text": {"Data": "t"}}}},
        )
    with pytest.raises(ClientError, match="NotEmulated"):
        client.list_contact_lists()
    with pytest.raises(ClientError, match="NotEmulated"):
        world.client("ses", attempts=1).send_raw_email(RawMessage={"Data": b"x"})
    with pytest.raises(ClientError, match="NotFoundException"):
        client.get_email_identity(EmailIdentity="nobody@a.example")
    client.create_email_identity(EmailIdentity="a.example")
    with pytest.raises(ClientError, match="AlreadyExistsException"):
        client.create_email_identity(EmailIdentity="a.example")
    client.delete_email_identity(EmailIdentity="a.example")
    with pytest.raises(ClientError, match="BadRequestException"):
        client.send_email(Content={"Raw": {"Data": b"no headers"}})
