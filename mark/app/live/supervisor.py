"""Brings a service up on this machine, keeps its processes alive, and leaves nothing behind.

Order up: store, emulated AWS (its clock stands still, what is launched is there at once: the world as it would be
had the service been running before), the account's resources, gateways, controllers, status page. When the first
fleet of every model is ready the clock starts. Order down: the other way round.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from mark.app.live.account import RESOURCES, aws_of, make_resources, remove_resources, resources_document
from mark.app.live.children import Children
from mark.app.live.emulated import EmulatedControls
from mark.app.live.folder import RunFolder, Running, started_at
from mark.app.live.http import answers
from mark.app.live.models import LiveModel, make_live_models, service_spec
from mark.app.live.pace import first_anchor, set_clock
from mark.app.live.ports import choose_port
from mark.app.live.safety import bearer_token
from mark.app.out_folder import JOURNAL_NAME
from mark.app.setting_service import Mode
from mark.app.settings import Settings
from mark.aws.session import Aws
from mark.aws.setting_up import ServiceResources
from mark.domain.clock import ClockAnchor
from mark.domain.errors import MarkError, Misconfigured, RetryLater
from mark.domain.fleet import Role
from mark.domain.member import MemberState
from mark.protocols.oip import example_body
from mark.store.connect import connect
from mark.store.embedded import EmbeddedRedis
from mark.store.service import ServiceStore

log = logging.getLogger(__name__)

START_S = 90.0
"""How long each part of a service may take to answer."""
FLEET_S = 300.0
"""How long the first fleet may take: a controller first scores its forecaster, on a busy machine for minutes."""
WATCH_EACH_S = 0.1
POLL_S = 0.05
FAILURE = "failure.txt"
"""In the folder: why a service could not start, one line."""


class Supervisor:
    """One service, from nothing to ready and back."""

    def __init__(self, folder: RunFolder, *, hold: bool) -> None:
        self._folder = folder
        self._hold = hold
        self._settings: Settings = folder.settings()
        self._children = Children(folder.logs)
        self._redis: EmbeddedRedis | None = None
        self._aws: Aws | None = None
        self._running = Running(name=self._settings.service.name, pid=os.getpid(), started=started_at(os.getpid()))
        self._stop = threading.Event()

    def run(self) -> None:
        """Bring it up, watch it until SIGTERM, bring it down."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stop.set())
        self._folder.write(self._running)
        try:
            self._bring_up()
            while not self._stop.wait(WATCH_EACH_S):
                self._watch()
        finally:
            self._bring_down()

    # Up.

    def _bring_up(self) -> None:
        models = make_live_models(self._settings)
        store = self._open_store()
        clocks = store.clocks()
        started = first_anchor(clocks[-1] if clocks else None, time.time())
        store.put_spec(service_spec(self._settings, models))
        store.put_clock(started)
        store.forget_members()  # a store that outlived its service remembers who served in its last life
        controls = self._start_aws(started)
        store.put_status(RESOURCES, resources_document(self._make_resources(models, controls)))
        self._start_gateways()
        controls.prewarm(on=True)
        for number in range(self._settings.service.controllers):
            self._start(f"controller-{number}", "controller", f"controller-{number}")
        self._start_status_page()
        self._await_first(models, store, started.service_at)
        controls.prewarm(on=False)
        if not self._hold:
            wall = time.time()
            set_clock(store, controls, ClockAnchor(wall_at=wall, service_at=started.service_at))
        self._note(ready=True, models=tuple(_described(model) for model in models))
        log.info("ready", extra={"gateway": self._running.gateway})

    def _await_first(self, models: Sequence[LiveModel], store: ServiceStore, since: float) -> None:
        """Until it serves, or where it only observes, until it has planned. since: when its clock began."""
        names = [model.name for model in models]
        if self._settings.service.mode is Mode.OBSERVE:
            self._until(
                "the first plan", lambda: all(told_since(store, name, since) for name in names), within_s=FLEET_S
            )
            return
        self._until(
            "the first fleet is ready",
            lambda: all(is_ready(store, name, since) for name in names),
            within_s=FLEET_S,
        )
        self._until(
            "the gateway answers", lambda: answers(f"{self._running.gateway}/v2/health/ready", self._running.token)
        )

    def _open_store(self) -> ServiceStore:
        url = self._settings.service.store
        if url is None:
            shutil.rmtree(self._store_folder, ignore_errors=True)
            self._redis = EmbeddedRedis(self._store_folder)
            url = self._redis.url
        self._note(store=url)
        return ServiceStore(connect(url), self._running.name)

    def _start_aws(self, clock: ClockAnchor) -> EmulatedControls:
        port = choose_port("127.0.0.1", 0)
        self._note(aws_endpoint=f"http://127.0.0.1:{port}")
        self._start("aws", "emulator", str(port))
        controls = EmulatedControls(self._running.aws_endpoint)
        self._until("the emulated AWS answers", lambda: _succeeds(lambda: controls.set_clock(clock)))
        return controls

    def _make_resources(self, models: Sequence[LiveModel], controls: EmulatedControls) -> ServiceResources:
        self._aws = aws_of(self._settings, self._running, "setup")
        rollout = self._settings.rollout
        if rollout.report.sender is not None:
            controls.verify(rollout.report.sender, *rollout.report.to)
        return make_resources(self._aws, self._running, models, rollout)

    def _start_gateways(self) -> None:
        asked = self._settings.service
        token = bearer_token(asked)
        port = choose_port(asked.host, 8080 if asked.port is None else asked.port, fall_back=asked.port is None)
        scheme = "https" if asked.tls_certificate else "http"
        self._note(gateway=f"{scheme}://{asked.host}:{port}", token=token)
        for number in range(asked.gateways):
            self._start(f"gateway-{number}", "gateway", f"gateway-{number}", str(port))

    def _start_status_page(self) -> None:
        asked = self._settings.service
        wanted = 8090 if asked.status_port is None else asked.status_port
        port = choose_port(asked.host, wanted, fall_back=asked.status_port is None)
        scheme = "https" if asked.tls_certificate else "http"
        self._note(status_page=f"{scheme}://{asked.host}:{port}")
        self._start("status-page", "status_page", str(port))

    def _start(self, name: str, module: str, *arguments: str) -> None:
        own = (str(self._folder.path), str(os.getpid()))
        self._children.start(name, f"mark.app.processes.{module}", (*own, *arguments))
        self._note(processes=self._pids())

    def _until(self, what: str, check: Callable[[], bool], *, within_s: float = START_S) -> None:
        """Wait until `check` holds. Misconfigured, with the log to read, where it takes too long."""
        until = time.monotonic() + within_s
        while not check():
            if self._stop.is_set():
                raise Misconfigured("ended while it was starting")
            if time.monotonic() > until:
                raise Misconfigured(f"{what}: not within {within_s:g} s; read the logs in {self._folder.logs}")
            self._watch()
            time.sleep(POLL_S)

    @property
    def _store_folder(self) -> Path:
        return self._folder.path / "store"

    # Meanwhile.

    def _watch(self) -> None:
        """Start again what crashed."""
        if self._redis is not None and not self._redis.running:
            log.warning("the store ended and is started again")
            self._redis = EmbeddedRedis(self._store_folder)
            self._note(processes=self._pids())
        if self._children.watch():
            self._note(processes=self._pids())

    def _pids(self) -> dict[str, int]:
        own = {"supervisor": os.getpid(), **self._children.pids()}
        return {**own, "store": self._redis.pid} if self._redis is not None else own

    def _note(self, **changes: Any) -> None:
        self._running = replace(self._running, **changes)
        self._folder.write(self._running)

    # Down.

    def _bring_down(self) -> None:
        """End everything, in an order in which nobody misses what he needs."""
        names = tuple(self._children.pids())
        controllers = [name for name in names if name.startswith("controller")]
        self._children.stop(controllers)
        self._keep_journals()
        if self._aws is not None:
            with suppress(RetryLater):  # the emulated AWS is gone, and all instances with it
                remove_resources(self._aws, self._running.name)
            self._aws.close()
        self._children.stop([name for name in names if name not in controllers and name != "aws"])
        self._children.stop()
        if self._redis is not None:
            self._redis.stop()
        self._folder.remove_document()
        log.info("down")

    def _keep_journals(self) -> None:
        """Leave each model's journal in the folder, where `mark explain FOLDER/MODEL` reads it."""
        if not self._running.store:
            return
        store = ServiceStore(connect(self._running.store), self._running.name)
        with suppress(RetryLater, OSError):
            for model in self._running.models:
                name = model["name"]
                if store.journal_segments(name):
                    folder = self._folder.path / name
                    folder.mkdir(exist_ok=True)
                    (folder / JOURNAL_NAME).write_bytes(
                        b"".join(line + b"\n" for line in store.journal_lines(name))
                    )


