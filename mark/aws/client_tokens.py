"""Tokens of a service's clients: versions of one secret, of which more than one count while one follows another.

Secrets Manager's stages hold the state of a rotation (AWS Secrets Manager user guide, "What's in a Secrets Manager
secret": AWSPENDING, AWSCURRENT, AWSPREVIOUS), so that it needs no store of its own and outlives whoever began it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from mark.aws.error_codes import NOT_THERE
from mark.aws.errors import code_of, translated
from mark.aws.names import TOKEN, name_of
from mark.domain.errors import MarkError

if TYPE_CHECKING:
    from mark.aws.session import Aws

CURRENT, PENDING, PREVIOUS = "AWSCURRENT", "AWSPENDING", "AWSPREVIOUS"
READ_EACH_S, AGAIN_S = 600.0, 60.0
"""Between two readings of a gateway, and after one that failed. Three calls each: 0.06 USD a month and gateway
(0.05 USD per 10,000 calls, AWS Secrets Manager pricing, 2026-11)."""


def valid_tokens(aws: Aws, service: str) -> tuple[str, ...]:
    """The tokens that count, first the one that clients are to send. Errors: MarkError."""
    tokens = [_value(aws, service, CURRENT)]
    for stage in (PENDING, PREVIOUS):
        with suppress(_NoVersion):
            tokens.append(_value(aws, service, stage))
    return tuple(dict.fromkeys(tokens))


class _NoVersion(MarkError):
    """No version of the secret has that stage, or there is no such secret."""


def _value(aws: Aws, service: str, stage: str) -> str:
    name = name_of(service, TOKEN)
    try:
        with translated():
            return str(aws.secrets.get_secret_value(SecretId=name, VersionStage=stage)["SecretString"])
    except MarkError as error:
        if code_of(error) in NOT_THERE:
            raise _NoVersion(f"the secret {name} has no version {stage}: {error}") from error
        raise
