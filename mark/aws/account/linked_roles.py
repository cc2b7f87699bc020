"""Service-linked roles: AWS's own services act for an account in them, and make them when it first uses them.

CloudFormation does not wait until such a role can be taken: an account's first cluster fails with "Unable to
assume the service linked role" (aws/containers-roadmap #2614). Roles made before the stacks are old enough.
"""

from __future__ import annotations

from collections.abc import Iterable

from mark.aws.errors import code_of, translated
from mark.aws.permissions.scopes import LINKED_FOR
from mark.aws.session import Aws
from mark.domain.errors import AlreadyDone, MarkError

TAKEN = "InvalidInput"
"""IAM's code where the account has the role."""


def linked_services(*, lean: bool, spot: bool) -> tuple[str, ...]:
    """The services that act for a service of this shape, on spot or not."""
    if lean:
        return ("autoscaling", *(("spot",) if spot else ()))
    return tuple(one for one in LINKED_FOR if spot or one != "spot")


def make_linked_roles(aws: Aws, services: Iterable[str]) -> tuple[str, ...]:
    """Make the roles that the account lacks; the services whose it made. Errors as AWS has them."""
    made = []
    for service in services:
        try:
            with translated():
                aws.iam.create_service_linked_role(AWSServiceName=f"{service}.amazonaws.com")
        except AlreadyDone:
            continue
        except MarkError as error:
            if code_of(error) != TAKEN:
                raise
        else:
            made.append(service)
    return tuple(made)
