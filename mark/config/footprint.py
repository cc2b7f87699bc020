"""Footprint of a service by its settings: what the stacks of a rollout make, counted and priced.

`infra/` makes its stacks from the same settings; a test holds the footprint to the synthesised templates.
"""

from __future__ import annotations

from mark.catalog.load import PriceSnapshot, load_prices, load_service_prices
from mark.config.rollout import endpoint_services
from mark.config.settings import Settings
from mark.domain.errors import Misconfigured
from mark.domain.footprint import ControllerTasks, Footprint, Gateways, Monitoring, StoreNodes
from mark.domain.offering import InstanceType

GATEWAY_RPS_PER_CORE = 20_000.0
"""Under a third of the 68,100 requests/s a core that the gateway's prototype was measured at on 2 kB JSON."""
THREADS_PER_CORE = {"amd64": 2, "arm64": 1}
"""vCPUs of a core (EC2 user guide, CPU options)."""
DEFAULT_ZONES = 2
SECRETS = 3
"""The store's password, its URL, and the clients' token."""
MODEL_ALARMS, SERVICE_ALARMS = 3, 2
"""Of a model: burn rate, overflow, silence. Of the service: the store's memory, dead letters."""
MODEL_METRICS, SERVICE_METRICS = 4, 1
"""What controllers send of each model, and of all (`mark/live/background/cloudwatch.py`)."""
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


def footprint_of(settings: Settings, *, models: int = 1) -> Footprint:
    """The footprint of a service with so many models.

    Misconfigured where a price is missing, or where prices are of another region than the service's.
    """
    prices, region = load_prices(settings.prices), settings.service.aws.region
    if prices.region != region:
        raise Misconfigured(
            f"the prices are of {prices.region}, the service is in {region}: `mark doctor --prices prices.json` "
            "writes AWS's of there; name the file as `prices` in the settings, or change service.aws.region"
        )
    rollout, service = settings.rollout, settings.service
    control, network, mails = rollout.control, rollout.network, rollout.report.sender is not None
    zones = len(network.zones) or DEFAULT_ZONES
    endpoints = 0 if network.vpc else len(endpoint_services(rollout)) * (zones if network.private else 1)
    processes = service.gateways + service.controllers + models
    return Footprint(
        gateways=_gateways(settings, prices),
        store=StoreNodes(
            engine=rollout.store.engine, node_type=rollout.store.node_type, count=1 + rollout.store.replicas
        ),
        controllers=ControllerTasks(
            count=service.controllers,
            vcpus=control.cpu / 1024,
            memory_gib=control.memory_mib / MIB,
            architecture=rollout.machines[0].architecture,
        ),
        monitoring=Monitoring(
            alarms=MODEL_ALARMS * models + SERVICE_ALARMS + (rollout.alarms.max_usd_per_hour is not None) + mails,
            dashboards=1,
            metrics=MODEL_METRICS * models + SERVICE_METRICS,
            insights_metrics=INSIGHTS_METRICS,
            log_gib_per_hour=60 * processes * LOG_KIB_PER_MINUTE / MIB**2,
            keep_logs_days=rollout.keep_logs_days,
        ),
        zones=zones,
        public=not network.private,
        internet_facing=rollout.gateway.scheme == "internet-facing",
        disk_gib=rollout.machines[0].disk_gib,
        endpoints=endpoints,
        lambda_through_endpoint=network.private and network.vpc is None,
        secrets=SECRETS,
        queue_requests_per_hour=LAMBDA_POLLS_PER_HOUR + CONTROLLER_POLLS_PER_HOUR,
        prices=load_service_prices(prices.region, settings.service_prices),
    )


def _gateways(settings: Settings, prices: PriceSnapshot) -> Gateways:
    kind = _priced(settings.rollout.gateway.instance_type, prices)
    cores = max(1, kind.vcpus // THREADS_PER_CORE[kind.architecture])
    return Gateways(
        instance_type=kind.name,
        usd_per_hour=kind.on_demand_usd_per_hour,
        count=settings.service.gateways,
        capacity_rps=GATEWAY_RPS_PER_CORE * cores,
    )


def _priced(name: str, prices: PriceSnapshot) -> InstanceType:
    """The type as the file of prices has it; where that is one of few types, as the shipped one of the region."""
    shipped = load_prices()
    known = {item.name for item in prices.types}
    return (shipped if name not in known and shipped.region == prices.region else prices).instance_type(name)
