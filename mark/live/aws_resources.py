"""Resources of a service in its AWS account: launch templates, queues, rules and functions."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from typing import TypedDict

from mark.aws.ec2.inventory import default_subnets
from mark.aws.provision import ServiceResources, ServiceSetup, set_up, tear_down
from mark.aws.resources import INFER_TIMEOUT_S, LambdaSpec, describe
from mark.aws.session import Aws
from mark.cloudmodel.world import World
from mark.config.rollout import RolloutSettings
from mark.config.settings import Settings
from mark.config.training import trains_in_function
from mark.domain.documents import json_text
from mark.domain.fleet.instances import Role
from mark.domain.tensor import TensorSpec
from mark.live.local.running import Running
from mark.service_spec import ServedModel
from mark.store.published_status import PublishedResources
from mark.store.users import StoreUser

MODEL_FOLDER = "MARK_BACKEND_FOLDER"
"""Path of a user's modules for a function on this machine; in an account they are in its zip or image."""
OWN_VERSION = "MARK_BACKEND_VERSION"
"""The version that a function's own files are: in an account nobody knows that of a zip or an image."""
IMAGE = "ami-0123456789abcdef0"
"""Any image will do where instances are processes."""
OWNED_BY = "mark"
"""Owner of what stands on this machine."""


def make_resources(
    aws: Aws, running: Running, models: Sequence[ServedModel], settings: Settings
) -> ServiceResources:
    """Make what the service needs, as its rollout's stacks do."""
    infer = [function_of(served) for served in models if served.overflow is not None]
    wanted = describe(
        running.name,
        on_this_machine(settings.rollout),
        infer,
        store="MARK_STORE_URL",
        trains=trains_in_function(settings),
    )
    setup = ServiceSetup(
        resources=wanted,
        agents_store=running.store_for(StoreUser.AGENT),
        reports_store=running.store_for(StoreUser.REPORT),
        image_id=IMAGE,
        code=_stub(),
    )
    return set_up(aws, setup)


def on_this_machine(rollout: RolloutSettings) -> RolloutSettings:
    """The settings of a rollout as far as they are true here.

    Nobody but this machine owns what stands on it, and no bill has its nodes and gateways.
    """
    report = rollout.report.model_copy(update={"reconcile": False})
    return rollout.model_copy(update={"owner": OWNED_BY, "report": report})


def remove_resources(aws: Aws, service: str) -> None:
    """End its instances and remove what was made."""
    tear_down(aws, service)


def subnets_of(aws: Aws, world: World) -> tuple[tuple[str, str], ...]:
    """The default network's subnet in each zone of the world; none where it tells no zones apart."""
    zones = tuple(filter(None, world.zones))
    return tuple(one for one in sorted(default_subnets(aws).items()) if zones and one[0].endswith(zones))


def published_resources(
    resources: ServiceResources, rollout: RolloutSettings, subnets: Sequence[tuple[str, str]] = ()
) -> PublishedResources:
    """The resources as controllers read them from the store. subnets: by zone; none where zones are one."""
    return PublishedResources(
        events_url=resources.events_url,
        bucket=resources.bucket,
        subnets=tuple(subnets),
        templates={f"{role.value}/{machine}": name for (role, machine), name in resources.templates.items()},
        owner=OWNED_BY,
        tags=rollout.tags,
    )


class LaunchSetup(TypedDict):
    """The part of a FleetSetup that all models of a service share."""

    #: By role and kind of machine.
    templates: Mapping[tuple[Role, str], str]
    #: By zone.
    subnets: tuple[tuple[str, str], ...]
    owner: str
    #: The owner's own.
    tags: Mapping[str, str]
    #: What new instances run: see `RolloutSettings.agent_version`.
    version: str


def launches_of(resources: PublishedResources) -> LaunchSetup:
    """The launch setup of a service with these resources."""
    templates = {name.partition("/"): template for name, template in resources.templates.items()}
    return {
        "templates": {(Role(role), machine): template for (role, _, machine), template in templates.items()},
        "subnets": resources.subnets,
        "owner": resources.owner,
        "tags": resources.tags,
        "version": resources.version,
    }


def function_of(served: ServedModel) -> LambdaSpec:
    """The model as a function, its backend told by its environment."""
    overflow = served.overflow
    assert overflow is not None
    return LambdaSpec(
        role="infer",
        model=served.name,
        name=served.function,
        memory_mib=round(overflow.memory_gib * 1024),
        timeout_s=INFER_TIMEOUT_S,
        environment={
            "MARK_MODEL": served.name,
            "MARK_BACKEND_KIND": served.backend.kind,
            "MARK_BACKEND_TARGET": served.backend.target,
            **({MODEL_FOLDER: served.backend.folder} if served.backend.folder else {}),
            **({OWN_VERSION: served.version} if served.version else {}),
            "MARK_EMULATED_LATENCY_S": repr(overflow.latency_s),
            "MARK_EMULATED_CV": repr(overflow.cv),
            "MARK_INPUTS": _tensors_variable(served.inputs),
            "MARK_OUTPUTS": _tensors_variable(served.outputs),
        },
        has_versions=served.function_versions,
    )


def _tensors_variable(tensors: Sequence[TensorSpec]) -> str:
    return json_text([{"name": t.name, "datatype": t.datatype, "shape": list(t.shape)} for t in tensors])


def _stub() -> bytes:
    """A zip that says where the code is: on this machine handlers are imported from where they are installed."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("README.txt", "The handler is imported from mark.lambda_handlers, as it is installed.\n")
    return packed.getvalue()
