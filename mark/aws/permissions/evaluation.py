"""IAM's decision about one action on one resource, from policy documents, the tags and what else a request tells.

The rules are those of the IAM user guide ("Policy evaluation logic", "IAM JSON policy elements"): an explicit
deny wins, an allow in every kind of policy that applies is needed, all else is refused. What IAM has and no policy
of ours uses (`NotAction`, other operators, policy variables) is Misconfigured here: a decision that was guessed
would be worse than none. The emulated AWS asks this before every call of a role, and tests hold policies to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from mark.domain.errors import Misconfigured, unknown

Policy = Mapping[str, Any]
"""A policy document as IAM has it."""
_ELEMENTS = frozenset(("Sid", "Effect", "Action", "Resource", "Condition"))
_ARN_PARTS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """An action (`ec2:StopInstances`) on one resource (an ARN, or `*` where the action takes none).

    `context`: condition key -> its values. A key that the request does not have is left out; one of several values
    can be asked by set operators alone.
    """

    action: str
    resource: str
    context: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer, and the statements (their `Sid`) that gave it: those that deny, else those that allow."""

    allowed: bool
    by: tuple[str, ...] = ()


def evaluate(access: Access, identity: Sequence[Policy], boundary: Sequence[Policy] | None = None) -> Decision:
    """Decide by the principal's own policies and, where it has one, its permissions boundary: both must allow."""
    denied, allowed = _answers(access, identity)
    if boundary is not None:
        denied_within, allowed_within = _answers(access, boundary)
        denied, allowed = (*denied, *denied_within), allowed if allowed_within else ()
    return Decision(allowed=False, by=denied) if denied else Decision(allowed=bool(allowed), by=allowed)


def _answers(access: Access, policies: Iterable[Policy]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The statements that deny, and those that allow."""
    applying = [one for policy in policies for one in policy["Statement"] if _applies(one, access)]
    sids = {
        effect: tuple(str(one.get("Sid", "")) for one in applying if one["Effect"] == effect)
        for effect in _EFFECTS
    }
    return sids["Deny"], sids["Allow"]


_EFFECTS = ("Allow", "Deny")


def _applies(statement: Mapping[str, Any], access: Access) -> bool:
    for element in statement:
        if element not in _ELEMENTS:
            raise unknown("element of a statement", element, _ELEMENTS)
    if statement["Effect"] not in _EFFECTS:
        raise unknown("effect of a statement", statement["Effect"], _EFFECTS)
    conditions = statement.get("Condition", {})
    return (
        any(_glob(one, access.action, True) for one in _listed(statement["Action"]))
        and any(matches_arn(one, access.resource) for one in _listed(statement["Resource"]))
        and all(_holds(operator, asked, access) for operator, asked in conditions.items())
    )


def _listed(value: str | Sequence[str]) -> Sequence[str]:
    return (value,) if isinstance(value, str) else value


def matches_arn(pattern: str, arn: str) -> bool:
    """True where the pattern covers the ARN: part by part, so that a star stays in its part; `*` covers all."""
    if pattern == "*":
        return True
    _refuse_variables(pattern)
    wanted, given = pattern.split(":", _ARN_PARTS - 1), arn.split(":", _ARN_PARTS - 1)
    return len(wanted) == len(given) and all(
        _glob(one, other, False) for one, other in zip(wanted, given, strict=True)
    )


@lru_cache(maxsize=8192)
def _glob(pattern: str, text: str, fold: bool) -> bool:
    _refuse_variables(pattern)
    shape = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")
    return re.fullmatch(shape, text, re.IGNORECASE | re.DOTALL if fold else re.DOTALL) is not None


def _equals(wanted: str, given: str) -> bool:
    _refuse_variables(wanted)
    return wanted == given


def _refuse_variables(text: str) -> None:
    if "${" in text:
        raise Misconfigured(f"policy variables are not evaluated: {text}")


_POSITIVE: Mapping[str, Callable[[str, str], bool]] = {
    "ArnEquals": matches_arn,
    "ArnLike": matches_arn,
    "Bool": lambda wanted, given: wanted.lower() == given.lower(),
    "StringEquals": _equals,
    "StringEqualsIgnoreCase": lambda wanted, given: _equals(wanted.lower(), given.lower()),
    "StringLike": lambda wanted, given: _glob(wanted, given, False),
}
_NEGATED = {
    "ArnNotEquals": "ArnEquals",
    "ArnNotLike": "ArnLike",
    "StringNotEquals": "StringEquals",
    "StringNotEqualsIgnoreCase": "StringEqualsIgnoreCase",
    "StringNotLike": "StringLike",
}
_EACH, _SOME, _IF_EXISTS, _NULL = "ForAllValues:", "ForAnyValue:", "IfExists", "Null"


def _holds(operator: str, asked: Mapping[str, str | Sequence[str]], access: Access) -> bool:
    """True where every key of one operator is as asked."""
    context = {key.lower(): values for key, values in access.context.items()}
    return all(
        _key_holds(operator, key, _listed(values), context.get(key.lower(), ())) for key, values in asked.items()
    )


def _key_holds(operator: str, key: str, wanted: Sequence[str], given: tuple[str, ...]) -> bool:
    if operator == _NULL:
        (absent,) = wanted
        return (absent.lower() == "true") == (not given)
    bare = operator.removeprefix(_EACH).removeprefix(_SOME).removesuffix(_IF_EXISTS)
    positive = _NEGATED.get(bare, bare)
    if positive not in _POSITIVE:
        raise unknown("condition operator", operator, (*_POSITIVE, *_NEGATED, _NULL))
    found = [any(_POSITIVE[positive](one, value) for one in wanted) is (positive == bare) for value in given]
    if operator.startswith(_EACH):
        return all(found)
    if operator.startswith(_SOME):
        return any(found)
    if not given:  # a negated operator holds for what is not there
        return positive != bare or operator.endswith(_IF_EXISTS)
    if len(given) > 1:
        raise Misconfigured(f"{key} has several values: {operator} would decide by chance, use ForAnyValue")
    return found[0]