def supervise(path: Path, *, hold: bool) -> int:
    """The whole life of a service; returns the exit status. Why it could not start is left in the folder."""
    folder = RunFolder(path)
    (path / FAILURE).unlink(missing_ok=True)
    try:
        Supervisor(folder, hold=hold).run()
    except MarkError as error:
        (path / FAILURE).write_text(str(error), encoding="utf-8")
        log.exception("could not go on")
        return 2
    return 0


def told_since(store: ServiceStore, model: str, since: float) -> dict[str, Any] | None:
    """What a controller told of the model from `since` (service time) on; not what one of an earlier life did."""
    told = store.status(f"model:{model}")
    return told if told is not None and told["at"] >= since else None


def is_ready(store: ServiceStore, model: str, since: float) -> bool:
    """Whether the instances that the first plan from `since` on wanted all serve."""
    try:
        told = told_since(store, model, since)
        members = store.membership(model).members()
    except RetryLater:
        return False
    if told is None:
        return False
    ready = sum(1 for m in members if m.state is MemberState.READY and m.role is Role.SERVING)
    return bool(ready >= sum(told["planned"].values()))


def _described(model: LiveModel) -> dict[str, Any]:
    slo = model.served.slo
    return {
        "name": model.name,
        "example": example_body(model.served.inputs),
        "latency_ms": slo.latency_s * 1000,
        "target": slo.target,
    }


def _succeeds(call: Callable[[], None]) -> bool:
    try:
        call()
    except RetryLater:
        return False
    return True
