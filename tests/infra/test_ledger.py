"""The ledger of a rehearsed day is what the templates of its service cost at the dated prices, line by line.

The other side is reckoned here from the resources of the templates and the table of prices, by none of the code
that makes the bill. From that come only figures that no template says and docs/costs.md names: how much is logged,
how many metrics Container Insights sends, and what a line of the journal takes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from mark.accounting.hourly_totals import HourlyMark, Totals, dump_marks, first_mark, marks_key
from mark.catalog.billing import LAMBDA_LOG_GIB
from mark.catalog.load import load_prices, load_service_prices
from mark.config.footprint import INSIGHTS_METRICS, LINE_WRITES, LOG_KIB_PER_MINUTE
from mark.config.settings import Settings
from mark.domain.billing.costs import Ec2State, Transition
from mark.domain.fleet.instances import Role
from mark.domain.fleet.lease import TABLE_LEASE
from mark.domain.offerings.offering import Offering
from mark.live.background.cloudwatch import BURN, GATEWAYS, OVERFLOW, SPEND
from mark.live.models import service_spec
from mark.live.processes.cloud_controller import live_models
from mark.report.cost.read import read_cost_report
from mark.service_spec import ServiceSpec
from mark.store.embedded import EmbeddedRedis
from tests.infra.conftest import LEAN, PRIVATE, REGION, TELEMETRY, Template, of_type, settings
from tests.live.served_day import BEGAN, BOOTED_S, DAY_S, NOW, RPS, write_service

AGREE = 0.02
HOURS, MONTH = 24.0, 24.0 / 730.0
"""A day, in hours and in AWS's months."""
AWAKE_H = 2.0
"""Hours that the standby ran; it slept for the rest of the day."""
LAMBDA_RPS, BILLED_S = 0.1, 0.4
"""Calls of Lambda, and what one is billed."""
SECRET = re.compile(r"arn:aws:secretsmanager:[\w:-]+")

Lines = dict[str, float]
"""USD of the day by line of the bill."""


