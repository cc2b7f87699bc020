"""After the pages were read: how many blocks of each are not run."""

from __future__ import annotations

from typing import Any

SHARE = "not run"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print each page's share; workers of pytest-xdist pass it on with their reports."""
    shares = [
        str(value)
        for report in (*terminalreporter.stats.get("passed", ()), *terminalreporter.stats.get("failed", ()))
        for name, value in getattr(report, "user_properties", ())
        if name == SHARE
    ]
    for share in sorted(set(shares)):
        terminalreporter.write_line(share)
