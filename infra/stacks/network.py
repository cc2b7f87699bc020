"""A network of the service's own: a subnet in each zone, no NAT gateway.

Public (the default): instances have an address and reach AWS directly; security groups let nobody in from outside.
IPv6: instances reach AWS by IPv6, through a gateway that lets nobody in; the rest is as in a public network.
Private: no way out; AWS's services are reached through endpoints.
"""

from __future__ import annotations

from aws_cdk import Fn, aws_ec2
from constructs import Construct

from mark.config.rollout import endpoint_services
from mark.infra.blueprint import Blueprint
from mark.infra.stack import ServiceStack, excuse


class NetworkStack(ServiceStack):
    """VPC, subnets, routes and endpoints; absent where the settings name a network that is there."""

    def __init__(self, scope: Construct, *, blueprint: Blueprint) -> None:
        super().__init__(scope, "network", blueprint=blueprint, about="its network")
        network = blueprint.rollout.network
        vpc = aws_ec2.CfnVPC(
            self, "Vpc", cidr_block=network.cidr, enable_dns_hostnames=True, enable_dns_support=True
        )
        excuse(
            vpc,
            "flow logs cost by the gigabyte of inference traffic; switch them on where your audit asks for them",
            nag=("AwsSolutions-VPC7",),
        )
        routes = aws_ec2.CfnRouteTable(self, "Routes", vpc_id=vpc.ref)
        subnets = [self._subnet(zone, number, vpc.ref, routes.ref) for number, zone in enumerate(blueprint.zones)]
        for name, service in (("S3", "s3"), *([("DynamoDb", "dynamodb")] if network.egress == "ipv6" else [])):
            aws_ec2.CfnVPCEndpoint(
                self,
                name,
                service_name=f"com.amazonaws.{self.region}.{service}",
                vpc_id=vpc.ref,
                route_table_ids=[routes.ref],
                vpc_endpoint_type="Gateway",
            )
        if network.egress == "ipv6":
            self._dual_stack(vpc, routes.ref, subnets)
        every = [subnet.ref for subnet in subnets]
        if not network.private:
            self._way_out(vpc.ref, routes.ref)
        # by their names all zones reach them: with one zone's, its loss would keep the others from starting
        self._endpoints(endpoint_services(blueprint.rollout), vpc.ref, every)
        self.publish("vpc", vpc.ref)
        for number, subnet in enumerate(subnets):
            self.publish(f"subnet-{number}", subnet.ref)

    def _subnet(self, zone: str, number: int, vpc: str, routes: str) -> aws_ec2.CfnSubnet:
        public = not self.blueprint.rollout.network.private
        subnet = aws_ec2.CfnSubnet(
            self,
            f"Subnet{number}",
            vpc_id=vpc,
            availability_zone=zone,
            cidr_block=self.blueprint.subnet_cidrs[number],
            map_public_ip_on_launch=public,
        )
        excuse(
            subnet,
            "the zone is a setting: each subnet stands in its own",
            nag=("CloudFormation-Validate::W3010",),
        )
        aws_ec2.CfnSubnetRouteTableAssociation(
            self, f"Subnet{number}Routes", subnet_id=subnet.ref, route_table_id=routes
        )
        return subnet

    def _dual_stack(self, vpc: aws_ec2.CfnVPC, routes: str, subnets: list[aws_ec2.CfnSubnet]) -> None:
        """IPv6 for the subnets that are there, and a way out by it alone."""
        block = aws_ec2.CfnVPCCidrBlock(self, "Ipv6", vpc_id=vpc.ref, amazon_provided_ipv6_cidr_block=True)
        parts = Fn.cidr(Fn.select(0, vpc.attr_ipv6_cidr_blocks), len(subnets), "64")
        for number, subnet in enumerate(subnets):
            part = aws_ec2.CfnSubnetCidrBlock(
                self, f"Subnet{number}Ipv6", subnet_id=subnet.ref, ipv6_cidr_block=Fn.select(number, parts)
            )
            part.add_resource_dependency(block)
        gateway = aws_ec2.CfnEgressOnlyInternetGateway(self, "EgressOnly", vpc_id=vpc.ref)
        route = aws_ec2.CfnRoute(
            self,
            "WayOutIpv6",
            route_table_id=routes,
            destination_ipv6_cidr_block="::/0",
            egress_only_internet_gateway_id=gateway.ref,
        )
        route.add_resource_dependency(block)

    def _way_out(self, vpc: str, routes: str) -> None:
        gateway = aws_ec2.CfnInternetGateway(self, "InternetGateway")
        attached = aws_ec2.CfnVPCGatewayAttachment(
            self, "InternetGatewayAttachment", vpc_id=vpc, internet_gateway_id=gateway.ref
        )
        route = aws_ec2.CfnRoute(
            self, "WayOut", route_table_id=routes, destination_cidr_block="0.0.0.0/0", gateway_id=gateway.ref
        )
        route.add_resource_dependency(attached)

    def _endpoints(self, services: tuple[str, ...], vpc: str, subnets: list[str]) -> None:
        if not services:
            return
        cidr = self.blueprint.rollout.network.cidr
        group = aws_ec2.CfnSecurityGroup(
            self,
            "EndpointGroup",
            group_description="AWS endpoints: HTTPS from the network",
            vpc_id=vpc,
            security_group_ingress=[
                {"ipProtocol": "tcp", "fromPort": 443, "toPort": 443, "cidrIp": cidr, "description": "the network"}
            ],
            security_group_egress=[
                {"ipProtocol": "tcp", "fromPort": 443, "toPort": 443, "cidrIp": cidr, "description": "the network"}
            ],
        )
        for name in services:
            aws_ec2.CfnVPCEndpoint(
                self,
                "".join(part.capitalize() for part in name.split(".")),
                service_name=f"com.amazonaws.{self.region}.{name}",
                vpc_id=vpc,
                subnet_ids=subnets,
                security_group_ids=[group.attr_group_id],
                private_dns_enabled=True,
                vpc_endpoint_type="Interface",
            )


class Place:
    """Network placement of the other stacks: the network's values, made here or given."""

    def __init__(self, stack: ServiceStack) -> None:
        network = stack.blueprint.rollout.network
        given = network.vpc is not None
        self.vpc = network.vpc or stack.imported("vpc")
        self.subnets = (
            list(network.subnets)
            if given
            else [stack.imported(f"subnet-{number}") for number in range(len(stack.blueprint.zones))]
        )
        self.cidr = network.cidr
