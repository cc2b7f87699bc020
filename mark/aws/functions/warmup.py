"""Warm-up pings: so many calls at once that so many environments must be there.

Calls are sent one after the other, and an environment that has answered takes the next one. So each ping holds its
environment until the last one is sent. That is so for AT_ONCE of them: what an order has more meets environments
that have answered.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mark.aws.errors import translated
from mark.aws.functions.function_url import compose_ping, parse_report
from mark.domain.errors import MarkError
from mark.domain.offerings.offering import PING_S

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient

AT_ONCE = 200
"""Pings sent at once; the client's connections should be as many."""
SENT_S = 0.003
"""Time between two calls: 1.1 ms of CPU here (`python -m tests.aws.invoke_cost`), more on a node's smaller one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmedUp:
    """The result of the pings: environments that answered, cold starts among them, failures, GiB seconds."""

    answered: int
    cold: int
    failed: int
    gib_s: float


def warm_up(
    client: LambdaClient,
    function: str,
    concurrency: int,
    hold_s: float = PING_S,
    *,
    version: str = "",
    sent_s: float = SENT_S,
) -> WarmedUp:
    """Ping `function` with `concurrency` calls at once; returns when all have answered or failed.

    hold_s: how long each environment is held at least. version: the one of the model that its environments load.
    sent_s: time between two calls, of the machine that sends them.
    """
    if concurrency <= 0:
        return WarmedUp(answered=0, cold=0, failed=0, gib_s=0.0)

    def call(held_s: float) -> tuple[bool, bool, float]:
        ping = compose_ping(version, held_s)
        try:
            with translated():
                answer = client.invoke(
                    FunctionName=function, InvocationType="RequestResponse", LogType="Tail", Payload=ping
                )
                answer["Payload"].read()
        except MarkError:
            return False, False, 0.0
        report = parse_report(answer.get("LogResult", ""))
        cold, gib_s = (report.cold, report.gib_s) if report else (False, 0.0)
        return not answer.get("FunctionError"), cold, gib_s

    with ThreadPoolExecutor(min(concurrency, AT_ONCE), thread_name_prefix="warm") as pool:
        calls = list(pool.map(call, holds_s(concurrency, hold_s, sent_s)))
    answered = sum(1 for well, _, _ in calls if well)
    return WarmedUp(
        answered=answered,
        cold=sum(1 for _, cold, _ in calls if cold),
        failed=concurrency - answered,
        gib_s=sum(gib_s for _, _, gib_s in calls),
    )


def holds_s(concurrency: int, hold_s: float, sent_s: float) -> list[float]:
    """Seconds for which each of so many pings holds its environment, in the order of sending, AT_ONCE at once."""
    rounds = (min(AT_ONCE, concurrency - first) for first in range(0, concurrency, AT_ONCE))
    return [hold_s + later * sent_s for size in rounds for later in reversed(range(size))]
