"""A replayer's process: PARENT. It replays the day of the task on stdin; the store then holds what it found."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from mark.adapters import adapter_of
from mark.domain.errors import MarkError
from mark.live.background.nightly_replays import Task
from mark.live.clock import adopt_wall
from mark.live.cost_report.replays import replay_days
from mark.live.local.process_start import begin
from mark.live.store_link import open_link
from mark.report.cost.cost_verdict import nearest_baseline
from mark.report.cost.read import Period, read_cost_report
from mark.steady_time import steady_time
from mark.store.published_status import COMPARED, ComparedCost
from mark.store.service import ServiceStore

NICE = 10
"""It yields to whatever serves requests or decides."""
COMPARED_S = 7 * 86_400.0
"""A week, as a report of the week has it."""
FIRST_TO_GO = "1000"
"""The kernel kills this process first when memory ends, not the controller beside it (proc(5), oom_score_adj)."""


def main() -> int:
    """Replay; the exit status. What is wrong is one line on stdout."""
    os.nice(NICE)
    with suppress(OSError):  # elsewhere than on Linux
        Path("/proc/self/oom_score_adj").write_text(FIRST_TO_GO, encoding="ascii")
    task = adapter_of(Task).validate_json(sys.stdin.buffer.read())
    store = ServiceStore(open_link(task.store_url), task.service)
    period = Period(since=task.since, until=task.until)
    try:
        replay_days(store, task.settings, period, task.policies, lambda _label, _share: None)
        publish_comparison(store)
    except (MarkError, OSError) as error:
        print(" ".join(str(error).split()))  # noqa: T201 - the parent reads it
        return 2
    return 0


def publish_comparison(store: ServiceStore) -> None:
    """Publish what the last week's replayed days cost beside the nearest rival, as the report says it."""
    adopt_wall(store)
    report = read_cost_report(store, period_s=COMPARED_S, wall_at=steady_time())
    best = nearest_baseline(report)
    if best is None or report.observed:  # of a fleet that nobody rented the sums lack what it would not carry
        return
    compared = ComparedCost(
        policy=best.policy,
        usd=best.usd,
        measured_usd=best.measured_usd,
        replayed_s=best.replayed_s,
        kept=best.kept,
    )
    COMPARED.write(store, compared)


if __name__ == "__main__":
    begin("replayer", parent=int(sys.argv[1]))
    sys.exit(main())
