"""Registry of dispatch rules: their names, and when each binds a request to an instance.

Early: when it arrives (`routing.py`), also where each instance then chooses a variant (`variants/serving.py`).
Central: once an instance is idle (`central/decisions.py`; for variants `central/deadlines.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mark.dispatch.central.policy import CentralRule
from mark.dispatch.policy import Routing
from mark.dispatch.variants.qos import QosRule
from mark.dispatch.variants.serving import CENTRAL_PREFIX, FIXED_PREFIX, VariantDispatch
from mark.dispatch.variants.slackfit import FREE, VariantRule
from mark.domain.errors import Misconfigured, unknown
from mark.plugins.load import own_rule_names

DRS_PREFIX = f"{CentralRule.DRS}:"
LONGEST_SIZE = 9
"""Digits of a size: one that no profile has is enough."""


@dataclass(frozen=True, slots=True)
class CentralDispatch:
    """A rule of a central queue. threshold: DeepRecSys' size, above which a query goes to the base type.

    own: the name of a user's own rule, for which `rule` stands in where it fails.
    """

    rule: CentralRule
    threshold: int | None = None
    own: str | None = None

    def __str__(self) -> str:
        if self.own is not None:
            return self.own
        return self.rule.value if self.threshold is None else f"{DRS_PREFIX}{self.threshold}"


DispatchRule = Routing | VariantDispatch | CentralDispatch

_NAMED: dict[str, DispatchRule] = {
    **{str(rule): rule for rule in Routing},
    **{str(one): one for rule in FREE for one in (VariantDispatch(rule), VariantDispatch(rule, is_central=True))},
    **{str(rule): VariantDispatch(rule) for rule in QosRule},
    **{str(rule): CentralDispatch(rule) for rule in (CentralRule.KAIROS, CentralRule.FCFS, CentralRule.CLOCKWORK)},
}


def parse_rule(text: str) -> DispatchRule:
    """A dispatch rule by its name; `fixed:NAME` has a variant and `drs:SIZE` a size. Errors: Misconfigured.

    `central:RULE` is a rule that chooses variants, with one queue for all instances. A user's own rule, such as
    `path/file.py:Name`, is not loaded here.
    """
    if text in _NAMED:
        return _NAMED[text]
    if text.startswith(CENTRAL_PREFIX):
        rule = parse_rule(text.removeprefix(CENTRAL_PREFIX))
        if not isinstance(rule, VariantDispatch):
            raise Misconfigured(f"{CENTRAL_PREFIX} stands before a rule that chooses variants, not {rule}")
        return replace(rule, is_central=True)
    if text.startswith(FIXED_PREFIX) and text != FIXED_PREFIX:
        return VariantDispatch(VariantRule.FIXED, text.removeprefix(FIXED_PREFIX))
    if text == FIXED_PREFIX:
        raise unknown("dispatch rule", text, (f"{FIXED_PREFIX}VARIANT",))
    if text == CentralRule.DRS or text.startswith(DRS_PREFIX):
        size = text.removeprefix(DRS_PREFIX)
        if not (size.isascii() and size.isdigit() and len(size) <= LONGEST_SIZE and int(size)):
            raise Misconfigured(
                f"the dispatch rule {text} needs the size above which a query goes to the base type, such as "
                "drs:64; `mark pool evaluate --dispatch drs --json` finds it (`threshold`)"
            )
        return CentralDispatch(CentralRule.DRS, int(size))
    if ":" in text or text in own_rule_names():
        return CentralDispatch(CentralRule.KAIROS, own=text)
    if text.endswith(".py"):
        raise Misconfigured(f"dispatch rule {text!r} lacks a name: write {text}:ClassName")
    raise unknown("dispatch rule", text, rule_names())


def rule_names() -> tuple[str, ...]:
    """All dispatch rules, as a user writes them."""
    return (*_NAMED, f"{DRS_PREFIX}SIZE", f"{FIXED_PREFIX}VARIANT", *own_rule_names())
