"""Controllers on ECS Fargate: one acts, the others wait for its lease. A new one starts before an old one ends."""

from __future__ import annotations

from typing import Any

from aws_cdk import Aws, aws_ecs, aws_iam
from constructs import Construct

from mark.infra.blueprint import Blueprint
from mark.infra.roles import LIVE, allow, make_role, names_of, of_images, of_roles
from mark.infra.stack import ServiceStack, compact, excuse
from mark.infra.stacks.network import Place
from mark.infra.user_data import MODULES, SCRATCH

STOP_S = 60
"""Longer than a controller needs to end its term."""


class ControlStack(ServiceStack):
    """Cluster, task and service of the controllers, and their roles."""

    def __init__(self, scope: Construct, *, blueprint: Blueprint) -> None:
        super().__init__(scope, "control", blueprint=blueprint, about="its controllers")
        place = Place(self)
        cluster = aws_ecs.CfnCluster(
            self,
            "Cluster",
            cluster_name=blueprint.name("control"),
            cluster_settings=[{"name": "containerInsights", "value": "enabled"}],
        )
        task = self._task(place)
        aws_ecs.CfnService(
            self,
            "Controllers",
            cluster=cluster.ref,
            service_name=blueprint.name("controllers"),
            task_definition=task.ref,
            desired_count=blueprint.controllers,
            launch_type="FARGATE",
            platform_version="LATEST",
            deployment_configuration={
                "minimumHealthyPercent": 50,
                "maximumPercent": 200,
                "deploymentCircuitBreaker": {"enable": True, "rollback": True},
            },
            network_configuration={
                "awsvpcConfiguration": {
                    "subnets": place.subnets,
                    "securityGroups": [self.imported("controllers-group")],
                    "assignPublicIp": "DISABLED" if blueprint.rollout.network.private else "ENABLED",
                }
            },
            propagate_tags="SERVICE",
            enable_ecs_managed_tags=True,
        )

    def _task(self, place: Place) -> aws_ecs.CfnTaskDefinition:
        blueprint, control = self.blueprint, self.blueprint.rollout.control
        calls = of_roles(names_of(self, bucket=self.imported("bucket")), "controller")
        role = make_role(
            self,
            "ControllerRole",
            service="ecs-tasks",
            may=calls,
            name=blueprint.name("controller"),
        )
        task = aws_ecs.CfnTaskDefinition(
            self,
            "Controller",
            family=blueprint.name("controller"),
            cpu=str(control.cpu),
            memory=str(control.memory_mib),
            network_mode="awsvpc",
            requires_compatibilities=["FARGATE"],
            runtime_platform={
                "cpuArchitecture": "ARM64" if blueprint.machine.architecture == "arm64" else "X86_64",
                "operatingSystemFamily": "LINUX",
            },
            task_role_arn=role.attr_arn,
            execution_role_arn=self._execution_role().attr_arn,
            volumes=[{"name": "scratch"}],
            container_definitions=[self._container(place)],
        )
        excuse(
            task,
            "the settings are no secret: the store's URL is, and comes from Secrets Manager",
            nag=("AwsSolutions-ECS2",),
        )
        return task

    def _execution_role(self) -> aws_iam.CfnRole:
        names = names_of(self)
        log = names.arn("logs", f"log-group:{self.blueprint.log('controller')}:*")
        starts = (
            *of_images(names, [self.blueprint.image]),
            allow("Logs", ("logs:CreateLogStream", "logs:PutLogEvents"), (log,), why="the controllers' own log"),
            allow(
                "StoreSecret",
                ("secretsmanager:GetSecretValue",),
                (self.imported("controller-secret"),),
                why="the store's password",
            ),
        )
        name = self.blueprint.name("start")
        return make_role(self, "StartRole", service="ecs-tasks", may=starts, name=name)

    def _container(self, place: Place) -> dict[str, Any]:
        environment, blueprint = controller_environment(self, place), self.blueprint
        return {
            "name": "controller",
            "image": blueprint.image,
            "command": ["python", "-m", MODULES["controller"]],
            "essential": True,
            "readonlyRootFilesystem": True,
            "mountPoints": [{"sourceVolume": "scratch", "containerPath": SCRATCH, "readOnly": False}],
            "environment": [{"name": name, "value": value} for name, value in sorted(environment.items())],
            "secrets": [{"name": "MARK_STORE_URL", "valueFrom": self.imported("controller-secret")}],
            "stopTimeout": STOP_S,
            "logConfiguration": {
                "logDriver": "awslogs",
                "options": {
                    "awslogs-group": blueprint.log("controller"),
                    "awslogs-region": Aws.REGION,
                    "awslogs-stream-prefix": "controller",
                },
            },
        }


def controller_environment(stack: ServiceStack, place: Place) -> dict[str, str]:
    """Environment that mark/live/processes/cloud_controller.py reads."""
    blueprint, warm = stack.blueprint, stack.blueprint.rollout.functions.provisioned
    templates = {
        f"{role.value}/{machine}": template.name
        for (role, machine), template in blueprint.resources.templates.items()
    }
    subnets = ",".join(
        f'["{zone}","{subnet}"]' for zone, subnet in zip(blueprint.zones, place.subnets, strict=True)
    )
    return {
        "MARK_SERVICE": blueprint.service,
        **blueprint.settings_variables,
        "MARK_EVENTS_URL": stack.imported("events-url"),
        "MARK_BUCKET": stack.imported("bucket"),
        "MARK_TEMPLATES": compact(templates),
        "MARK_SUBNETS": f"[{subnets}]",
        "MARK_OWNER": blueprint.rollout.owner,
        **({"MARK_TAGS": compact(blueprint.rollout.tags)} if blueprint.rollout.tags else {}),
        "MARK_VERSION": blueprint.rollout.agent_version,
        **({"MARK_VERSIONS": compact(blueprint.versions)} if blueprint.versions else {}),
        **({"MARK_QUALIFIER": LIVE, "MARK_PROVISIONED": str(warm)} if warm else {}),
        "MARK_CACHE": f"{SCRATCH}/mark",
        "TMPDIR": SCRATCH,
        "AWS_REGION": Aws.REGION,
    }
