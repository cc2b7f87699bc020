"""Brings a service up on this machine, keeps its processes alive, and leaves nothing behind.

Order up: store, emulated AWS (its clock stands still, what is launched is there at once: the world as it would be
had the service been running before), the account's resources, gateways, controllers, status page. When the first
fleet of every model is ready the clock starts. Order down: the other way round.

While it is up no failure of its own notes (a full disk, a store that is unreachable) ends it: they are made later.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from mark.aws.session import Aws
from mark.cloudmodel.world import WORLDS
from mark.config.service import Mode
from mark.config.settings import Settings
from mark.domain.clock import ClockAnchor
from mark.domain.errors import MarkError, Misconfigured, RetryLater
from mark.domain.fleet.host_spec import SHARED
from mark.domain.load.traffic import Warmed
from mark.emulator.signature import new_key
from mark.live.aws_clients import aws_of
from mark.live.aws_resources import make_resources, published_resources, remove_resources, subnets_of
from mark.live.clock import adopt_wall
from mark.live.gateway_settings import gateway_start
from mark.live.local.access import bearer_token, collector_headers
from mark.live.local.account_upkeep import AccountUpkeep
from mark.live.local.children import Children
from mark.live.local.clock_control import first_anchor, set_clock
from mark.live.local.emulator_client import EmulatedControls
from mark.live.local.gateway_client import answers
from mark.live.local.ports import hold_port
from mark.live.local.process_start import set_on_signal
from mark.live.local.process_watch import ProcessStatus, StoreKeeper, WallWatch
from mark.live.local.run_dir import RunFolder, started_at
from mark.live.local.running import Running, RunningModel
from mark.live.local.startup import (
    ModelStart,
    StartFailed,
    check_children,
    check_models,
    findings,
    is_held_back,
    is_ready,
    is_warm,
    look_at_start,
    published_since,
)
from mark.live.model_files import keep_version
from mark.live.version_bundles import VersionBundle, has_function_versions, upload
from mark.protocols.oip.bodies import example_body
from mark.report.files import JOURNAL_NAME, PLACEMENTS_NAME
from mark.service_spec import ServedModel
from mark.steady_time import WALL, steady_time
from mark.store.clients import clients_of
from mark.store.connect import connect
from mark.store.embedded import EmbeddedRedis
from mark.store.published_status import MODEL, RESOURCES, PublishedModel, PublishedResources
from mark.store.service import ServiceStore
from mark.store.users import StoreUser, acl_file, make_passwords, url_of

log = logging.getLogger(__name__)

START_S = 90.0
"""Time that each part of a service may take to answer."""
FLEET_S = 300.0
"""Time that the first fleet may take: a controller first scores its forecaster, on a busy machine for minutes."""
WARM_WITHIN_S = 60.0
"""Time that the first warm-up of Lambda may take: less than START_S, so that a start goes on without it."""
WATCH_EACH_S = 0.1
POLL_S = 0.05
LOOK_EACH_S = 1.0
"""Time between two checks whether a start can still succeed."""
NOTE_EACH_S = 1.0
"""Time between two tries to write a document."""


class Supervisor:
    """One service, from nothing to ready and back."""

    def __init__(self, folder: RunFolder, *, hold: bool) -> None:
        self._folder = folder
        self._hold = hold
        self._settings: Settings = folder.settings()
        self._children = Children(folder.logs)
        self._redis: StoreKeeper | None = None
        self._store: ServiceStore | None = None
        self._aws: Aws | None = None
        self._controls: EmulatedControls | None = None
        self._upkeep = AccountUpkeep(self._set_up_account)
        self._spec = folder.spec()
        #: Zones of the emulated network, where its world tells them apart.
        self._zones: tuple[str, ...] = ()
        self._since = 0.0
        self._anchor = ClockAnchor()
        self._resources: PublishedResources | None = None
        self._running = Running(
            name=self._settings.service.name,
            pid=os.getpid(),
            started=started_at(os.getpid()),
            step="reading settings and models",
            began_at=time.time(),
        )
        self._unwritten: str | None = None
        self._note_at = 0.0
        self._processes = ProcessStatus()
        self._wall = WallWatch(WALL.jumped_s)
        self._stop = threading.Event()
        self._ports: dict[str, socket.socket] = {}

    def run(self) -> None:
        """Bring it up, watch it until SIGTERM, bring it down."""
        self._stop = set_on_signal(signal.SIGTERM, signal.SIGINT)
        self._note()
        try:
            self._start_up()
            while not self._stop.wait(WATCH_EACH_S):
                self._watch()
        finally:
            self._bring_down()

    # Up.

    def _start_up(self) -> None:
        """Bring it up; a failure names the causes that the account still gives."""
        try:
            self._bring_up()
        except MarkError as error:
            raise StartFailed(str(error), () if self._stop.is_set() else self._findings()) from error

    def _bring_up(self) -> None:
        self._gateway_port()  # a port that is taken is said before anything is started
        self._status_port()
        self._grpc_port()
        self._spec = replace(self._spec, models=self._with_versions(self._spec.models))
        self._note(models=tuple(map(_described, self._spec.models)), step="starting the store")
        store = self._store = self._open_store()
        store.forget_wall()
        adopt_wall(store)
        clocks = store.clocks()
        seen_until = max(
            (published.at for published in map(self._last_published, self._spec.models) if published), default=0.0
        )
        started = first_anchor(clocks[-1] if clocks else None, steady_time(), seen_until)
        self._since = started.service_at
        self._describe(store, started)
        store.forget_members()  # a store that outlived its service remembers who served in its last life
        controls = self._start_aws()
        self._upkeep.begin()
        self._start_gateways()
        controls.prewarm(on=True)
        for number in range(self._settings.service.controllers):
            self._start(f"controller-{number}", "controller", f"controller-{number}")
        self._start_status_page()
        self._await_first(store)
        controls.prewarm(on=False)
        if not self._hold:
            set_clock(store, controls, ClockAnchor(wall_at=steady_time(), service_at=started.service_at))
        self._note(ready=True, step="")
        log.info("ready", extra={"gateway": self._running.gateway})

    def _describe(self, store: ServiceStore, anchor: ClockAnchor) -> None:
        """Tell the store what the service is, and how its clock goes."""
        store.put_spec(self._spec)
        store.begin_versions(self._spec.models)
        store.put_clock(anchor)
        if (kept := self._folder.clients()) is not None:
            store.clients.restore(clients_of(kept))
        self._anchor = anchor

    def _with_versions(self, models: Sequence[ServedModel]) -> tuple[ServedModel, ...]:
        """Have the models served from copies of their files; where one cannot be kept, it is served as it is."""
        if self._settings.service.mode is Mode.OBSERVE:
            return tuple(models)
        folder = self._folder.versions
        shutil.rmtree(folder, ignore_errors=True)
        return tuple(self._with_version(model, folder / model.name) for model in models)

    def _with_version(self, model: ServedModel, folder: Path) -> ServedModel:
        try:
            version, backend = keep_version(model.backend, folder)
        except Misconfigured as error:
            log.warning("served without versions", extra={"model": model.name, "reason": str(error)})
            return model
        served = replace(model, version=version, backend=backend)
        has_versions = has_function_versions(served, VersionBundle(source=backend, version=version))
        return replace(served, function_versions=has_versions)

    def _await_first(self, store: ServiceStore) -> None:
        """Until it serves, or where it only observes, until it has planned."""
        names = [model.name for model in self._spec.models]
        if self._settings.service.mode is Mode.OBSERVE:
            self._until(
                "the first plan",
                lambda: all(published_since(store, name, self._since) for name in names),
                within_s=FLEET_S,
            )
            return
        self._until(
            "the first fleet is ready",
            lambda: all(is_ready(store, name, self._since) for name in names),
            within_s=FLEET_S,
            check_hope=True,
        )
        self._until(
            "the gateway answers",
            lambda: answers(f"{self._running.gateway}/v2/health/ready", self._running.token),
            check_hope=True,
        )
        self._await_warm(store)

    def _await_warm(self, store: ServiceStore) -> None:
        """Until the first plan's Lambda environments are warm; pings that fail do not end a start."""
        until = time.monotonic() + WARM_WITHIN_S

        def are_warm() -> bool:
            return all(is_warm(store, served, self._since) for served in self._spec.models)

        self._until("Lambda is warm", lambda: are_warm() or time.monotonic() > until)
        if not are_warm():
            log.warning("Lambda is not warm yet: the first requests may start cold")

    def _open_store(self) -> ServiceStore:
        url = self._settings.service.store
        if url is None:
            shutil.rmtree(self._store_folder, ignore_errors=True)
            passwords = make_passwords()
            users = acl_file(self._running.name, passwords)

            def start() -> EmbeddedRedis:
                return EmbeddedRedis(self._store_folder, users=users)

            self._redis = StoreKeeper(start(), start)
            stores = {user.value: url_of(self._redis.url, user, passwords[user]) for user in passwords}
            self._note(stores=stores)
            url = stores[StoreUser.CONTROLLER]
        self._note(store=url)
        return ServiceStore(connect(url), self._running.name)

    def _last_published(self, model: ServedModel) -> PublishedModel | None:
        """Last status of the model from an earlier life of the service."""
        assert self._store is not None
        return MODEL.read(self._store, model.name)

    def _start_aws(self) -> EmulatedControls:
        port = self._port("aws", 0, host="127.0.0.1")
        key = new_key()
        self._note(
            aws_endpoint=f"http://127.0.0.1:{port}",
            aws_access_key_id=key.id,
            aws_secret_access_key=key.secret,
            step="starting the emulated AWS",
        )
        self._start("aws", "emulator", str(port), repr(self._since))
        controls = self._controls = EmulatedControls.of(self._running)
        self._until("the emulated AWS answers", lambda: _succeeds(controls.state))
        self._aws = aws_of(self._settings.service.aws.region, self._running, "setup")
        self._set_up_account()
        return controls

    def _set_up_account(self) -> None:
        """Set up the emulated AWS, then have it answer everybody. RetryLater: it or the store is unreachable."""
        assert self._store is not None
        assert self._aws is not None
        assert self._controls is not None
        self._controls.set_clock(self._store.clock())
        rollout = self._settings.rollout
        if rollout.report.sender is not None:
            self._controls.verify(rollout.report.sender, *rollout.report.to)
        made = make_resources(self._aws, self._running, self._spec.models, self._settings)
        subnets = subnets_of(self._aws, WORLDS[self._settings.simulate.world])
        self._zones = tuple(zone for zone, _ in subnets)
        self._resources = published_resources(made, rollout, subnets)
        RESOURCES.write(self._store, self._resources)
        now = self._store.clock().service_time(steady_time())
        for model in self._spec.models:
            if model.function_versions:  # those that were rolled out before an emulated AWS was lost
                for served in self._store.served_versions(model.name):
                    if served.version != model.version:
                        bundle = VersionBundle(source=served.backend, version=served.version)
                        upload(self._aws, made.bucket, bundle)
            self._store.put_warmed(Warmed(model=model.name, at=now, share=0, anew_at=now))
        self._controls.open()

    def _start_gateways(self) -> None:
        service = self._settings.service
        token = bearer_token(service)
        port, grpc_port = self._gateway_port(), self._grpc_port()
        scheme = "https" if service.tls_certificate else "http"
        self._note(
            gateway=f"{scheme}://{service.host}:{port}",
            grpc=f"{service.host}:{grpc_port}" if grpc_port else "",
            token=token,
            step="starting gateways and controllers",
        )
        start = gateway_start(self._settings, self._running, collector_headers(self._settings.telemetry))
        self._folder.write_gateway(start.as_json())
        ports = (port, grpc_port) if grpc_port else (port,)
        for number in range(service.gateway_count):
            zone = self._zones[number % len(self._zones)] if self._zones else ""
            self._start(f"gateway-{number}", "gateway", f"gateway-{number}", zone, *map(str, ports))

    def _start_status_page(self) -> None:
        service = self._settings.service
        port = self._status_port()
        scheme = "https" if service.tls_certificate else "http"
        self._note(status_page=f"{scheme}://{service.host}:{port}")
        self._start("status-page", "status_page", str(port))

    def _gateway_port(self) -> int:
        """The gateways' port. Misconfigured where the one of the settings is taken."""
        return self._port("gateway", self._settings.service.port, default=8080)

    def _grpc_port(self) -> int | None:
        """The port for gRPC, likewise; None where none is spoken. It may not be the gateways' other one."""
        wanted = self._settings.service.grpc_port
        if wanted is not None and wanted == self._gateway_port():
            raise Misconfigured(f"service.grpc_port {wanted} is the gateway's port, too; choose another")
        return None if wanted is None else self._port("grpc", wanted)

    def _status_port(self) -> int:
        """The status page's port, likewise."""
        return self._port("status-page", self._settings.service.status_port, default=8090)

    def _port(self, who: str, wanted: int | None, *, default: int = 0, host: str | None = None) -> int:
        """A port held for `who` as long as the service lives, whoever else starts meanwhile."""
        if who not in self._ports:
            self._ports[who] = hold_port(
                host or self._settings.service.host,
                default if wanted is None else wanted,
                fall_back=wanted is None,
            )
        port: int = self._ports[who].getsockname()[1]
        return port

    def _start(self, name: str, module: str, *arguments: str) -> None:
        own = (str(self._folder.path), str(os.getpid()))
        self._children.start(name, f"mark.live.processes.{module}", (*own, *arguments))
        self._note(processes=self._pids())

    def _until(
        self, what: str, check: Callable[[], bool], *, within_s: float = START_S, check_hope: bool = False
    ) -> None:
        """Wait until `check` holds. Misconfigured where it takes too long, or cannot come to hold any more."""
        self._note(step=f"waiting until {what}")
        until, look_at = time.monotonic() + within_s, 0.0
        while not check():
            if self._stop.is_set():
                raise Misconfigured("ended while it was starting")
            if time.monotonic() > until:
                raise Misconfigured(f"{what}: not within {within_s:g} s; read the logs in {self._folder.logs}")
            if time.monotonic() > look_at:
                self._check_hope(fleet=check_hope)
                look_at = time.monotonic() + LOOK_EACH_S
            self._watch()
            time.sleep(POLL_S)
        if check_hope:
            self._check_hope(fleet=True)

    def _check_hope(self, *, fleet: bool) -> None:
        """Misconfigured as soon as it is known that the service will not come up."""
        check_children(self._children.restarts(), self._folder.logs)
        if fleet and self._store is not None:
            with suppress(RetryLater):
                if not is_held_back(self._store):
                    check_models(self._look())

    def _look(self) -> Sequence[ModelStart]:
        """Each model as it stands now."""
        assert self._store is not None
        overflows = {model.name: model.overflow is not None for model in self._spec.models}
        return look_at_start(self._store, self._controls, overflows, self._since)

    def _findings(self) -> Sequence[str]:
        """Lines that explain a start that failed; none where nothing was asked of the account yet."""
        if "controller-0" not in self._children.pids():
            return ()
        models: Sequence[ModelStart] = ()
        with suppress(RetryLater):
            models = self._look()
        return findings(models, self._children.restarts(), self._folder.logs)

    @property
    def _store_folder(self) -> Path:
        return self._folder.path / "store"

    # Meanwhile.

    def _watch(self) -> None:
        """Start again what crashed or is silent, and say so."""
        started = self._children.watch()
        if "aws" in started:
            self._upkeep.lost()
        if self._redis is not None and self._redis.watch():
            started = (*started, "store")
        if started:
            self._note(processes=self._pids())
        elif self._unwritten is not None and time.monotonic() > self._note_at:
            self._note()
        self._wall.look()
        if self._store is not None:
            with suppress(RetryLater):
                self._restore(self._store)
            restarts = self._children.restarts()
            if self._redis is not None:
                restarts["store"] = self._redis.restarts
            self._processes.publish(
                self._store,
                restarts,
                down=self._children.down(),
                upkeep=self._upkeep,
                wall_jump_s=self._wall.jump_s,
            )

    def _restore(self, store: ServiceStore) -> None:
        """Describe the service anew where the store has lost its data; what serves is the version of the start."""
        anchor = store.clock()
        if store.is_described:
            self._anchor = anchor
            return
        log.error("the store has lost its data, and is told anew what the service is")
        adopt_wall(store)
        self._describe(store, self._anchor)
        if self._resources is not None:
            RESOURCES.write(store, self._resources)

    def _pids(self) -> dict[str, int]:
        own = {"supervisor": os.getpid(), **self._children.pids()}
        return {**own, "store": self._redis.pid} if self._redis is not None else own

    def _note(self, **changes: Any) -> None:
        """Keep the service's document as it should stand; one that cannot be written is written later."""
        self._running = replace(self._running, **changes)
        self._note_at = time.monotonic() + NOTE_EACH_S
        try:
            self._folder.write(self._running)
        except OSError as error:
            if self._unwritten is None:
                log.warning("the service's document cannot be written", extra={"why": str(error)})
            self._unwritten = str(error)
        else:
            self._unwritten = None

    # Down.

    def _bring_down(self) -> None:
        """End everything, in an order in which nobody misses what he needs."""
        self._upkeep.end()
        names = tuple(self._children.pids())
        controllers = [name for name in names if name.startswith("controller")]
        self._children.stop(controllers)
        self._children.stop([name for name in names if name.startswith("gateway")])  # they answer what they took
        self._keep_journals()
        if self._aws is not None:
            with suppress(RetryLater):  # the emulated AWS is gone, and all instances with it
                remove_resources(self._aws, self._running.name)
            self._aws.close()
        self._children.stop([name for name in self._children.pids() if name != "aws"])
        self._children.stop()
        if self._redis is not None:
            self._redis.stop()
        for held in self._ports.values():
            held.close()
        with suppress(OSError):
            self._folder.remove_document()
        log.info("down")

    def _keep_journals(self) -> None:
        """Leave all journals in the folder, where `mark explain` reads them, and none of an earlier life."""
        if self._store is None:
            return
        path = self._folder.path
        files = {model.name: path / model.name / JOURNAL_NAME for model in self._spec.models}
        for name, kept in (*files.items(), (SHARED, path / PLACEMENTS_NAME)):
            with suppress(RetryLater, OSError):
                kept.unlink(missing_ok=True)
                if self._store.journal_segments(name):
                    kept.parent.mkdir(exist_ok=True)
                    lines = self._store.journal_lines(name)
                    kept.write_bytes(b"".join(line + b"\n" for line in lines))


def supervise(path: Path, *, hold: bool) -> int:
    """The whole life of a service; returns the exit status. Why it could not start is left in the folder."""
    folder = RunFolder(path)
    try:
        Supervisor(folder, hold=hold).run()
    except (MarkError, OSError) as error:
        with suppress(OSError):
            folder.fail(" ".join(str(error).split()), error.details if isinstance(error, StartFailed) else ())
        log.exception("could not go on")
        return 2
    return 0


def _described(model: ServedModel) -> RunningModel:
    slo = model.slo
    return {
        "name": model.name,
        "example": example_body(model.inputs),
        "latency_ms": slo.judged_s * 1000,
        "target": slo.target,
    }


def _succeeds(call: Callable[[], object]) -> bool:
    try:
        call()
    except RetryLater:
        return False
    return True
