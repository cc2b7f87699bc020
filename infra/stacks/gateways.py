"""Gateways: an Auto Scaling group behind a network load balancer, which ends TLS."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import (
    Aws,
    CfnAutoScalingRollingUpdate,
    CfnCreationPolicy,
    CfnResourceSignal,
    CfnUpdatePolicy,
    aws_autoscaling,
    aws_ec2,
    aws_elasticloadbalancingv2,
)
from constructs import Construct

from mark.aws.resources import TemplateSpec
from mark.infra.blueprint import Blueprint
from mark.infra.roles import TOKEN, store_secret
from mark.infra.stack import ServiceStack, excuse
from mark.infra.stacks.launch import GATEWAY_PORT, HTTPS
from mark.infra.stacks.network import Place
from mark.infra.templates import image_of, make_profile, make_template
from mark.infra.user_data import Start
from mark.store.users import StoreUser

SIGNAL_MIN = 15
"""Minutes that a deployment waits for a new gateway's word that it answers; then it is taken back."""
GRACE_S = 60 * SIGNAL_MIN
"""Time of a new gateway for its boot, the pull of its image included, before it counts as unhealthy: a group that
ended it earlier would boot for ever."""
GROUP, LIVE = "Gateways", "/v2/health/live"
"""The group in the template, and what answers wherever a gateway serves, even with no instance behind it."""
TLS = "ELBSecurityPolicy-TLS13-1-2-2021-06"


def wait_for_answers(group: aws_autoscaling.CfnAutoScalingGroup, count: int) -> None:
    """Let a deployment wait for the signals of the group's machines: all when it is made, one by one later.

    A single machine is replaced in place: a new account's 5 vCPUs have no room for a second beside the fleet.
    """
    group.max_size = str(count + (count > 1))
    signals = CfnResourceSignal(count=count, timeout=f"PT{SIGNAL_MIN}M")
    group.cfn_options.creation_policy = CfnCreationPolicy(resource_signal=signals)
    group.cfn_options.update_policy = CfnUpdatePolicy(
        auto_scaling_rolling_update=CfnAutoScalingRollingUpdate(
            max_batch_size=1,
            min_instances_in_service=count if count > 1 else 0,
            min_successful_instances_percent=100,
            pause_time=f"PT{SIGNAL_MIN}M",
            suspend_processes=["AZRebalance", "ReplaceUnhealthy"],
            wait_on_resource_signals=True,
        )
    )


