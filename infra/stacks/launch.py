"""What instances start from: launch templates and security groups. This stack is also made on the emulated AWS.

Controllers launch from `mark-SERVICE-ROLE` (the first kind of machine) and `mark-SERVICE-ROLE-KIND` (the others),
always from the latest version: CloudFormation never moves a template's default version.
"""

from __future__ import annotations

from typing import Any

from aws_cdk import Aws, CfnParameter, Fn, aws_ec2, aws_iam
from constructs import Construct

from infra.blueprint import Blueprint
from infra.roles import STORE, TOKEN, allow, make_role, names_of, of_images, of_roles, secret_arn
from infra.stack import ServiceStack, excuse
from infra.stacks.network import Place
from infra.user_data import Start, start_script
from mark.app.setting_rollout import MachineSettings
from mark.aws.names import template_name
from mark.domain.fleet import Role

HTTPS, STORE_PORT, GATEWAY_PORT, AGENT_PORTS = 443, 6379, 8080, (8000, 8001)
"""An agent's ports: HTTP for whoever watches, frames for gateways."""
LATEST_IMAGE = {
    "amd64": "/aws/service/ecs/optimized-ami/amazon-linux-2023/recommended/image_id",
    "arm64": "/aws/service/ecs/optimized-ami/amazon-linux-2023/arm64/recommended/image_id",
    "amd64-nvidia": "/aws/service/ecs/optimized-ami/amazon-linux-2023/gpu/recommended/image_id",
    "arm64-nvidia": "/aws/service/ecs/optimized-ami/amazon-linux-2023/arm64/gpu/recommended/image_id",
}
"""Where AWS publishes its newest image with Docker, by kind of machine (ECS developer guide)."""


