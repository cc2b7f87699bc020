"""`mark up`."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from mark.config.service import Mode, ServiceSettings
from mark.config.settings import Settings
from mark.config.telemetry import telemetry_of
from mark.domain.errors import Misconfigured
from mark.live.backend_specs import check_loads
from mark.live.commands.down import end
from mark.live.commands.rollout import edited_models
from mark.live.forecasting.forecaster_training import Task, note_learned
from mark.live.local.access import bearer_token, collector_headers, exposed_secrets
from mark.live.local.first_plan import check_served
from mark.live.local.first_price import FirstPrice, first_price
from mark.live.local.grpc_listener import grpc_listener
from mark.live.local.ports import is_loopback
from mark.live.local.run_dir import RunFolder
from mark.live.local.running import Running
from mark.live.local.service_lock import ServiceLock
from mark.live.local.supervisor import FLEET_S, START_S
from mark.live.local.tls import server_tls
from mark.live.models import LiveModel, make_live_models, service_spec
from mark.live.status.watch import watch_service
from mark.plugins.load import build_forecaster
from mark.report.terminal import agreed, note, progress, show, show_json
from mark.telemetry.otlp.sender import check_installed

POLL_S = 0.05


def bring_up(settings: Settings, *, detach: bool, as_json: bool, hold: bool = False, yes: bool = False) -> None:
    """Start the service and say where it is; attached, watch it until Ctrl-C, which ends it."""
    if detach:
        with heeding_ends():
            running, _ = start(settings, hold=hold, yes=yes)
            _show(running, as_json=as_json)
        return
    with suppress(KeyboardInterrupt), service_up(settings, hold=hold, yes=yes) as running:
        _show(running, as_json=as_json)
        watch_service(running)


@contextmanager
def service_up(settings: Settings, *, hold: bool = False, yes: bool = False) -> Iterator[Running]:
    """The service up; down again afterwards, whatever happens. hold: its clock stands still until a load comes."""
    with heeding_ends():
        running, supervisor = start(settings, hold=hold, yes=yes)
        try:
            yield running
        finally:
            end(running.pid)
            supervisor.wait()


@contextmanager
def heeding_ends() -> Iterator[None]:
    """Meanwhile SIGTERM and a closed terminal are what Ctrl-C is, so that whoever started a service ends it.

    Only the main thread can hear them: another changes nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    handled = [number for number, handler in before.items() if handler is not signal.SIG_IGN]  # nohup ignores it
    for number in handled:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number in handled:
            signal.signal(number, before[number])


def start(settings: Settings, *, hold: bool, yes: bool) -> tuple[Running, subprocess.Popen[bytes]]:
    """Start the service and wait until it is ready; Ctrl-C meanwhile ends what was started."""
    own = settings.service  # what can be known to be wrong is said before anything starts
    if not is_loopback(own.host) and own.tls_certificate is None:
        note(f"the gateway on {own.host} serves plain HTTP; service.tls_certificate makes it HTTPS")
    bearer_token(own)
    server_tls(own.tls_certificate, own.tls_key)
    grpc_listener(own.host, own.grpc_port, own.tls_certificate, own.tls_key)
    collector_headers(settings.telemetry)
    check_installed(telemetry_of(settings.telemetry))
    for line in exposed_secrets(settings):
        note(line)
    folder = RunFolder.of(own.name)
    with folder.lock(own.name, also=_what_else(settings)) as lock:  # the supervisor keeps it to its end
        try:
            models = _prepare(settings, yes=yes)
            folder.create(settings, service_spec(settings, models))
        except BaseException:
            folder.unmake()
            raise
        supervisor = _spawn(folder, lock, hold=hold)
        lock.publish(supervisor.pid)
    try:
        return _wait_ready(folder, supervisor), supervisor
    except KeyboardInterrupt:
        end(supervisor.pid)
        raise


def _what_else(settings: Settings) -> str:
    """How files that were edited since reach a service that is up; nothing where there are none."""
    running = RunFolder.of(settings.service.name).running()
    if running is None or not running.ready:
        return ""
    commands = [
        f"`mark rollout start --model {model}{_name_flag(running.name)}` brings in its files as they are now"
        for model in edited_models(settings)
    ]
    return "".join(f"; {command}" for command in commands)


