"""The supervisor's process: FOLDER [--hold]."""

from __future__ import annotations

import sys
from pathlib import Path

from mark.live.local.log_files import begin_keeping_logs
from mark.live.local.run_dir import RunFolder
from mark.live.local.supervisor import supervise
from mark.telemetry.structured_logs import log_json

if __name__ == "__main__":
    log_json("supervisor")
    begin_keeping_logs(RunFolder(Path(sys.argv[1])).logs)
    sys.exit(supervise(Path(sys.argv[1]), hold="--hold" in sys.argv[2:]))
