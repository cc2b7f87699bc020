"""The supervisor's process: FOLDER [--hold]."""

from __future__ import annotations

import sys
from pathlib import Path

from mark.app.live.folder import RunFolder
from mark.app.live.log_files import begin_keeping_logs
from mark.app.live.supervisor import supervise
from mark.telemetry.structured_logs import log_json

if __name__ == "__main__":
    log_json("supervisor")
    begin_keeping_logs(RunFolder(Path(sys.argv[1])).logs)
    sys.exit(supervise(Path(sys.argv[1]), hold="--hold" in sys.argv[2:]))