def _prepare(settings: Settings, *, yes: bool) -> tuple[LiveModel, ...]:
    """Check everything and train what must be trained before any process starts; weights are kept in the cache."""
    models = make_live_models(settings)
    if settings.service.mode is Mode.SERVE:
        _agree_on_price(first_price(settings, models), settings.service.aws.ask_above_usd_per_hour, yes=yes)
    with progress() as report:
        for model in models:
            for text in model.notes:
                note(f"{model.name}: {text}")
            if model.served.backend.kind == "python":
                report(f"{model.name}: loading {model.served.backend.target}", 0.0)
                check_loads(model.served.backend, model.name)
            report(f"{model.name}: {model.bundle.forecaster}", 0.0)
            build_forecaster(model.bundle.forecaster, model.setup)
            if model.setup.cache_dir is not None:
                note_learned(
                    Task(
                        forecaster=model.bundle.forecaster,
                        history=model.setup.history,
                        seed=model.setup.seed,
                        cache_dir=model.setup.cache_dir,
                    )
                )
    return models


def _agree_on_price(price: FirstPrice, limit_usd: float | None, *, yes: bool) -> None:
    """Tell the price of the first plans. Misconfigured where they serve nobody, or nobody agrees to the price."""
    for line in price.lines:
        note(line)
    for first in price.plans:
        check_served(first)
    above = price.above(limit_usd)
    if above and not yes and not agreed(f"{above} Start it?"):
        raise Misconfigured("not started")


def _spawn(folder: RunFolder, lock: ServiceLock, *, hold: bool) -> subprocess.Popen[bytes]:
    arguments = [str(folder.path), *(("--hold",) if hold else ())]
    with (folder.logs / "supervisor.log").open("ab") as log_file:
        return subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-P", "-m", "mark.live.processes.supervisor", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log_file,
            stderr=log_file,
            pass_fds=(lock.fd,),
            start_new_session=True,  # Ctrl-C in this terminal is ours to pass on
        )


def _wait_ready(folder: RunFolder, supervisor: subprocess.Popen[bytes]) -> Running:
    until = time.monotonic() + FLEET_S + 2 * START_S
    with progress() as report:
        while True:
            running = folder.running()
            report(running.step if running is not None and running.step else "starting the supervisor", 0.0)
            if running is not None and running.ready:
                return running
            if supervisor.poll() is not None:
                raise _failed(folder)
            if time.monotonic() > until:
                end(supervisor.pid)
                raise Misconfigured(f"the service did not become ready; its logs are in {folder.logs}")
            time.sleep(POLL_S)


def _failed(folder: RunFolder) -> Misconfigured:
    """The reason that the supervisor left, after the lines that explain it were printed."""
    lines = folder.failure()
    if not lines:
        return Misconfigured(f"the service could not start: its logs are in {folder.logs}")
    reason, *details = lines
    for line in details:
        note(line)
    if details:
        note(f"the logs are in {folder.logs}; `mark explain{_name_flag(folder.path.name)}` shows what was decided")
    return Misconfigured(f"the service could not start: {reason}")


def _name_flag(service: str) -> str:
    """The flag that names the service, where it is not the usual one."""
    return "" if service == ServiceSettings().name else f" --name {service}"


def up_document(running: Running) -> dict[str, object]:
    """The document of `mark up --json` (docs/json.md)."""
    return {
        "gateway": running.gateway,
        "grpc": running.grpc,
        "status_page": running.status_page,
        "aws_endpoint": running.aws_endpoint,
        "aws_access_key_id": running.aws_access_key_id,
        "aws_secret_access_key": running.aws_secret_access_key,
        "token": running.token,
        "models": [{"name": model["name"], "example": model["example"]} for model in running.models],
    }


def _show(running: Running, *, as_json: bool) -> None:
    if as_json:
        show_json(up_document(running))
        return
    names = ", ".join(model["name"] for model in running.models)
    observes = RunFolder.of(running.name).settings().service.mode is Mode.OBSERVE
    show(f"The service {running.name} is up and {'observes' if observes else 'serves'} {names}.")
    show(f"gateway      {running.gateway}", f"status page  {running.status_page}")
    if running.grpc:
        show(f"gRPC         {running.grpc}")
    if running.token:
        show(f"token        {running.token}")
    show(f"try          {what_next(running, observes=observes)}")


def what_next(running: Running, *, observes: bool) -> str:
    """Commands to begin with, which reach this service and no other."""
    first = running.models[0]["name"]
    name = _name_flag(running.name)
    if observes:
        return f"tail -n 0 -F access.log | mark feed --model {first}{name}; mark report{name}; mark down{name}"
    return f"mark load --model {first} --rate 20 --duration 30{name}; mark status{name}; mark down{name}"
