"""Limits of spending, and their causes."""

from __future__ import annotations

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
