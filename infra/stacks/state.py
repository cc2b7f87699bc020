"""The store that all processes share: ElastiCache with TLS and a password; and the token that clients must send.

In the lean shape the nodes hold the store (`nodes.py`), and here are the table of the lease and the hosted zone.

Each role is a user of the store (`mark.store.users`) with a password of its own, in a secret that no other role
reads and no template holds: as part of the store's URL, or alone where the start script knows the rest of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from aws_cdk import aws_dynamodb, aws_ec2, aws_elasticache, aws_route53, aws_secretsmanager
from constructs import Construct

from mark.aws.names import LEASE
from mark.infra.blueprint import Blueprint
from mark.infra.roles import STORE, TOKEN, store_secret
from mark.infra.stack import ServiceStack, excuse, words
from mark.infra.stacks.launch import STORE_PORT
from mark.infra.stacks.network import Place
from mark.store.users import PROCESSES, StoreUser, rules_of

CLIENTS = ("agents", "controllers", "gateways", "reports")
ENGINES = {"valkey": ("8.0", "valkey8"), "redis": ("7.1", "redis7")}
"""Version, and the family of parameters that it has."""
NOTHING_EVICTED = {"maxmemory-policy": "noeviction"}
"""ElastiCache would evict what has a time to live: the controllers' lease first. A store that is full says so."""
PASSWORD_LENGTH = 64
LONGEST_ID = 40
"""Of a replication group, and of a user of ElastiCache."""
NODES_USERS = (StoreUser.AGENT, StoreUser.CONTROLLER)
"""Users with a secret in the lean shape: what else runs on a node has what the node makes of the controller's."""
NO_ROTATION = "`mark rotate` replaces the token and, on nodes, the agents' password; the others, it says why not"
OWN_KEY = "the account's own key of Secrets Manager encrypts it; only roles of the service may read it"


def store_id(blueprint: Blueprint) -> str:
    """The replication group's id; its nodes are `ID-001` and so on."""
    return blueprint.name(STORE)[:LONGEST_ID].rstrip("-")


def short_id(name: str) -> str:
    """A user's id: its name, cut where that is too long, and told apart by a hash."""
    if len(name) <= LONGEST_ID:
        return name
    return f"{name[: LONGEST_ID - 9].rstrip('-')}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


