"""Footprint of a service by its settings: what the stacks of a rollout make, counted and priced.

`infra/` makes its stacks from the same settings; a test holds the footprint to the synthesised templates.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal

from mark.catalog.billing import HOURS_PER_MONTH
from mark.catalog.commitment_file import load_commitments, unknown_words
from mark.catalog.load import PriceSnapshot, load_models, load_prices, load_service_prices
from mark.catalog.shipped_models import MODEL_FILE, folder_of
from mark.catalog.sizing import (
    NETWORK_GBPS,
    NODE_TYPES,
    PeakLoad,
    capacity_mib_per_s,
    capacity_rps,
    gateways_on,
    size_gateways,
    size_node,
    size_store,
)
from mark.config.disks import with_disks
from mark.config.parts import default_of
from mark.config.prices import chosen_prices, shipped_prices
from mark.config.rollout import MOST_NODES, MachineSettings, RolloutSettings, StoreSettings, endpoint_services
from mark.config.settings import Settings
from mark.config.training import models_trained_in_function, trains_in_function, trains_on_nodes
from mark.domain.billing.footprint import ControllerTasks, Footprint, Gateways, LeaseTable, Monitoring, StoreNodes
from mark.domain.billing.service_prices import ServiceItem
from mark.domain.commitments.owned import NO_COMMITMENTS, Commitments
from mark.domain.demand import UNIT_S
from mark.domain.errors import Misconfigured
from mark.domain.fleet.lease import TABLE_LEASE
from mark.domain.models.objective import ModelSpec
from mark.domain.offerings.offering import InstanceType

UNKNOWN_PAYLOAD_MIB: float = default_of(ModelSpec, "payload_mib")
"""Model where none is named."""
DEFAULT_ZONES = 2
LEAN_SECRETS, TOKENS, STORE_USERS = 4, 1, 4
"""The clients' token, and a password for each user of the store. Lean: two such users, and the team's certificate.
`ha`: four, and for each the store's URL with it."""
MODEL_ALARMS, SERVICE_ALARMS = 3, 4
"""Of a model: burn rate, overflow, silence. Of the service: dead letters, a failed training, a full store, a front
out of reach."""
MODEL_METRICS, SERVICE_METRICS = 4, 1
"""Metrics that controllers send of each model, and of all (`mark/live/background/cloudwatch.py`). One more is sent
while a training has failed."""
INSIGHTS_METRICS = 8 + 6 + 11
"""Container Insights: of a cluster, a task definition and a service. Assumed, after an example of CloudWatch's
pricing page."""
LOG_KIB_PER_MINUTE = 1.0
"""Of each process and of each model's metrics. Assumed: some lines a minute."""
LAMBDA_POLLS_PER_HOUR = 5 * 180
"""Lambda reads a queue with five long polls of 20 s at a time (Lambda developer guide, SQS scaling)."""
CONTROLLER_POLLS_PER_HOUR = 360
"""The acting controller's long polls of 10 s (`mark.aws.session.POLL_S`)."""
MIB = 1024.0
SECONDS_PER_HOUR = 3600.0
LEAN_ALARMS = 4
"""Of a lean service: dead letters, a failed training, a full store, a certificate that ends."""
LOGS_OF_NODE = 3
"""Gateway, controller and store."""
HOURS_PER_DAY = 24.0
TRAINING_GIB_S = 900 * 2.0
"""Of a training that takes all the time that its function has (`mark.aws.resources`); most take less."""
LINE_WRITES = 2 * (1 + 4)
"""Write units of a line of the journal's tail: a transaction bills twice, the check of the lease, and the line.
Assumed: 4 KiB, compressed."""


