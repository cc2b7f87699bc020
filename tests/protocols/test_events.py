"""EventBridge's events and the messages of the events queue."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.errors import Misconfigured
from mark.domain.fleet.orders import RebalanceAdvised, SpotWarned
from mark.domain.offerings.times import SPOT_NOTICE_S
from mark.protocols.events import (
    STATES,
    InstanceMessage,
    StateChanged,
    compose_message,
    message_of_event,
    parse_message,
    parse_object,
)
from tests.lambda_handlers.records import event_of_message

INSTANCES = st.text(min_size=1, max_size=40)
INSTANTS = st.integers(0, 4_000_000_000).map(float)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def words(at: st.SearchStrategy[float]) -> st.SearchStrategy[InstanceMessage]:
    return st.one_of(
        st.builds(SpotWarned, instance=INSTANCES, at=at, terminates_at=at),
        st.builds(StateChanged, instance=INSTANCES, at=at, state=st.sampled_from(STATES)),
        st.builds(RebalanceAdvised, instance=INSTANCES, at=at),
    )


# The example of EC2's user guide, "Spot Instance interruption notices".
FROM_AWS = {
    "version": "0",
    "id": "12345678-1234-1234-1234-123456789012",
    "detail-type": "EC2 Spot Instance Interruption Warning",
    "source": "aws.ec2",
    "account": "123456789012",
    "time": "2026-07-20T00:00:00Z",
    "region": "us-east-2",
    "resources": ["arn:aws:ec2:us-east-2a:instance/i-1234567890abcdef0"],
    "detail": {"instance-id": "i-1234567890abcdef0", "instance-action": "terminate"},
}


def test_aws_s_own_example() -> None:
    assert message_of_event(FROM_AWS) == SpotWarned(
        instance="i-1234567890abcdef0", at=1784505600.0, terminates_at=1784505720.0
    )


@given(words(FINITE))
def test_words_come_back_as_they_went(word: InstanceMessage) -> None:
    assert parse_message(compose_message(word)) == word


@given(words(INSTANTS))
def test_events_say_what_the_word_said(word: InstanceMessage) -> None:
    event = json.loads(json.dumps(event_of_message(word, id="e", region="us-east-1", account="1")))
    wanted = word
    if isinstance(word, SpotWarned):
        wanted = SpotWarned(instance=word.instance, at=word.at, terminates_at=word.at + SPOT_NOTICE_S)

    assert message_of_event(event) == wanted


@given(JSON)
def test_nonsense_is_misconfigured_and_nothing_else(value: Any) -> None:
    for read in (
        lambda: parse_message(json.dumps(value)),
        lambda: message_of_event(parse_object(json.dumps(value))),
    ):
        with pytest.raises(Misconfigured):
            read()


@given(st.text())
def test_no_text_breaks_the_parser(text: str) -> None:
    with pytest.raises(Misconfigured):
        parse_message(text)


@given(word=words(FINITE), value=JSON, data=st.data())
def test_a_field_that_is_wrong_is_named(word: InstanceMessage, value: Any, data: st.DataObject) -> None:
    fields = json.loads(compose_message(word))
    field = data.draw(st.sampled_from(sorted(fields)))
    try:
        understood = parse_message(json.dumps({**fields, field: value}))
    except Misconfigured as error:
        assert field in str(error)  # noqa: PT017 - other values are right
    else:
        assert json.loads(compose_message(understood))[field] == value


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"source": "aws.s3"}, "must come from aws.ec2"),
        ({"detail-type": "EC2 Something"}, "unknown detail-type 'EC2 Something'"),
        ({"detail": None}, "detail must be an object"),
        ({"detail": {}}, "instance-id must be a text"),
        ({"time": "yesterday"}, "time must be ISO 8601"),
        ({"time": "2026-07-20T00:00:00"}, "time must name its zone"),
        ({"detail-type": "EC2 Instance State-change Notification"}, "state must be one of"),
    ],
)
def test_what_is_wrong_with_an_event(change: dict[str, Any], says: str) -> None:
    with pytest.raises(Misconfigured, match=says):
        message_of_event({**FROM_AWS, **change})


def test_long_and_deep_messages_are_refused() -> None:
    with pytest.raises(Misconfigured, match="longer than"):
        parse_message(" " * 70_000)
    with pytest.raises(Misconfigured, match="must be JSON"):
        parse_message("[" * 60_000)
