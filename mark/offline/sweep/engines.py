"""Engines of a sweep: the port, and processes of this machine.

Each worker is a process with a pipe of its own. One that dies takes its job with it and nothing else: the job is
reported with the way it ended, another worker takes its place, and the rest goes on. Workers never see Ctrl-C;
they are ended by the process that started them, and end by themselves when it is gone.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from typing import Protocol

from mark.domain.errors import Misconfigured, unknown
from mark.offline.sweep.job import Finished, SweepJob, attempt_elsewhere
from mark.offline.sweep.ray_engine import RayCluster
from mark.offline.sweep.served import Load

ENGINES = ("local", "ray")
GRACE_S = 2.0
"""How long a worker may take to end when it is told to, before it is killed."""


Results = Generator[Finished, None, None]
"""What came of the jobs; closing it ends all workers."""


class SweepEngine(Protocol):
    """Does each job once, somewhere, and hands over what came of it as soon as it is there, in any order.

    `loads` are known by their digests. A job that fails, or whose worker dies, is handed over with its failure.
    """

    def run(self, jobs: Sequence[SweepJob], loads: Mapping[str, Load]) -> Results:
        """Do the jobs."""
        ...


class Processes:
    """Processes of this machine, at most `workers` at once."""

    def __init__(self, workers: int) -> None:
        self._count = workers

    def run(self, jobs: Sequence[SweepJob], loads: Mapping[str, Load]) -> Results:
        """Do the jobs."""
        todo = deque(jobs)
        workers: list[_SweepProcess] = []
        try:
            # all of them start before the first is waited for
            workers += [_SweepProcess() for _ in range(min(self._count, len(jobs)))]
            for worker in workers:
                worker.take(todo.popleft(), loads)
            while busy := [worker.pipe for worker in workers if worker.job is not None]:
                for pipe in wait(busy):
                    worker = next(worker for worker in workers if worker.pipe is pipe)
                    finished = worker.hand_over()
                    if worker.dead:
                        workers.remove(worker)
                    if todo:
                        if worker.dead:
                            worker = _SweepProcess()
                            workers.append(worker)
                        worker.take(todo.popleft(), loads)
                    yield finished
        finally:
            for worker in workers:
                worker.process.terminate()
            for worker in workers:
                worker.end()


def make_engine(name: str, *, workers: int | None, address: str | None) -> SweepEngine:
    """The engine of that name. Without `workers` there is a local process for each core that may be used."""
    if name not in ENGINES:
        raise unknown("engine", name, ENGINES)
    if name == "ray":
        if workers is not None:
            raise Misconfigured("--workers counts local processes; a Ray cluster knows its own cores")
        return RayCluster(address)
    if address is not None:
        raise Misconfigured("--address names a Ray cluster: add --engine ray")
    return Processes(workers or len(os.sched_getaffinity(0)))


class _SweepProcess:
    """One process, the job that it does, and the loads that it was given."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs,), daemon=True, name="mark-sweep")
        self.job: SweepJob | None = None
        self.dead = False
        self._began = 0.0
        self._given: set[str] = set()
        with _ctrl_c_held():
            self.process.start()
        theirs.close()

    def take(self, job: SweepJob, loads: Mapping[str, Load]) -> None:
        """Give it a job, with the load where it does not have it yet."""
        self.job, self._began = job, time.monotonic()
        load = None if job.trace in self._given else loads[job.trace]
        self._given.add(job.trace)
        try:
            self.pipe.send((job, load))
        except OSError:
            # it is dead already, which is seen where its answer is read
            return

    def hand_over(self) -> Finished:
        """Result of its job, or how the process ended."""
        job, self.job = self.job, None
        assert job is not None
        try:
            finished: Finished = self.pipe.recv()
        except (EOFError, OSError):
            self.dead = True
            self.end()
            how = _ending(self.process.exitcode)
            return Finished(job=job, failure=f"its worker {how}", wall_s=time.monotonic() - self._began)
        return finished

    def end(self) -> None:
        """Wait for the process to end; kill one that does not."""
        self.process.join(GRACE_S)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
        self.pipe.close()


def _ending(status: int | None) -> str:
    """Exit of a process, in words."""
    if status is None or status >= 0:
        return f"ended with status {status} before it answered"
    name = signal.Signals(-status).name
    hint = "; out of memory?" if -status == signal.SIGKILL else ""
    return f"was ended by {name}{hint}"


@contextmanager
def _ctrl_c_held() -> Iterator[None]:
    """A process that is started here inherits that SIGINT is held back; here it is heard right afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(pipe: Connection) -> None:
    """A worker's life: jobs come with their loads, or with None for a load that came before."""
    # libraries with threads of their own would fight the other workers for the cores
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    threading.Thread(target=_end_with_parent, daemon=True).start()
    loads: dict[str, Load] = {}
    while True:
        try:
            job, load = pipe.recv()
        except EOFError:
            return
        if load is not None:
            loads[job.trace] = load
        pipe.send(attempt_elsewhere(job, loads[job.trace]))


def _end_with_parent() -> None:
    """Nobody reads a result any more when the sweep was killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
