"""A service's name, which an account has once: roles, budgets and dashboards have no region."""

from __future__ import annotations

from mark.aws.errors import unless_absent
from mark.aws.session import Aws
from mark.domain.errors import Misconfigured


def require_name_is_free(aws: Aws, role: str) -> None:
    """Misconfigured where the account has a role that a new service would make. Else errors as AWS has them."""
    found = unless_absent(lambda: aws.iam.get_role(RoleName=role)["Role"])
    if found is None:
        return
    used = found.get("RoleLastUsed", {}).get("Region")
    where = f"last used in {used}" if used else "which no instance has used lately"
    raise Misconfigured(
        f"the account has the role {role} already, {where}: a service of this name is in another region, and "
        "roles have none; take another service.name"
    )
