"""The table of AWS error codes, and what boto3's own failures become."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from mark.aws.errors import FAMILIES, NOT_THERE, absent_is_done, code_of, family_of, translated
from mark.domain.errors import AlreadyDone, MarkError, Misconfigured, NoCapacity, RetryLater
from tests.aws.builders import aws


def refusal(code: str, status: int = 400) -> ClientError:
    response = {"Error": {"Code": code, "Message": "because"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(response, "CreateFleet")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("code", "status", "family"),
    [
        ("RequestLimitExceeded", 503, RetryLater),
        ("TooManyRequestsException", 429, RetryLater),
        ("InsufficientInstanceCapacity", 500, NoCapacity),
        ("MaxSpotInstanceCountExceeded", 400, NoCapacity),
        ("IdempotentParameterMismatch", 400, AlreadyDone),
        ("UnauthorizedOperation", 403, Misconfigured),
        ("SomethingNew", 500, RetryLater),
        ("SomethingNew", 429, RetryLater),
        ("SomethingNew", 400, Misconfigured),
    ],
)
def test_each_code_has_its_family_and_keeps_its_cause(code: str, status: int, family: type[MarkError]) -> None:
    error = refusal(code, status)
    with pytest.raises(family, match=f"CreateFleet: {code}: because") as caught, translated():
        raise error

    assert caught.value.__cause__ is error
    assert code_of(caught.value) == code


def test_families_are_those_of_the_domain_and_no_code_is_in_two() -> None:
    assert set(FAMILIES.values()) == {RetryLater, NoCapacity, AlreadyDone, Misconfigured}
    assert family_of("InsufficientInstanceCapacity", 500) is NoCapacity  # the code tells more than the status
    assert FAMILIES.keys() >= NOT_THERE


def test_nobody_at_the_endpoint_is_retry_later() -> None:
    there = aws(endpoint_url="http://127.0.0.1:9", max_attempts=1)
    with pytest.raises(RetryLater, match="cannot be reached"), translated():
        there.ec2.describe_instances()
    there.close()


def test_no_answer_is_retry_later_and_a_wrong_call_is_ours() -> None:
    with pytest.raises(RetryLater), translated():
        raise ReadTimeoutError(endpoint_url="http://x")
    there = aws()
    with pytest.raises(Misconfigured, match="was not asked"), translated():
        there.ec2.create_fleet(Nonsense=1)  # type: ignore[call-arg]
    there.close()


def test_what_is_absent_need_not_be_removed() -> None:
    with absent_is_done():
        raise refusal("NoSuchEntity", 404)
    with pytest.raises(RetryLater), absent_is_done():
        raise refusal("Throttling", 400)
