"""Failover of requests: retry of those whose server was lost while it held them.

A request that ends the process which runs it would end the next one too, and the one after that: a query of death.
So a request is tried MAX_TRIES times in all, and after that it is answered with an error. Only requests that the
server may have been working on count the loss as a try; those that were still waiting there are innocent of it.
"""

from __future__ import annotations

from enum import StrEnum

MAX_TRIES = 2
"""One lost server is an accident; two in a row of the same request are not worth a third."""
BATCHES_AT_WORK = 2
"""The batch that ran, and the one before it, whose answers may have been lost on their way."""


class AfterLoss(StrEnum):
    """Decisions on a request whose server was lost."""

    AGAIN = "again"
    FORBIDDEN = "forbidden"
    GIVEN_UP = "given-up"
    EXPIRED = "expired"


def after_loss(*, allowed: bool, losses: int, waited_s: float, give_up_s: float) -> AfterLoss:
    """Decide on a retry. allowed: the model may run a request twice; losses: servers lost while working on it."""
    if not allowed:
        return AfterLoss.FORBIDDEN
    if losses >= MAX_TRIES:
        return AfterLoss.GIVEN_UP
    if waited_s > give_up_s:
        return AfterLoss.EXPIRED
    return AfterLoss.AGAIN


def at_work(max_batch: int) -> int:
    """The number of a server's requests, oldest first, that it may have been working on when it was lost."""
    return BATCHES_AT_WORK * max_batch