class LaunchStack(ServiceStack):
    """Groups, the instances' roles, and the launch templates of instances and gateways."""

    def __init__(self, scope: Construct, *, blueprint: Blueprint) -> None:
        super().__init__(scope, "launch", blueprint=blueprint, about="how its instances start")
        self._place = Place(self)
        self._groups()
        agent, gateway = self._profile("agent"), self._profile("gateway")
        images = {machine.name: self._image(machine) for machine in blueprint.rollout.machines}
        for machine in blueprint.rollout.machines:
            for role in Role:
                self._template(machine, role, images[machine.name], agent)
        self._gateway_template(images[blueprint.first_machine.name], gateway)

    # Groups.

    def _groups(self) -> None:
        """Clients -> balancer -> gateways -> agents; all but clients -> store (its stack)."""
        cidr, clients = self._place.cidr, self.blueprint.rollout.gateway.clients
        out = [_rule("tcp", HTTPS, cidr="0.0.0.0/0", why="AWS"), _rule("tcp", STORE_PORT, cidr=cidr, why="store")]
        balancer = self._group(
            "balancer",
            "clients of the gateways",
            ingress=[_rule("tcp", HTTPS, cidr=client, why="clients") for client in clients or (cidr,)],
            egress=[_rule("tcp", GATEWAY_PORT, cidr=cidr, why="gateways")],
        )
        gateways = self._group(
            "gateways",
            "gateways",
            ingress=[_rule("tcp", GATEWAY_PORT, group=balancer.attr_group_id, why="the load balancer")],
            egress=[*out, *(_rule("tcp", port, cidr=cidr, why="agents") for port in AGENT_PORTS)],
        )
        reach = [_rule("tcp", port, group=gateways.attr_group_id, why="gateways") for port in AGENT_PORTS]
        self._group("agents", "instances that serve models", ingress=reach, egress=out)
        self._group("controllers", "controllers", ingress=[], egress=out)

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
        if name == "balancer" and "0.0.0.0/0" in self.blueprint.rollout.gateway.clients:
            excuse(group, "rollout.gateway.clients asks for a public service", nag=("AwsSolutions-EC23",))
        self.publish(f"{name}-group", group.attr_group_id)
        return group

    # Roles.

    def _profile(self, role: str) -> aws_iam.CfnInstanceProfile:
        blueprint, rollout = self.blueprint, self.blueprint.rollout
        is_agent = role == "agent"
        bucket = self.told("bucket") if is_agent and rollout.bundle else ""
        names = names_of(self, secret=secret_arn(self, STORE), bucket=bucket)
        images = [blueprint.image, *([rollout.model_image] if is_agent and rollout.model_image else [])]
        may = [*of_roles(names, *(("agent",) if is_agent else ("gateway", "agent"))), *of_images(names, images)]
        if not is_agent:
            token, reads = secret_arn(self, TOKEN), ("secretsmanager:GetSecretValue",)
            may.append(allow("TokenSecret", reads, (token,), why="what clients must send"))
        name = blueprint.name(role)
        taken = make_role(self, f"{role.capitalize()}Role", service="ec2", may=may, name=name)
        return aws_iam.CfnInstanceProfile(
            self, f"{role.capitalize()}Profile", instance_profile_name=name, roles=[taken.ref]
        )

    # Templates.

    def _image(self, machine: MachineSettings) -> str:
        if machine.ami:
            return machine.ami
        parameter = CfnParameter(
            self,
            "Image" + "".join(part.capitalize() for part in machine.name.split("-")),
            type="AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>",
            default=LATEST_IMAGE[machine.name],
            description="Where AWS publishes its newest image for containers",
        )
        return parameter.value_as_string

    def _template(
        self, machine: MachineSettings, role: Role, image: str, profile: aws_iam.CfnInstanceProfile
    ) -> None:
        rollout, first = self.blueprint.rollout, machine == self.blueprint.first_machine
        start = Start(
            process="agent",
            image=self.blueprint.image,
            region=Aws.REGION,
            secrets={"MARK_STORE_URL": self.blueprint.name(STORE)},
            environment={"MARK_SERVICE": self.blueprint.service},
            gpu=bool(machine.accelerator),
            model_image=rollout.model_image or "",
            bundle=f"s3://{self.told('bucket')}/{rollout.bundle}" if rollout.bundle else "",
            powers_off=True,
        )
        shutdown = "stop" if role is Role.STANDBY else "terminate"
        name = template_name(self.blueprint.service, role, "" if first else machine.name)
        group = Fn.get_att("AgentsGroup", "GroupId").to_string()
        self._make(name, machine, image, profile, start, group, {"instanceInitiatedShutdownBehavior": shutdown})

    def _gateway_template(self, image: str, profile: aws_iam.CfnInstanceProfile) -> None:
        blueprint = self.blueprint
        start = Start(
            process="gateway",
            image=blueprint.image,
            region=Aws.REGION,
            secrets={"MARK_STORE_URL": blueprint.name(STORE), "MARK_TOKEN": blueprint.name(TOKEN)},
            environment={"MARK_SETTINGS": blueprint.processes, "MARK_SERVICE": blueprint.service},
        )
        kind = {"instanceType": blueprint.rollout.gateway.instance_type}
        group = Fn.get_att("GatewaysGroup", "GroupId").to_string()
        name = blueprint.name("gateway")
        self._make(name, blueprint.first_machine, image, profile, start, group, kind)
        self.publish("gateway-template", Fn.ref(_id(name)))
        self.publish("gateway-template-version", Fn.get_att(_id(name), "LatestVersionNumber").to_string())

    def _make(
        self,
        name: str,
        machine: MachineSettings,
        image: str,
        profile: aws_iam.CfnInstanceProfile,
        start: Start,
        group: str,
        more: dict[str, Any],
    ) -> None:
        tagged = ("volume",) if start.process == "agent" else ("instance", "volume", "network-interface")
        data = {
            "imageId": image,
            "userData": Fn.base64(start_script(start)),
            "metadataOptions": {
                "httpEndpoint": "enabled",
                "httpTokens": "required",
                "httpPutResponseHopLimit": 1,
                "instanceMetadataTags": "enabled",
            },
            "iamInstanceProfile": {"name": profile.ref},
            "securityGroupIds": [group],
            "blockDeviceMappings": [
                {
                    "deviceName": "/dev/xvda",
                    "ebs": {"volumeSize": machine.disk_gib, "volumeType": "gp3", "encrypted": True},
                }
            ],
            "tagSpecifications": [{"resourceType": kind, "tags": self.tags_list()} for kind in tagged],
            **more,
        }
        aws_ec2.CfnLaunchTemplate(
            self,
            _id(name),
            launch_template_name=name,
            launch_template_data=data,
            tag_specifications=[{"resourceType": "launch-template", "tags": self.tags_list()}],
        )


def _id(name: str) -> str:
    return "Template" + "".join(part.capitalize() for part in name.split("-"))


def _rule(protocol: str, port: int, *, why: str, cidr: str = "", group: str = "") -> dict[str, Any]:
    where = {"cidrIp": cidr} if cidr else {"sourceSecurityGroupId": group}
    return {"ipProtocol": protocol, "fromPort": port, "toPort": port, "description": why, **where}
