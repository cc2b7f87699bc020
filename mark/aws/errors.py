"""AWS's errors as ours: what each code means to the caller (see mark/domain/errors.py), and what mends it.

No code means PlanInfeasible: that is the planner's word. A code that no table has is judged by its HTTP status
(429 and 5xx pass, the rest is a mistake of ours).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import MappingProxyType
from typing import TypeVar

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,  # noqa: A004
    HTTPClientError,
    IncompleteReadError,
)

from mark.aws import error_codes as codes
from mark.domain.errors import AlreadyDone, MarkError, Misconfigured, NoCapacity, RetryLater
from mark.domain.fleet.orders import RefusalCause
from mark.steady_time import steady_time

_log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

REPORT_EACH_S = 3600.0
"""Period after which a repeated refusal of AWS is an error in the log again: a process runs for weeks."""
REPORTED_AT: dict[tuple[str, str], float] = {}
"""When a call's code was last in the log, steady seconds."""

NOT_BEGUN = ("EC2", "EFS", "ENI", "Invalid", "KMS", "SnapStart", "SubnetIP", "Throttl")
"""Beginnings of codes of 5xx answers which say that nothing was run: Lambda had no environment to run it in."""
ANSWER_SHOWN = 200
"""Characters of an unreadable answer that an error shows."""
FAMILIES: MappingProxyType[str, type[MarkError]] = MappingProxyType(
    dict.fromkeys(codes.RETRY_LATER, RetryLater)
    | dict.fromkeys((*codes.NO_CAPACITY, *codes.QUOTA), NoCapacity)
    | dict.fromkeys(codes.ALREADY_DONE, AlreadyDone)
    | dict.fromkeys((*codes.MISCONFIGURED, *codes.UNAUTHORIZED), Misconfigured)
)
"""AWS's error code -> the family it belongs to."""


def family_of(code: str, status: int = 0) -> type[MarkError]:
    """The family of an error code; by its HTTP status where the code is unknown."""
    if code in FAMILIES:
        return FAMILIES[code]
    if code.startswith(codes.MISTAKES):
        return Misconfigured
    return RetryLater if status == 429 or status >= 500 else Misconfigured


def cause_of(code: str) -> RefusalCause:
    """The cause of a refusal with this code of AWS's; without a code it had no capacity."""
    if code in codes.QUOTA:
        return RefusalCause.QUOTA
    if code in codes.UNAUTHORIZED:
        return RefusalCause.AUTHORIZATION
    family = family_of(code) if code else NoCapacity
    if family is NoCapacity:
        return RefusalCause.CAPACITY
    return RefusalCause.AWS_FAILURE if family is RetryLater else RefusalCause.CONFIGURATION


NOT_ELIGIBLE = "not eligible for Free Tier"
"""Of the message that refuses a type to an account on the Free plan; its code says no more than "invalid"."""
UPGRADE = "upgrade the account: `aws freetier upgrade-account-plan --account-plan-type PAID --region us-east-1`"
_REMEDIES = {
    "AuthFailure.ServiceLinkedRoleCreationNotPermitted": (
        "make the role of EC2 Spot once: aws iam create-service-linked-role --aws-service-name spot.amazonaws.com"
    ),
    "Blocked": "ask AWS Support: the account is blocked",
    "InsufficientFreeAddressesInSubnet": "give the service larger subnets, or end what else uses their addresses",
    "InvalidFleetConfig": "give each zone one subnet in rollout.network, and deploy again",
    "OperationNotPermitted": (
        "remove its termination and stop protection: aws ec2 modify-instance-attribute --instance-id ID "
        "--no-disable-api-termination (and --no-disable-api-stop)"
    ),
    "PendingVerification": "wait until AWS has verified the account, mostly some minutes, or ask AWS Support",
    "RequestExpired": "set the machine's clock right, or renew the credentials",
    "RequestTimeTooSkewed": "set the machine's clock right",
}
_BY_CAUSE = {
    RefusalCause.QUOTA: "ask for more in Service Quotas; `mark doctor` names the quota",
    RefusalCause.AUTHORIZATION: "deploy again, which renews the permissions; `mark doctor` checks the credentials",
    RefusalCause.CONFIGURATION: "run `mark doctor`, and deploy again once what the message names is right",
    RefusalCause.CAPACITY: "nothing: it is asked for again, and others are rented meanwhile",
    RefusalCause.AWS_FAILURE: "nothing: it is asked for again",
}


