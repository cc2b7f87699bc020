"""A controller's process: FOLDER PARENT NAME."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from mark.live.background.failures import BackgroundFailures
from mark.live.clock import adopt_wall
from mark.live.control.leadership.leader_election import Leader, make_forecasters
from mark.live.local.heartbeat import beat_on_thread
from mark.live.local.process_start import begin, set_on_signal
from mark.live.local.run_dir import RunFolder, holder_of
from mark.live.models import make_live_models
from mark.store.connect import connect
from mark.store.service import ServiceStore


def main(folder: RunFolder, name: str) -> None:
    """Act whenever the lease can be had, until SIGTERM."""
    stop = set_on_signal(signal.SIGTERM)
    beat_on_thread()
    settings, running = folder.settings(), folder.expected()
    store = ServiceStore(connect(running.store), running.name)
    adopt_wall(store)
    holder = holder_of(name)
    failures = BackgroundFailures(store, holder)
    models = make_live_models(settings)
    Leader(
        settings,
        running,
        models,
        store=store,
        holder=holder,
        failures=failures,
        forecasters=make_forecasters(models, settings, running, store),
    ).run(stop)


if __name__ == "__main__":
    begin(sys.argv[3], parent=int(sys.argv[2]))
    main(RunFolder(Path(sys.argv[1])), sys.argv[3])
