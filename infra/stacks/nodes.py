"""Nodes of the lean shape: gateway, controller and store beside each other, in an Auto Scaling group.

Clients reach them by their name in DNS, which the controller that acts keeps
(`mark.live.control.leadership.node`).
"""

from __future__ import annotations

from aws_cdk import Aws, aws_autoscaling, aws_ec2, aws_iam
from constructs import Construct

from mark.aws.ec2.tags import ENDS
from mark.aws.permissions.calls import PROCESSES
from mark.aws.resources import TemplateSpec
from mark.infra.blueprint import Blueprint
from mark.infra.roles import (
    TOKEN,
    allow,
    make_role,
    names_of,
    of_images,
    of_roles,
    reads_collector,
    secret_arn,
    store_secret,
)
from mark.infra.stack import ServiceStack, excuse
from mark.infra.stacks.control import controller_environment
from mark.infra.stacks.gateways import GRACE_S, LIVE, wait_for_answers
from mark.infra.stacks.launch import HTTPS, STORE_PORT, store_forms
from mark.infra.stacks.network import Place
from mark.infra.templates import image_of, make_template
from mark.infra.user_data import NODE_PROCESSES, NodeStart
from mark.store.users import StoreUser

GROUP = "Nodes"
"""The group in the template."""


class NodesStack(ServiceStack):
    """The nodes' role, launch template and group."""

    def __init__(self, scope: Construct, *, blueprint: Blueprint) -> None:
        super().__init__(scope, "nodes", blueprint=blueprint, about="where clients call, and what decides")
        place, count = Place(self), blueprint.rollout.nodes
        self._zone = blueprint.rollout.node.zone or self.imported("zone")
        template = self._template(place)
        group = aws_autoscaling.CfnAutoScalingGroup(
            self,
            GROUP,
            min_size=str(count),
            max_size=str(count),
            desired_capacity=str(count),
            vpc_zone_identifier=place.subnets,
            health_check_type="EC2",
            health_check_grace_period=GRACE_S,
            launch_template={
                "launchTemplateId": template.ref,
                "version": template.attr_latest_version_number,
            },
        )
        wait_for_answers(group, count)
        if (ends_on := blueprint.rollout.ends_on) is not None:
            self._end(group, f"{ends_on.isoformat()}T00:00:00Z")
        excuse(
            group,
            "a node that fails is replaced and clients reach the other; nobody has to be told",
            nag=("AwsSolutions-AS3",),
        )

    def _end(self, group: aws_autoscaling.CfnAutoScalingGroup, at: str) -> None:
        """No node from then on; the function `orphans` ends the instances.

        With another end the group's tag changes, and so CloudFormation sets its size again, also after the end.
        """
        group.tags.set_tag(ENDS, at)
        aws_autoscaling.CfnScheduledAction(
            self,
            "End",
            auto_scaling_group_name=group.ref,
            start_time=at,
            min_size=0,
            max_size=0,
            desired_capacity=0,
        )

    def _template(self, place: Place) -> aws_ec2.CfnLaunchTemplate:
        blueprint = self.blueprint
        node = blueprint.rollout.node
        assert node.name, "checked before the app runs"
        start = NodeStart(
            image=blueprint.image,
            store_image=node.store_image,
            region=Aws.REGION,
            logs={
                process: blueprint.log("gateway" if process == "store" else process) for process in NODE_PROCESSES
            },
            service=blueprint.service,
            secrets={
                "MARK_STORE_URL": blueprint.name(store_secret(StoreUser.CONTROLLER)),
                "MARK_TOKEN": blueprint.name(TOKEN),
                **blueprint.collector_secrets,
            },
            forms=store_forms(blueprint, StoreUser.CONTROLLER),
            agents_secret=blueprint.name(store_secret(StoreUser.AGENT)),
            certificate=node.certificate or "",
            name=node.name,
            environment={
                **controller_environment(self, place),
                **blueprint.gateway_variables,
                "MARK_PORT": str(HTTPS),
                "MARK_ZONE": self._zone,
                "MARK_HOST": node.name,
                **({"MARK_SNAPSHOT": "1"} if blueprint.mails else {}),
                **({"MARK_PUBLIC": "1"} if blueprint.rollout.gateway.scheme == "internet-facing" else {}),
            },
            store_port=STORE_PORT,
            signals=(blueprint.name("nodes"), GROUP),
            answers=f"https://localhost{LIVE}",
        )
        return make_template(
            self,
            TemplateSpec(
                name=blueprint.name("node"),
                disk_gib=node.disk_gib or 0,
                root_device=node.root_device,
                tagged=("instance", "volume", "network-interface"),
            ),
            image=image_of(self, node.machine),
            profile=self._profile(node.certificate),
            group=self.imported("nodes-group"),
            start=start,
            more={"instanceType": node.instance_type},
        )

    def _profile(self, certificate: str | None) -> aws_iam.CfnInstanceProfile:
        """All that a gateway, a controller and their start may do."""
        blueprint, reads = self.blueprint, ("secretsmanager:GetSecretValue",)
        bucket = self.imported("bucket")
        store, agents = (secret_arn(self, store_secret(user)) for user in (StoreUser.CONTROLLER, StoreUser.AGENT))
        names = names_of(self, secret=store, bucket=bucket, zone=self._zone)
        logs = tuple(names.arn("logs", f"log-group:{blueprint.log(name)}:*") for name in ("controller", "gateway"))
        stack = names.arn("cloudformation", f"stack/{blueprint.name('nodes')}/*")
        may = (
            *of_roles(names, *PROCESSES["node"]),
            *of_images(names, [blueprint.image]),
            allow("Log", ("logs:CreateLogStream", "logs:PutLogEvents"), logs, why="what its processes say"),
            allow("Secrets", reads, (store, agents), why="the store's users"),
            allow("Answers", ("cloudformation:SignalResource",), (stack,), why="an update waits for it"),
        )
        if certificate:
            may = (*may, allow("Certificate", reads, (certificate,), why="the certificate that clients see"))
        if blueprint.collector_secret:
            may = (*may, reads_collector(blueprint))
        name = blueprint.name("node")
        taken = make_role(self, "NodeRole", service="ec2", may=may, name=name)
        return aws_iam.CfnInstanceProfile(self, "NodeProfile", instance_profile_name=name, roles=[taken.ref])
