"""Prometheus itself, where it is installed."""

from __future__ import annotations

import asyncio
import re
import shutil
from pathlib import Path

import pytest

from tests.serving.harness import until

needs_prometheus = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is missing: apt-get install prometheus"
)


async def prometheus(folder: Path) -> tuple[asyncio.subprocess.Process, str]:
    """A Prometheus with the folder's configuration, and where its API is."""
    log = folder / "log"
    with log.open("wb") as written:
        process = await asyncio.create_subprocess_exec(
            *("prometheus", f"--config.file={folder / 'prometheus.yml'}"),
            *(f"--storage.tsdb.path={folder / 'data'}", "--web.listen-address=127.0.0.1:0"),
            stderr=written,
        )

    def address() -> str | None:
        found = re.search(r"Listening on.* address=(127\.0\.0\.1:\d+)", log.read_text())
        return found and found[1]

    async def listens() -> bool:
        assert process.returncode is None, log.read_text()
        return address() is not None and "Server is ready" in log.read_text()

    await until(listens)
    return process, f"http://{address()}/api/v1"
