"""The policy of the learned rule, from the file that settings name: the same for a replay and a live service."""

from __future__ import annotations

from collections.abc import Callable

from mark.config.settings import USUAL_QOS_POLICY, Settings
from mark.dispatch.variants.qos import QosPool
from mark.dispatch.variants.qos_policy import QosNetwork
from mark.simulator.qos.checkpoint import Made, Progress, read_checkpoint, train_command


def learned_policy(settings: Settings, pool: QosPool) -> tuple[Progress, Made]:
    """The training in that file. Errors: Misconfigured where it is not for this pool."""
    return read_checkpoint(settings.qos_policy or USUAL_QOS_POLICY, pool, train_command(settings.model))


def policy_reader(settings: Settings) -> Callable[[QosPool], QosNetwork]:
    """Reads the weights for a pool."""

    def read(pool: QosPool) -> QosNetwork:
        return learned_policy(settings, pool)[0].best

    return read