def remedy(code: str, message: str = "") -> str:
    """The thing to do about an error code and its message, as the end of a sentence."""
    if NOT_ELIGIBLE in message:
        return f"{UPGRADE}, or name types that it may launch as offerings.types: `mark doctor` lists them"
    return _REMEDIES.get(code) or _BY_CAUSE[cause_of(code)]


def code_of(error: BaseException) -> str:
    """AWS's code behind a translated error, or the name of the failure that never reached AWS."""
    cause = error.__cause__
    if isinstance(cause, ClientError):
        return str(cause.response["Error"].get("Code", ""))
    return type(cause or error).__name__


def as_mark_error(error: ClientError | BotoCoreError) -> MarkError:
    """The error of ours that a boto3 error means. The caller raises it from the one it got."""
    if isinstance(error, ClientError):
        details = error.response["Error"]
        code = str(details.get("Code", ""))
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        line = f"{error.operation_name}: {code}: {details.get('Message', 'no message')}"
        return family_of(code, status)(line)
    if isinstance(error, ConnectionError | HTTPClientError | IncompleteReadError):
        # no connection, no answer, or half of one
        return RetryLater(f"AWS cannot be reached: {error}")
    return Misconfigured(f"AWS was not asked: {error}")


@lru_cache
def _parser_error() -> type[Exception]:
    """Botocore's error for an answer that it cannot read.

    Looked up when something failed: its module brings all of botocore (17 MiB) to processes that never call AWS.
    """
    from botocore.parsers import ResponseParserError  # noqa: PLC0415

    return ResponseParserError


def may_be_done(error: MarkError) -> bool:
    """True where AWS may have done what was asked, or be at it: no answer says what became of it.

    A 5xx whose code names what could not be started (`NOT_BEGUN`) is such an answer.
    """
    cause = error.__cause__
    if isinstance(cause, ClientError):
        status = int(cause.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        return status >= 500 and not code_of(error).startswith(NOT_BEGUN)
    return isinstance(cause, (HTTPClientError, IncompleteReadError, _parser_error()))


@contextmanager
def translated() -> Iterator[None]:
    """Translate what boto3 raises within into an error of ours, its cause chained."""
    try:
        yield
    except (ClientError, BotoCoreError) as error:
        raise as_mark_error(error) from error
    except _parser_error() as error:  # half an answer, or a proxy's page in its place; no BotoCoreError
        raise RetryLater(f"AWS's answer cannot be read: {' '.join(str(error).split())[:ANSWER_SHOWN]}") from error


@contextmanager
def refused_is_later() -> Iterator[None]:
    """Translate as `translated`, but whatever AWS refuses is RetryLater, and an error in the log once a call.

    For what a service cannot do without: who asks goes on asking until somebody has mended it.
    """
    try:
        with translated():
            yield
    except RetryLater:
        raise
    except MarkError as error:
        cause = error.__cause__
        report_refusal(cause.operation_name if isinstance(cause, ClientError) else "", code_of(error))
        raise RetryLater(str(error)) from cause


def report_refusal(call: str, code: str) -> None:
    """Log what AWS refuses of a call that is made again and again, once an hour, with what mends it."""
    now = steady_time()
    if now < REPORTED_AT.get((call, code), -math.inf) + REPORT_EACH_S:
        return
    REPORTED_AT[call, code] = now
    _log.error("AWS refuses %s (%s), which is asked for again until it is given: %s", call, code, remedy(code))


def unless_absent(ask: Callable[[], Answer], absent: Collection[str] = codes.NOT_THERE) -> Answer | None:
    """AWS's answer; None where its refusal says that what it is about is not there. Errors as `translated`."""
    try:
        with translated():
            return ask()
    except MarkError as error:
        if code_of(error) not in absent:
            raise
    return None


@contextmanager
def absent_is_done() -> Iterator[None]:
    """Translate as `translated`, but pass over what does not exist: the caller wanted that."""
    try:
        with translated():
            yield
    except MarkError as error:
        if code_of(error) not in codes.NOT_THERE:
            raise
