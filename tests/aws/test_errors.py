"""The table of AWS error codes, and what boto3's own failures become."""

from __future__ import annotations

from pathlib import Path

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from mark.aws import error_codes as codes
from mark.aws import errors
from mark.aws.errors import (
    FAMILIES,
    absent_is_done,
    cause_of,
    code_of,
    family_of,
    refused_is_later,
    remedy,
    translated,
)
from mark.domain.errors import AlreadyDone, MarkError, Misconfigured, NoCapacity, RetryLater
from mark.domain.fleet.orders import RefusalCause
from tests.aws.builders import aws
from tests.aws.documented_errors import pairs


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
    tables = (
        codes.RETRY_LATER,
        codes.QUOTA,
        codes.NO_CAPACITY,
        codes.ALREADY_DONE,
        codes.UNAUTHORIZED,
        codes.MISCONFIGURED,
    )
    assert sum(map(len, tables)) == len(FAMILIES)


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


def test_somebody_has_looked_at_every_code_that_aws_documents_for_our_calls() -> None:
    """Of which a table, the code's beginning or a 4xx in `mistakes.txt` says what it means."""
    mistakes = set((Path(__file__).parent / "mistakes.txt").read_text().splitlines()[1:])
    known = FAMILIES.keys() | mistakes
    documented = {(code, status) for _, _, code, status in pairs() if not code.startswith(codes.MISTAKES)}
    assert {code for code, _ in documented if code not in known and not code.isdigit()} == set()
    assert {family_of(*one) for one in documented if one[0] in mistakes} == {Misconfigured}


@pytest.mark.parametrize(
    ("code", "family", "cause"),
    [
        ("InvalidFleetConfig", Misconfigured, RefusalCause.CONFIGURATION),
        ("InsufficientFreeAddressesInSubnet", NoCapacity, RefusalCause.CAPACITY),
        ("InsufficientVolumeCapacity", NoCapacity, RefusalCause.CAPACITY),
        ("MaxFleetCountExceeded", NoCapacity, RefusalCause.QUOTA),
        ("PendingVerification", Misconfigured, RefusalCause.AUTHORIZATION),
        ("OperationNotPermitted", Misconfigured, RefusalCause.CONFIGURATION),
        ("IdempotentInstanceTerminated", AlreadyDone, RefusalCause.CONFIGURATION),
        ("InternalError", RetryLater, RefusalCause.AWS_FAILURE),
    ],
)
def test_a_code_has_its_family_its_cause_and_a_remedy(
    code: str, family: type[MarkError], cause: RefusalCause
) -> None:
    assert (family_of(code), cause_of(code)) == (family, cause)
    assert remedy(code)


def test_what_is_refused_again_and_again_is_an_error_in_the_log_once_an_hour(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errors, "REPORTED_AT", {})
    for now in (0.0, 3599.0, 3600.0):
        monkeypatch.setattr(errors, "steady_time", lambda now=now: now)
        with pytest.raises(RetryLater), refused_is_later():
            raise refusal("UnauthorizedOperation")
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 2