class GatewaysStack(ServiceStack):
    """Load balancer, its target group and listener, and the group of gateways."""

    def __init__(self, scope: Construct, *, blueprint: Blueprint) -> None:
        super().__init__(scope, "gateways", blueprint=blueprint, about="where clients call")
        place = Place(self)
        balancer = self._balancer(place)
        targets = [self._behind(place, balancer, "", HTTPS, GATEWAY_PORT)]
        if (port := blueprint.grpc_port) is not None:
            targets.append(self._behind(place, balancer, "Grpc", port, port, alpn=["HTTP2Only"]))
        self._group(place, targets)
        self.publish("address", balancer.attr_dns_name)
        self.publish("balancer-name", balancer.attr_load_balancer_full_name)
        self.publish("targets-name", targets[0].attr_target_group_full_name)

    def _behind(
        self,
        place: Place,
        balancer: aws_elasticloadbalancingv2.CfnLoadBalancer,
        name: str,
        port: int,
        target_port: int,
        *,
        alpn: list[str] | None = None,
    ) -> aws_elasticloadbalancingv2.CfnTargetGroup:
        """The gateways' port behind one of the balancer's. alpn: protocols that TLS offers clients."""
        targets = self._targets(place, f"{name}Targets", target_port)
        aws_elasticloadbalancingv2.CfnListener(
            self,
            f"{name}Listener",
            load_balancer_arn=balancer.ref,
            port=port,
            protocol="TLS",
            ssl_policy=TLS,
            alpn_policy=alpn,
            certificates=[{"certificateArn": self.blueprint.rollout.certificate}],
            default_actions=[{"type": "forward", "targetGroupArn": targets.ref}],
        )
        return targets

    def _group(self, place: Place, targets: Sequence[aws_elasticloadbalancingv2.CfnTargetGroup]) -> None:
        """Auto Scaling group of the gateways; an update replaces one by one, each when its new one answers."""
        count, template = self.blueprint.gateways, self._template()
        group = aws_autoscaling.CfnAutoScalingGroup(
            self,
            GROUP,
            min_size=str(count),
            max_size=str(count),
            desired_capacity=str(count),
            vpc_zone_identifier=place.subnets,
            health_check_type="ELB",
            health_check_grace_period=GRACE_S,
            launch_template={
                "launchTemplateId": template.ref,
                "version": template.attr_latest_version_number,
            },
            target_group_arns=[one.ref for one in targets],
        )
        wait_for_answers(group, count)
        excuse(
            group,
            "a gateway that fails is replaced and clients reach the other; nobody has to be told",
            nag=("AwsSolutions-AS3",),
        )

    def _template(self) -> aws_ec2.CfnLaunchTemplate:
        blueprint = self.blueprint
        start = Start(
            process="gateway",
            image=blueprint.image,
            region=Aws.REGION,
            log=blueprint.log("gateway"),
            secrets={
                "MARK_STORE_URL": blueprint.name(store_secret(StoreUser.GATEWAY)),
                "MARK_TOKEN": blueprint.name(TOKEN),
                **blueprint.collector_secrets,
            },
            environment={**blueprint.gateway_variables, "AWS_REGION": Aws.REGION},
            signals=(blueprint.name("gateways"), GROUP),
            answers=f"http://localhost:{GATEWAY_PORT}{LIVE}",
        )
        return make_template(
            self,
            TemplateSpec(
                name=blueprint.name("gateway"),
                disk_gib=blueprint.machine.disk_gib or 0,
                root_device=blueprint.machine.root_device,
                tagged=("instance", "volume", "network-interface"),
            ),
            image=image_of(self, blueprint.machine),
            profile=make_profile(self, "gateway"),
            group=self.imported("gateways-group"),
            start=start,
            more={"instanceType": blueprint.rollout.gateway.instance_type},
        )

    def _balancer(self, place: Place) -> aws_elasticloadbalancingv2.CfnLoadBalancer:
        crosses = self.blueprint.gateways < len(self.blueprint.zones)  # as `Footprint.crosses_to_gateways`
        balancer = aws_elasticloadbalancingv2.CfnLoadBalancer(
            self,
            "Balancer",
            type="network",
            scheme=self.blueprint.rollout.gateway.scheme,
            subnets=place.subnets,
            security_groups=[self.imported("balancer-group")],
            load_balancer_attributes=[{"key": "load_balancing.cross_zone.enabled", "value": str(crosses).lower()}],
        )
        excuse(
            balancer,
            "gateways count every request; access logs of a load balancer would be billed by the request",
            nag=("AwsSolutions-ELB2",),
            checkov=("CKV_AWS_91",),
        )
        return balancer

    def _targets(self, place: Place, name: str, port: int) -> aws_elasticloadbalancingv2.CfnTargetGroup:
        return aws_elasticloadbalancingv2.CfnTargetGroup(
            self,
            name,
            vpc_id=place.vpc,
            port=port,
            protocol="TCP",
            target_type="instance",
            health_check_protocol="HTTP",
            health_check_path=LIVE,
            health_check_port=str(GATEWAY_PORT) if port != GATEWAY_PORT else None,
            health_check_interval_seconds=10,
            healthy_threshold_count=2,
            unhealthy_threshold_count=2,
            target_group_attributes=[{"key": "deregistration_delay.timeout_seconds", "value": "30"}],
        )
