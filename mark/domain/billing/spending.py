"""Limits of spending, and their causes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum


class SpendingLimit(StrEnum):
    """The most that may be rented for a model."""

    #: Whatever the plan wants.
    NONE = "none"
    #: One instance, and no Lambda.
    FLOOR = "floor"
    #: Nothing.
    PAUSE = "pause"


class LimitCause(StrEnum):
    """The cause of a spending limit."""

    #: Nothing is limited.
    NONE = "none"
    #: A budget is reached.
    BUDGET = "budget"
    #: Someone paused the service; a budget may be reached besides.
    PAUSE = "pause"
    #: Someone with credentials of the account did, from outside the service's network.
    OUTSIDE = "outside"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsidePause:
    """A pause from outside the service's network; the defaults are those of one that somebody wrote by hand."""

    #: Whose credentials wrote it: an ARN.
    by: str = ""
    #: When, epoch seconds of that machine.
    at: float = 0.0

    @property
    def reason(self) -> str:
        """The pause for people, with who and when."""
        who = f" by {self.by}" if self.by else ""
        when = f" on {datetime.fromtimestamp(self.at, UTC):%Y-%m-%d at %H:%M} UTC" if self.at else ""
        return f"paused from outside{who}{when}, until `mark pause --aws --off`"
