"""IAM before every call of a role: what its policy does not allow is refused, and what was used of it is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NoReturn

from mark.aws.permissions.calls import PROCESSES, ROLES
from mark.aws.permissions.evaluation import Access, evaluate
from mark.aws.permissions.policies import Names, policy
from mark.emulator.authorization.accesses import Account, Params, accesses
from mark.emulator.errors import ApiError

REFUSALS: Mapping[str, tuple[str, int]] = {
    "cloudwatch": ("AccessDenied", 403),
    "ec2": ("UnauthorizedOperation", 403),
    "iam": ("AccessDenied", 403),
    "lambda": ("AccessDeniedException", 403),
    "route53": ("AccessDenied", 403),
    "s3": ("AccessDenied", 403),
    "sesv2": ("AccessDeniedException", 403),
    "sqs": ("AccessDenied", 403),
}
"""A service -> its code of a refusal and the status; of all others, which speak JSON, see `_JSON`."""
_JSON = ("AccessDeniedException", 400)


class Authorizer:
    """Policies of a service's roles. A caller without a role is whoever owns the account: nobody judges it."""

    def __init__(self, names: Names, account: Account) -> None:
        self._account = account
        self._policies = {role: policy(names, role) for role in ROLES}
        self._used: Counter[tuple[str, str, str]] = Counter()
        self._refused: Counter[str] = Counter()

    def check(self, role: str, service: str, operation: str, params: Params) -> None:
        """ApiError for a call that the role's policy does not allow, or that the table of accesses lacks."""
        if not role:
            return
        asked = accesses(self._account, service, operation, params)
        if role not in self._policies or asked is None:
            self._refuse(service, f"{role}: {service}:{operation} is in no table of permissions")
        for access in asked:
            decision = evaluate(access, (self._policies[role],))
            if not decision.allowed:
                self._refuse(service, _words(role, access))
            for sid in decision.by:
                self._used[role, sid, access.action] += 1

    def simulate(self, params: Params) -> Params:
        """The reply to IAM's SimulatePrincipalPolicy about the controllers' role."""
        part = str(params["PolicySourceArn"]).rpartition("-")[2]
        if part not in PROCESSES:
            raise ApiError("NoSuchEntity", f"The role with name {params['PolicySourceArn']} cannot be found.", 404)
        policies = [self._policies[role] for role in PROCESSES[part]]
        given = {
            one["ContextKeyName"]: tuple(one["ContextKeyValues"]) for one in params.get("ContextEntries") or ()
        }
        asked = [
            Access(action=action, resource=resource, context=given)
            for action in params["ActionNames"]
            for resource in params.get("ResourceArns") or ["*"]
        ]
        return {
            "EvaluationResults": [
                {
                    "EvalActionName": one.action,
                    "EvalResourceName": one.resource,
                    "EvalDecision": "allowed" if evaluate(one, policies).allowed else "implicitDeny",
                }
                for one in asked
            ]
        }

    def _refuse(self, service: str, message: str) -> NoReturn:
        self._refused[message] += 1
        code, status = REFUSALS.get(service, _JSON)
        raise ApiError(code, f"User: {message}", status)

    def state(self) -> dict[str, Any]:
        """For `/_mark/state`: refusals, and by role how often each grant (statement and action) was used."""
        used: dict[str, dict[str, int]] = {}
        for (role, sid, action), count in sorted(self._used.items()):
            used.setdefault(role, {})[f"{sid} {action}"] = count
        return {"refused": dict(self._refused), "used": used}


def _words(role: str, access: Access) -> str:
    """The refusal as AWS words it, and the keys that policies could have asked."""
    keys = ", ".join(f"{key}={'|'.join(values)}" for key, values in sorted(access.context.items()))
    return (
        f"mark-{role} is not authorized to perform: {access.action} on resource: {access.resource} because no "
        f"identity-based policy allows the {access.action} action ({keys})"
    )
