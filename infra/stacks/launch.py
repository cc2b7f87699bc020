"""Instances' launch templates and security groups. This stack is also made on the emulated AWS.

Controllers launch from `mark-SERVICE-ROLE` (the first kind of machine) and `mark-SERVICE-ROLE-KIND` (the others),
always from the latest version: CloudFormation never moves a template's default version.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

from aws_cdk import Aws, aws_ec2, aws_iam
from constructs import Construct

from mark.aws.names import LEASE, VERSIONS
from mark.aws.resources import TemplateSpec
from mark.config.rollout import MachineSettings
from mark.domain.fleet.instances import Role
from mark.infra.blueprint import Blueprint
from mark.infra.roles import store_secret
from mark.infra.stack import ServiceStack, excuse
from mark.infra.stacks.network import Place
from mark.infra.templates import image_of, make_profile, make_template
from mark.infra.user_data import Start
from mark.store.users import StoreUser

HTTPS, STORE_PORT, GATEWAY_PORT, AGENT_PORTS = 443, 6379, 8080, (8000, 8001)
"""An agent's ports: HTTP for whoever watches, frames for gateways."""


class LaunchStack(ServiceStack):
    """Groups of all processes, the instances' role, and their launch templates."""

    def __init__(self, scope: Construct, *, blueprint: Blueprint) -> None:
        super().__init__(scope, "launch", blueprint=blueprint, about="how its instances start")
        self._place = Place(self)
        self._groups()
        profile = make_profile(self, "agent")
        templates = blueprint.resources.templates
        for machine in blueprint.rollout.machine_kinds:
            image = image_of(self, machine)
            for role in Role:
                self._template(templates[role, machine.name], machine, image, profile)

    # Groups.

    def _groups(self) -> None:
        """Clients -> balancer -> gateways -> agents; all but clients -> store (its stack)."""
        cidr, clients = self._place.cidr, self.blueprint.rollout.gateway.clients
        called = self._called_ports
        out = [_rule("tcp", HTTPS, cidr="0.0.0.0/0", why="AWS"), _rule("tcp", STORE_PORT, cidr=cidr, why="store")]
        port = self.blueprint.collector_port
        if port is not None and port != HTTPS:  # beyond the network only what answers at 443
            out.append(_rule("tcp", port, cidr=cidr, why="collector of spans and metrics"))
        # by IPv6 nothing but AWS's endpoints, and a collector at 443
        self._agents_out = [
            *out,
            *([_rule("tcp", HTTPS, ipv6="::/0", why="AWS by IPv6")] if self._by_ipv6 else []),
        ]
        if self.blueprint.lean:
            self._lean_groups(cidr, out)
            return
        balancer = self._group(
            "balancer",
            "clients of the gateways",
            ingress=[
                _rule("tcp", port, cidr=client, why="clients") for port in called for client in clients or (cidr,)
            ],
            egress=[_rule("tcp", port, cidr=cidr, why="gateways") for port in (GATEWAY_PORT, *called[1:])],
        )
        gateways = self._group(
            "gateways",
            "gateways",
            ingress=[
                _rule("tcp", port, group=balancer.attr_group_id, why="the load balancer")
                for port in (GATEWAY_PORT, *called[1:])
            ],
            egress=[
                *out,
                *(_rule("tcp", port, cidr=cidr, why="agents") for port in AGENT_PORTS),
                _rule("tcp", GATEWAY_PORT, cidr=cidr, why="the other gateways"),
            ],
        )
        self._among_themselves("Gateways", gateways, GATEWAY_PORT, "the other gateways")
        reach = [_rule("tcp", port, group=gateways.attr_group_id, why="gateways") for port in AGENT_PORTS]
        self._agents = self._group("agents", "instances that serve models", ingress=reach, egress=self._agents_out)
        self._group("controllers", "controllers", ingress=[], egress=out)
        # also where nothing is mailed: what later stacks take from here could not be taken back
        self._group("reports", "the function that mails the report", ingress=[], egress=out)

    @property
    def _by_ipv6(self) -> bool:
        return self.blueprint.rollout.network.egress == "ipv6"

    @property
    def _called_ports(self) -> tuple[int, ...]:
        """Ports that clients call: HTTPS, and gRPC's, which is the gateways' own as well."""
        port = self.blueprint.grpc_port
        return (HTTPS,) if port is None else (HTTPS, port)

    def _lean_groups(self, cidr: str, out: list[dict[str, Any]]) -> None:
        """Clients -> nodes -> agents; agents -> the nodes' store."""
        clients = self.blueprint.rollout.gateway.clients or (cidr,)
        nodes = self._group(
            "nodes",
            "gateways, controllers and store",
            ingress=[
                _rule("tcp", port, cidr=client, why="clients") for port in self._called_ports for client in clients
            ],
            egress=[
                *out,
                *(_rule("tcp", port, cidr=cidr, why="agents") for port in AGENT_PORTS),
                _rule("tcp", GATEWAY_PORT, cidr=cidr, why="the other gateways"),
            ],
        )
        self._among_themselves("Nodes", nodes, GATEWAY_PORT, "the other gateways")
        self._among_themselves("Stores", nodes, STORE_PORT, "the other store")
        reach = [_rule("tcp", port, group=nodes.attr_group_id, why="gateways") for port in AGENT_PORTS]
        self._agents = self._group("agents", "instances that serve models", ingress=reach, egress=self._agents_out)
        self._ingress("AgentsToStore", nodes, self._agents, STORE_PORT, "agents")

    def _among_themselves(self, name: str, group: aws_ec2.CfnSecurityGroup, port: int, why: str) -> None:
        self._ingress(f"{name}AmongThemselves", group, group, port, why)

    def _ingress(
        self, id_: str, group: aws_ec2.CfnSecurityGroup, source: aws_ec2.CfnSecurityGroup, port: int, why: str
    ) -> None:
        """A rule of its own: groups cannot name themselves, nor each other."""
        aws_ec2.CfnSecurityGroupIngress(
            self,
            id_,
            group_id=group.attr_group_id,
            source_security_group_id=source.attr_group_id,
            ip_protocol="tcp",
            from_port=port,
            to_port=port,
            description=why,
        )

    def _group(
        self, name: str, about: str, *, ingress: list[dict[str, Any]], egress: list[dict[str, Any]]
    ) -> aws_ec2.CfnSecurityGroup:
        group = aws_ec2.CfnSecurityGroup(
            self,
            f"{name.capitalize()}Group",
            group_description=f"MArk {self.blueprint.service}: {about}",
            vpc_id=self._place.vpc,
            security_group_ingress=ingress or None,
            security_group_egress=egress,
        )
        if name in ("balancer", "nodes") and "0.0.0.0/0" in self.blueprint.rollout.gateway.clients:
            excuse(group, "rollout.gateway.clients asks for a public service", nag=("AwsSolutions-EC23",))
        self.publish(f"{name}-group", group.attr_group_id)
        return group

    # Templates.

    def _template(
        self, template: TemplateSpec, machine: MachineSettings, image: str, profile: aws_iam.CfnInstanceProfile
    ) -> None:
        rollout = self.blueprint.rollout
        start = Start(
            process="agent",
            image=self.blueprint.agent_image,
            region=Aws.REGION,
            log=self.blueprint.log("agent"),
            secrets={"MARK_STORE_URL": self.blueprint.name(store_secret(StoreUser.AGENT))},
            forms=store_forms(self.blueprint, StoreUser.AGENT),
            environment={"MARK_SERVICE": self.blueprint.service, "MARK_CPU_TIMES": "/proc/stat"},
            runs_models=True,
            lease=lease_url(self.blueprint) if self.blueprint.lean else "",
            model_ports=server_ports(json.loads(self.blueprint.processes)),
            gpu=bool(machine.accelerator),
            model_image=rollout.model_image or "",
            bundle=f"s3://{self.imported('bucket')}/{rollout.bundle}" if rollout.bundle else "",
            versions=f"s3://{self.imported('bucket')}/{VERSIONS}",
            powers_off=True,
            ipv6=self._by_ipv6,
        )
        make_template(
            self,
            template,
            image=image,
            profile=profile,
            group=self._agents.attr_group_id,
            start=start,
            ipv6=self._by_ipv6,
        )


