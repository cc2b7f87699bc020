"""Totals by version, between the marks of hourly totals. Pure.

Gateways count by version while a rollout runs. All that they counted beyond that, and what the service shed, is
the stable version's: a mark names it, and one is made when another takes over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mark.domain.models.versions import VersionCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionTotals:
    """Requests of one version and its use of Lambda; broken where they were read between two marks."""

    answered: float = 0.0
    late: float = 0.0
    #: Failed or shed; a request that its instance lost counts here, whoever answered it then.
    failed: float = 0.0
    #: Lambda calls and warm-up pings, as they are billed.
    lambda_calls: float = 0.0
    lambda_gib_s: float = 0.0

    @property
    def finished(self) -> float:
        """Requests that were answered, failed or shed."""
        return self.answered + self.failed

    @property
    def missed(self) -> float:
        """Finished requests that missed the objective."""
        return self.late + self.failed


NAMES = ("answered", "late", "failed", "lambda_calls", "lambda_gib_s")
"""The counts of `VersionTotals`."""
NONE = VersionTotals()


def version_totals_of(versions: Iterable[VersionCounts]) -> dict[str, VersionTotals]:
    """Totals by version, as gateways counted them during rollouts."""
    return {
        one.version: VersionTotals(
            answered=float(one.answered),
            late=float(one.late),
            failed=float(one.failed),
            lambda_calls=float(one.lambda_calls),
            lambda_gib_s=one.lambda_gib_us / 1e6,
        )
        for one in versions
    }


def attributed(
    whole: VersionTotals, before: Mapping[str, VersionTotals], after: Mapping[str, VersionTotals], stable: str
) -> dict[str, VersionTotals]:
    """Requests between two marks, by version, the stable one first: all that no version counted is its own.

    whole: what came of all versions. before, after: what gateways had counted by version at the marks. Without a
    stable version nothing is told apart.
    """
    if not stable:
        return {"": whole}
    counted = {name: _less(totals, before.get(name, NONE)) for name, totals in sorted(after.items())}
    rest = whole
    for totals in counted.values():
        rest = _less(rest, totals)
    return {stable: rest} | counted | {stable: added(rest, counted.get(stable, NONE))}


def added(one: VersionTotals, other: VersionTotals, share: float = 1.0) -> VersionTotals:
    """The sum of the one and a share of the other."""
    return VersionTotals(**{name: getattr(one, name) + share * getattr(other, name) for name in NAMES})


def _less(one: VersionTotals, other: VersionTotals) -> VersionTotals:
    """The one less the other, not below none: a store that lost the latest has fewer."""
    return VersionTotals(**{name: max(0.0, getattr(one, name) - getattr(other, name)) for name in NAMES})
