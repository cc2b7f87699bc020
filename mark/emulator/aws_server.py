"""The emulated AWS as one object: everything wired together, served on one port."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping

import uvicorn

from mark.cloudmodel.capacity import Capacity
from mark.emulator.authorization.accesses import Account
from mark.emulator.authorization.authorizer import Authorizer
from mark.emulator.authorization.inventory import EmulatedInventory
from mark.emulator.clock import ServiceClock
from mark.emulator.config import ACCOUNT, REGION, EmulatedAwsConfig
from mark.emulator.control import Control
from mark.emulator.cost_explorer import CostExplorer
from mark.emulator.ec2.account_limits import AccountLimits
from mark.emulator.ec2.api import Ec2Api
from mark.emulator.ec2.commitments import AccountCommitments
from mark.emulator.ec2.hypervisor import Hypervisor
from mark.emulator.ec2.imds import Imds
from mark.emulator.ec2.launch import sold_everywhere
from mark.emulator.ec2.machine import Machine
from mark.emulator.ec2.machines import Machines
from mark.emulator.events.alarms import Alarms
from mark.emulator.events.bus import Events
from mark.emulator.events.queue_triggers import EventSources
from mark.emulator.events.scheduler import Scheduler
from mark.emulator.faults import Faults
from mark.emulator.fis import FaultInjection
from mark.emulator.front import Front, Gate, Services
from mark.emulator.functions.api import LambdaApi
from mark.emulator.functions.pool import LambdaPools
from mark.emulator.functions.process import FunctionSpec
from mark.emulator.metering import Meter
from mark.emulator.moto_app import StrictMoto
from mark.emulator.moto_parts import sold_in, tags_of_function
from mark.emulator.pricing import Pricing
from mark.emulator.ses import Ses

LOG = logging.getLogger(__name__)

SWEEP_S = 1.0
"""Real seconds between looks whether instances and processes agree."""
BACKLOG = 2048
STARTING_S = 0.005


class EmulatedAws:
    """An AWS account and region on this machine; one a process, because moto keeps its state in its modules."""

    def __init__(self, config: EmulatedAwsConfig) -> None:
        self._config = config
        self._socket: socket.socket | None = None
        self._server: _Server | None = None
        self._serving: asyncio.Task[None]
        self._tasks: list[asyncio.Task[None]] = []
        self._closing = contextlib.AsyncExitStack()

    @property
    def url(self) -> str:
        """The endpoint to hand to boto3; known once it is started."""
        assert self._socket is not None, "not started"
        host, port = self._socket.getsockname()[:2]
        return f"http://{host}:{port}"

    async def serve(self, ready: Callable[[str], None]) -> None:
        """Start, tell `ready` the endpoint, and run until cancelled; nothing is left behind."""
        await self.start()
        try:
            ready(self.url)
            done, _ = await asyncio.wait([*self._tasks, self._serving], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            await self.stop()

    async def start(self) -> None:
        """Answer on the port, with the fork server ready, when this returns."""
        config = self._config
        config.folder.mkdir(parents=True, exist_ok=True)
        self._socket = socket.create_server((config.host, config.port), backlog=BACKLOG, reuse_port=True)
        # Inherited by connections; asyncio does not set it where the socket has no protocol number.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            front = await self._build()
        except BaseException:
            await self.stop()
            raise
        settings = uvicorn.Config(
            front, http="httptools", ws="none", lifespan="off", log_config=None, access_log=False, loop="asyncio"
        )
        self._server = _Server(settings)
        self._serving = asyncio.create_task(self._server.serve([self._socket]))
        while not self._server.started:
            await asyncio.sleep(STARTING_S)

    async def stop(self) -> None:
        """End everything: server, instances, functions."""
        if self._server is not None:
            self._server.should_exit = self._server.force_exit = True
            await asyncio.wait([self._serving])
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        await self._closing.aclose()
        if self._socket is not None:
            self._socket.close()

    async def _build(self) -> Front:
        config = self._config
        clock = ServiceClock(config.anchor)
        faults = Faults(clock.now)
        calls: Counter[tuple[str, str]] = Counter()
        pools = self._pools(clock)
        functions = LambdaApi(pools, config.lambdas, clock)
        events = Events(functions.send_event)
        hypervisor = self._hypervisor(lambda name: machines.powered_off(name))  # noqa: PLW0108 made below
        machines = self._machines(clock, faults, hypervisor, events)
        sources, scheduler, ses = EventSources(functions), Scheduler(clock, functions.send_event), Ses(clock)
        alarms, moto = Alarms(clock, events.send), StrictMoto()
        self._end_with(
            functions.stop, events.stop, sources.stop, machines.close, moto.stop, hypervisor.stop, clock.stop
        )
        await hypervisor.start()
        clock.start()
        alarms.start()
        for endless in (sources.run(), _sweep(machines)):
            self._tasks.append(asyncio.create_task(endless))
            self._tasks[-1].add_done_callback(_say_failure)
        gate, authorizer = Gate(closed=config.closed), self._authorizer(machines, ses)
        control = Control(
            clock=clock,
            machines=machines,
            hypervisor=hypervisor,
            lambdas=pools,
            faults=faults,
            calls=calls,
            alarms=alarms,
            ses=ses,
            authorizer=authorizer,
            open_gate=gate.open,
        )
        limits = AccountLimits(
            config.quotas, config.lambdas.concurrency, free_plan=config.free_plan, front=config.front
        )
        commitments = AccountCommitments(config.commitments, [*config.types.values()])
        meter = Meter(machines.mean_usd_per_hour)
        machines.metered = meter.note_state
        pools.metered = lambda spec, billed_ms: meter.note_call(
            tags_of_function(spec.name), spec.memory_mb, billed_ms, clock.now()
        )
        ec2 = Ec2Api(
            machines,
            config.types,
            faults,
            clock,
            limits,
            commitments=commitments,
            listing_lag_s=config.listing_lag_s,
            sold=sold_in if config.sells_by_zone else sold_everywhere,
        )
        services = Services(
            ec2=ec2,
            lambdas=functions,
            pricing=Pricing(config.types),
            limits=limits,
            commitments=commitments,
            costs=CostExplorer(clock, meter.uses),
            fault_injection=FaultInjection(clock, machines),
            ses=ses,
            scheduler=scheduler,
            moto=moto,
        )
        imds = Imds(machines.find, clock)
        return Front(
            services,
            imds=imds,
            control=control,
            faults=faults,
            calls=calls,
            gate=gate,
            authorizer=authorizer,
            key=config.key,
        )

    def _authorizer(self, machines: Machines, ses: Ses) -> Authorizer | None:
        if self._config.names is None:
            return None
        inventory = EmulatedInventory(machines.tags_of, ses.identity_of)
        account = Account(id=ACCOUNT, region=REGION, inventory=inventory)
        return Authorizer(self._config.names, account)

    def _end_with(self, *ends: Callable[[], Awaitable[None] | None]) -> None:
        """Call these when it ends, the last one first."""
        for end in ends:
            if asyncio.iscoroutinefunction(end):
                self._closing.push_async_callback(end)
            else:
                self._closing.callback(end)

    def _machines(self, clock: ServiceClock, faults: Faults, hypervisor: Hypervisor, events: Events) -> Machines:
        config = self._config
        made = Machines(
            clock=clock,
            capacity=Capacity(config.world, config.seed, start_at=clock.now()),
            draws=config.draws,
            stress=config.stress,
            boot_factor=faults.boot_factor,
            power=hypervisor,
            environment=self._agent_environment,
            watcher=events,
        )
        made.launch_failure = faults.launch_failure
        return made

    def _pools(self, clock: ServiceClock) -> LambdaPools:
        config = self._config
        return LambdaPools(
            clock=clock,
            limits=config.lambdas,
            draws=config.draws.lambdas,
            folder=config.folder,
            environment=self._function_environment,
            python_path=config.python_path,
        )

    def _hypervisor(self, powered_off: Callable[[str], None]) -> Hypervisor:
        config = self._config
        return Hypervisor(
            agent=config.agent,
            folder=config.folder,
            python_path=config.python_path,
            environment=config.environment,
            kill_after_s=config.kill_after_s,
            restart_after_s=config.restart_after_s,
            powered_off=powered_off,
        )

    def _agent_environment(self, machine: Machine) -> dict[str, str]:
        """Environment that an instance's image would set."""
        return {
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"{self.url}/_imds/{machine.id}/",
            "AWS_ENDPOINT_URL": self.url,
            "AWS_DEFAULT_REGION": REGION,
            **self._config.environment,
        }

    def _function_environment(self, spec: FunctionSpec) -> Mapping[str, str]:
        """Environment that Lambda sets."""
        key = self._config.key
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ACCESS_KEY_ID": key.id if key else "AKIAEMULATED",
            "AWS_SECRET_ACCESS_KEY": key.secret if key else "emulated",
            "AWS_LAMBDA_FUNCTION_NAME": spec.name,
            "AWS_LAMBDA_FUNCTION_VERSION": spec.version,
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(spec.memory_mb),
            "_HANDLER": spec.handler,
            **self._config.environment,
        }


class _Server(uvicorn.Server):
    """Signals are the business of whoever runs us."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


def _say_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        LOG.error("the emulated AWS is broken: %r", error)


async def _sweep(machines: Machines) -> None:
    while True:
        await asyncio.sleep(SWEEP_S)
        machines.sweep()
