"""A service's name, which an account has once: roles, budgets and dashboards have no region."""

from __future__ import annotations

from mark.aws.errors import code_of, translated
from mark.aws.session import Aws
from mark.domain.errors import MarkError, Misconfigured

MISSING = "NoSuchEntity"


def require_name_is_free(aws: Aws, role: str) -> None:
    """Misconfigured where the account has a role that a new service would make. Else errors as AWS has them."""
    try:
        with translated():
            found = aws.iam.get_role(RoleName=role)["Role"]
    except MarkError as error:
        if code_of(error) == MISSING:
            return
        raise
    used = found.get("RoleLastUsed", {}).get("Region")
    where = f"last used in {used}" if used else "which no instance has used lately"
    raise Misconfigured(
        f"the account has the role {role} already, {where}: a service of this name is in another region, and "
        "roles have none; take another service.name"
    )
