"""The events queue: polled by a thread, handed out by instance, deleted when it was written down."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError
from botocore.parsers import ResponseParserError

from mark.aws.inbox import EventInbox
from mark.aws.session import Aws
from mark.domain.errors import RetryLater
from mark.domain.fleet.orders import SpotWarned
from mark.protocols.events import InstanceMessage, StateChanged, compose_message
from tests.aws.builders import aws
from tests.waiting import until

NOTICE = SpotWarned(instance="i-1", at=1.0, terminates_at=121.0)
STATE = StateChanged(instance="i-2", at=1.0, state="running")


@pytest.fixture
def there(moto: None) -> Iterator[Aws]:
    made = aws()
    yield made
    made.close()


@pytest.fixture
def queue(there: Aws) -> str:
    return there.sqs.create_queue(QueueName="events")["QueueUrl"]


def send(there: Aws, queue: str, *words: InstanceMessage) -> None:
    for word in words:
        there.sqs.send_message(QueueUrl=queue, MessageBody=compose_message(word))


def left(there: Aws, queue: str) -> int:
    wanted = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    read = there.sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=wanted)  # type: ignore[arg-type]
    return sum(int(value) for value in read["Attributes"].values())


def test_a_notice_wakes_the_driver_from_the_thread(there: Aws, queue: str) -> None:
    woken = threading.Event()
    inbox = EventInbox(there.sqs, queue, wake=woken.set, poll_s=1)
    inbox.start()
    send(there, queue, STATE, NOTICE)
    try:
        assert woken.wait(5.0)
    finally:
        inbox.close()

    assert [item.word for item in inbox.claim(lambda name: name == "i-1")] == [NOTICE]
    assert [item.word for item in inbox.claim(lambda _: True)] == [STATE]


def test_a_state_change_wakes_nobody(there: Aws, queue: str) -> None:
    woken = threading.Event()
    inbox = EventInbox(there.sqs, queue, wake=woken.set)
    send(there, queue, STATE)

    assert inbox.receive(0) == 1
    assert not woken.is_set()


def test_only_what_is_acknowledged_is_deleted(there: Aws, queue: str) -> None:
    inbox = EventInbox(there.sqs, queue, visibility_s=0)
    send(there, queue, NOTICE, STATE)
    inbox.receive(0)
    [notice] = inbox.claim(lambda name: name == "i-1")
    inbox.receive(0)  # given again: still one message, with a newer receipt
    assert inbox.claim(lambda name: name == "i-1") == []
    inbox.ack([notice])
    assert left(there, queue) == 1
    inbox.ack([notice])

    assert left(there, queue) == 1


def test_what_was_released_is_handed_out_again(there: Aws, queue: str) -> None:
    inbox = EventInbox(there.sqs, queue)
    send(there, queue, NOTICE)
    inbox.receive(0)
    taken = inbox.claim(lambda _: True)
    inbox.release(taken)

    assert inbox.claim(lambda _: True) == taken


def test_the_next_one_gets_at_once_what_was_not_acknowledged(there: Aws, queue: str) -> None:
    first, second = (EventInbox(there.sqs, queue, visibility_s=60) for _ in range(2))
    send(there, queue, NOTICE, STATE)
    while first.receive(0):
        pass
    first.ack(first.claim(lambda name: name == "i-1"))
    assert second.receive(0) == 0
    first.close()

    assert second.receive(0) == 1
    assert [item.word for item in second.claim(lambda _: True)] == [STATE]


def test_nonsense_is_deleted_and_harms_nobody(there: Aws, queue: str) -> None:
    inbox = EventInbox(there.sqs, queue)
    there.sqs.send_message(QueueUrl=queue, MessageBody="{")
    send(there, queue, NOTICE)

    assert inbox.receive(0) == 1
    assert left(there, queue) == 1


def test_what_nobody_claims_is_deleted_in_the_end(there: Aws, queue: str) -> None:
    inbox = EventInbox(there.sqs, queue, poll_s=1, keep_s=0.0)
    send(there, queue, NOTICE, STATE)
    inbox.start()
    until(lambda: left(there, queue) == 0)
    inbox.close()


def test_states_of_others_instances_are_kept_for_less_long_than_notices(
    there: Aws, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mark.aws.inbox.KEEP_STATES_S", 0.0)
    inbox = EventInbox(there.sqs, queue, poll_s=1)
    send(there, queue, NOTICE, *(StateChanged(instance=f"i-{n}", at=1.0, state="running") for n in range(9, 20)))
    inbox.start()
    until(lambda: left(there, queue) == 1)
    inbox.close()
    assert [item.word for item in inbox.claim(lambda _: True)] == [NOTICE]


def test_no_failure_ends_the_polling_and_each_is_reported(there: Aws, queue: str) -> None:
    """An invalid answer, an unexpected error of ours, and AWS unreachable; then a notice."""
    failures: list[Exception] = [ResponseParserError("<html>"), KeyError("MessageId"), RetryLater("throttled")]
    asked = there.sqs.receive_message
    told: list[str | None] = []
    woken, well = threading.Event(), threading.Event()

    def flaky(**given: Any) -> Any:
        if failures:
            raise failures.pop(0)
        return asked(**given)

    def on_poll(why: str | None) -> None:
        told.append(why)
        if why is None:
            well.set()

    sqs: Any = SimpleNamespace(receive_message=flaky, change_message_visibility_batch=lambda **_: None)
    send(there, queue, NOTICE)
    inbox = EventInbox(sqs, queue, wake=woken.set, on_poll=on_poll, poll_s=1, pause_s=0.001)
    inbox.start()
    try:
        assert woken.wait(5.0)
        assert well.wait(5.0)
    finally:
        inbox.close()

    assert told[:4] == ["AWS's answer cannot be read: <html>", "KeyError: 'MessageId'", "throttled", None]


def test_a_notice_wakes_the_driver_though_nonsense_beside_it_cannot_be_deleted(there: Aws, queue: str) -> None:
    woken = threading.Event()
    inbox = EventInbox(there.sqs, queue, wake=woken.set)
    there.sqs.send_message(QueueUrl=queue, MessageBody="{")
    send(there, queue, NOTICE)
    there.sqs.meta.events.register("before-call.sqs.DeleteMessageBatch", _throttled)

    with pytest.raises(RetryLater):
        inbox.receive(0)
    assert woken.is_set()


def _throttled(**_: Any) -> None:
    raise ClientError({"Error": {"Code": "Throttling", "Message": "no"}}, "DeleteMessageBatch")