def lease_url(blueprint: Blueprint, secret: str = "") -> str:
    """The store's URL in the lean shape. The nodes' certificate is for their name, and they have no fixed one."""
    return f"rediss+lease://{secret}{blueprint.name(LEASE)}.{Aws.REGION}:{STORE_PORT}?ssl_cert_reqs=none"


def store_forms(blueprint: Blueprint, user: StoreUser) -> dict[str, str]:
    """Forms of a start's variables: in the lean shape the user's secret is a password, the URL is known here."""
    return {"MARK_STORE_URL": lease_url(blueprint, f"{user.value}:%s@")} if blueprint.lean else {}


def server_ports(settings: object) -> tuple[int, ...]:
    """Ports of model servers that the settings' backends call on their own instance."""
    if isinstance(settings, list):
        return tuple(sorted({port for one in settings for port in server_ports(one)}))
    if not isinstance(settings, dict):
        return ()
    found = {port for one in settings.values() for port in server_ports(one)}
    target = settings.get("target")
    if isinstance(target, str) and target.startswith(("http://", "https://")):
        url = urlsplit(target)
        found.add(url.port or (80 if url.scheme == "http" else 443))
    return tuple(sorted(found))


def _rule(
    protocol: str, port: int, *, why: str, cidr: str = "", ipv6: str = "", group: str = ""
) -> dict[str, Any]:
    where = {"cidrIp": cidr} if cidr else {"cidrIpv6": ipv6} if ipv6 else {"sourceSecurityGroupId": group}
    return {"ipProtocol": protocol, "fromPort": port, "toPort": port, "description": why, **where}
