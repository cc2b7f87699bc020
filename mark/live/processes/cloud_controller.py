"""A controller's process on an instance in AWS.

The rollout's templates say in its environment what one on a single machine reads from its folder: MARK_SETTINGS
(JSON), MARK_FILES (the files that these name, where they name any), MARK_STORE_URL, MARK_EVENTS_URL,
MARK_TEMPLATES ("role/machine" -> launch template), MARK_VERSION (what new instances run), MARK_VERSIONS (model ->
the version with which it begins, its backend with it, whether its functions answer as versions, and inputs and
outputs of one that only its own packages load), MARK_SUBNETS
([[zone, subnet]]), MARK_OWNER and MARK_BUCKET. Where nodes hold the store (MARK_STORE_URL begins with
rediss+lease), it has MARK_ZONE and MARK_HOST, the name that clients call, MARK_PUBLIC where these come from the
internet, and MARK_SNAPSHOT where a report is mailed. MARK_QUALIFIER, where it is set, is the functions' alias that
has MARK_PROVISIONED provisioned environments.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from mark.aws.client_tokens import AGAIN_S, READ_EACH_S, valid_passwords
from mark.aws.dns import put_addresses
from mark.aws.ec2.inventory import public_addresses
from mark.aws.lease_table import LeaseTable
from mark.aws.session import Aws, AwsSettings
from mark.config.carried import carried_settings
from mark.config.policies import usable_cache
from mark.config.settings import Settings
from mark.domain.errors import RetryLater
from mark.domain.tensor import TensorSpec
from mark.live.backend_specs import Tensors
from mark.live.background.cloudwatch import watch_metrics
from mark.live.background.failures import BackgroundFailures
from mark.live.background.node_health import node_health
from mark.live.clock import adopt_wall
from mark.live.cloud_process import exit_after, own_address, required_variable
from mark.live.control.entry import front_of
from mark.live.control.leadership.leader_election import Leader, make_forecasters
from mark.live.control.leadership.node import AgentsPasswords, NodesName, StoreNode
from mark.live.local.process_start import set_on_signal
from mark.live.local.running import Running
from mark.live.models import NOTHING, LiveModel, make_live_models, service_spec
from mark.live.store_link import SOON, at_node, follows_lease, open_link, port_of, table_of
from mark.service_spec import BackendKind, BackendSpec, ServedModel, ServiceSpec
from mark.store.connect import Link, connect
from mark.store.published_status import RESOURCES, PublishedResources
from mark.store.replication import NodeStore
from mark.store.service import ServiceStore
from mark.store.users import StoreUser, for_user
from mark.telemetry.structured_logs import log_json


def main(environment: Mapping[str, str]) -> int:
    """Act until SIGTERM, whenever this controller leads; the exit code."""
    log_json("controller")
    settings, running = deployed(environment)
    _control(settings, running, environment)
    return 0


def deployed(environment: Mapping[str, str]) -> tuple[Settings, Running]:
    """The settings, and where the service's parts are. AWS is where boto3 finds it."""
    carried = environment.get("MARK_FILES", "")
    folder = usable_cache() / "carried" if carried else Path()
    settings = carried_settings(required_variable(environment, "MARK_SETTINGS"), carried, folder)
    store = required_variable(environment, "MARK_STORE_URL")
    return settings, Running(name=settings.service.name, pid=os.getpid(), store=store)


def resources(environment: Mapping[str, str]) -> PublishedResources:
    """The resources that controllers read from the store."""
    subnets: list[tuple[str, str]] = json.loads(environment.get("MARK_SUBNETS", "[]"))
    return PublishedResources(
        events_url=required_variable(environment, "MARK_EVENTS_URL"),
        bucket=required_variable(environment, "MARK_BUCKET"),
        templates=json.loads(required_variable(environment, "MARK_TEMPLATES")),
        subnets=tuple((zone, subnet) for zone, subnet in subnets),
        owner=required_variable(environment, "MARK_OWNER"),
        tags=json.loads(environment.get("MARK_TAGS", "{}")),
        version=environment.get("MARK_VERSION", ""),
        snapshot=bool(environment.get("MARK_SNAPSHOT")),
    )


def known_tensors(environment: Mapping[str, str]) -> dict[str, Tensors]:
    """Inputs and outputs of the models that only their own packages load."""
    told = json.loads(environment.get("MARK_VERSIONS", "{}"))
    return {name: _tensors(one["tensors"]) for name, one in told.items() if "tensors" in one}


def _tensors(told: Sequence[Sequence[Mapping[str, Any]]]) -> Tensors:
    inputs, outputs = (
        tuple(TensorSpec(name=one["name"], datatype=one["datatype"], shape=tuple(one["shape"])) for one in group)
        for group in told
    )
    return inputs, outputs


def live_models(
    settings: Settings, qualifier: str, provisioned: int = 0, known: Mapping[str, Tensors] = NOTHING
) -> tuple[LiveModel, ...]:
    """The models; their functions by the alias, where there is one, with what is provisioned behind it.

    known: as in `make_live_models`.
    """
    models = make_live_models(settings, known)
    return tuple(_aliased(model, qualifier, provisioned) for model in models) if qualifier else models


def in_versions(models: Sequence[LiveModel], environment: Mapping[str, str]) -> tuple[LiveModel, ...]:
    """The models, told whose functions answer as versions."""
    told = json.loads(environment.get("MARK_VERSIONS", "{}"))
    having = {name for name, one in told.items() if one.get("function_versions")}
    return tuple(
        replace(model, served=replace(model.served, function_versions=model.name in having)) for model in models
    )