def footprint_of(settings: Settings, *, models: int = 1) -> Footprint:
    """The footprint of a service with so many models, sized by its load where the settings leave that open.

    Misconfigured where a price is missing, or where prices are of another region than the service's.
    """
    prices, region = chosen_prices(settings), settings.service.aws.region
    if prices.region != region:
        raise Misconfigured(
            f"the prices are of {prices.region}, the service is in {region}: `mark doctor --prices prices.json` "
            "writes AWS's of there; name the file as `prices` in the settings, or change service.aws.region"
        )
    settings = sized(settings, models=models)
    rollout, service = settings.rollout, settings.service
    machine = gateway_machine(settings)
    network, mails, lean = rollout.network, rollout.report.sender is not None, rollout.shape == "lean"
    zones = len(network.zones) or DEFAULT_ZONES
    endpoints = 0 if network.vpc else len(endpoint_services(rollout)) * zones
    processes = models + (LOGS_OF_NODE * rollout.nodes if lean else service.gateway_count + service.controllers)
    posts = rollout.alarms.webhook is not None
    alarms = MODEL_ALARMS * models + (LEAN_ALARMS if lean else SERVICE_ALARMS)
    return Footprint(
        gateways=_nodes(settings, prices) if lean else _gateways(settings, prices, machine),
        store=None if lean else _store(rollout.store),
        controllers=None if lean else _controllers(settings, machine),
        lease_table=_lease_table(rollout.nodes, models) if lean else None,
        balanced=not lean,
        hosted_zones=int(lean and rollout.node.zone is None),
        monitoring=Monitoring(
            alarms=alarms
            + (rollout.alarms.max_usd_per_hour is not None)
            + mails
            + posts
            + trains_in_function(settings),
            dashboards=int(not lean),
            metrics=MODEL_METRICS * models + SERVICE_METRICS,
            insights_metrics=0 if lean else INSIGHTS_METRICS,
            log_gib_per_hour=60 * processes * LOG_KIB_PER_MINUTE / MIB**2,
            keep_logs_days=rollout.keep_logs_days,
        ),
        zones=zones,
        public=not network.private,
        public_instances=network.egress == "public",
        internet_facing=not lean and rollout.gateway.scheme == "internet-facing",
        disk_gib=rollout.machine_kinds[0].disk_gib or 0,
        endpoints=endpoints,
        lambda_through_endpoint=network.private and network.vpc is None,
        secrets=_secrets(rollout) + posts + (settings.telemetry.headers_secret is not None),
        training_gib_s_per_hour=_training_gib_s_per_hour(settings, models),
        queue_requests_per_hour=LAMBDA_POLLS_PER_HOUR + CONTROLLER_POLLS_PER_HOUR,
        prices=load_service_prices(prices.region, settings.service_prices),
        commitments=_commitments(settings, prices, zones),
    )


def _commitments(settings: Settings, prices: PriceSnapshot, zones: int) -> Commitments:
    """Those of the file that the settings name, as far as they hold in the service's region and zones."""
    path = settings.account.commitments
    if path is None:
        return NO_COMMITMENTS
    there = _holding_here(load_commitments(path), settings).with_prices(prices.on_demand_usd_per_hour)
    return replace(there, zones=zones)


def _holding_here(owned: Commitments, settings: Settings) -> Commitments:
    return owned.in_region(settings.service.aws.region).in_zones(settings.rollout.network.zones)


def commitment_remarks(settings: Settings, owned: Commitments, known: Collection[str]) -> tuple[str, ...]:
    """Remarks on the file of commitments: those that hold elsewhere, and names that no type of `known` has."""
    said, path = [unknown_words(owned, known)], settings.account.commitments
    if path is not None:
        there = load_commitments(path)
        here = _holding_here(there, settings)
        held = {item.name for item in (*here.plans, *here.reserved)}
        names = [item.name for item in (*there.plans, *there.reserved) if item.name not in held]
        if names:
            said.append(f"{path}: {', '.join(names)} not counted: of another region, or zone, than the service's")
    return tuple(filter(None, said))


def _secrets(rollout: RolloutSettings) -> int:
    if rollout.shape == "lean":
        return LEAN_SECRETS - rollout.node.self_signed
    return TOKENS + STORE_USERS * (len(rollout.store.valid_passwords) + 1)


