"""What the live document says of the service's processes: restarts, what does not run, a clock that was set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mark.report import live_words as words


def restart_words(document: Mapping[str, Any]) -> str:
    """Which processes were started again, how often, and how the last one ended; nothing where none was."""
    restarts = document.get("restarts") or {}
    return ", ".join(
        f"{name} {_times(one['count'])} (last {words.time_words(one['at'])}, {_end_words(one)})"
        for name, one in sorted(restarts.items())
        if one["count"]
    )


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _end_words(end: Mapping[str, Any]) -> str:
    """How a process ended: `exit status 1`, `signal 9`, `silent for 15 s`."""
    status = end.get("status")
    if end.get("why"):
        return str(end["why"])
    if status is None:
        return "its exit status is unknown"
    return f"signal {-status}" if status < 0 else f"exit status {status}"


def process_banners(document: Mapping[str, Any]) -> list[words.Banner]:
    """Processes that do not run, an emulated AWS that is set up again, a system clock that was set."""
    found = []
    account, down = document.get("account"), document.get("down") or ()
    if account:
        why = f": {account['why']}" if account.get("why") else ""
        text = f"The emulated AWS ended at {words.time_words(account['since'])} with all its instances"
        found.append(words.Banner(text=f"{text}; its resources are being made again{why}.", bad=True))
    if down:
        verb = "does" if len(down) == 1 else "do"
        found.append(
            words.Banner(text=f"{', '.join(down)} {verb} not run or hang, and will be started again.", bad=True)
        )
    set_by_s = words.finite(document.get("clock_set_by_s")) or 0.0
    if abs(set_by_s) >= words.WORTH_TELLING_S:
        way = "forward" if set_by_s > 0 else "back"
        text = f"The system's clock was set {way} by {words.span_words(abs(set_by_s))}"
        found.append(words.Banner(text=f"{text}; the service's goes on as it was.", bad=False))
    return found