def first_versions(models: Sequence[LiveModel], environment: Mapping[str, str]) -> tuple[ServedModel, ...]:
    """The versions with which models begin where they are told apart."""
    told = json.loads(environment.get("MARK_VERSIONS", "{}"))
    return tuple(_first_version(model.served, **told[model.name]) for model in models if model.name in told)


def _first_version(
    served: ServedModel, *, version: str, kind: BackendKind, target: str, folder: str, **flags: Any
) -> ServedModel:
    for taken in ("function_versions", "tensors"):  # by `in_versions` and `known_tensors`
        flags.pop(taken, None)
    backend = BackendSpec(kind=kind, target=target, folder=folder, **flags)
    return replace(served, version=version, backend=backend)


def _aliased(model: LiveModel, qualifier: str, provisioned: int) -> LiveModel:
    served = model.served
    overflow = served.overflow and replace(served.overflow, provisioned=provisioned)
    return replace(model, served=replace(served, function=f"{served.function}:{qualifier}", overflow=overflow))


def _control(settings: Settings, running: Running, environment: Mapping[str, str]) -> None:
    """Act whenever the lease can be had; say what the service is then.

    Not before: the store must keep what an older release said when a newer one starts and fails.
    """
    stop = set_on_signal(signal.SIGTERM)
    provisioned = int(environment.get("MARK_PROVISIONED", "0"))
    known = known_tensors(environment)
    models = live_models(settings, environment.get("MARK_QUALIFIER", ""), provisioned, known)
    models = in_versions(models, environment)
    holder = f"{socket.gethostname()}.{os.getpid()}"
    store, node = _store(settings, running, environment, holder, models)
    with suppress(RetryLater) if node is not None else nullcontext():  # before the first leader there is no store
        adopt_wall(store)
    spec, parts = service_spec(settings, models), resources(environment)
    versions = first_versions(models, environment)

    def publish() -> None:
        store.put_spec(spec)
        store.continue_versions(versions, spec)
        RESOURCES.write(store, parts)

    failures = BackgroundFailures(store, holder)
    leader = Leader(
        settings,
        running,
        models,
        store=store,
        holder=holder,
        failures=failures,
        forecasters=make_forecasters(models, settings, running, store),
        publish=publish,
        node=node,
    )
    certificate = environment.get("MARK_TLS_CERTIFICATE")
    chain = Path(certificate) if certificate else None
    health: Callable[[float], Mapping[str, float]] = lambda _: {}  # noqa: E731 - of a controller without a node
    if node is not None:
        health = partial(node_health, node.store, chain)
    measuring = threading.Thread(target=_measure, args=(spec, store, holder, stop, failures, health), daemon=True)
    measuring.start()
    if node is not None and node.passwords is not None:
        threading.Thread(target=node.passwords.run, args=(stop,), daemon=True).start()
    leader.run(stop)


def _store(
    settings: Settings,
    running: Running,
    environment: Mapping[str, str],
    holder: str,
    models: Sequence[LiveModel],
) -> tuple[ServiceStore, StoreNode | None]:
    """The store, and this node where the nodes hold it."""
    url, service = running.store, running.name
    if not follows_lease(url):
        return ServiceStore(connect(url), service), None
    aws = Aws(AwsSettings(region=settings.service.aws.region, role="node", **SOON))
    address = own_address(environment)
    if address is None:
        raise RetryLater("the metadata service does not say which address this node has")
    table = LeaseTable(aws.tables, table_of(url)[0], address=address)
    store = ServiceStore(open_link(url), service, leases=table, tail=table)
    zone, host = required_variable(environment, "MARK_ZONE"), required_variable(environment, "MARK_HOST")
    failures = BackgroundFailures(store, holder)

    def put(weights: Mapping[str, int]) -> None:
        if environment.get("MARK_PUBLIC"):
            seen = public_addresses(aws, service, weights)
            weights = {seen[address]: weight for address, weight in weights.items() if address in seen}
        if not weights:
            raise RetryLater("EC2 does not know the nodes' public addresses yet")
        put_addresses(aws.names, zone, host, weights)

    name = NodesName(
        store.gateways,
        front_of(store, models, is_steered=True).shares,
        put,
        partial(failures.record, "keeping the nodes' name in DNS"),
    )

    def link_to(node: str) -> Link:
        return connect(for_user(at_node(url, node), StoreUser.NODE))

    def grant(leader: str) -> None:
        with closing(link_to(leader)) as link:
            NodeStore(link, port_of(url)).grant(service)

    own = NodeStore(link_to(address), port_of(url))
    passwords = AgentsPasswords(
        own,
        partial(valid_passwords, aws, service),
        partial(failures.record, "reading the agents' passwords"),
        each_s=READ_EACH_S,
        again_s=AGAIN_S,
    )
    return store, StoreNode(own, address=address, leader=table.leader, name=name, passwords=passwords, grant=grant)


def _measure(
    spec: ServiceSpec,
    store: ServiceStore,
    holder: str,
    stop: threading.Event,
    failures: BackgroundFailures,
    health: Callable[[float], Mapping[str, float]],
) -> None:
    record = partial(failures.record, "sending metrics to CloudWatch")
    lines = watch_metrics(
        spec.name, spec.models, store, holder=holder, stop=stop, shared=spec.shared, beside=health, record=record
    )
    for line in lines:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    exit_after(main)
