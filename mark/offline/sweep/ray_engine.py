"""The jobs of a sweep on a Ray cluster.

Each job is a Ray task of one core; a load is put into the object store once. Nodes need the same mark as here,
which every task checks, and files that settings name (prices, models, profiles, forecasters) under the same
paths; the traces and all other settings travel with the jobs.
"""

from __future__ import annotations

import importlib
import socket
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import redirect_stdout
from itertools import islice
from typing import Any

from mark.domain.errors import Misconfigured
from mark.offline.sweep.job import Finished, SweepJob, attempt_elsewhere
from mark.offline.sweep.served import Load

IN_FLIGHT = 500
"""Tasks that Ray holds at once: more than a cluster has cores, few enough to wait for quickly."""
REACH_S = 5.0
"""How long a cluster may take to answer at all; Ray itself tries for minutes."""
RETRIES = 2
"""How often a task is started anew when its node is lost."""


class RayCluster:
    """A Ray cluster at `address`, as `ray.init` takes it; None finds one, or starts one on this machine."""

    def __init__(self, address: str | None) -> None:
        try:
            self._ray: Any = importlib.import_module("ray")
        except ImportError as error:
            raise Misconfigured("--engine ray needs ray: pip install 'mark-serving[ray]'") from error
        self._address = address
        _reach(address)

    def run(self, jobs: Sequence[SweepJob], loads: Mapping[str, Load]) -> Generator[Finished, None, None]:
        """Do the jobs."""
        # what Ray says about lost workers it prints on stdout, which belongs to the sweep's document
        with redirect_stdout(sys.stderr):
            yield from self._run(jobs, loads)

    def _run(self, jobs: Sequence[SweepJob], loads: Mapping[str, Load]) -> Generator[Finished, None, None]:
        ray = self._ray
        self._connect()
        running: dict[Any, SweepJob] = {}
        try:
            put = {digest: ray.put(load) for digest, load in loads.items()}
            task = ray.remote(num_cpus=1, max_retries=RETRIES)(attempt_elsewhere)
            todo = iter(jobs)
            while True:
                for job in islice(todo, IN_FLIGHT - len(running)):
                    running[task.remote(job, put[job.trace])] = job
                if not running:
                    return
                ready, _ = ray.wait(list(running), num_returns=1)
                for reference in ready:
                    yield self._result(reference, running.pop(reference))
        finally:
            for reference in running:
                ray.cancel(reference, force=True)
            ray.shutdown()

    def _connect(self) -> None:
        try:
            self._ray.init(address=self._address, log_to_driver=False)
        except (ConnectionError, ValueError, RuntimeError) as error:
            where = f"at {self._address}" if self._address else "here"
            message = str(error).strip().partition("\n")[0]
            raise Misconfigured(f"no Ray cluster {where}: {message}") from error

    def _result(self, reference: Any, job: SweepJob) -> Finished:
        try:
            finished: Finished = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            message = " ".join(str(error).split())
            return Finished(job=job, failure=f"{type(error).__name__}: {message}")
        return finished


def _reach(address: str | None) -> None:
    """Refuse `HOST:PORT`, with `ray://` before it or not, where nobody listens."""
    host, colon, port = (address or "").rpartition(":")
    if not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host.rpartition("/")[2], int(port)), timeout=REACH_S).close()
    except (OSError, OverflowError) as error:
        raise Misconfigured(f"no Ray cluster at {address}: {error}") from error
