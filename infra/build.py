"""The app: all stacks of a service in the order in which they are deployed."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from aws_cdk import App, Validations
from cdk_nag import AwsSolutionsChecks

from mark.infra.blueprint import Blueprint
from mark.infra.stack import ServiceStack
from mark.infra.stacks.archive import ArchiveStack
from mark.infra.stacks.control import ControlStack
from mark.infra.stacks.events import EventsStack
from mark.infra.stacks.functions import FunctionsStack
from mark.infra.stacks.gateways import GatewaysStack
from mark.infra.stacks.launch import LaunchStack
from mark.infra.stacks.network import NetworkStack
from mark.infra.stacks.nodes import NodesStack
from mark.infra.stacks.reports import ReportsStack
from mark.infra.stacks.state import StateStack
from mark.infra.stacks.watch import WatchStack


def build(app: App, blueprint: Blueprint) -> tuple[ServiceStack, ...]:
    """The stacks, each depending on the one before."""
    stacks: list[ServiceStack] = [ArchiveStack(app, blueprint=blueprint)]
    if blueprint.rollout.network.vpc is None:
        stacks.append(NetworkStack(app, blueprint=blueprint))
    stacks += [kind(app, blueprint=blueprint) for kind in (LaunchStack, StateStack, EventsStack, FunctionsStack)]
    if blueprint.lean:
        stacks.append(NodesStack(app, blueprint=blueprint))
    else:
        # gateways read once, as they start, what controllers say that is served
        stacks += [ControlStack(app, blueprint=blueprint), GatewaysStack(app, blueprint=blueprint)]
    if blueprint.mails:
        stacks.append(ReportsStack(app, blueprint=blueprint))
    stacks.append(WatchStack(app, blueprint=blueprint))
    for earlier, later in pairwise(stacks):
        later.add_stack_dependency(earlier)
    return tuple(stacks)


def synthesise(blueprint: Blueprint, folder: Path) -> tuple[str, ...]:
    """Write the stacks' templates, checked by cdk-nag's AWS Solutions; their names in order of deployment."""
    app = App(outdir=str(folder), analytics_reporting=False, context={"aws:cdk:disable-asset-staging": True})
    stacks = build(app, blueprint)
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    app.synth()
    return tuple(stack.stack_name for stack in stacks)