class StateStack(ServiceStack):
    """Replication group, its group and subnets, and the secrets."""

    def __init__(self, scope: Construct, *, blueprint: Blueprint) -> None:
        super().__init__(scope, "state", blueprint=blueprint, about="what its processes share")
        self._generated("Token", blueprint.name(TOKEN), "bearer token of the service's clients")
        if blueprint.lean:
            self._lease_table()
            self._zone()
            for user in NODES_USERS:
                self._generated(
                    words(user), blueprint.name(store_secret(user)), f"password of {user} at the store"
                )
            return
        numbers = blueprint.rollout.store.valid_passwords
        passwords = {user: [self._password(user, number) for number in numbers] for user in PROCESSES}
        users = self._users(passwords)
        host = self._replication_group(users).attr_primary_end_point_address
        for user, (password, *_) in passwords.items():
            secret = aws_secretsmanager.CfnSecret(
                self,
                f"Url{words(user)}",
                name=blueprint.name(store_secret(user)),
                description=f"URL of the store for {user}",
                secret_string=f"rediss://{user.value}:{password}@{host}:{STORE_PORT}",
            )
            secret.add_dependency(users)  # no process reads a password that the store does not take yet
            _excuse_secret(secret)
            self.publish(f"{user.value}-secret", secret.ref)

    def _password(self, user: StoreUser, number: int) -> str:
        """A reference to a password of the user's, which no template holds."""
        name = self.blueprint.name(f"password-{user.value}" + (f"-{number}" if number > 1 else ""))
        id_ = f"Password{words(user)}{number if number > 1 else ''}"
        secret = self._generated(id_, name, f"password of {user} at the store")
        return f"{{{{resolve:secretsmanager:{secret.ref}:SecretString}}}}"

    def _users(self, passwords: Mapping[StoreUser, list[str]]) -> aws_elasticache.CfnUserGroup:
        """A user for each role, and a default one that ElastiCache asks for and that can do nothing."""
        engine, service = self.blueprint.rollout.store.engine, self.blueprint.service
        asked = {user.value: (rules_of(user, service), valid) for user, valid in passwords.items()}
        asked["default"] = ("off -@all", passwords[StoreUser.CONTROLLER])
        users = [
            aws_elasticache.CfnUser(
                self,
                f"User{words(name)}",
                engine=engine,
                user_id=short_id(self.blueprint.name(name)),
                user_name=name,
                access_string=rules,
                passwords=valid,
            )
            for name, (rules, valid) in asked.items()
        ]
        return aws_elasticache.CfnUserGroup(
            self,
            "Users",
            engine=engine,
            user_group_id=store_id(self.blueprint),
            user_ids=[user.ref for user in users],
        )

    def _lease_table(self) -> str:
        """Table of the controllers' lease and the journals' tail; its name."""
        name = self.blueprint.name(LEASE)
        keys = (("part", "HASH"), ("place", "RANGE"))
        table = aws_dynamodb.CfnTable(
            self,
            "Lease",
            table_name=name,
            billing_mode="PAY_PER_REQUEST",
            attribute_definitions=[{"attributeName": key, "attributeType": "S"} for key, _ in keys],
            key_schema=[{"attributeName": key, "keyType": kind} for key, kind in keys],
            time_to_live_specification={"attributeName": "expires", "enabled": True},
            sse_specification={"sseEnabled": False},
        )
        excuse(
            table,
            "what it holds is gone within two days, and the stores and the bucket have the rest",
            nag=("AwsSolutions-DDB3",),
            checkov=("CKV_AWS_28",),
        )
        excuse(table, "DynamoDB encrypts it with a key of its own; another is billed", checkov=("CKV_AWS_119",))
        return name

    def _zone(self) -> None:
        """The hosted zone of the clients' name: one of the network's own, where none is given."""
        node = self.blueprint.rollout.node
        if node.zone:
            return
        place = Place(self)
        zone = aws_route53.CfnHostedZone(
            self,
            "Zone",
            name=f"{node.name}.",
            vpcs=[{"vpcId": place.vpc, "vpcRegion": self.region}],
        )
        self.publish("zone", zone.attr_id)

    def _generated(self, id_: str, name: str | None, about: str) -> aws_secretsmanager.CfnSecret:
        secret = aws_secretsmanager.CfnSecret(
            self,
            id_,
            name=name,
            description=about,
            generate_secret_string={"passwordLength": PASSWORD_LENGTH, "excludePunctuation": True},
        )
        _excuse_secret(secret)
        return secret

    def _reach(self, place: Place) -> aws_ec2.CfnSecurityGroup:
        """Processes of the service reach the store, nobody else does."""
        return aws_ec2.CfnSecurityGroup(
            self,
            "StoreGroup",
            group_description=f"MArk {self.blueprint.service}: store, from its processes alone",
            vpc_id=place.vpc,
            security_group_ingress=[
                {
                    "ipProtocol": "tcp",
                    "fromPort": STORE_PORT,
                    "toPort": STORE_PORT,
                    "sourceSecurityGroupId": self.imported(f"{client}-group"),
                    "description": client,
                }
                for client in CLIENTS
            ],
            security_group_egress=[
                {
                    "ipProtocol": "tcp",
                    "fromPort": STORE_PORT,
                    "toPort": STORE_PORT,
                    "cidrIp": place.cidr,
                    "description": "its own copies",
                }
            ],
        )

    def _subnets(self, place: Place) -> str:
        group = aws_elasticache.CfnSubnetGroup(
            self,
            "Subnets",
            cache_subnet_group_name=self.blueprint.name(STORE),
            description=f"MArk {self.blueprint.service}",
            subnet_ids=place.subnets,
        )
        return group.ref

    def _parameters(self, family: str) -> str:
        group = aws_elasticache.CfnParameterGroup(
            self,
            "Parameters",
            cache_parameter_group_family=family,
            description=f"MArk {self.blueprint.service}: nothing is evicted",
            properties=NOTHING_EVICTED,
        )
        return group.ref

    def _replication_group(self, users: aws_elasticache.CfnUserGroup) -> aws_elasticache.CfnReplicationGroup:
        place, store = Place(self), self.blueprint.rollout.store
        reach = self._reach(place)
        version, family = ENGINES[store.engine]
        copies = store.replicas > 0
        group = aws_elasticache.CfnReplicationGroup(
            self,
            "Store",
            replication_group_id=store_id(self.blueprint),
            replication_group_description=f"MArk {self.blueprint.service}: store",
            engine=store.engine,
            engine_version=version,
            cache_parameter_group_name=self._parameters(family),
            cache_node_type=store.node_type,
            num_cache_clusters=1 + store.replicas,
            automatic_failover_enabled=copies,
            multi_az_enabled=copies,
            at_rest_encryption_enabled=True,
            transit_encryption_enabled=True,
            user_group_ids=[users.ref],
            port=STORE_PORT,
            cache_subnet_group_name=self._subnets(place),
            security_group_ids=[reach.attr_group_id],
            snapshot_retention_limit=1,
        )
        excuse(
            group,
            "nobody but its clients' security groups reaches the port",
            nag=("AwsSolutions-AEC5",),
        )
        excuse(
            group,
            "each role is a user with a password of its own, which an AUTH token for all would undo",
            nag=("AwsSolutions-AEC6",),
        )
        if not copies:
            excuse(group, "rollout.store.replicas is 0", nag=("AwsSolutions-AEC4",))
        return group


def _excuse_secret(secret: aws_secretsmanager.CfnSecret) -> None:
    excuse(secret, NO_ROTATION, nag=("AwsSolutions-SMG4",))
    excuse(secret, OWN_KEY, checkov=("CKV_AWS_149",))
