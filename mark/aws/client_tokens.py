"""Secrets that are rotated while the service serves: of their versions more than one count for a while.

The clients' token, which gateways read; and in the lean shape the agents' password at the store, which nodes read
to have their store accept it, and the process beside each agent.

Secrets Manager's stages hold the state of a rotation (AWS Secrets Manager user guide, "What's in a Secrets Manager
secret": AWSPENDING, AWSCURRENT, AWSPREVIOUS), so that it needs no store of its own and outlives whoever began it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from mark.aws.error_codes import NOT_THERE
from mark.aws.errors import code_of, translated
from mark.aws.names import AGENTS_PASSWORD, TOKEN, name_of
from mark.domain.errors import MarkError

if TYPE_CHECKING:
    from mark.aws.session import Aws

CURRENT, PENDING, PREVIOUS = "AWSCURRENT", "AWSPENDING", "AWSPREVIOUS"
READ_EACH_S, AGAIN_S = 600.0, 60.0
"""Between two readings of who accepts, and after one that failed. Three calls each: 0.06 USD a month and reader
(0.05 USD per 10,000 calls, AWS Secrets Manager pricing, 2026-11)."""
FRESH_S = 60.0
"""Age at which an instance reads the agents' password again, where an agent asks for it."""


def valid_tokens(aws: Aws, service: str) -> tuple[str, ...]:
    """The tokens that count, first the one that clients are to send. Errors: MarkError."""
    return _valid(aws, name_of(service, TOKEN))


def valid_passwords(aws: Aws, service: str) -> tuple[str, ...]:
    """The agents' passwords that count, first the one that agents log in with. Errors: MarkError."""
    return _valid(aws, name_of(service, AGENTS_PASSWORD))


def agents_password(aws: Aws, service: str) -> str:
    """The password that agents log in with. Errors: MarkError."""
    return _value(aws, name_of(service, AGENTS_PASSWORD), CURRENT)


def _valid(aws: Aws, name: str) -> tuple[str, ...]:
    """The values that count. The one that waits is read first: it might be published, and so missed, meanwhile."""
    waiting = _perhaps(aws, name, PENDING)
    in_use = _value(aws, name, CURRENT)
    before = _perhaps(aws, name, PREVIOUS)
    return tuple(dict.fromkeys(one for one in (in_use, waiting, before) if one is not None))


def _perhaps(aws: Aws, name: str, stage: str) -> str | None:
    with suppress(_NoVersion):
        return _value(aws, name, stage)
    return None


class _NoVersion(MarkError):
    """No version of the secret has that stage, or there is no such secret."""


def _value(aws: Aws, name: str, stage: str) -> str:
    try:
        with translated():
            return str(aws.secrets.get_secret_value(SecretId=name, VersionStage=stage)["SecretString"])
    except MarkError as error:
        if code_of(error) in NOT_THERE:
            raise _NoVersion(f"the secret {name} has no version {stage}: {error}") from error
        raise