@pytest.fixture(
    params=[("templates", {"shape": "ha"}), ("others", {"shape": "ha", **PRIVATE}), ("lean", LEAN)],
    ids=["ha", "private", "lean"],
)
def service(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[dict[str, Template], Settings]:
    """The templates of a service, and its settings."""
    fixture, rollout = request.param
    telemetry = None if fixture == "templates" else TELEMETRY
    return request.getfixturevalue(fixture), settings(tmp_path, telemetry=telemetry, **rollout)


def test_a_rehearsed_day_costs_what_the_templates_cost(
    service: tuple[dict[str, Template], Settings], tmp_path: Path
) -> None:
    made, asked = service
    spec = service_spec(asked, live_models(asked, "live", asked.rollout.functions.provisioned))
    ledger, templates = rehearsed(spec, tmp_path), Costs(templates=made, spec=spec).lines()
    assert ledger.keys() == templates.keys(), side_by_side(ledger, templates)
    assert ledger == pytest.approx(templates, rel=AGREE), side_by_side(ledger, templates)


def side_by_side(ledger: Lines, templates: Lines) -> str:
    """Each line of both, USD of the day."""
    rows = [(line, ledger.get(line, 0.0), templates.get(line, 0.0)) for line in sorted(ledger | templates)]
    rows.append(("sum", sum(ledger.values()), sum(templates.values())))
    table = [f"{line:<34}{ours:>12.6f}{theirs:>12.6f}" for line, ours, theirs in rows]
    return "\n".join([f"{'USD of the day':<34}{'ledger':>12}{'templates':>12}", *table])


def rehearsed(spec: ServiceSpec, folder: Path) -> Lines:
    """Lines of the day in `mark report` and the mail."""
    [served] = spec.models
    assert served.overflow is not None
    with EmbeddedRedis(folder / "store") as server:
        store = write_service(server.url, spec)
        states: tuple[tuple[Ec2State, float], ...] = (
            ("running", 0.0),
            ("stopping", AWAKE_H),
            ("stopped", AWAKE_H),
        )
        for state, hours in states:
            store.note(
                Transition(
                    instance="s-1",
                    model=served.name,
                    offering=served.offerings[0].name,
                    role=Role.STANDBY,
                    state=state,
                    at=BEGAN + 3600.0 * hours,
                )
            )
        life_s = NOW - BEGAN
        calls = LAMBDA_RPS * life_s
        totals = Totals(requests=RPS * life_s, billed=calls, gib_s=calls * BILLED_S * served.overflow.memory_gib)
        last = HourlyMark(at=NOW, counted_to=NOW, peak_rps=2 * RPS, totals=totals)
        store.put_status(marks_key(served.name), dump_marks([first_mark(BEGAN), last]))
        report = read_cost_report(store, period_s=2 * DAY_S, wall_at=0.0)
    day = datetime.fromtimestamp(BEGAN, UTC).date()
    return {f"{one.line.component}: {one.line.item}": one.line.usd for one in report.lines if one.day == day}


@dataclass(frozen=True)
class Costs:
    """Costs of the day, of the resources in a service's templates."""

    templates: Mapping[str, Template]
    spec: ServiceSpec
    #: By item, as the table of prices has it.
    usd: Mapping[str, float] = field(default_factory=lambda: load_service_prices(REGION).usd)

    def lines(self) -> Lines:
        """Every line that costs anything."""
        [served] = self.spec.models
        parts = (
            self._fleet(served.offerings[0]),
            self._lambda(),
            self._training(),
            self._groups(),
            self._state(),
            self._watched(),
            self._traffic(served.model.payload_mib),
        )
        costs = {line: quantity * usd for part in parts for line, quantity, usd in part}
        return {line: usd for line, usd in costs.items() if usd > 0}

    def _all(self, kind: str) -> list[dict[str, Any]]:
        return [one for template in self.templates.values() for one in of_type(template, f"AWS::{kind}").values()]

    def _public(self) -> bool:
        return any(subnet["MapPublicIpOnLaunch"] for subnet in self._all("EC2::Subnet"))

    def _fleet(self, offering: Offering) -> Iterator[tuple[str, float, float]]:
        """An instance that served and a standby that slept, on the disks of their launch templates."""
        usd = load_prices().instance_type(offering.instance_type.name).on_demand_usd_per_hour
        gib = {one["LaunchTemplateName"]: _disk_gib(one) for one in self._all("EC2::LaunchTemplate")}
        serving, standby = gib["mark-shop-serving"], gib["mark-shop-standby"]
        served_h = HOURS - BOOTED_S / 3600
        gib_hours = serving * served_h + standby * AWAKE_H
        yield f"instances: {offering.name}", served_h, usd
        yield f"standby: {offering.name}", AWAKE_H, usd
        yield "standby: disks asleep", standby * (HOURS - AWAKE_H) / 730, self.usd["ebs-gp3"]
        yield "overhead: disks", gib_hours / 730, self.usd["ebs-gp3"]
        [agent] = [
            one for one in self._all("EC2::LaunchTemplate") if one["LaunchTemplateName"] == "mark-shop-serving"
        ]
        interfaces = agent["LaunchTemplateData"].get("NetworkInterfaces", [{}])
        public = self._public() and interfaces[0].get("AssociatePublicIpAddress", True)
        yield "overhead: addresses", public * (served_h + AWAKE_H), self.usd["public-ipv4"]

    def _infer(self) -> list[dict[str, Any]]:
        return [
            one
            for one in self._all("Lambda::Function")
            if one.get("Handler") == "mark.lambda_handlers.infer.handler"
        ]

    def _lambda(self) -> Iterator[tuple[str, float, float]]:
        [function], [alias] = self._infer(), self._all("Lambda::Alias")
        gib, calls = function["MemorySize"] / 1024, LAMBDA_RPS * DAY_S
        warm = alias["ProvisionedConcurrencyConfig"]["ProvisionedConcurrentExecutions"]
        yield "lambda: invocations", calls, self.usd["lambda-request"]
        yield "lambda: duration", calls * BILLED_S * gib, self.usd["lambda-duration"]
        yield "overhead: Lambda's logs", calls * LAMBDA_LOG_GIB, self._log_usd()
        yield "lambda: provisioned", warm * DAY_S * gib, self.usd["lambda-provisioned"]

    def _training(self) -> Iterator[tuple[str, float, float]]:
        """Each model's forecaster once a day, for as long as the function may take."""
        for function in self._all("Lambda::Function"):
            if function.get("ImageConfig", {}).get("Command") == ["mark.lambda_handlers.train.handler"]:
                gib_s = function["MemorySize"] / 1024 * function["Timeout"]
                yield "overhead: training", gib_s, self.usd["lambda-duration"]

    def _groups(self) -> Iterator[tuple[str, float, float]]:
        """Gateways or nodes, controllers' tasks, and the addresses of all."""
        with_address = 0
        for template in self.templates.values():
            launched = of_type(template, "AWS::EC2::LaunchTemplate")
            for name, group in of_type(template, "AWS::AutoScaling::AutoScalingGroup").items():
                machine = launched[group["LaunchTemplate"]["LaunchTemplateId"]["Ref"]]
                kind = load_prices().instance_type(machine["LaunchTemplateData"]["InstanceType"])
                count, line = int(group["DesiredCapacity"]), f"overhead: {name.lower()}"
                with_address += count * self._public()
                yield line, count * HOURS, kind.on_demand_usd_per_hour
                yield f"{line}' disks", count * _disk_gib(machine) * MONTH, self.usd["ebs-gp3"]
        for service, task in zip(self._all("ECS::Service"), self._all("ECS::TaskDefinition"), strict=True):
            hours = service["DesiredCount"] * HOURS
            chip = {"X86_64": "amd64", "ARM64": "arm64"}[task["RuntimePlatform"]["CpuArchitecture"]]
            network = service["NetworkConfiguration"]["AwsvpcConfiguration"]
            with_address += service["DesiredCount"] * (network["AssignPublicIp"] == "ENABLED")
            yield "overhead: controllers' CPUs", hours * int(task["Cpu"]) / 1024, self.usd[f"fargate-vcpu {chip}"]
            memory = hours * int(task["Memory"]) / 1024
            yield "overhead: controllers' memory", memory, self.usd[f"fargate-memory {chip}"]
        for balancer in self._all("ElasticLoadBalancingV2::LoadBalancer"):
            with_address += len(balancer["Subnets"]) * (balancer["Scheme"] == "internet-facing")
            yield "overhead: load balancer", HOURS, self.usd["nlb"]
        yield "overhead: service's addresses", with_address * HOURS, self.usd["public-ipv4"]

    def _nodes(self) -> int:
        """Nodes that hold the store and a controller each."""
        [group] = self._all("AutoScaling::AutoScalingGroup")
        return 0 if self._all("ElastiCache::ReplicationGroup") else int(group["DesiredCapacity"])

    def _state(self) -> Iterator[tuple[str, float, float]]:
        for store in self._all("ElastiCache::ReplicationGroup"):
            usd = self.usd[f"elasticache-{store['Engine']} {store['CacheNodeType']}"]
            yield "overhead: store", store["NumCacheClusters"] * HOURS, usd
        for _ in self._all("DynamoDB::Table"):  # renewals and a line of a journal a minute; polls of who waits
            writes = DAY_S / TABLE_LEASE.renew_s + LINE_WRITES * DAY_S / 60 * len(self._infer())
            yield "overhead: lease table's writes", writes, self.usd["dynamodb-write"]
            reads = (self._nodes() - 1) * DAY_S / TABLE_LEASE.retry_s
            yield "overhead: lease table's reads", reads, self.usd["dynamodb-read"]
        given = set(SECRET.findall(json.dumps(self.templates)))
        secrets = len(self._all("SecretsManager::Secret")) + len(given)
        yield "overhead: secrets", secrets * MONTH, self.usd["secret"]
        yield "overhead: hosted zones", len(self._all("Route53::HostedZone")) * MONTH, self.usd["hosted-zone"]
        # Lambda reads with five long polls of 20 s at once, the controller with one of 10 s
        polls = len(self._all("Lambda::EventSourceMapping")) * 5 * DAY_S / 20 + DAY_S / 10
        yield "overhead: queues", polls, self.usd["sqs-request"]

    def _watched(self) -> Iterator[tuple[str, float, float]]:
        models = len(self._infer())
        metrics = models * len({BURN, GATEWAYS, OVERFLOW, SPEND}) + 1
        observed = sum(
            {"Name": "containerInsights", "Value": "enabled"} in one["ClusterSettings"]
            for one in self._all("ECS::Cluster")
        )
        yield "overhead: alarms", len(self._all("CloudWatch::Alarm")) * MONTH, self.usd["alarm"]
        yield "overhead: dashboards", len(self._all("CloudWatch::Dashboard")) * MONTH, self.usd["dashboard"]
        yield "overhead: metrics", metrics * MONTH, self.usd["custom-metric"]
        insights = observed * INSIGHTS_METRICS * MONTH
        yield "overhead: container insights", insights, self.usd["container-insights-metric"]
        [group] = self._all("AutoScaling::AutoScalingGroup")
        tasks = sum(service["DesiredCount"] for service in self._all("ECS::Service"))
        processes = 3 * self._nodes() or int(group["DesiredCapacity"]) + tasks
        gib = (processes + models) * HOURS * 60 * LOG_KIB_PER_MINUTE / 1024**2
        yield "overhead: logs", gib, self._log_usd()

    def _log_usd(self) -> float:
        """A GiB of logs, kept for as long as their groups say."""
        [kept_days] = {one["RetentionInDays"] for one in self._all("Logs::LogGroup")}
        return self.usd["logs-ingested"] + self.usd["logs-stored"] * kept_days / 365 * 12

    def _traffic(self, payload_mib: float) -> Iterator[tuple[str, float, float]]:
        """Each request with its answer crosses to its instance, and to its gateway where the balancer lets it."""
        balancers = self._all("ElasticLoadBalancingV2::LoadBalancer")
        anywhere = {"Key": "load_balancing.cross_zone.enabled", "Value": "true"}
        crossed = sum(anywhere in one["LoadBalancerAttributes"] for one in balancers)
        balanced, zones = len(self._all("ElasticLoadBalancingV2::LoadBalancer")), len(self._all("EC2::Subnet"))
        gib = RPS * DAY_S * payload_mib / 1024
        crossing = (1 + crossed) * gib * (zones - 1) / zones
        yield "overhead: load balancer traffic", balanced * gib, self.usd["nlb-capacity-unit"]
        yield "overhead: traffic between zones", crossing, 2 * self.usd["cross-zone-bytes"]
        interfaces = [one for one in self._all("EC2::VPCEndpoint") if one["VpcEndpointType"] == "Interface"]
        hours = sum(len(one["SubnetIds"]) for one in interfaces) * HOURS
        yield "overhead: endpoints", hours, self.usd["interface-endpoint"]
        to_lambda = any(one["ServiceName"].endswith(".lambda") for one in interfaces)
        through = to_lambda * LAMBDA_RPS * DAY_S * payload_mib / 1024
        yield "overhead: endpoint traffic", through, self.usd["interface-endpoint-bytes"]


def _disk_gib(launch_template: Mapping[str, Any]) -> float:
    [mapping] = launch_template["LaunchTemplateData"]["BlockDeviceMappings"]
    return float(mapping["Ebs"]["VolumeSize"])