def sized(settings: Settings, *, models: int = 1) -> Settings:
    """The settings, with disks, types of nodes, gateways and store, and how many, where they leave them open.

    With `lean` there is a gateway and a controller on each node, with `ha` what the peak and so many models take.
    """
    rollout, service = with_disks(settings.rollout, models=models), settings.service
    settings = settings.model_copy(update={"rollout": rollout})
    if rollout.shape == "lean":
        count = {"gateways": rollout.nodes, "controllers": rollout.nodes}
        node = rollout.node.model_copy(update={"instance_type": lean_node_type(settings, models=models)})
        return settings.model_copy(
            update={
                "service": service.model_copy(update=count),
                "rollout": rollout.model_copy(update={"node": node}),
            }
        )
    kind, gateways = size_gateways(
        peak_load(settings), _gateway_types(settings), usd_beside=_usd_beside(settings), count=service.gateways
    )
    node_type = rollout.store.node_type or size_store(models)
    made = {
        "gateway": rollout.gateway.model_copy(update={"instance_type": kind.name}),
        "store": rollout.store.model_copy(update={"node_type": node_type}),
    }
    return settings.model_copy(
        update={
            "rollout": rollout.model_copy(update=made),
            "service": service.model_copy(update={"gateways": gateways}),
        }
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontMachines:
    """Machines that stand before the fleet, on demand: nodes of `lean`, gateways of `ha`."""

    name: Literal["nodes", "gateways"]
    instance_type: InstanceType
    count: int

    @property
    def vcpus(self) -> int:
        """VCPUs of all at once: an update starts one more, but replaces a single machine in place."""
        return (self.count + (self.count > 1)) * self.instance_type.vcpus


def front_machines(settings: Settings, *, models: int = 1) -> FrontMachines:
    """The machines before the fleet of a service with so many models."""
    settings = sized(settings, models=models)
    rollout = settings.rollout
    lean = rollout.shape == "lean"
    name = rollout.node.instance_type if lean else rollout.gateway.instance_type
    assert name is not None, "sized"
    return FrontMachines(
        name="nodes" if lean else "gateways",
        instance_type=_known(name, settings),
        count=rollout.nodes if lean else settings.service.gateway_count,
    )


def peak_load(settings: Settings) -> PeakLoad:
    """Load that gateways of the shape `ha` are made for: rollout.peak_rps, else what two lean nodes carry.

    Requests are as large as the largest of the models'.
    """
    payload_mib, asked = _payload_mib(settings), settings.rollout.peak_rps
    return PeakLoad.of(lean_rps(settings, payload_mib) if asked is None else asked, payload_mib)


def lean_node_type(settings: Settings, *, models: int = 1) -> str:
    """Type of lean nodes: the one that is named, else the smallest that carries models and load (`size_node`).

    The load is rollout.peak_rps, else what the models expect; where nobody says, memory alone decides.
    """
    rollout, node = settings.rollout, settings.rollout.node
    if node.instance_type is not None:
        return node.instance_type
    expected = sum(one.expected_rps or 0.0 for one in settings.service.serve)
    load = PeakLoad.of(rollout.peak_rps or expected, _payload_mib(settings))
    prices, shipped, names = chosen_prices(settings), shipped_prices(settings), NODE_TYPES[node.architecture]
    priced = {one.name for one in (*prices.types, *(shipped.types if shipped.region == prices.region else ()))}
    kinds = [_known(name, settings) for name in names if name in priced or name == names[-1]]
    trains = trains_on_nodes(settings)
    return size_node(load, kinds, nodes=rollout.nodes, models=models, trains=trains).name


def lean_rps(settings: Settings, payload_mib: float) -> float:
    """Requests/s of this size, with their answers, that two nodes of the shape `lean` carry for long."""
    node = settings.rollout.node
    kind = _known(node.instance_type or NODE_TYPES[node.architecture][-1], settings)
    return MOST_NODES * min(capacity_rps(kind), capacity_mib_per_s(kind) / payload_mib)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeAdvice:
    """Shape of a rollout that carries a peak, and what is made of it."""

    shape: Literal["lean", "ha"]
    peak: PeakLoad
    #: Requests/s of that size up to which the shape `lean` carries them for long.
    lean_rps: float
    footprint: Footprint


def advise_shape(settings: Settings, peak_rps: float) -> ShapeAdvice:
    """The settings' own shape, or `ha` where two lean nodes do not carry the peak (rollout.peak_rps, if more)."""
    rollout, service = settings.rollout, settings.service.model_copy(update={"gateways": None})
    asked = max(peak_rps, rollout.peak_rps or 0.0)
    alone = settings.model_copy(
        update={
            "rollout": rollout.model_copy(update={"peak_rps": asked}),
            "service": service.model_copy(update={"serve": ()}) if settings.model else service,
        }
    )
    peak = peak_load(alone)
    most_rps = lean_rps(settings, _payload_mib(alone))
    shape: Literal["lean", "ha"] = "ha" if rollout.shape == "ha" or asked > most_rps else "lean"
    shaped = alone.model_copy(update={"rollout": alone.rollout.model_copy(update={"shape": shape})})
    return ShapeAdvice(shape=shape, peak=peak, lean_rps=most_rps, footprint=footprint_of(shaped))


def gateway_machine(settings: Settings) -> MachineSettings:
    """Kind of machine that gateways and controllers of the shape `ha` run on; with `lean` the first.

    Misconfigured where the gateways' type has a processor that no kind has.
    """
    rollout = settings.rollout
    name = rollout.gateway.instance_type
    if rollout.shape == "lean":
        return rollout.machine_kinds[0]
    if name is None:
        return rollout.machine_of("arm64") or rollout.machine_kinds[0]
    architecture = _known(name, settings).architecture
    found = rollout.machine_of(architecture)
    if found is None:
        raise Misconfigured(
            f"rollout.gateway.instance_type {name} is {architecture}, and no kind of rollout.machines is: add "
            f"{{architecture: {architecture}}} there, or take another type"
        )
    return found


def _gateway_types(settings: Settings) -> tuple[InstanceType, ...]:
    """Types that gateways may be: the one that is named, else all of their processor that are known and priced."""
    prices, named = chosen_prices(settings), settings.rollout.gateway.instance_type
    if named is not None:
        return (_priced(named, settings, prices),)
    architecture = gateway_machine(settings).architecture
    shipped = shipped_prices(settings)
    known = {one.name: one for one in (*(shipped.types if shipped.region == prices.region else ()), *prices.types)}
    found = tuple(one for name, one in known.items() if name in NETWORK_GBPS and one.architecture == architecture)
    if not found:
        raise Misconfigured(
            f"the prices of {prices.region} have no {architecture} type that gateways are sized on: name one that "
            "they have as rollout.gateway.instance_type"
        )
    return found


def _usd_beside(settings: Settings) -> float:
    """Disk and public address of a gateway, USD an hour."""
    price = load_service_prices(load_prices(settings.prices).region, settings.service_prices).price
    disk = (gateway_machine(settings).disk_gib or 0) * price(ServiceItem.DISK) / HOURS_PER_MONTH
    return disk + (0.0 if settings.rollout.network.private else price(ServiceItem.ADDRESS))


def _payload_mib(settings: Settings) -> float:
    """Size of a request with its answer: of the models that are named the largest."""
    named = [one.model for one in settings.service.serve] or ([settings.model] if settings.model else [])
    known = load_models()
    for one in settings.service.serve:  # a class in Python may have its description beside it
        beside = folder_of(one.backend.target, one.backend.folder) if one.backend.kind == "python" else None
        if beside is not None and (beside / MODEL_FILE).is_file():
            known |= load_models(beside / MODEL_FILE)
    known |= load_models(settings.models) if settings.models else {}
    sizes = [known[name].payload_mib for name in named if name in known]
    return max(sizes, default=UNKNOWN_PAYLOAD_MIB)


def _gateways(settings: Settings, prices: PriceSnapshot, machine: MachineSettings) -> Gateways:
    rollout = settings.rollout
    assert rollout.gateway.instance_type is not None, "sized"
    kind = _priced(rollout.gateway.instance_type, settings, prices)
    return gateways_on(kind, count=settings.service.gateway_count, disk_gib=machine.disk_gib or 0)


def _nodes(settings: Settings, prices: PriceSnapshot) -> Gateways:
    """Nodes of the lean shape. Misconfigured where the type has another processor than the settings say."""
    rollout = settings.rollout
    node = rollout.node
    assert node.instance_type is not None, "sized"
    kind = _priced(node.instance_type, settings, prices)
    if kind.architecture != node.architecture:
        raise Misconfigured(
            f"rollout.node.instance_type {kind.name} is {kind.architecture}: say so as rollout.node.architecture"
        )
    return Gateways(
        name="nodes",
        instance_type=kind.name,
        usd_per_hour=kind.on_demand_usd_per_hour,
        count=rollout.nodes,
        capacity_rps=capacity_rps(kind),
        capacity_mib_per_s=capacity_mib_per_s(kind),
        spare=0,
        headroom=1.0,
        most=MOST_NODES,
        disk_gib=node.disk_gib or 0,
    )


def _store(store: StoreSettings) -> StoreNodes:
    assert store.node_type is not None, "sized"
    return StoreNodes(engine=store.engine, node_type=store.node_type, count=1 + store.replicas)


def _controllers(settings: Settings, machine: MachineSettings) -> ControllerTasks:
    control = settings.rollout.control
    return ControllerTasks(
        count=settings.service.controllers,
        vcpus=control.cpu / 1024,
        memory_gib=control.memory_mib / MIB,
        architecture=machine.architecture,
    )


def _training_gib_s_per_hour(settings: Settings, models: int) -> float:
    """Trainings on schedule, each as long as its function may run; by drift alone, one a day."""
    every_h = settings.service.retrain.every_h or HOURS_PER_DAY
    return models_trained_in_function(settings, models=models) * TRAINING_GIB_S / every_h


def _lease_table(nodes: int, models: int) -> LeaseTable:
    """Renewals of the holder and journal lines of each model; polls of the nodes that wait."""
    lines = models * SECONDS_PER_HOUR / UNIT_S * LINE_WRITES
    return LeaseTable(
        writes_per_hour=SECONDS_PER_HOUR / TABLE_LEASE.renew_s + lines,
        reads_per_hour=(nodes - 1) * SECONDS_PER_HOUR / TABLE_LEASE.retry_s,
    )


def _known(name: str, settings: Settings) -> InstanceType:
    """The type's facts, as the file of prices has it, else as the shipped one."""
    prices = chosen_prices(settings)
    there = {one.name for one in prices.types}
    return (prices if name in there else shipped_prices(settings)).instance_type(name)


def _priced(name: str, settings: Settings, prices: PriceSnapshot) -> InstanceType:
    """The type as the file of prices has it; where that is one of few types, as the shipped one of the region."""
    shipped = shipped_prices(settings)
    known = {item.name for item in prices.types}
    return (shipped if name not in known and shipped.region == prices.region else prices).instance_type(name)
