"""The status page's process: FOLDER PARENT PORT."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

from mark.live.local.heartbeat import beat_on_thread
from mark.live.local.process_start import begin
from mark.live.local.run_dir import RunFolder
from mark.live.status.watch import view_of
from mark.report.live.page_server import serve_status


def main(folder: RunFolder, port: int) -> None:
    """Serve until SIGTERM."""
    beat_on_thread()
    service, running = folder.settings().service, folder.expected()
    family = socket.AF_INET6 if ":" in service.host else socket.AF_INET
    with socket.create_server((service.host, port), family=family, reuse_port=True) as listening:
        serve_status(
            view_of(running).status,
            listening,
            token=running.token,
            local_only=running.token is None,
            tls_certificate=service.tls_certificate,
            tls_key=service.tls_key,
        )


if __name__ == "__main__":
    begin("status-page", parent=int(sys.argv[2]))
    main(RunFolder(Path(sys.argv[1])), int(sys.argv[3]))
