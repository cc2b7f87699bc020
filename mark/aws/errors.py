"""One table of AWS error codes: what each means to the caller (see mark/domain/errors.py).

No code means PlanInfeasible: that is the planner's word. A code that is not in the table is judged by its HTTP
status: 429 and 5xx pass, the rest is a mistake of ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import MappingProxyType

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,  # noqa: A004
    HTTPClientError,
    IncompleteReadError,
)
from botocore.parsers import ResponseParserError

from mark.domain.errors import AlreadyDone, MarkError, Misconfigured, NoCapacity, RetryLater
from mark.domain.orders import RefusalCause

NOT_BEGUN = ("EC2", "EFS", "ENI", "Invalid", "KMS", "SnapStart", "SubnetIP", "Throttl")
"""Beginnings of codes of 5xx answers which say that nothing was run: Lambda had no environment to run it in."""
ANSWER_SHOWN = 200
"""Characters of an unreadable answer that an error shows."""
_RETRY_LATER = (
    "DataUnavailableException",
    "EC2ThrottledException",
    "IncorrectInstanceState",  # a pending instance cannot stop yet, a stopping one cannot start yet
    "IncorrectState",
    "InternalError",
    "InternalException",
    "InternalFailure",
    "InternalServiceError",
    "OperationAborted",
    "LimitExceededException",  # Cost Explorer's word for throttling
    "OverLimit",
    "PriorRequestNotComplete",
    "ProvisionedThroughputExceededException",
    "QueueDeletedRecently",
    "AWS.SimpleQueueService.QueueDeletedRecently",
    "RequestLimitExceeded",
    "RequestThrottled",
    "RequestThrottledException",
    "RequestTimeout",
    "RequestTimeoutException",
    "ServerInternal",
    "ServiceException",
    "ServiceUnavailable",
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "ThrottledException",
    "TooManyRequestsException",
    "TransactionInProgressException",
    "Unavailable",
)
_QUOTA = (
    "InstanceLimitExceeded",
    "MaxSpotFleetRequestCountExceeded",
    "MaxSpotInstanceCountExceeded",
    "VcpuLimitExceeded",
)
_NO_CAPACITY = (
    "InsufficientCapacity",
    "InsufficientHostCapacity",
    "InsufficientInstanceCapacity",
    "InsufficientReservedInstanceCapacity",
    "SpotMaxPriceTooLow",
    "UnfulfillableCapacity",
    "Unsupported",
)
_ALREADY_DONE = (
    "BucketAlreadyOwnedByYou",
    "EntityAlreadyExists",
    "IdempotentParameterMismatch",  # this token launched before: what it launched is there
    "InvalidInstanceID.NotFound",
    "InvalidLaunchTemplateName.AlreadyExistsException",
    "InvalidPermission.Duplicate",
    "QueueAlreadyExists",
    "QueueNameExists",
    "ResourceConflictException",
)
_UNAUTHORIZED = (
    "AccessDenied",
    "AccessDeniedException",
    "AuthFailure",
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidClientTokenId",
    "MissingAuthenticationToken",
    "OptInRequired",
    "SignatureDoesNotMatch",
    "UnauthorizedOperation",
    "UnrecognizedClientException",
)
_MISCONFIGURED = (
    "AccountSuspendedException",
    "AWS.SimpleQueueService.NonExistentQueue",
    "InvalidAMIID.NotFound",
    "InvalidAction",
    "InvalidLaunchTemplateId.NotFound",
    "InvalidLaunchTemplateName.NotFoundException",
    "InvalidParameterCombination",
    "InvalidParameterValue",
    "InvalidParameterValueException",
    "InvalidSubnetID.NotFound",
    "ImageNotFoundException",
    "MailFromDomainNotVerifiedException",
    "MessageRejected",  # sender or recipient are not verified
    "NoSuchBucket",
    "NoSuchEntity",
    "NoSuchResourceException",
    "NotFoundException",
    "QueueDoesNotExist",
    "RepositoryNotFoundException",
    "RequestEntityTooLarge",
    "ResourceNotFoundException",
    "SendingPausedException",
    "ValidationError",
    "ValidationException",
)

FAMILIES: MappingProxyType[str, type[MarkError]] = MappingProxyType(
    dict.fromkeys(_RETRY_LATER, RetryLater)
    | dict.fromkeys((*_NO_CAPACITY, *_QUOTA), NoCapacity)
    | dict.fromkeys(_ALREADY_DONE, AlreadyDone)
    | dict.fromkeys((*_MISCONFIGURED, *_UNAUTHORIZED), Misconfigured)
)
"""AWS's error code -> the family it belongs to."""

NOT_THERE = frozenset(
    {
        "AWS.SimpleQueueService.NonExistentQueue",
        "InvalidInstanceID.NotFound",
        "InvalidLaunchTemplateId.NotFound",
        "InvalidLaunchTemplateName.NotFoundException",
        "ImageNotFoundException",
        "NoSuchEntity",
        "NoSuchResourceException",
        "NotFoundException",
        "QueueDoesNotExist",
        "RepositoryNotFoundException",
        "ResourceNotFoundException",
    }
)
"""Codes that say that what was named does not exist: all that who removes things wants to hear."""


def family_of(code: str, status: int = 0) -> type[MarkError]:
    """The family of an error code; by its HTTP status where the code is unknown."""
    if code in FAMILIES:
        return FAMILIES[code]
    return RetryLater if status == 429 or status >= 500 else Misconfigured


def cause_of(code: str) -> RefusalCause:
    """The cause of a refusal with this code of AWS's; without a code it had no capacity."""
    if code in _QUOTA:
        return RefusalCause.QUOTA
    if code in _UNAUTHORIZED:
        return RefusalCause.AUTHORIZATION
    family = family_of(code) if code else NoCapacity
    if family is NoCapacity:
        return RefusalCause.CAPACITY
    return RefusalCause.AWS_FAILURE if family is RetryLater else RefusalCause.CONFIGURATION


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


def may_be_done(error: MarkError) -> bool:
    """True where AWS may have done what was asked, or be at it: no answer says what became of it.

    A 5xx whose code names what could not be started (`NOT_BEGUN`) is such an answer.
    """
    cause = error.__cause__
    if isinstance(cause, ClientError):
        status = int(cause.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        return status >= 500 and not code_of(error).startswith(NOT_BEGUN)
    return isinstance(cause, HTTPClientError | IncompleteReadError | ResponseParserError)


@contextmanager
def translated() -> Iterator[None]:
    """Translate what boto3 raises within into an error of ours, its cause chained."""
    try:
        yield
    except (ClientError, BotoCoreError) as error:
        raise as_mark_error(error) from error
    except ResponseParserError as error:  # half an answer, or a proxy's page in its place; no BotoCoreError
        raise RetryLater(f"AWS's answer cannot be read: {' '.join(str(error).split())[:ANSWER_SHOWN]}") from error


@contextmanager
def absent_is_done() -> Iterator[None]:
    """Translate as `translated`, but pass over what does not exist: the caller wanted that."""
    try:
        with translated():
            yield
    except MarkError as error:
        if code_of(error) not in NOT_THERE:
            raise
