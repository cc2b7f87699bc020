"""Formatting of the processes' status: restarts, processes that do not run, a clock that was set."""

from __future__ import annotations

from mark.report.live import formatting
from mark.report.live.service_status import ServiceStatus
from mark.store.published_status import RestartStatus


def format_restarts(status: ServiceStatus) -> str:
    """Processes that were restarted, how often, and how the last one ended; empty where none was."""
    return ", ".join(
        f"{name} {_times(one.count)} (last {formatting.format_time(one.at)}, {_format_end(one)})"
        for name, one in sorted(status.restarts.items())
        if one.count
    )


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _format_end(end: RestartStatus) -> str:
    """Exit of a process: `exit status 1`, `signal 9`, `silent for 15 s`."""
    if end.why:
        return end.why
    if end.status is None:
        return "its exit status is unknown"
    return f"signal {-end.status}" if end.status < 0 else f"exit status {end.status}"


def process_banners(status: ServiceStatus) -> list[formatting.Banner]:
    """Processes that do not run, an emulated AWS that is set up again, a system clock that was set."""
    found = []
    account, down = status.account, status.down
    if account is not None:
        why = f": {account.why}" if account.why else ""
        text = f"The emulated AWS ended at {formatting.format_time(account.since)} with all its instances"
        found.append(formatting.Banner(text=f"{text}; its resources are being made again{why}.", bad=True))
    if down:
        verb = "does" if len(down) == 1 else "do"
        found.append(
            formatting.Banner(
                text=f"{', '.join(down)} {verb} not run or hang, and will be started again.", bad=True
            )
        )
    set_by_s = status.clock_set_by_s
    if abs(set_by_s) >= formatting.WORTH_TELLING_S:
        way = "forward" if set_by_s > 0 else "back"
        text = f"The system's clock was set {way} by {formatting.format_span(abs(set_by_s))}"
        found.append(formatting.Banner(text=f"{text}; the service's goes on as it was.", bad=False))
    return found
