"""An agent's process: who it is it learns from the instance metadata service, everything else from the store.

`run` is what an instance's image starts; its answer is the exit code, 0 for a power-off.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

import uvloop

from mark.app.plugins import load_model
from mark.app.processes.lifeline import begin
from mark.aws.imds import ENDPOINT, Identity, Imds
from mark.domain.clock import ClockAnchor
from mark.domain.errors import RetryLater
from mark.domain.fleet import Role
from mark.serving.agent import AgentConfig, serve_agent
from mark.serving.backends.factory import make_backend
from mark.store.connect import connect_async
from mark.store.data_plane import AgentStore

LOOK_EACH_S = 0.25
"""Real seconds between two looks for a spot notice, and at the clock."""


def run(environment: Mapping[str, str]) -> int:
    """Be the agent of this instance until it is drained."""
    endpoint = environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or ENDPOINT
    imds = Imds(endpoint)
    identity = imds.identity()
    begin(identity.instance)
    try:
        return uvloop.run(_serve(identity, imds))
    finally:
        imds.close()
